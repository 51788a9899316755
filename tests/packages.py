"""A small package beside Quacklake, installed for one test, with its entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from quacklake.plugins import find_plugins


@contextmanager
def install_package(
    site: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: Mapping[str, str], entry_points: str
) -> Iterator[None]:
    """Install a package of some files in a folder, until the block ends."""
    for path, text in {"__init__.py": "", **files}.items():
        place = site / name / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    facts = site / f"{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(entry_points)
    monkeypatch.syspath_prepend(str(site))
    find_plugins.cache_clear()
    try:
        yield
    finally:
        find_plugins.cache_clear()
        for module in [each for each in sys.modules if each.split(".")[0] == name]:
            del sys.modules[module]
