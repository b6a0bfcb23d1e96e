"""Every statement's file: its header against its text, and what psycopg2 would trip over."""

import re

import psycopg2
import pytest

from reaper import sql

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_PARAMETER = re.compile(r"--   (\w+(?:, \w+)*)\s+\S")
_QUOTED = re.compile(r"'(?:[^']|'')*'")
_DOLLARS = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)

SEVERAL = {
    "create_schema": "asks first whether it may",
    "explain_expired": "plans with another setting",
    "grant_rights": "hands its parameters to a DO block",
    "job_tables": "a migration's part",
    "lock_migration": "waits longer than other statements",
}
"""Files of more than one statement, and why; all others are exactly one."""


def header(name):
    """The comment lines the file begins with."""
    lines = sql.source(name).splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return lines[:end]


def section(name, title):
    """A section of the header: its first line and the indented ones after it, joined."""
    lines = header(name)
    found = [n for n, line in enumerate(lines) if re.search(rf"(^-- |\. ){title}\b", line)]
    assert found, f"{name}.sql says nothing about {title}"
    first = found[0]
    rest = []
    for line in lines[first + 1 :]:
        if re.match(r"-- (Returns|Locks|Index)\b", line):
            break
        rest.append(line)
    return lines[first], rest


@pytest.mark.parametrize("name", sql.names())
def test_header_says_what_the_statement_does_and_what_it_touches(name):
    first, *others = header(name)
    assert re.match(r"-- [A-Z]", first), "the first line says what it does to which rows"
    assert "--" in others, "an empty line ends the first paragraph"
    whole = "\n".join(header(name))
    order = [whole.find(title) for title in ("\n-- Parameters", "\n-- Returns", "Locks:", "Index:")]
    assert -1 not in order, f"{name}.sql: Parameters, Returns, Locks and Index, in this order"
    assert order == sorted(order)


@pytest.mark.parametrize("name", sql.names())
def test_parameters_of_the_header_are_the_placeholders_of_the_statement(name):
    line, block = section(name, "Parameters")
    named = []
    if not re.match(r"-- Parameters: none", line):
        assert line == "-- Parameters"
        for entry in block:
            if match := _PARAMETER.match(entry):
                named += match[1].split(", ")
    assert len(named) == len(set(named))
    assert set(named) == set(_PLACEHOLDER.findall(sql.load(name)))


@pytest.mark.parametrize("name", sql.names())
def test_statement_holds_nothing_that_psycopg2_or_the_preamble_trips_over(name):
    text = sql.load(name)
    assert "--" not in text
    assert "/*" not in text
    bare = _DOLLARS.sub("", text)
    for quoted in _QUOTED.findall(bare):
        assert not _PLACEHOLDER.search(quoted), f"a placeholder inside quotes: {quoted}"
    assert not re.search(r"%(?!\(\w+\)s)", text.replace("%%", "")), (
        "a per cent sign that is no placeholder"
    )
    assert (";" in _QUOTED.sub("", bare)) == (name in SEVERAL), "one statement per file"


def test_comments_are_all_the_loader_takes_away():
    for name in sql.names():
        words = " ".join(re.sub(r"(?m)(^|\s+)--.*$", "", sql.source(name)).split())
        assert " ".join(sql.load(name).split()) == words.rstrip(";").strip(), name


def test_index_of_the_header_exists(dsn):
    """A header that names an index, a table or a column names one that is there."""
    connection = psycopg2.connect(dsn)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class UNION SELECT attname FROM pg_attribute"
            " UNION SELECT proname FROM pg_proc"
        )
        known = {row[0] for row in cursor.fetchall()}
    connection.close()
    for name in sql.names():
        whole = " ".join(line.removeprefix("--").strip() for line in header(name))
        index = whole[whole.index("Index:") :]
        for word in re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", index):
            assert word in known, f"{name}.sql names {word}"


def test_migrations_are_numbered_without_a_gap():
    versions = [version for version, _ in sql.migrations()]
    assert versions == list(range(1, len(versions) + 1))


def test_loader_refuses_a_name_it_does_not_have():
    with pytest.raises(FileNotFoundError):
        sql.load("no_such_statement")
