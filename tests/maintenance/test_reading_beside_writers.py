"""Backups and verifications of a SQLite lake let others commit while they read files, however long that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from quacklake.core.storage import Store
from quacklake.core.storage.parquet import glance


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[tuple[Lake, Lake]]:
    """Two clients of one lake, the second of which does not wait for locks."""
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", pa.table({"id": range(100)}))
        lake.table("t").append([{"id": -1}])
        with quacklake.connect(url, busy_timeout_ms=200, ducklake_max_retry_count=0) as other:
            yield lake, other


def test_others_commit_while_a_backup_is_written(
    lakes: tuple[Lake, Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = lakes
    real: Callable[[Store, str], AbstractContextManager[pa.NativeFile]] = Store.open_output
    written: list[str] = []

    @contextmanager
    def slow(store: Store, path: str) -> Iterator[pa.NativeFile]:
        if store.root == f"{tmp_path}/backup/":
            other.table("t").append([{"id": len(written)}])
            written.append(path)
        with real(store, path) as sink:
            yield sink

    monkeypatch.setattr(Store, "open_output", slow)
    report = lake.backup(tmp_path / "backup")
    assert report.files == 1
    assert {path.partition("/")[0] for path in written} == {"backups", "data"}
    monkeypatch.undo()
    with quacklake.restore_backup(tmp_path / "backup", f"sqlite:///{tmp_path}/new.db", tmp_path / "new") as restored:
        assert restored.table("t").count() == 101
        assert restored.verify().ok


@pytest.mark.parametrize("deep", [False, True])
def test_others_commit_while_files_are_verified(
    lakes: tuple[Lake, Lake], monkeypatch: pytest.MonkeyPatch, deep: bool
) -> None:
    lake, other = lakes
    looked: list[str] = []

    def slow(store: Store, path: str) -> object:
        looked.append(path)
        other.table("t").append([{"id": -2}])
        return glance(store, path)

    monkeypatch.setattr("quacklake.core.maintenance.verify.file_checks.glance", slow)
    assert lake.verify(deep=deep).ok
    assert looked
    assert other.table("t").count("id = -2") == len(looked)
