"""Database and broker URLs: what is wrong with one, and how one is shown. Opens no connection.

A password that is not percent-encoded moves the boundaries of a URL, so that drivers take a part
of it for a host or a port and print it in their errors. Such URLs are refused before that.
"""

import re
from urllib.parse import urlsplit

from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES

_DSN_PAIR = r"""\s*\w+\s*=\s*(?:'(?:\\.|[^'\\])*'|(?:\\.|[^\s'\\])(?:\\.|[^\s\\])*)?\s*"""
_DSN = re.compile(rf"(?:{_DSN_PAIR})+", re.DOTALL)
_POSTGRES_SCHEME = re.compile(r"postgres(ql)?://")
_BLANK = re.compile(r"\s")
_NEXT_URL = re.compile(r";(?=[\w+]+://)")

_URL_PASSWORD = re.compile(r"(://[^/@\s:]*:)(?:(?!;[\w+]+://)\S)*(@)")
_NAMED_PASSWORD = re.compile(
    r"""(password["']?\s*[=:]\s*)('(?:\\.|[^'\\])*'|"[^"]*"|(?:\\.|[^\s&,;'"\\])+)""", re.IGNORECASE
)
_WHOLE_URL_PASSWORD = re.compile(r"(://[^/@:]*:)(?:(?!;[\w+]+://).)*(@)", re.DOTALL)
_REST_AFTER_PASSWORD = re.compile(r"(password\s*=).*", re.IGNORECASE | re.DOTALL)

_ENCODE = "an @, /, : or blank in its user name or password must be written %40, %2F, %3A or %20"


def mask(text: str) -> str:
    """Return `text` with the passwords of the URLs and DSNs in it replaced by `***`."""
    return _NAMED_PASSWORD.sub(r"\1***", _URL_PASSWORD.sub(r"\1***\2", text))


def mask_value(value: str) -> str:
    """Return one setting's value for an error message: as `mask`, and safe for malformed ones."""
    if "://" in value:
        return mask(_WHOLE_URL_PASSWORD.sub(r"\1***\2", value))
    return mask(value) if _DSN.fullmatch(value) else _REST_AFTER_PASSWORD.sub(r"\1***", value)


def database_fault(value: str) -> str | None:
    """Return why `value` is no PostgreSQL URL or libpq DSN, or None. libpq has the last word."""
    if not _POSTGRES_SCHEME.match(value):
        return None if _DSN.fullmatch(value) else "it is neither a URL nor pairs of keyword=value"
    rest = value.partition("://")[2]
    if _is_ambiguous(rest) or _BLANK.search(value):
        return _ENCODE
    hosts = re.split(r"[/?]", rest, maxsplit=1)[0].rpartition("@")[2].split(",")
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    if not all(port == "" or _is_port(port) for port in ports):
        return "its port is not a number from 1 to 65535"
    return None


def broker_fault(value: str) -> str | None:
    """Return why `value` is no broker URL Celery knows, or None. Several are divided by `;`."""
    for url in _NEXT_URL.split(value):
        scheme, colon, rest = url.partition("://")
        if not colon:
            return "it is no URL"
        if scheme.partition("+")[0] not in TRANSPORT_ALIASES:
            return f"Celery knows no transport {scheme!r}"
        if _is_ambiguous(rest) or _BLANK.search(url):
            return _ENCODE
        try:
            _ = urlsplit(f"http://{rest}").port
        except ValueError:
            return "its port is not a number from 1 to 65535"
    return _kombu_fault(value)


def _kombu_fault(value: str) -> str | None:
    """What kombu says about it: options it does not know, a transport whose package is missing."""
    try:
        Connection(value)  # reads the URL, connects to nothing
    except ImportError as error:
        return f"its transport needs a package that is not installed: {error.name}"
    except Exception as error:  # noqa: BLE001 -- each transport reads its own options
        return f"kombu cannot read it ({type(error).__name__}), look at what follows the ?"
    return None


def _is_ambiguous(rest: str) -> bool:
    """Whether drivers would end the user and password of `rest` (after ://) at the wrong sign."""
    before_query = rest.partition("?")[0]
    authority, _, path = before_query.partition("/")
    return before_query.count("@") > 1 or ("@" in path and ":" in authority)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text) <= 65_535  # noqa: PLR2004 -- TCP's
