"""Orphans go, and only they: not what is named, young, of another kind or of another lake."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

import quacklake
from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.maintenance.cleanup import KnownPaths
from quacklake.errors import ConfigError, PathError
from tests.catalog.stock import Stock
from tests.layout import folder
from tests.maintenance.past import files_named, files_on_disk, numbers, state

NAME = "ducklake-01a1de9f-1939-7000-8483-6f4460a2ad2a"


def lay(folder: Path, *names: str, hours: float = 3) -> None:
    """Files that were written some hours ago."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        then = time.time() - hours * 3600
        os.utime(path, (then, then))


def test_only_old_files_of_the_lake_s_own_kind_go(lake: quacklake.Lake, tmp_path: Path) -> None:
    data, own = tmp_path / "data", folder(tmp_path / "data")
    lake.create_table("t", numbers(0, 20), partition_by=["g"])
    lake.table("t").overwrite(numbers(5, 20))
    lake.expire_snapshots("0 seconds")  # what is scheduled is the cleanup's
    kept = files_on_disk(data)
    orphans = (
        f"main/t/{NAME}.parquet",
        f"main/t/{NAME}-delete.parquet",
        f"main/t/{NAME}-delete.puffin",
        f"main/t/g=1/{NAME}.parquet",
        f"main/forgotten/g=1/h=a%2Fb/{NAME}.parquet",
        "main/t/.quacklake-tmp-0123",
    )
    others = (
        "main/t/staged.parquet",
        f"main/t/{NAME}.txt",
        f"{NAME}.parquet",
        f"nested/main/t/{NAME}.parquet",
        f"main/t/nested/main/t/{NAME}.parquet",
        f"main/t/g=1/nested/{NAME}.parquet",
    )
    lay(own, *orphans, *others)
    lay(own, f"main/t/young-{NAME}.parquet", f"main/t/{NAME}9.parquet", hours=0.5)
    young = {f"main/t/young-{NAME}.parquet", f"main/t/{NAME}9.parquet"}
    lay(tmp_path / "elsewhere", f"main/t/{NAME}.parquet")
    (own / "main" / "linked").symlink_to(tmp_path / "elsewhere" / "main" / "t")
    lake.options.set("delete_older_than", "1 day")
    assert lake.delete_orphaned_files().files == 0  # the longer of the two counts
    lake.options.unset("delete_older_than")
    planned = lake.delete_orphaned_files(dry_run=True)
    assert set(planned.paths) == set(orphans)
    assert planned.bytes == len(orphans)
    assert files_on_disk(data) >= set(orphans)
    assert lake.delete_orphaned_files().paths == planned.paths
    assert files_on_disk(data) - {f"main/linked/{NAME}.parquet"} == kept | set(others) | young
    assert lake.delete_orphaned_files(cleanup_all=True).paths == (f"main/t/{NAME}9.parquet",)
    assert (tmp_path / "elsewhere" / "main" / "t" / f"{NAME}.parquet").exists()
    assert lake.table("t").count() == 20


