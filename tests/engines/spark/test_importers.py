"""Importers of an archive, which a process that runs tasks would renew before each of them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

pytest.importorskip("pyspark")

from quacklake.spark.runtime.failures import forget_importers

_NAMES = ("ql_zipped", "ql_zipped_too")


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two archives on the path, each with a package that has been imported."""
    found = []
    for name in _NAMES:
        archive = tmp_path / f"{name}.zip"
        with ZipFile(archive, "w") as file:
            file.writestr(f"{name}/__init__.py", "")
            file.writestr(f"{name}/inner/__init__.py", "")
            file.writestr(f"{name}/inner/later.py", "VALUE = 7")
        monkeypatch.syspath_prepend(str(archive))
        importlib.import_module(f"{name}.inner")
        found.append(str(archive))
    yield found
    for name in [each for each in sys.modules if each.split(".")[0] in _NAMES]:
        del sys.modules[name]
    for archive in found:
        for path in [each for each in sys.path_importer_cache if each.startswith(archive)]:
            del sys.path_importer_cache[path]


def importers(archive: str) -> int:
    return sum(isinstance(each, zipimporter) and each.archive == archive for each in sys.path_importer_cache.values())


def test_importers_of_one_archive_are_forgotten_and_its_modules_still_found(archives: list[str]) -> None:
    one, other = archives
    assert (importers(one), importers(other)) == (2, 2)
    forget_importers(os.pathsep.join(["", "/absent.zip", one]))
    assert (importers(one), importers(other)) == (0, 2)
    importlib.invalidate_caches()
    assert importlib.import_module(f"{_NAMES[0]}.inner.later").VALUE == 7
    assert importlib.import_module(f"{_NAMES[1]}.inner.later").VALUE == 7


def test_importers_of_archives_that_are_not_on_the_path_of_the_process_stay(archives: list[str]) -> None:
    before = dict(sys.path_importer_cache)
    for path in ("", str(Path(archives[0]).parent), f"{archives[0]}.old"):
        forget_importers(path)
    assert sys.path_importer_cache == before
