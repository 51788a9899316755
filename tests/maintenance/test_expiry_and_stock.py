"""Stock DuckDB reads, flushes, rewrites and merges what an expiry leaves behind."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

import quacklake
from tests.catalog.stock import Stock
from tests.layout import by_hand, folder

Change = Callable[[quacklake.Lake, str], object]

PASTS: dict[str, Change] = {
    "renamed": lambda lake, e: lake.rename_table(e, f"{e}_now"),
    "twice": lambda lake, e: (lake.rename_table(e, "between"), lake.rename_table("between", f"{e}_now")),
    "undropped": lambda lake, e: (lake.drop_table(e), lake.undrop(e), lake.rename_table(e, f"{e}_now")),
    "altered": lambda lake, e: lake.rename_table(e, f"{e}_now").add_column("x", "INTEGER", 5),
    "partitioned": lambda lake, e: lake.rename_table(e, f"{e}_now").set_partitioned_by("id"),
}
NOW = " UNION ALL ".join(f"SELECT '{name}', id FROM {name}_now" for name in PASTS)
UPKEEP = (
    "CALL ducklake_flush_inlined_data('l')",
    "CALL ducklake_rewrite_data_files('l', delete_threshold => 0)",
    "CALL ducklake_merge_adjacent_files('l')",
)


@pytest.mark.parametrize("count", [3, 30])
def test_stock_works_on_tables_whose_past_has_expired(count: int, stock: Stock, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        for name, change in PASTS.items():
            lake.create_table(name, [{"id": number} for number in range(count)])
            lake.table(name).append([{"id": number} for number in range(count, 2 * count)])
            lake.table(name).delete("id = 1")
            change(lake, name)
        lake.expire_snapshots(keep_last=1)
        assert not lake.verify(deep=True).errors
    left = sorted((name, number) for name in PASTS for number in range(2 * count) if number != 1)
    assert sorted(stock.run(url, NOW)) == left
    for statement in UPKEEP:
        assert sorted(stock.run(url, statement, NOW)) == left, statement
    with quacklake.connect(url) as lake:
        assert sorted(lake.sql(NOW).fetchall()) == left
        assert not lake.verify(deep=True).errors


def test_a_table_that_was_dropped_goes_with_all_its_names(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.create_table("e", [{"id": 1}])
        lake.rename_table("e", "f")
        lake.drop_table("f")
        lake.expire_snapshots(keep_last=1)
        with lake._context.catalog.read() as reader:
            assert reader.connection.exec_driver_sql("SELECT count(*) FROM ducklake_table").scalar() == 0


def test_a_backup_of_a_lake_that_was_expired_in_part_is_sound(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.create_table("e", [{"id": 1}])
        lake.create_table("o", [{"id": 2}])
        lake.drop_table("e")
        lake.undrop("e")
        lake.expire_snapshots(versions=[1, 2])
        assert not lake.verify(deep=True).errors
        lake.backup(tmp_path / "backups")
    restored = quacklake.restore_backup(tmp_path / "backups", f"sqlite:///{tmp_path}/copy.db", tmp_path / "copy")
    with restored as lake:
        assert lake.table("e").count() == 1
        assert not lake.verify(deep=True).errors


def test_a_backup_of_a_table_that_has_a_former_file_again_is_sound(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", {"id": list(range(20))})
        former = [str(path) for path in (folder(tmp_path / "data") / "main/t").glob("*.parquet")]
        table.overwrite({"id": list(range(100, 120))})
        table.add_files(former)
        assert not lake.verify(deep=True).errors
        lake.backup(tmp_path / "backups")
    restored = quacklake.restore_backup(tmp_path / "backups", f"sqlite:///{tmp_path}/copy.db", tmp_path / "copy")
    with restored as lake:
        for version, count in ((1, 20), (2, 20), (3, 40)):
            assert lake.sql(f"SELECT count(*) FROM t AT (VERSION => {version})").fetchall() == [(count,)]
        lake.expire_snapshots(keep_last=1)
        lake.cleanup_old_files(older_than=dt.timedelta(0))
        assert lake.table("t").count() == 40
        assert not lake.verify(deep=True).errors


def test_one_file_in_two_rows_of_a_snapshot_is_told(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", {"id": list(range(20))})
        table.append({"id": list(range(20))})
        with lake._context.catalog.commit() as writer:
            by_hand(writer, "UPDATE ducklake_data_file SET path = (SELECT min(path) FROM ducklake_data_file)")
        assert "V061" in {each.code for each in lake.verify().errors}


def test_rows_that_stock_flushed_in_several_versions_are_counted_once(stock: Stock, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": number, "n": 0} for number in range(5)])
        for number in range(3):
            lake.table("t").update({"n": number})
    stock.run(url, "CALL ducklake_flush_inlined_data('l')")
    with quacklake.connect(url) as lake:
        assert not lake.verify(deep=True).errors
        assert lake.table("t").count() == 5
