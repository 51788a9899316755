"""Files added from elsewhere by either client give both the same lake at every snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import quacklake

from .clients import LakeSite
from .conftest import MakeSite, kinds

pytestmark = pytest.mark.daily(0.33)

_COLUMNS = "id BIGINT, name VARCHAR, s STRUCT(a BIGINT, b VARCHAR), l INTEGER[], m MAP(VARCHAR, DOUBLE), part INTEGER"
_FILE = (
    "SELECT i::INTEGER AS id, 'n' || i AS \"NAME\", {{'b': 'b' || i, 'a': (i % 5)::SMALLINT}} AS s,"
    " [i::SMALLINT, NULL] AS l, MAP {{'k': i::FLOAT}} AS m FROM range({first}, {first} + 30) r(i)"
)


def files(site: LakeSite) -> Path:
    """Three files in folders that hold the column ``part``."""
    folder = site.folder / "outside"
    for number in range(3):
        place = folder / f"part={number}"
        place.mkdir(parents=True)
        duckdb.sql(f"COPY ({_FILE.format(first=number * 100)}) TO '{place}/f.parquet' (ROW_GROUP_SIZE 2048)")
    return folder


def open_lake(site: LakeSite) -> quacklake.Lake:
    site.close_stock()
    site.close_lake()
    site._lake = site.another_lake(foreign_paths=[site.folder / "outside"])
    return site._lake


def ours(site: LakeSite, version: int) -> list[tuple[Any, ...]]:
    scan = open_lake(site).at(version=version).table("t").scan(row_ids=True).to_arrow()
    with duckdb.connect() as connection:
        connection.register("found", scan)
        query = "SELECT rowid, COLUMNS(* EXCLUDE (rowid))::VARCHAR FROM found ORDER BY rowid"
        return connection.execute(query).fetchall()


def stocks(site: LakeSite, version: int) -> list[tuple[Any, ...]]:
    query = f"SELECT rowid, COLUMNS(*)::VARCHAR FROM t AT (VERSION => {version:d}) ORDER BY rowid"
    return site.stock().execute(query).fetchall()


def add(site: LakeSite, writer: str, pattern: Path) -> None:
    if writer == "ours":
        open_lake(site).table("t").add_files(pattern)
    else:
        site.stock().execute(f"CALL ducklake_add_data_files('l', 't', '{pattern}', hive_partitioning => true)")


@pytest.mark.parametrize("adding", ["ours", "stock"])
@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
def test_f5_12_added_files_are_the_same_for_both(make_site: MakeSite, kind: str, adding: str) -> None:
    site = make_site(kind)
    folder = files(site)
    site.stock().execute(f"CREATE TABLE t({_COLUMNS})")
    add(site, adding, folder / "part=[01]" / "*.parquet")
    add(site, "stock" if adding == "ours" else "ours", folder / "part=2" / "f.parquet")
    assert len(site.metadata("FROM {m}.ducklake_column_mapping")) == 1  # the second call finds that of the first
    table = open_lake(site).table("t")
    assert table.count("part = 1 AND s.a = 3") == 6
    table.delete("id BETWEEN 5 AND 19")
    table.update({"name": "ours"}, "id BETWEEN 100 AND 112")
    site.stock().execute("DELETE FROM t WHERE id BETWEEN 200 AND 215")
    site.stock().execute("UPDATE t SET name = 'stock' WHERE id BETWEEN 216 AND 229")
    site.stock().execute("ALTER TABLE t RENAME COLUMN name TO label")
    site.stock().execute("ALTER TABLE t RENAME COLUMN label TO name")
    site.stock().execute("ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 7")
    ((newest,),) = site.metadata("SELECT max(snapshot_id) FROM {m}.ducklake_snapshot")
    for version in range(2, newest + 1):
        assert ours(site, version) == stocks(site, version), version
    assert open_lake(site).table("t").count("extra = 7") == 59
    assert site.stock().execute("SELECT count(*) FROM t WHERE extra = 7").fetchone() == (59,)
    assert sorted(path.name for path in folder.rglob("*.parquet")) == ["f.parquet"] * 3


def test_the_catalog_gets_the_rows_that_stock_writes(make_site: MakeSite) -> None:
    found = []
    for writer in ("ours", "stock"):
        site = make_site("sqlite")
        folder = files(site)
        site.stock().execute(f"CREATE TABLE t({_COLUMNS})")
        add(site, writer, folder / "*" / "*.parquet")
        found.append(
            [
                site.metadata(
                    "SELECT data_file_id, begin_snapshot, path_is_relative, record_count, file_size_bytes, footer_size,"
                    " row_id_start, mapping_id, parse_filename(path) FROM {m}.ducklake_data_file ORDER BY ALL"
                ),
                site.metadata("FROM {m}.ducklake_column_mapping"),
                site.metadata(
                    "SELECT mapping_id, source_name, target_field_id, is_partition, parent_column IS NULL"
                    " FROM {m}.ducklake_name_mapping ORDER BY ALL"
                ),
                site.metadata("FROM {m}.ducklake_file_column_stats ORDER BY data_file_id, column_id"),
                site.metadata("FROM {m}.ducklake_table_stats"),
                site.metadata("FROM {m}.ducklake_table_column_stats ORDER BY column_id"),
                site.metadata(
                    "SELECT schema_version, next_catalog_id, next_file_id, changes_made FROM {m}.ducklake_snapshot"
                    " JOIN {m}.ducklake_snapshot_changes USING (snapshot_id) ORDER BY snapshot_id DESC LIMIT 1"
                ),
            ]
        )
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("r=NULL", None),
        ("r=null", None),
        ("r=__HIVE_DEFAULT_PARTITION__", None),
        ("r=", ""),
        ("r=a%2Fb", "a/b"),
        ("r=x/r=y", "x"),
        ("r=a+b", "a+b"),
        ("r=ü", "ü"),
    ],
)
def test_names_of_folders_mean_the_same_to_both(make_site: MakeSite, name: str, value: str | None) -> None:
    site = make_site("duckdb")
    folder = site.folder / "outside" / name
    folder.mkdir(parents=True)
    duckdb.sql(f"COPY (SELECT 1 AS i) TO '{folder}/f.parquet'")
    site.stock().execute("CREATE TABLE t(i BIGINT, r VARCHAR); CREATE TABLE u(i BIGINT, r VARCHAR)")
    site.stock().execute(f"CALL ducklake_add_data_files('l', 't', '{folder}/f.parquet')")
    lake = open_lake(site)
    lake.table("u").add_files(folder / "f.parquet")
    expected = [{"i": 1, "r": value}]
    assert lake.table("t").to_pylist() == lake.table("u").to_pylist() == expected
    assert site.stock().execute("FROM t UNION ALL FROM u").fetchall() == [(1, value)] * 2
    stats = site.metadata("SELECT DISTINCT min_value, max_value, null_count FROM {m}.ducklake_file_column_stats")
    assert len(stats) == 2


def test_renamed_nested_fields_are_read_by_the_names_of_the_file(make_site: MakeSite) -> None:
    site = make_site("duckdb")
    folder = files(site)
    site.stock().execute(f"CREATE TABLE t({_COLUMNS})")
    add(site, "ours", folder / "*" / "*.parquet")
    site.stock().execute("ALTER TABLE t RENAME s.a TO alpha")
    site.stock().execute("ALTER TABLE t ADD COLUMN s.c INTEGER")
    site.stock().execute("ALTER TABLE t DROP COLUMN part")
    site.stock().execute("ALTER TABLE t ADD COLUMN part VARCHAR")
    query = "SELECT id, s.alpha, s.b, s.c, part FROM t ORDER BY id LIMIT 3"
    expected = [(0, 0, "b0", None, None), (1, 1, "b1", None, None), (2, 2, "b2", None, None)]
    assert site.stock().execute(query).fetchall() == expected
    rows = open_lake(site).table("t").to_pylist(where="id < 3")
    found = [(row["id"], row["s"]["alpha"], row["s"]["b"], row["s"]["c"], row["part"]) for row in rows]
    assert sorted(found) == expected
