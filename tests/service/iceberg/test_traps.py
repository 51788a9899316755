"""The traps in which readers of Iceberg go wrong silently if a lake's files are handed to them as they are."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import RESTError
from pyiceberg.table import Table

import quacklake
from quacklake import Lake
from quacklake.service.iceberg import IcebergSettings, LakeTables

from .serving import Service, duckdb_reader, pyiceberg_reader, rows_of, served

pytestmark = pytest.mark.daily(0.3)


def both(service: Service, lake: Lake, *, where: str | None = None, name: str = "t") -> Table:
    """Check that pyiceberg and DuckDB read what the lake holds; returns the table."""
    served_as = service.add(lake)
    table = pyiceberg_reader(service, served_as).load_table(f"main.{name}")
    expected = _iceberg_rows(lake, name, where)
    assert rows_of(table.scan(**({"row_filter": where} if where else {})).to_arrow()) == expected
    with duckdb_reader(service, served_as) as reader:
        query = f'FROM ice.main."{name}"' + (f" WHERE {where}" if where else "")
        assert rows_of(reader.execute(query).to_arrow_table()) == expected
        assert reader.execute(f"SELECT count(*) FROM ({query})").fetchall() == [(len(expected),)]
    return table


def _iceberg_rows(lake: Lake, name: str, where: str | None = None) -> list[str]:
    """The rows of a table in the types that readers of Iceberg have."""
    rows = lake.table(name).to_arrow(where=where)
    unsigned = {"uint8": pa.int32(), "uint16": pa.int32(), "uint32": pa.int64(), "uint64": pa.decimal128(20, 0)}
    for index, field in enumerate(rows.schema):
        if str(field.type) in unsigned:
            rows = rows.set_column(index, field.name, rows.column(index).cast(unsigned[str(field.type)]))
    return rows_of(rows)


def numbers(count: int, first: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("vectors", [False, True])
def test_deletes_of_later_snapshots_do_not_reach_older_ones(
    service: Service, older_service: Service, lake: Lake, version: int, vectors: bool
) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    lake.options.set("write_deletion_vectors", vectors)
    lake.create_table("t", numbers(500))
    for number in range(4):
        lake.table("t").delete(f"id % 11 = {number}")
    table = both(service if version == 3 else older_service, lake)
    assert table.metadata.format_version == version
    for snapshot in table.metadata.snapshots:
        expected = lake.at(version=snapshot.snapshot_id).table("t").to_arrow()
        assert rows_of(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()) == rows_of(expected)


@pytest.mark.parametrize("version", [2, 3])
def test_rows_and_deletes_that_are_in_the_catalog_are_served(
    service: Service, older_service: Service, lake: Lake, version: int
) -> None:
    lake.create_table("t", numbers(300))
    lake.table("t").delete("id IN (3, 5)")
    lake.table("t").append(numbers(4, 1000))
    lake.table("t").delete("id IN (7, 1001)")
    lake.table("t").append([{"id": 2000}])
    assert lake.table("t").plan().inlined is not None
    both(service if version == 3 else older_service, lake)


def test_files_of_several_snapshots_show_each_its_own_rows(service: Service, lake: Lake) -> None:
    lake.create_table("t", {"id": "BIGINT"})
    for number in range(5):
        lake.table("t").append(numbers(3, number * 10))
    lake.table("t").flush_inlined_data()
    lake.table("t").append(numbers(50, 100))
    lake.table("t").append(numbers(50, 200))
    lake.table("t").merge_adjacent_files()
    assert any(lake.table("t").files().column("partial_max").is_valid().to_pylist())
    table = both(service, lake)
    for snapshot in table.metadata.snapshots:
        expected = lake.at(version=snapshot.snapshot_id).table("t").to_arrow()
        assert rows_of(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()) == rows_of(expected)


DEFAULTS: dict[str, Any] = {
    "INTEGER": 42, "DOUBLE": -1.5, "VARCHAR": "dé'\"", "BOOLEAN": False, "DATE": dt.date(2024, 2, 29),
    "TIMESTAMP": dt.datetime(2024, 2, 29, 1, 2, 3, 456789), "DECIMAL(30,4)": Decimal("12345678901234567890123456.7891"),
    "UUID": "00112233-4455-6677-8899-aabbccddeeff", "BLOB": b"\x00\xff", "TIME": dt.time(1, 2, 3, 456789),
    "TIMESTAMPTZ": dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC),
}  # fmt: skip


@pytest.mark.parametrize("version", [2, 3])
def test_defaults_of_added_columns_are_in_older_rows(
    service: Service, older_service: Service, lake: Lake, version: int
) -> None:
    lake.create_table("t", numbers(100))
    for number, (type_, default) in enumerate(DEFAULTS.items()):
        lake.table("t").add_column(f"c{number}", type_, default)
    lake.table("t").append([{"id": 1000}])
    table = both(service if version == 3 else older_service, lake)
    in_place = [task.file.file_path for task in table.scan().plan_files()]
    # format 2 has no defaults, and format 3 none of blobs that are certain: such files are copied
    assert all("iceberg.cache" in path for path in in_place)


def test_defaults_that_format_3_can_hold_need_no_copies(service: Service, lake: Lake) -> None:
    lake.create_table("t", numbers(100))
    for number, (type_, default) in enumerate(DEFAULTS.items()):
        if type_ != "BLOB":
            lake.table("t").add_column(f"c{number}", type_, default)
    table = both(service, lake)
    assert not any("iceberg.cache" in task.file.file_path for task in table.scan().plan_files())
    both(service, lake, where="c0 = 42 AND id > 50")


UNSIGNED = pa.table(
    {
        "a": pa.array([0, 200, 255], pa.uint8()),
        "b": pa.array([0, 2**15, 2**16 - 1], pa.uint16()),
        "c": pa.array([0, 2**31, 2**32 - 1], pa.uint32()),
        "d": pa.array([0, 2**63, 2**64 - 1], pa.uint64()),
        "e": pa.array([0, 1_700_000_000_001, None], pa.timestamp("ms")),
    }
)


@pytest.mark.parametrize(
    "where", [None, "a > 100", "b >= 32768", "c >= 2147483648", "c = 4294967295", "d > 9223372036854775807"]
)
def test_unsigned_numbers_and_milliseconds_are_right_and_found(service: Service, lake: Lake, where: str | None) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    lake.create_table("t", UNSIGNED)
    lake.table("t").append(UNSIGNED.slice(0, 1))
    if where is not None and where.startswith("d"):
        served_as = service.add(lake)
        with duckdb_reader(service, served_as) as reader:
            found = reader.execute(f"SELECT d FROM ice.main.t WHERE {where}").fetchall()
        assert sorted(row[0] for row in found) == [2**63, 2**64 - 1]
    else:
        both(service, lake, where=where)


def test_files_that_are_gone_are_not_looked_for(service: Service, lake: Lake) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    for number in range(6):
        if not number:
            lake.create_table("t", UNSIGNED)
        lake.table("t").overwrite(UNSIGNED.slice(number % 3, 1))
    lake.tag("kept", 2)
    lake.expire_snapshots(keep_last=2)
    lake.cleanup_old_files(cleanup_all=True)
    table = both(service, lake)
    for snapshot in table.metadata.snapshots:
        assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == 1


def test_milliseconds_in_files_become_microseconds(service: Service, lake: Lake) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    lake.create_table("t", UNSIGNED.select(["e"]))
    table = pyiceberg_reader(service, service.add(lake)).load_table("main.t")
    (path,) = [task.file.file_path for task in table.scan().plan_files()]
    assert str(pq.read_schema(path).field("e").type) == "timestamp[us]"


def test_what_is_too_large_to_copy_is_refused_with_the_reason(lake: Lake, tmp_path: Path) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    lake.create_table("t", UNSIGNED)
    lake.create_table("u", numbers(10))
    with served(IcebergSettings(copy_bytes=10, cache_path=str(tmp_path / "cache"))) as small:
        catalog = pyiceberg_reader(small, small.add(lake))
        with pytest.raises(RESTError, match=r'column "a" has the type uint8.*copy_bytes'):
            catalog.load_table("main.t")
        assert catalog.load_table("main.u").scan().to_arrow().num_rows == 10


@pytest.mark.parametrize("type_", ["HUGEINT", "UHUGEINT", "INTERVAL", "TIME WITH TIME ZONE", "VARIANT"])
def test_types_that_iceberg_lacks_are_refused_by_name(service: Service, lake: Lake, type_: str) -> None:
    lake.create_table("t", {"id": "INTEGER", "odd": type_})
    catalog = pyiceberg_reader(service, service.add(lake))
    with pytest.raises(RESTError, match=r'column "odd" has the type .* which Iceberg lacks'):
        catalog.load_table("main.t")
    assert catalog.list_tables("main") == [("main", "t")]


def test_a_table_that_became_servable_shows_the_snapshots_since_then(service: Service, lake: Lake) -> None:
    lake.create_table("t", {"id": "BIGINT", "odd": "INTERVAL"})
    lake.table("t").append([{"id": 1, "odd": None}])
    lake.table("t").drop_column("odd")
    newest = lake.current_snapshot()
    lake.table("t").append([{"id": 2}])
    table = both(service, lake)
    assert [each.snapshot_id for each in table.metadata.snapshots] == [newest, newest + 1]


def test_what_spark_cannot_read_is_told(service: Service, lake: Lake) -> None:
    lake.create_table("t", {"id": "INTEGER", "at": "TIME", "ns": "TIMESTAMP_NS"})
    table = pyiceberg_reader(service, service.add(lake)).load_table("main.t")
    readers = json.loads(table.properties["quacklake.readers"])
    assert '"at" (time)' in readers["spark"] and '"ns" (timestamp_ns)' in readers["spark"]
    assert readers["pyiceberg"] == readers["duckdb"] == ""
    lake.create_table("u", {"odd": "INTERVAL"})
    tables = LakeTables(lake, IcebergSettings())
    assert tables.readers("main", "t") == readers
    assert all("interval" in reason for reason in tables.readers("main", "u").values())


def test_nanoseconds_need_format_3(service: Service, older_service: Service, lake: Lake) -> None:
    lake.create_table("t", {"id": "INTEGER", "ns": "TIMESTAMP_NS"})
    lake.table("t").append([{"id": 1, "ns": dt.datetime(2024, 1, 2, 3, 4, 5, 6)}])
    with pytest.raises(RESTError, match="timestamp_ns, which Iceberg has since format 3"):
        pyiceberg_reader(older_service, older_service.add(lake)).load_table("main.t")
    with duckdb_reader(service, service.add(lake)) as reader:
        found = reader.execute("SELECT epoch_ns(ns) FROM ice.main.t").fetchall()
    assert found == [(1704164645000006000,)]


@pytest.mark.parametrize("key", ["day(ts)", "month(ts)", "hour(ts)", "year(ts)", "bucket(3, id)", "name"])
def test_partitions_do_not_hide_rows(service: Service, lake: Lake, key: str) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    lake.create_table("t", {"id": "BIGINT", "ts": "TIMESTAMP", "name": "VARCHAR"}, partition_by=[key])
    first = dt.datetime(2023, 12, 30)
    rows = [{"id": i, "ts": first + dt.timedelta(hours=13 * i), "name": f"a b/{i % 3}%"} for i in range(12)]
    lake.table("t").append([*rows, {"id": None, "ts": None, "name": None}])
    both(service, lake)
    both(service, lake, where="ts >= '2024-01-01T00:00:00'")
    both(service, lake, where="id = 7")
    both(service, lake, where="name = 'a b/1%'")


def test_bounds_do_not_hide_long_texts_nulls_or_zeros(service: Service, lake: Lake) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    texts = ["x" * 255 + "é", "x" * 400, "x" * 300 + "z", None]
    lake.create_table("t", pa.table({"s": texts, "f": [0.0, -0.0, 1.5, None], "n": pa.array([None] * 4, pa.int32())}))
    lake.table("t").append(pa.table({"s": ["a"], "f": [-3.0], "n": pa.array([3], pa.int32())}))
    for where in (
        f"s = '{'x' * 400}'",
        f"s > '{'x' * 300}y'",
        "s IS NULL",
        "n IS NULL",
        "n IS NOT NULL",
        "f = 0.0",
        "f IS NULL",
    ):
        both(service, lake, where=where)


def test_nan_is_not_pruned_away(service: Service, lake: Lake) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    lake.create_table("t", pa.table({"f": [1.0, float("nan")]}))
    with duckdb_reader(service, service.add(lake)) as reader:
        assert reader.execute("SELECT count(*) FROM ice.main.t WHERE f > 5").fetchall() == [(1,)]


@pytest.mark.parametrize("inlined", [False, True])
def test_values_of_every_other_type_are_right(service: Service, lake: Lake, inlined: bool) -> None:
    values = {
        "boolean": "true", "tinyint": "-128", "smallint": "-32768", "integer": "7", "bigint": "-9223372036854775808",
        "real": "0.1", "double": "-1e300", "decimal(4,2)": "-1.25", "decimal(18,3)": "123456789012345.678",
        "decimal(38,10)": "-1234567890123456789012345678.0123456789", "date": "'1600-02-29'", "time": "'23:59:59.999999'",
        "timestamp": "'1969-12-31 23:59:59.999999'", "timestamp_s": "'2024-01-02 03:04:05'",
        "timestamptz": "'2024-01-02 03:04:05.678901+02'", "varchar": "'dé\U0001f986'", "json": "'{\"a\": [1]}'",
        "blob": "'\\x00\\xFF'::blob", "uuid": "'00112233-4455-6677-8899-aabbccddeeff'",
        "struct(a integer[], b struct(c varchar))[]": "[{'a': [1, NULL], 'b': {'c': 'x'}}, NULL]",
        "map(integer, struct(d date))": "map {3: {'d': '2024-01-01'}}",
    }  # fmt: skip
    lake.create_table("t", {f"c{number}": type_ for number, type_ in enumerate(values)})
    lake.options.set("data_inlining_row_limit", 10 if inlined else 0)
    row = ", ".join(f"CAST({value} AS {type_})" for type_, value in values.items())
    lake.sql(f"INSERT INTO t SELECT {row}")
    nothing = ["NULL" if "struct" not in type_ else f"CAST({value} AS {type_})" for type_, value in values.items()]
    lake.sql(f"INSERT INTO t SELECT {', '.join(nothing)}")
    assert (lake.table("t").plan().inlined is not None) is inlined
    both(service, lake)


def test_lists_of_structs_that_pyiceberg_takes_for_empty_are_told(service: Service, lake: Lake) -> None:
    lake.create_table("t", {"l": "STRUCT(x INTEGER)[]", "m": "MAP(INTEGER, STRUCT(x INTEGER))", "fine": "INTEGER[]"})
    lake.sql("INSERT INTO t VALUES (NULL, NULL, NULL), ([], map {}, []), ([{'x': 1}], map {1: {'x': 1}}, [1])")
    name = service.add(lake)
    table = pyiceberg_reader(service, name).load_table("main.t")
    told = json.loads(table.properties["quacklake.readers"])
    assert told["pyiceberg"] == 'pyiceberg takes NULL for an empty list or map in "l", "m"'
    found = table.scan().to_arrow()
    assert sorted(map(repr, found.column("fine").to_pylist())) == ["None", "[1]", "[]"]
    assert found.column("l").null_count == 0, "pyiceberg keeps NULL now: nothing has to be told any more"
    with duckdb_reader(service, name) as reader:
        assert rows_of(reader.execute("FROM ice.main.t").to_arrow_table()) == rows_of(lake.table("t").to_arrow())


def test_readers_travel_by_time_too(service: Service, lake: Lake) -> None:
    lake.create_table("t", numbers(20))
    name = service.add(lake)
    table = pyiceberg_reader(service, name).load_table("main.t")
    first = table.metadata.snapshots[-1]
    while True:  # times are milliseconds for readers
        lake.table("t").append(numbers(20, 100))
        table.refresh()
        if table.metadata.snapshots[-1].timestamp_ms > first.timestamp_ms:
            break
    found = table.snapshot_as_of_timestamp(first.timestamp_ms)
    assert found is not None and found.snapshot_id == first.snapshot_id
    moment = dt.datetime.fromtimestamp((first.timestamp_ms + 0.5) / 1000, dt.UTC)
    with duckdb_reader(service, name) as reader:
        rows = reader.execute(
            f"SELECT count(*) FROM ice.main.t AT (TIMESTAMP => TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S.%f}')"
        )
        assert rows.fetchall() == [(20,)]


def test_an_empty_table_has_columns_and_no_rows(service: Service, lake: Lake) -> None:
    lake.create_table("t", {"id": "BIGINT", "s": "STRUCT(a INTEGER, b VARCHAR[])"})
    table = both(service, lake)
    assert [field.name for field in table.schema().fields] == ["id", "s"]


def test_nested_columns_follow_their_fields_through_renames(service: Service, lake: Lake) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    lake.create_table(
        "t", {"id": "BIGINT", "s": "STRUCT(a INTEGER, b VARCHAR)", "l": "INTEGER[]", "m": "MAP(VARCHAR, BIGINT)"}
    )
    row = {"id": 1, "s": {"a": 1, "b": "x"}, "l": [1, None, 3], "m": [("k", 5)]}
    lake.table("t").append(pa.Table.from_pylist([row], lake.table("t").schema))
    lake.table("t").rename_column("s.a", "z")
    lake.table("t").add_column("s.c", "DOUBLE")
    row = {"id": 2, "s": {"z": 7, "b": None, "c": 0.5}, "l": [], "m": []}
    lake.table("t").append(pa.Table.from_pylist([row], lake.table("t").schema))
    both(service, lake)


# -- files from elsewhere ----------------------------------------------------------------------------------------------


@pytest.fixture
def open_lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake that may read files of a folder elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True, foreign_paths=[str(tmp_path / "elsewhere")]
    ) as opened:
        yield opened


def test_added_files_without_field_ids_are_read_by_name(service: Service, open_lake: Lake, tmp_path: Path) -> None:
    open_lake.create_table("t", {"id": "BIGINT", "name": "VARCHAR", "more": "INTEGER"})
    path = tmp_path / "elsewhere" / "one.parquet"
    pq.write_table(pa.table({"name": ["a", "b"], "id": [1, 2]}), path)
    open_lake.table("t").add_files(path, allow_missing=True)
    open_lake.table("t").rename_column("name", "title")
    table = both(service, open_lake)
    assert "schema.name-mapping.default" in table.properties
    assert [task.file.file_path for task in table.scan().plan_files()] == [str(path)]


def test_added_files_that_name_other_columns_the_same_are_copied(
    service: Service, open_lake: Lake, tmp_path: Path
) -> None:
    open_lake.create_table("t", {"id": "BIGINT", "name": "VARCHAR"})
    for number in range(2):
        path = tmp_path / "elsewhere" / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number], "name": [f"n{number}"]}), path)
        open_lake.table("t").add_files(path)
        if not number:
            open_lake.table("t").rename_column("name", "old")
            open_lake.table("t").add_column("name", "VARCHAR")
            pq.write_table(pa.table({"id": [9], "name": ["x"], "old": ["y"]}), tmp_path / "elsewhere" / "1.parquet")
            open_lake.table("t").add_files(tmp_path / "elsewhere" / "1.parquet")
            break
    table = both(service, open_lake)
    places = sorted(Path(task.file.file_path).parent.name for task in table.scan().plan_files())
    assert "elsewhere" in places and len(places) == 2 and places != ["elsewhere", "elsewhere"]


def test_added_files_with_columns_in_folders_or_ids_of_others_are_copied(
    service: Service, open_lake: Lake, tmp_path: Path
) -> None:
    open_lake.create_table("t", {"id": "BIGINT", "year": "INTEGER"})
    folder = tmp_path / "elsewhere" / "year=2024"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), folder / "f.parquet")
    open_lake.table("t").add_files(folder / "f.parquet")
    ids = pa.schema(
        [
            pa.field("year", pa.int32(), metadata={"PARQUET:field_id": "1"}),
            pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "2"}),
        ]
    )
    pq.write_table(pa.table([[2025], [3]], schema=ids), tmp_path / "elsewhere" / "ids.parquet")
    open_lake.table("t").add_files(tmp_path / "elsewhere" / "ids.parquet")
    pq.write_table(
        pa.table({"id": pa.array([4], pa.uint8()), "year": pa.array([2026], pa.int32())}),
        tmp_path / "elsewhere" / "u.parquet",
    )
    open_lake.table("t").add_files(tmp_path / "elsewhere" / "u.parquet")
    table = both(service, open_lake)
    assert all("iceberg.cache" in task.file.file_path for task in table.scan().plan_files())


def test_encrypted_tables_are_refused(service: Service, tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/e.db", tmp_path / "data", create=True, encrypted=True) as lake:
        lake.create_table("t", numbers(100))
        with pytest.raises(RESTError, match="encrypted"):
            pyiceberg_reader(service, service.add(lake)).load_table("main.t")


def test_writers_fail_and_leave_no_files_in_the_lake(service: Service, lake: Lake, tmp_path: Path) -> None:
    lake.create_table("t", numbers(100))
    name = service.add(lake)
    table = pyiceberg_reader(service, name).load_table("main.t")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(Exception, match="read-only"):
        table.append(numbers(1))
    with duckdb_reader(service, name) as reader, pytest.raises(duckdb.Error, match="read-only"):
        reader.execute("INSERT INTO ice.main.t VALUES (1)")
    after = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
