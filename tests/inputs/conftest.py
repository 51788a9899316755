"""A folder to work in, and a lake outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    """A lake of its own for each test, in files."""
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        yield lake
