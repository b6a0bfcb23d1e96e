"""The SQL statements, one file each, and their loader. Must not import psycopg2.

A file begins with a comment header: what the statement does to which rows and why it is safe to
repeat, its parameters with units, what it returns, the locks in their order, and the index that
serves it. The loader strips comments, because psycopg2 looks for placeholders in them too.
"""

import functools
import re
from importlib import resources

_COMMENT = re.compile(r"^\s*--.*\n?|\s+--\s.*$", re.MULTILINE)


@functools.cache
def load(name: str) -> str:
    """Return the statement `name` without its comments. Read once per process.

    Raises:
        FileNotFoundError: no such statement; a programming error.
    """
    return _COMMENT.sub("", source(name)).strip().rstrip(";")


def source(name: str) -> str:
    """Return the file of statement `name` as it is, header included."""
    return resources.files(__name__).joinpath(f"{name}.sql").read_text("utf-8")


def names() -> list[str]:
    """Return the names of all statements."""
    return sorted(
        entry.name.removesuffix(".sql")
        for entry in resources.files(__name__).iterdir()
        if entry.name.endswith(".sql")
    )


def migrations() -> list[tuple[int, str]]:
    """Return the migrations of the schema `reaper` in order: (version, SQL)."""
    files = [f for f in resources.files(__name__).joinpath("schema").iterdir() if f.is_file()]
    return sorted((int(f.name[:3]), _COMMENT.sub("", f.read_text("utf-8"))) for f in files)
