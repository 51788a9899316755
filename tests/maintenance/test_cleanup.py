"""The cleanup removes what is scheduled, old enough and nobody's, and nothing else; it can be cut short and run again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core import faults
from quacklake.core.storage import Store
from quacklake.errors import InputError, StorageUnavailableError
from services.s3 import S3Server
from tests.catalog.stock import Stock
from tests.layout import add_row, folder
from tests.maintenance.past import files_named, files_on_disk, numbers, state


def scheduled(lake: quacklake.Lake) -> list[str]:
    with sa.create_engine(lake.url).connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT path FROM ducklake_files_scheduled_for_deletion ORDER BY data_file_id"
        )
        return [row[0] for row in rows]


def schedule(lake: quacklake.Lake, path: str, *, relative: bool, id_: int = 900) -> None:
    with sa.create_engine(lake.url).begin() as connection:
        add_row(
            connection,
            "ducklake_files_scheduled_for_deletion",
            data_file_id=id_,
            path=path,
            path_is_relative=int(relative),
            schedule_start="2020-01-01 00:00:00+00",
        )


@pytest.fixture
def expired(lake: quacklake.Lake) -> quacklake.Lake:
    """A lake with one file in use and three that are scheduled."""
    table = lake.create_table("t", numbers(0, 20))
    for number in range(3):
        table.overwrite(numbers(number, 20))
    lake.expire_snapshots("0 seconds")
    assert len(scheduled(lake)) == 3
    return lake


def test_files_wait_two_days_or_as_long_as_the_lake_says(expired: quacklake.Lake, tmp_path: Path) -> None:
    assert expired.cleanup_old_files().files == 0
    for age in ("1 hour", dt.timedelta(minutes=1), dt.datetime(2020, 1, 1)):
        assert expired.cleanup_old_files(age).files == 0
    expired.options.set("delete_older_than", "0 seconds")
    planned = expired.cleanup_old_files(dry_run=True)
    assert planned.files == 3
    assert files_on_disk(tmp_path / "data") > files_named(expired)
    assert expired.cleanup_old_files().paths == planned.paths
    assert files_on_disk(tmp_path / "data") == files_named(expired)
    assert scheduled(expired) == []


def test_stock_removes_what_we_have_scheduled_and_we_what_stock_has(
    expired: quacklake.Lake, stock: Stock, tmp_path: Path
) -> None:
    before = state(expired)
    url = expired.url
    expired.close()
    stock.run(url, "SELECT * FROM ducklake_cleanup_old_files('l', cleanup_all => true)")
    with quacklake.connect(url) as lake:
        assert files_on_disk(tmp_path / "data") == files_named(lake)
    stock.run(
        url,
        "INSERT INTO t SELECT i, 1 FROM range(100) r(i)",
        "DELETE FROM t WHERE id < 100",
        "SELECT count(*) FROM ducklake_expire_snapshots('l', older_than => now())",
    )
    with quacklake.connect(url) as lake:
        assert lake.cleanup_old_files(cleanup_all=True).files >= 1
        assert files_on_disk(tmp_path / "data") == files_named(lake)
        assert state(lake).keys() == before.keys()


def test_a_file_that_is_gone_already_is_fine(expired: quacklake.Lake, tmp_path: Path) -> None:
    (folder(tmp_path / "data") / scheduled(expired)[0]).unlink()
    assert expired.cleanup_old_files(cleanup_all=True).failed == 0
    assert scheduled(expired) == []


def test_a_file_that_a_table_has_is_never_removed(expired: quacklake.Lake, tmp_path: Path) -> None:
    (used,) = expired.table("t").files().column("path").to_pylist()
    schedule(expired, used, relative=True)
    schedule(expired, str(folder(tmp_path / "data") / used), relative=False, id_=901)
    report = expired.cleanup_old_files(cleanup_all=True)
    assert used not in report.paths
    assert [skipped.reason for skipped in report.skipped] == ["a table still has it"]
    assert expired.table("t").count() == 20
    assert scheduled(expired) == []  # nor by a client that looks at the schedule alone


def test_a_file_that_is_not_below_the_data_path_is_never_removed(expired: quacklake.Lake, tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_bytes(b"mine")
    (folder(tmp_path / "data") / "link").symlink_to(tmp_path)
    for id_, (path, relative) in enumerate(
        {str(tmp_path / "mine.parquet"): False, "../mine.parquet": True, "link/mine.parquet": True}.items(), 900
    ):
        schedule(expired, path, relative=relative, id_=id_)
    report = expired.cleanup_old_files(cleanup_all=True)
    assert report.files == 3
    assert len(report.skipped) == 3
    assert (tmp_path / "mine.parquet").exists()


def test_what_fails_stays_scheduled_and_the_rest_goes(
    expired: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn = scheduled(expired)[1]
    delete = Store.delete

    def refuse(self: Store, paths: list[str]) -> int:
        if stubborn in paths:
            raise StorageUnavailableError("the store said no")
        return delete(self, paths)

    monkeypatch.setattr(Store, "delete", refuse)
    report = expired.cleanup_old_files(cleanup_all=True)
    assert (report.files, report.failed, report.skipped[0].what) == (2, 1, stubborn)
    assert scheduled(expired) == [stubborn]
    monkeypatch.undo()
    assert expired.cleanup_old_files(cleanup_all=True).paths == (stubborn,)
    assert files_on_disk(tmp_path / "data") == files_named(expired)


def test_a_cleanup_that_is_cut_short_is_simply_run_again(expired: quacklake.Lake, tmp_path: Path) -> None:
    for pattern in ("storage.delete.after", "maintenance.cleanup.removed", "catalog.unschedule.after"):
        with faults.arm(faults.Fault(pattern=pattern)), pytest.raises(faults.FaultInjected):
            expired.cleanup_old_files(cleanup_all=True)
        assert len(scheduled(expired)) == 3  # rows go after files
    expired.cleanup_old_files(cleanup_all=True)
    assert scheduled(expired) == []
    assert files_on_disk(tmp_path / "data") == files_named(expired)


def test_both_an_age_and_everything_is_refused(expired: quacklake.Lake) -> None:
    for work in (expired.cleanup_old_files, expired.delete_orphaned_files):
        with pytest.raises(InputError):
            work("1 day", cleanup_all=True)
        with pytest.raises(InputError):
            work(dt.timedelta(-1))
    assert len(scheduled(expired)) == 3


@pytest.fixture
def s3_lake(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[quacklake.Lake]:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{s3_bucket}/data") as lake:
        yield lake


def test_files_in_an_object_store_are_removed_too(s3_lake: quacklake.Lake) -> None:
    table = s3_lake.create_table("t", pa.table({"id": range(100)}))
    table.overwrite(pa.table({"id": range(50)}))
    store = s3_lake._context.store
    store.write("main/t/ducklake-lost.parquet", b"lost")
    store.write("main/t/other.txt", b"kept")
    s3_lake.expire_snapshots("0 seconds")
    assert s3_lake.cleanup_old_files(cleanup_all=True).files == 1
    assert s3_lake.delete_orphaned_files().files == 0
    planned = s3_lake.delete_orphaned_files(cleanup_all=True, dry_run=True)
    assert s3_lake.delete_orphaned_files(cleanup_all=True).paths == planned.paths == ("main/t/ducklake-lost.parquet",)
    assert {entry.path for entry in store.list()} == {"main/t/other.txt"} | files_named(s3_lake)
    assert table.count() == 50
