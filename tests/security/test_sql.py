"""SQL is built from no string: every statement is a file, a constant or a name bound to one."""

import ast
import re
from pathlib import Path

import pytest

from tests.harness.processes import ROOT

STORE = sorted((ROOT / "reaper" / "store").glob("*.py"))
SENDERS = {"execute", "executemany", "run", "_run", "copy_expert", "mogrify", "callproc"}
_SQL = re.compile(
    r"\s*(WITH|SELECT|INSERT|UPDATE|DELETE|ALTER|CREATE|DROP|GRANT|REVOKE|SET|BEGIN|COMMIT)\s"
)
"""A text that begins as a statement does; sentences that only mention one are no statements."""


def _text_of(node: ast.AST) -> str:
    return " ".join(
        child.value
        for child in ast.walk(node)
        if isinstance(child, ast.Constant) and isinstance(child.value, str)
    )


@pytest.mark.parametrize("path", STORE, ids=lambda path: path.name)
def test_statements_are_names_or_constants_where_they_are_sent(path: Path):
    """Every argument that PostgreSQL is sent is a name, a constant, or a sum of such."""
    found = 0
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in SENDERS and node.args:
            found += 1
            assert _is_fixed(node.args[0]), f"{path.name}:{node.lineno}"
    if path.name == "connection.py":
        assert found >= 5  # the test looks at something


def _is_fixed(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str()) | ast.Name():
            return True
        case ast.BinOp(op=ast.Add()):
            return _is_fixed(node.left) and _is_fixed(node.right)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="sql"), attr="load")):
            return len(node.args) == 1 and isinstance(node.args[0], ast.Name | ast.Constant)
    return False


@pytest.mark.parametrize("path", STORE, ids=lambda path: path.name)
def test_no_statement_is_put_together_from_values(path: Path):
    """No f-string, % or format() in the store makes SQL, not even behind a name."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        is_built = (
            isinstance(node, ast.JoinedStr)
            or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod))
            or (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in {"format", "format_map", "replace", "join"}
            )
        )
        if is_built:
            assert not _SQL.match(_text_of(node)), f"{path.name}:{node.lineno}"


def test_the_check_would_find_sql_made_of_strings():
    built = ast.parse('cursor.execute(f"SELECT {name}")').body[0].value  # type: ignore[attr-defined]
    assert not _is_fixed(built.args[0])
    assert _SQL.match(_text_of(built))
