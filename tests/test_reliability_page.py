"""docs/reliability.md names every scenario and the tests that hold it."""

from pathlib import Path

from tests.harness.cases import held_by, table
from tests.harness.processes import ROOT


def test_every_case_is_held_by_a_test():
    assert [number for number, tests in held_by().items() if not tests] == []


def test_reliability_page_lists_the_tests_of_each_case():
    """`python -m tests.harness.cases` prints the table of the page."""
    assert table() in Path(ROOT, "docs", "reliability.md").read_text("utf-8")
