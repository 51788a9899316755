"""A missing bucket is its own error, and never damage that verify or repair would find."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from quacklake.core.engines.duckdb import connections
from quacklake.errors import CorruptFileError, StorageError
from services import S3Server
from tests.layout import move


def _settings(server: S3Server) -> dict[str, Any]:
    keys = {"s3_access_key": server.access_key, "s3_secret_key": server.secret_key, "s3_region": server.region}
    return {"s3_endpoint": server.host, "s3_secure": False, "storage_max_retries": 0, **keys}


@pytest.fixture(params=["httpfs", "arrow"])
def lake(
    request: pytest.FixtureRequest,
    s3_server: S3Server,
    s3_bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lake]:
    """A lake with files whose bucket is gone."""
    if request.param == "arrow":
        monkeypatch.setattr(connections, "load_httpfs", lambda connection: False)
    url, settings = f"sqlite:///{tmp_path}/lake.db", _settings(s3_server)
    with quacklake.connect(url, data_path=f"{s3_bucket}/lake/", **settings) as lake:
        table = lake.create_table("t", pa.table({"id": range(50)}))
        table.append(pa.table({"id": range(50, 80)}))
        table.overwrite(pa.table({"id": range(50)}))
        table.append(pa.table({"id": range(50, 80)}))
        lake.expire_snapshots(keep_last=1)
    database = sqlite3.connect(tmp_path / "lake.db")
    move(database, "s3://there-is-none/lake/")
    database.commit()
    database.close()
    with quacklake.connect(url, **settings) as gone:
        yield gone


def test_whatever_misses_a_file_says_that_there_is_no_bucket(lake: Lake, tmp_path: Path) -> None:
    table = lake.table("t")
    calls: list[Callable[[], object]] = [
        lambda: table.count("id > 3"),
        lambda: table.to_arrow(),
        lambda: list(table.scan().to_batches()),
        lambda: table.append(pa.table({"id": range(50)})),
        lambda: table.delete("id = 3"),
        lambda: table.update({"id": 7}, "id = 8"),
        lambda: lake.sql("SELECT sum(id) FROM t").fetchall(),
        lambda: lake.verify(),
        lambda: lake.verify(deep=True),
        lambda: lake.maintenance.repair(),
        lambda: lake.backup(tmp_path / "backup"),
    ]
    before = lake.current_snapshot()
    for number, call in enumerate(calls):
        with pytest.raises(StorageError, match=r"there is no (such )?bucket") as caught:
            call()
        assert not isinstance(caught.value, CorruptFileError), number
        assert caught.value.hint is not None and "data path" in caught.value.hint
    assert lake.current_snapshot() == before


def test_files_that_are_to_be_removed_wait_for_their_bucket(lake: Lake) -> None:
    for _ in range(2):
        report = lake.cleanup_old_files(older_than="0 seconds")
        assert (report.files, report.failed) == (0, 2)


def test_one_file_that_is_missing_is_still_damage(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=f"{s3_bucket}/lake/", **_settings(s3_server)) as lake:
        table = lake.create_table("t", pa.table({"id": range(50)}))
        lake._context.store.delete(table.files().column("path").to_pylist())
        with pytest.raises(CorruptFileError):
            table.to_arrow()
        assert [finding.code for finding in lake.verify().findings] == ["V070"]
