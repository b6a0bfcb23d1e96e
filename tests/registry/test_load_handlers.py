"""Handler modules are imported by name; one that does not import says why and where."""

import sys

import pytest

from reaper import registry as module
from reaper.errors import RegistryError
from reaper.registry import JobRegistry, load_handlers


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a module into the current directory; return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(module, "registry", JobRegistry())
    before = set(sys.modules)

    def write_module(text: str, name: str = "handlers_of_a_test") -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    yield write_module
    for name in set(sys.modules) - before:
        del sys.modules[name]


GOOD = """
from reaper import on_dead_letter

@on_dead_letter("demo")
def demo(context, payload, dead_letter): ...
"""


def test_modules_are_found_in_the_current_directory(write):
    assert load_handlers([write(GOOD)]) == ["demo"]
    assert load_handlers([write(GOOD)]) == ["demo"]


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("\n\n1 / 0", "ZeroDivisionError: division by zero ("),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("import sys; sys.exit('bye')", "SystemExit: bye"),
        ("raise BaseException('odd')", "BaseException: odd"),
    ],
)
def test_module_that_does_not_import_is_named_with_the_reason(write, text, because):
    """Case 28: the module's name and the reason, and where."""
    name = write(text)
    with pytest.raises(RegistryError) as caught:
        load_handlers([name])
    sentence = str(caught.value)
    assert sentence.startswith(f"handler module {name!r} (REAPER_HANDLERS) does not import: ")
    assert because in sentence
    assert sentence.endswith("mend it, or take it out of REAPER_HANDLERS")


def test_module_that_is_not_there_is_named(write):
    with pytest.raises(RegistryError, match="'no_such_module_at_all'"):
        load_handlers(["no_such_module_at_all"])


def test_line_that_raised_is_named(write, tmp_path):
    name = write("\n\n\nraise ValueError('no')")
    with pytest.raises(RegistryError, match=rf"ValueError: no \({tmp_path}/{name}\.py:4\)"):
        load_handlers([name])


def test_password_in_the_reason_is_masked(write):
    name = write("raise OSError('no answer from postgresql://me:secret@host/db')")
    with pytest.raises(RegistryError) as caught:
        load_handlers([name])
    assert "secret" not in str(caught.value)


def test_two_modules_with_one_type_are_refused_with_both_places(write):
    names = [write(GOOD), write(GOOD, "handlers_of_another")]
    with pytest.raises(RegistryError, match="job type 'demo' has two handlers") as caught:
        load_handlers(names)
    assert all(f"{name}.demo" in str(caught.value) for name in names)
