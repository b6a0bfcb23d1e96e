"""Fixtures of the demo's tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A directory for temporary files that the user of the embedded PostgreSQL can reach too."""
    directory = Path(tempfile.mkdtemp(prefix="demo-test-"))
    directory.chmod(0o1777)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