def test_the_files_of_an_open_transaction_are_safe(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.create_table("t", numbers(0, 20))
    with lake.transaction() as tx:
        tx.table("t").append(numbers(50, 20))
        with quacklake.connect(lake.url) as other:
            assert other.delete_orphaned_files().files == 0
    assert lake.table("t").count() == 40


def test_a_file_that_is_committed_while_the_listing_runs_stays(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.create_table("t", numbers(0, 20))
    lay(folder(tmp_path / "data"), f"main/t/{NAME}.parquet")
    with lake.transaction() as tx:
        tx.table("t").append(numbers(50, 20))
        written = files_on_disk(tmp_path / "data") - files_named(lake) - {f"main/t/{NAME}.parquet"}
        lay_back(folder(tmp_path / "data"), written)
        done = []

        def commit_first(what: str, done_: int, total: int | None) -> None:
            done.append(what)

        known = KnownPaths.among

        def late(self: KnownPaths, paths: list[str]) -> set[str]:
            found = known(self, paths)
            if not done:
                done.append("commit")
                with quacklake.connect(lake.url) as other:
                    other.table("t").append(numbers(90, 20))
                    lay_back(folder(tmp_path / "data"), files_named(other) - files_named(lake))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KnownPaths, "among", late)
            removed = lake.delete_orphaned_files("1 hour", dry_run=True, progress=commit_first).paths
        assert set(removed) == {f"main/t/{NAME}.parquet", *written}
    assert lake.table("t").count() == 60


def lay_back(folder: Path, names: set[str]) -> None:
    then = time.time() - 3 * 3600
    for name in names:
        os.utime(folder / name, (then, then))


def test_a_path_that_cannot_be_told_stops_the_removal(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.create_table("t", numbers(0, 20))
    lay(folder(tmp_path / "data"), f"main/t/{NAME}.parquet")
    with sa.create_engine(lake.url).begin() as connection:
        connection.exec_driver_sql(f"UPDATE ducklake_data_file SET path = '../t/{NAME}.parquet'")
    with pytest.raises(PathError):
        lake.delete_orphaned_files()
    assert (folder(tmp_path / "data") / "main" / "t" / f"{NAME}.parquet").exists()


def test_files_named_by_an_absolute_path_are_known(lake: quacklake.Lake, tmp_path: Path) -> None:
    own = folder(tmp_path / "data")
    lake.create_table("t", numbers(0, 20))
    with sa.create_engine(lake.url).begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE ducklake_data_file SET path = '{own}/../{own.name}/main/t/' || path, path_is_relative = 0"
        )
    lay_back(folder(tmp_path / "data"), files_on_disk(tmp_path / "data"))
    assert lake.delete_orphaned_files().files == 0


@pytest.mark.postgres
def test_lakes_of_one_database_do_not_touch_each_other(postgres_url: str, tmp_path: Path) -> None:
    options = {"data_path": tmp_path / "data", "duckdb_threads": 1}
    with (
        quacklake.connect(postgres_url, metadata_schema="one", **options) as one,
        quacklake.connect(postgres_url, metadata_schema="two", **options) as two,
    ):
        one.create_table("t", numbers(0, 20))
        two.create_table("u", numbers(0, 20))
        with pytest.raises(ConfigError, match="another lake"):
            one.delete_orphaned_files(cleanup_all=True)
        assert two.table("u").count() == 20


def test_we_and_stock_find_the_same_orphans(lake: quacklake.Lake, stock: Stock, tmp_path: Path) -> None:
    lake.create_table("t", numbers(0, 20))
    lay(folder(tmp_path / "data"), f"main/t/{NAME}.parquet", f"main/u/g=1/{NAME}.parquet", hours=72)
    ours = lake.delete_orphaned_files(dry_run=True).paths
    before, url = state(lake), lake.url
    lake.close()
    theirs = stock.run(url, "SELECT * FROM ducklake_delete_orphaned_files('l')")
    assert sorted(str(folder(tmp_path / "data") / path) for path in ours) == sorted(row[0] for row in theirs)
    with quacklake.connect(url) as again:
        assert state(again) == before
        assert again.delete_orphaned_files(cleanup_all=True).files == 0


def test_a_removal_that_is_cut_short_is_simply_run_again(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.create_table("t", numbers(0, 20))
    for pattern in ("storage.list.after", "storage.delete.after", "maintenance.orphans.removed"):
        lay(folder(tmp_path / "data"), *(f"main/t/{NAME}{number}.parquet" for number in range(5)))
        with faults.arm(faults.Fault(pattern=pattern)), pytest.raises(faults.FaultInjected):
            lake.delete_orphaned_files()
    lake.delete_orphaned_files()
    assert files_on_disk(tmp_path / "data") == files_named(lake)


def test_the_number_of_statements_does_not_depend_on_the_number_of_files(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.create_table("t", numbers(0, 20))

    def statements() -> int:
        before = telemetry.snapshot().counters.get("catalog.statements", 0)
        lake.delete_orphaned_files(dry_run=True)
        return telemetry.snapshot().counters["catalog.statements"] - before

    lay(folder(tmp_path / "data"), f"main/t/{NAME}.parquet")
    few = statements()
    lay(folder(tmp_path / "data"), *(f"main/t/{NAME}{number}.parquet" for number in range(100)))
    assert statements() == few


def test_a_report_keeps_the_first_paths_and_whoever_wants_them_is_told_all(
    lake: quacklake.Lake, tmp_path: Path
) -> None:
    lake.create_table("t", numbers(0, 20))
    names = {f"main/t/{NAME}{number}.parquet" for number in range(5)}
    lay(folder(tmp_path / "data"), *names)
    with quacklake.connect(lake.url, report_paths=2) as modest:
        for dry_run in (True, False):
            told: list[str] = []
            report = modest.delete_orphaned_files(dry_run=dry_run, on_path=told.append)
            assert (report.files, report.bytes, list(report.paths)) == (5, 5, told[:2])
            assert set(told) == names
        modest.table("t").overwrite(numbers(5, 20))
        modest.table("t").overwrite(numbers(6, 20))
        modest.table("t").overwrite(numbers(7, 20))
        modest.expire_snapshots("0 seconds")
        told = []
        report = modest.cleanup_old_files(cleanup_all=True, on_path=told.append)
        assert (report.files, list(report.paths), len(told)) == (3, told[:2], 3)
