"""No cleanup, neither ours nor stock DuckDB's, removes a file that two rows name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import PathError, SchemaMismatchError
from tests.catalog.stock import Stock
from tests.layout import folder

NOW = dt.timedelta(0)
CLEAN = "CALL ducklake_cleanup_old_files('l', cleanup_all => true)"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/lake.db"


def open_lake(url: str, tmp_path: Path) -> quacklake.Lake:
    return quacklake.connect(url, data_path=tmp_path / "data")


def numbers(first: int) -> dict[str, list[int]]:
    return {"id": list(range(first, first + 20))}


def files_of(tmp_path: Path, table: str) -> list[str]:
    return sorted(map(str, (folder(tmp_path / "data") / "main" / table).glob("*.parquet")))


def ids(lake: quacklake.Lake, name: str) -> list[int]:
    return sorted(lake.table(name).scan().to_arrow().column("id").to_pylist())


def two_tables(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.create_table("a", numbers(0))
    lake.table("a").append(numbers(20))
    lake.create_table("b", {"id": "BIGINT"})
    lake.table("b").add_files(files_of(tmp_path, "a"))


def expire(lake: quacklake.Lake) -> None:
    lake.expire_snapshots(keep_last=1)


def delete_again(lake: quacklake.Lake) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    for number in range(0, 40, 5):
        lake.table("a").delete(f"id = {number}")


CHANGES: dict[str, Callable[[quacklake.Lake], object]] = {
    "merge": lambda lake: lake.table("a").merge_adjacent_files(),
    "rewrite": lambda lake: (delete_again(lake), lake.table("a").rewrite_data_files(delete_threshold=0.0)),
    "delete": lambda lake: lake.table("a").delete("true"),
    "truncate": lambda lake: lake.sql("TRUNCATE a"),
    "overwrite": lambda lake: lake.table("a").overwrite(numbers(100)),
    "drop": lambda lake: lake.drop_table("a"),
    "replace": lambda lake: lake.sql("CREATE OR REPLACE TABLE a AS SELECT 1 AS id"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_happens_to_one_table_leaves_the_other_its_files(
    change: str, url: str, stock: Stock, tmp_path: Path
) -> None:
    with open_lake(url, tmp_path) as lake:
        two_tables(lake, tmp_path)
        CHANGES[change](lake)
        expire(lake)
    stock.run(url, CLEAN)
    assert sorted(row[0] for row in stock.run(url, "SELECT id FROM b")) == list(range(40))
    with open_lake(url, tmp_path) as lake:
        lake.cleanup_old_files(older_than=NOW)
        assert ids(lake, "b") == list(range(40))
        assert not lake.verify(deep=True).errors


def test_a_merge_leaves_files_to_the_snapshots_that_show_them_in_another_table(
    url: str, stock: Stock, tmp_path: Path
) -> None:
    with open_lake(url, tmp_path) as lake:
        two_tables(lake, tmp_path)
        lake.table("b").delete("true")
        lake.table("a").merge_adjacent_files()
    stock.run(url, CLEAN)
    assert stock.run(url, "SELECT count(*) FROM b AT (VERSION => 4)") == [(40,)]


def test_a_file_that_a_table_has_again_is_taken_out_of_the_schedule(url: str, stock: Stock, tmp_path: Path) -> None:
    with open_lake(url, tmp_path) as lake:
        lake.create_table("a", numbers(0))
        former = files_of(tmp_path, "a")
        lake.table("a").overwrite(numbers(100))
        expire(lake)
        lake.table("a").add_files(former)
    stock.run(url, CLEAN)
    assert sorted(row[0] for row in stock.run(url, "SELECT id FROM a")) == [*range(20), *range(100, 120)]


def test_the_past_of_a_table_keeps_a_file_that_it_has_again(url: str, stock: Stock, tmp_path: Path) -> None:
    with open_lake(url, tmp_path) as lake:
        lake.create_table("a", numbers(0))
        former = files_of(tmp_path, "a")
        lake.table("a").overwrite(numbers(100))
        lake.table("a").add_files(former)
        lake.table("a").append(numbers(200))
        lake.table("a").merge_adjacent_files()
    stock.run(url, CLEAN)
    assert sorted(row[0] for row in stock.run(url, "SELECT id FROM a AT (VERSION => 1)")) == list(range(20))
    with open_lake(url, tmp_path) as lake:
        assert ids(lake, "a") == [*range(20), *range(100, 120), *range(200, 220)]
        assert not lake.verify(deep=True).errors


def test_an_exported_lake_leaves_the_files_of_its_catalog_where_they_are(stock: Stock, tmp_path: Path) -> None:
    plain = f"sqlite:///{tmp_path}/plain.db"
    with quacklake.tenants(f"sqlite:///{tmp_path}/shared.db", tmp_path / "data") as tenants:
        with tenants.open("acme", create=True) as lake:
            lake.create_table("a", numbers(0))
            lake.table("a").append(numbers(20))
        report = tenants.export("acme", plain)
        with quacklake.connect(plain, foreign_paths=report.foreign_paths) as lake:
            lake.table("a").merge_adjacent_files()
        stock.run(plain, CLEAN)
        with tenants.open("acme") as lake:
            assert ids(lake, "a") == list(range(40))


def test_a_catalog_takes_no_files_of_another(tmp_path: Path) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/shared.db", tmp_path / "data") as tenants:
        with tenants.open("acme", create=True) as lake:
            lake.create_table("a", numbers(0))
        mine = next((tmp_path / "data/acme").rglob("*.parquet"))
        with tenants.open("beta", create=True, foreign_paths=(f"{tmp_path}/data/acme/",)) as lake:
            table = lake.create_table("b", {"id": "BIGINT"})
            with pytest.raises(PathError, match="another catalog"):
                table.add_files(str(mine))
            assert table.count() == 0


def test_a_file_with_the_history_of_its_rows_is_not_added(url: str, tmp_path: Path) -> None:
    with open_lake(url, tmp_path) as lake:
        table = lake.create_table("a", [{"id": 1}, {"id": 2}])
        table.delete("id = 1")
        table.flush_inlined_data()
        other = lake.create_table("b", {"id": "BIGINT"})
        with pytest.raises(SchemaMismatchError, match="history of its rows"):
            other.add_files(files_of(tmp_path, "a")[:1], ignore_extra_columns=True)
        assert other.count() == 0
