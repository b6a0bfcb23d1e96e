"""What is built: every statement is in the wheel and loads from it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reaper import sql

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree, built once."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = directory.glob("*.whl")
    return built


def test_wheel_holds_every_file_of_the_package(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "reaper"
    needed = [
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix in {".py", ".sql", ".typed"}
    ]
    assert len([path for path in needed if path.endswith(".sql")]) > len(sql.names())
    assert "reaper/py.typed" in needed
    assert set(needed) <= held
    assert not [name for name in held if name.startswith("tests")]


def test_statements_load_from_the_installed_wheel(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "from reaper import sql; import reaper; print(reaper.__file__);"
        " print(*(f'{n}={len(sql.load(n))}' for n in sql.names()), sep='\\n');"
        " print(*(f'{v}={len(t)}' for v, t in sql.migrations()), sep='\\n')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    place, *loaded = result.stdout.splitlines()
    assert Path(place) == tmp_path / "reaper" / "__init__.py"
    here = [f"{name}={len(sql.load(name))}" for name in sql.names()]
    assert loaded == here + [f"{version}={len(text)}" for version, text in sql.migrations()]
