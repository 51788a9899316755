"""Lakes of format 1.1 from another writer: every part is read and written."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.duckdb_versions import IS_2
from quacklake.errors import CorruptFileError, NotFoundError, UnsupportedFeatureError
from tests.layout import plain_only

from .next_lakes import NextLake, puffin

DATABASES = ("sqlite", "duckdb")
_NAMES = ("row_id", "begin_snapshot", "end_snapshot")


@pytest.fixture(autouse=True)
def _plain() -> None:
    plain_only("the lakes are written by hand, in the layout of stock DuckLake")


def _numbers(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int64()), "name": [f"n{i}" for i in range(count)]})


def _first(lake: NextLake) -> int:
    """A table with a file of ten rows and three inlined ones."""
    table = lake.table("t", {"id": "int64", "name": "varchar"})
    exact = {1: ("0", "9", True, True), 2: ("n0", "n9", True, True)}
    lake.data_file(table, "main/t/a.parquet", _numbers(10), exact=exact)
    text = "VARCHAR" if lake.database == "duckdb" else "TEXT"
    lake.inlined(table, ("id BIGINT", f"name {text}"), [(10, "n10"), (11, "n11"), (12, None)])
    lake.totals(table)
    lake.commit('created_table:"main"."t",inserted_into_table:1,inlined_insert:1', alters=True)
    return table


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("version", ["1.1", "1.1-dev1"])
def test_f14_1_a_lake_of_another_writer_is_read_and_written(database: str, version: str, tmp_path: Path) -> None:
    made = NextLake(tmp_path, database, version)
    _first(made)
    with quacklake.connect(made.close()) as lake:
        assert lake.version == version
        table = lake.table("t")
        assert sorted(row["id"] for row in table.to_pylist()) == list(range(13))
        table.append([{"id": 20, "name": "x"}])
        table.append([{"id": 100 + i, "name": "y" * i} for i in range(50)])
        table.delete("id IN (3, 11)")
        table.update({"name": "z"}, "id = 4")
        lake.maintenance.flush_inlined_data()
        assert table.count() == 13 + 1 + 50 - 2
        assert lake.verify(deep=True).findings == ()


@pytest.mark.parametrize("database", DATABASES)
def test_f14_2_a_lake_in_development_has_the_parts_that_its_database_has(database: str, tmp_path: Path) -> None:
    lacking = frozenset({"file_column_stats.min_is_exact", "file_column_stats.max_is_exact", "view_column_tag"})
    lacking |= {"schema.parent_schema_id", "table_column_stats.min_is_exact", "table_column_stats.max_is_exact"}
    made = NextLake(tmp_path, database, "1.1-dev1", lacking)
    _first(made)
    with quacklake.connect(made.close()) as lake:
        lake.table("t").append([{"id": i, "name": "m"} for i in range(200, 250)])
        lake.create_schema("s")
        assert lake.sql("SELECT count(*), max(id) FROM t").fetchall() == [(63, 249)]
        assert lake.migrate("1.1") == "1.1"
        lake.create_schema("inner", parent="s")
        lake.create_table("s.inner.u", [{"i": 1}])
        assert lake.table("t").count() == 63
        assert lake.verify().findings == ()


@pytest.mark.parametrize("database", DATABASES)
def test_f14_3_inlined_tables_are_known_by_their_columns_not_by_the_version(database: str, tmp_path: Path) -> None:
    made = NextLake(tmp_path, database, "1.1-dev1")
    text = "VARCHAR" if database == "duckdb" else "TEXT"
    for name, prefix in (("old", ""), ("new", "_ducklake_")):
        table = made.table(name, {"id": "int64", "name": "varchar"})
        made.inlined(table, ("id BIGINT", f"name {text}"), [(1, name)], prefix=prefix)
        made.totals(table)
    made.commit('created_table:"main"."old",created_table:"main"."new"', alters=True)
    with quacklake.connect(made.close()) as lake:
        for name in ("old", "new"):
            table = lake.table(name)
            table.append([{"id": 2, "name": "more"}])
            table.delete("id = 1")
            assert table.to_pylist() == [{"id": 2, "name": "more"}]
        lake.migrate("1.1")
        assert lake.table("old").to_pylist() == [{"id": 2, "name": "more"}]
        assert lake.verify().findings == ()


def test_f14_4_a_column_may_be_called_row_id_and_none_begins_with_the_prefix(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "d", format_version="1.1") as lake:
        table = lake.create_table("t", [dict.fromkeys(_NAMES, 1)])
        table.update({"row_id": 7}, "begin_snapshot = 1")
        assert table.to_pylist() == [{"row_id": 7, "begin_snapshot": 1, "end_snapshot": 1}]
        for work in (
            lambda: lake.create_table("u", [{"_ducklake_x": 1}]),
            lambda: table.add_column("_DuckLake_y", "int64"),
            lambda: table.rename_column("row_id", "_ducklake_row_id"),
        ):
            with pytest.raises(quacklake.QuacklakeError, match="_ducklake_"):
                work()
        assert table.columns == list(_NAMES)


@pytest.mark.parametrize("database", DATABASES)
def test_f14_5_a_bound_that_is_not_exact_is_no_value(database: str, tmp_path: Path) -> None:
    made = NextLake(tmp_path, database)
    table = made.table("t", {"id": "int64", "name": "varchar"})
    # a bound that is wider than the values, and one of which nothing is said
    made.data_file(table, "main/t/a.parquet", _numbers(10), exact={1: ("-5", "99", False, None)})
    made.totals(table)
    made.commit('created_table:"main"."t",inserted_into_table:1', alters=True)
    with quacklake.connect(made.close()) as lake:
        assert lake.sql("SELECT min(id), max(id) FROM t").fetchall() == [(0, 9)]
        assert lake.table("t").plan("id > 100").files.num_rows == 0, "it still bounds"
        assert lake.table("t").plan("id > 50").files.num_rows == 1


@pytest.mark.parametrize("database", DATABASES)
def test_f14_7_schemas_inside_schemas_are_read(database: str, tmp_path: Path) -> None:
    made = NextLake(tmp_path, database)
    outer = made.schema("a")
    inner = made.schema("b", outer)
    lost = made.schema("c", 999)
    for schema, name in ((inner, "t"), (lost, "gone")):
        table = made.table(name, {"id": "int64", "name": "varchar"}, schema)
        folder = f"0190f8f0-0000-7000-8000-{schema:012d}"
        made.data_file(table, f"{folder}/{name}/a.parquet", _numbers(5))
        made.totals(table)
    made.commit('created_schema:"a",created_schema:"a"."b",created_table:"a"."b"."t"', alters=True)
    with quacklake.connect(made.close()) as lake:
        assert lake.table("a.b.t").count() == 5
        assert [str(name) for name in lake.tables()] == ['"a"."b".t'], "a schema without its parent counts as dropped"
        with pytest.raises(NotFoundError):
            lake.table("c.gone").count()
        lake.create_table("a.b.u", [{"i": 1}])
        lake.drop_schema("a", cascade=True)
        assert lake.tables() == []


@pytest.mark.parametrize("database", DATABASES)
def test_f14_8_comments_on_columns_of_views_are_read_and_end_with_the_view(database: str, tmp_path: Path) -> None:
    made = NextLake(tmp_path, database)
    _first(made)
    made.insert("view", 5, "0190f8f0-0000-7000-8000-000000000005", 2, None, 0, "v", "duckdb", "SELECT id FROM t", "")
    made.insert("view_column_tag", 5, "id", 2, None, "comment", "what it is")
    made.objects = 6
    made.commit('created_view:"main"."v"', alters=True)
    with quacklake.connect(made.close()) as lake:
        assert lake.view("v").column_comments == {"id": "what it is"}
        lake.sql("COMMENT ON COLUMN v.ID IS 'something else'")
        lake.rename_view("v", "w")
        assert lake.view("w").column_comments == {"id": "something else"}
        lake.drop_view("w")
        lake.create_view("w", "SELECT id FROM t")
        assert lake.view("w").column_comments == {}
        assert lake.at(2).view("v").column_comments == {"id": "what it is"}
        with pytest.raises(NotFoundError, match="no column"):
            lake.view("w").set_column_comment("nope", "x")


@pytest.mark.parametrize("database", DATABASES)
def test_f14_9_vectors_of_several_snapshots_show_each_its_own(database: str, tmp_path: Path) -> None:
    made = NextLake(tmp_path, database)
    table = made.table("t", {"id": "int64", "name": "varchar"})
    file = made.data_file(table, "main/t/a.parquet", _numbers(10))
    made.totals(table)
    made.commit('created_table:"main"."t",inserted_into_table:1', alters=True)
    data, footer = puffin({2: [1], 3: [1, 4, 5]}, "a.parquet")
    made.delete_file(table, file, "main/t", data, 3, footer, 2, 3)
    made.commit("deleted_from_table:1")
    made.commit("deleted_from_table:1")
    with quacklake.connect(made.close()) as lake:
        assert [lake.at(version).table("t").count() for version in (1, 2, 3)] == [10, 9, 7]
        lake.options.set("write_deletion_vectors", True)
        lake.options.set("data_inlining_row_limit", 0)
        lake.table("t").delete("id > 8")
        assert [lake.at(version).table("t").count() for version in (1, 2, 3, 4)] == [10, 9, 7, 6]
        assert lake.verify(deep=True).findings == ()
        gone = [change["id"] for change in lake.table("t").deletions(1, 4).to_pylist()]
        assert sorted(gone) == [1, 4, 5, 9]


@pytest.mark.parametrize("database", DATABASES)
def test_f14_10_columns_of_the_type_null_hold_nothing(database: str, tmp_path: Path) -> None:
    made = NextLake(tmp_path, database)
    table = made.table("t", {"id": "int64", "nothing_here": "null", "at": "timestamptz_ns"})
    times = pa.array([1_700_000_000_123_456_789] * 3, pa.timestamp("ns", "UTC"))
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "nothing_here": pa.nulls(3), "at": times})
    made.data_file(table, "main/t/a.parquet", rows)
    made.totals(table)
    made.commit('created_table:"main"."t",inserted_into_table:1', alters=True)
    with quacklake.connect(made.close()) as lake:
        found = lake.table("t").to_pylist()
        assert [row["nothing_here"] for row in found] == [None] * 3
        micros = 123457 if IS_2 else 123456  # 2.0 rounds what 1.5 cuts off
        moment = dt.datetime(2023, 11, 14, 22, 13, 20, micros, tzinfo=dt.UTC)
        assert {row["at"] for row in found} == {moment}, "with microseconds"
        lake.table("t").delete("id = 2")
        with pytest.raises(quacklake.QuacklakeError, match="timestamptz_ns"):
            lake.table("t").append([{"id": 4, "nothing_here": None, "at": moment}])
        assert lake.table("t").count() == 2


def test_f14_11_variants_inlined_in_sqlite_are_read(tmp_path: Path) -> None:
    made = NextLake(tmp_path)
    table = made.table("t", {"id": "int64", "v": "variant"})
    metadata, value = b"\x11\x02\x00\x01\x02ab", b"\x02\x02\x00\x01\x00\x05\x07\x14\x01\x00\x00\x00\x05x"
    made.inlined(table, ("id BIGINT", "v BLOB"), [(1, metadata + value), (2, None)])
    made.totals(table)
    made.commit('created_table:"main"."t",inlined_insert:1', alters=True)
    with quacklake.connect(made.close()) as lake:
        query = "SELECT id, v::VARCHAR FROM t ORDER BY id"
        assert lake.sql(query).fetchall() == [(1, "{'a': 1, 'b': x}"), (2, None)]
        with pytest.raises(UnsupportedFeatureError, match="inlined rows with variants"):
            lake.migrate("1.0")
        lake.maintenance.flush_inlined_data()
        assert lake.sql(query).fetchall() == [(1, "{'a': 1, 'b': x}"), (2, None)]
        assert lake.migrate("1.0") == "1.0"


@pytest.mark.parametrize("database", DATABASES)
def test_f14_12_totals_may_be_unknown(database: str, tmp_path: Path) -> None:
    made = NextLake(tmp_path, database)
    table = made.table("t", {"id": "int64", "name": "varchar"})
    made.data_file(table, "main/t/a.parquet", _numbers(10))
    made.totals(table, known=False)
    made.commit('created_table:"main"."t",inserted_into_table:1', alters=True)
    with quacklake.connect(made.close()) as lake:
        lake.table("t").append([{"id": 50, "name": "x"}])
        assert lake.table("t").count() == 11
        assert lake.verify(deep=True).findings == ()


def test_a_puffin_file_that_mixes_vectors_with_and_without_snapshots_is_refused(tmp_path: Path) -> None:
    made = NextLake(tmp_path)
    table = made.table("t", {"id": "int64", "name": "varchar"})
    file = made.data_file(table, "main/t/a.parquet", _numbers(10))
    made.totals(table)
    made.commit('created_table:"main"."t",inserted_into_table:1', alters=True)
    data, _ = puffin({2: [1], 3: [1, 4, 5]}, "a.parquet")
    mixed = data.replace(b'"ducklake-snapshot-id": "3"', b'"ducklake-snapshot-no": "3"')
    made.delete_file(table, file, "main/t", mixed, 3, 16, 2, 3)
    made.commit("deleted_from_table:1")
    made.commit("deleted_from_table:1")
    with quacklake.connect(made.close()) as lake, pytest.raises(CorruptFileError, match="with and"):
        lake.table("t").to_pylist()
