"""What psycopg2 raises, as reaper's own errors: one sentence, nothing that could quote a row."""

import psycopg2

from reaper.errors import SchemaError, StoreError
from reaper.urls import mask

_TEXT_SAFE_CLASSES = frozenset({"08", "25", "28", "3D", "3F", "40", "42", "53", "55", "57", "58"})
"""SQLSTATE classes whose primary message never quotes a row's contents."""

_MISSING = frozenset({"42P01", "3F000", "42704", "42703"})
_NO_RIGHT = "42501"
READ_ONLY = "25006"

_CURES = {
    _NO_RIGHT: "the owner of the schema gives REAPER_DATABASE_URL's role its rights with "
    "`reaper migrate --grant ROLE`",
    READ_ONLY: "point REAPER_DATABASE_URL at the primary, several hosts with "
    "target_session_attrs=read-write find it; or turn default_transaction_read_only off",
}


def named(error: psycopg2.Error) -> StoreError:
    """Return `error` as one of ours."""
    state = error.pgcode
    if state is None:
        return unreachable(error)
    kind = type(error).__name__
    constraint = error.diag.constraint_name
    said = mask(error.diag.message_primary or "") if state[:2] in _TEXT_SAFE_CLASSES else ""
    message = f"PostgreSQL refused a statement: {kind} (SQLSTATE {state})"
    message += f", constraint {constraint}" if constraint else ""
    message += f": {said}" if said else ""
    if state in _MISSING:
        return SchemaError(f"{message}; run `reaper migrate`", sqlstate=state)
    message += f"; {_CURES[state]}" if state in _CURES else ""
    return StoreError(message, sqlstate=state, constraint=constraint)


def unreachable(error: psycopg2.Error) -> StoreError:
    """Return the error of a connection that was not made or broke: a line for each host tried."""
    reasons = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = mask("; ".join(dict.fromkeys(reasons))) or "no reason given"
    if not isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError):
        return StoreError(f"psycopg2 refused a statement: {type(error).__name__}")
    return StoreError(
        f"PostgreSQL cannot be reached: {said}; check REAPER_DATABASE_URL and that the server is "
        "up",
        sqlstate=error.pgcode,
    )
