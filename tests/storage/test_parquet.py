"""Footers, and the statistics that follow from them: the same as the reference implementation's."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quacklake.core.format.schema import Column, ColumnRow, TableSchema, unflatten
from quacklake.core.format.stats import ColumnStats
from quacklake.core.storage import Store, column_stats, read_footer
from quacklake.errors import CorruptFileError, UnsupportedFeatureError
from tests.duckdbs import import_extension

COLUMNS = {
    "i": ("INTEGER", "CASE WHEN i % 3 = 0 THEN NULL ELSE i - 5 END"),
    "nothing": ("VARCHAR", "NULL"),
    "s": ("VARCHAR", "chr((200 + i)::INTEGER) || i"),
    "f": ("FLOAT", "i / 3"),
    "d": ("DOUBLE", "-i / 7"),
    "zero": ("DOUBLE", "CASE WHEN i = 0 THEN -0.0 ELSE 0.0 END"),
    "endless": ("DOUBLE", "CASE i WHEN 1 THEN 'inf'::DOUBLE WHEN 2 THEN '-inf'::DOUBLE ELSE i END"),
    "d4": ("DECIMAL(4,4)", "i / 100"),
    "d9": ("DECIMAL(9,2)", "(i - 5) / 3"),
    "d18": ("DECIMAL(18,2)", "(i - 5) / 3"),
    "d38": ("DECIMAL(38,5)", "(i - 5) * 1.00001"),
    "dt": ("DATE", "DATE '1969-12-25' + i::INTEGER"),
    "dt_inf": ("DATE", "CASE i WHEN 1 THEN 'infinity'::DATE WHEN 2 THEN '-infinity'::DATE ELSE '0044-03-15 (BC)' END"),
    "ts_s": ("TIMESTAMP_S", "TIMESTAMP '1969-12-31 23:59:57' + INTERVAL (i) SECOND"),
    "ts_ms": ("TIMESTAMP_MS", "TIMESTAMP '2024-01-01 00:00:00.123' + INTERVAL (i) SECOND"),
    "ts": ("TIMESTAMP", "TIMESTAMP '2024-01-01 00:00:00.123456' + INTERVAL (i) SECOND"),
    "ts_ns": ("TIMESTAMP_NS", "'2024-01-01 00:00:00.123456789'::TIMESTAMP_NS"),
    "ts_inf": ("TIMESTAMP", "CASE i WHEN 1 THEN 'infinity'::TIMESTAMP ELSE TIMESTAMP '2024-01-01' END"),
    "tz": ("TIMESTAMPTZ", "TIMESTAMPTZ '2024-01-01 00:00:00.5+02' + INTERVAL (i) HOUR"),
    "ti": ("TIME", "TIME '01:02:03.000001' + INTERVAL (i) SECOND"),
    "bl": ("BLOB", "('\\x0' || (i % 10) || '\\xFF')::BLOB"),
    "long_blob": ("BLOB", "repeat('z', 300)::BLOB"),
    "u": ("UUID", "('f23e4567-e89b-12d3-a456-42661417400' || (i % 10))::UUID"),
    "b": ("BOOLEAN", "i % 2 = 0"),
    "i8": ("TINYINT", "i - 5"),
    "i16": ("SMALLINT", "i * 1000"),
    "i64": ("BIGINT", "9223372036854775800 - i"),
    "u8": ("UTINYINT", "255 - i"),
    "u16": ("USMALLINT", "65535 - i"),
    "u32": ("UINTEGER", "4294967295 - i"),
    "u64": ("UBIGINT", "18446744073709551615 - i"),
    "i128": ("HUGEINT", "i"),
    "u128": ("UHUGEINT", "i"),
    "j": ("JSON", "'{\"a\":' || i || '}'"),
    "li": ("INTEGER[]", "CASE i % 4 WHEN 0 THEN NULL WHEN 1 THEN [] WHEN 2 THEN [i, NULL] ELSE [i] END"),
    "st": ("STRUCT(a INTEGER, b VARCHAR[])", "CASE WHEN i % 4 = 0 THEN NULL ELSE {'a': i, 'b': ['x' || i]} END"),
    "m": ("MAP(VARCHAR, INTEGER)", "CASE i % 3 WHEN 0 THEN NULL WHEN 1 THEN MAP{} ELSE MAP{'k' || i: NULL} END"),
    "g": ("GEOMETRY", "('POINT(' || i || ' ' || (-i) || ')')::GEOMETRY"),
    "gl": ("GEOMETRY[]", "[('LINESTRING Z(0 0 1, ' || i || ' 5 2)')::GEOMETRY]"),
    "v": ("VARIANT", "CASE WHEN i = 3 THEN NULL ELSE {'a': i, 'b': 'x' || i}::VARIANT END"),
}


class Reference:
    """A lake of the reference implementation with one table, its files and the statistics it stored for them."""

    def __init__(self, folder: Path) -> None:
        for extension in ("ducklake", "sqlite_scanner"):
            import_extension(extension)
        self.folder = folder
        self.connection = duckdb.connect()
        self.connection.execute("LOAD ducklake; LOAD sqlite_scanner; SET TimeZone = 'UTC'; SET threads = 1")
        self.connection.execute(
            f"ATTACH 'ducklake:sqlite:{folder}/l.sqlite' AS l (DATA_PATH '{folder}/data/', DATA_INLINING_ROW_LIMIT 0)"
        )
        self.store = Store.open(f"{folder}/data")

    def metadata(self, sql: str) -> list[Any]:
        return self.connection.execute(sql.replace("@", "__ducklake_metadata_l.ducklake_")).fetchall()

    def schema(self) -> TableSchema:
        columns = ", ".join(field for field in ColumnRow.__slots__)
        return unflatten(ColumnRow(*row) for row in self.metadata(f"SELECT {columns} FROM @column"))

    def stats(self) -> dict[int, ColumnStats]:
        rows = self.metadata(
            "SELECT column_id, column_size_bytes, value_count, null_count, min_value, max_value, contains_nan,"
            " extra_stats FROM @file_column_stats"
        )
        return {row[0]: ColumnStats(*row) for row in rows}

    def file(self) -> str:
        ((path,),) = self.metadata("SELECT 'main/t/' || path FROM @data_file")
        return str(path)


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[Reference]:
    lake = Reference(tmp_path)
    yield lake
    lake.connection.close()


@pytest.mark.parametrize("groups", [1, 3])
def test_statistics_are_those_of_the_reference_implementation(reference: Reference, groups: int) -> None:
    rows, group = (20, 122880) if groups == 1 else (5000, 2048)
    # Only 20 different values, so that every expression stays in range.
    types = ", ".join(f"{name} {type}" for name, (type, _) in COLUMNS.items())
    values = ", ".join(value for _, value in COLUMNS.values())
    reference.connection.execute(f"CREATE TABLE l.t({types})")
    reference.connection.execute(f"CALL l.set_option('parquet_row_group_size', {group})")
    reference.connection.execute(f"INSERT INTO l.t SELECT {values} FROM (SELECT r % 20 AS i FROM range({rows}) t(r))")
    footer = read_footer(reference.store, reference.file())
    ((record_count, size, footer_size),) = reference.metadata(
        "SELECT record_count, file_size_bytes, footer_size FROM @data_file"
    )
    assert (footer.rows, footer.size_bytes, footer.footer_size) == (record_count, size, footer_size)
    assert footer.row_groups == groups

    schema, expected = reference.schema(), reference.stats()
    found = {stats.column_id: stats for stats in column_stats(footer, schema)}
    assert found.keys() == expected.keys()
    for leaf in schema.leaves():
        one, two = found[leaf.id], expected[leaf.id]
        assert (one.size_bytes, one.value_count, one.null_count) == (two.size_bytes, two.value_count, two.null_count)
        assert one.contains_nan is None
        if leaf.type == "geometry":
            assert json.loads(one.extra or "") == json.loads(two.extra or "")
        else:
            assert one.extra is None
        assert (one.min, one.max) == (two.min, two.max), leaf


def test_what_parquet_cannot_tell_stays_unknown(reference: Reference) -> None:
    reference.connection.execute("CREATE TABLE l.t(nan DOUBLE, tz TIMETZ, iv INTERVAL, long VARCHAR)")
    reference.connection.execute(
        "INSERT INTO l.t SELECT CASE WHEN i = 4 THEN 'nan'::DOUBLE ELSE i END, '01:02:03+02', INTERVAL (i) DAY,"
        " repeat('é', 400) || i FROM range(20) r(i)"
    )
    found = column_stats(read_footer(reference.store, reference.file()), reference.schema())
    assert len(found) == 4
    for stats in found:
        assert (stats.min, stats.max, stats.contains_nan) == (None, None, None)
        assert stats.size_bytes


def field(name: str, type: pa.DataType, id: int | None) -> pa.Field:
    return pa.field(name, type, metadata=None if id is None else {"PARQUET:field_id": str(id)})


def written(store: Store, table: pa.Table, **options: Any) -> str:
    with store.open_output("main/t/f.parquet") as sink:
        pq.write_table(table, sink, **options)
    return "main/t/f.parquet"


def stats_of(store: Store, array: pa.Array, type: str, **options: Any) -> ColumnStats:
    """The statistics of a file with one column, for a table that has it as ``type``."""
    path = written(store, pa.table([array], pa.schema([field("x", array.type, 1)])), **options)
    (stats,) = column_stats(read_footer(store, path), TableSchema((Column(1, "x", type),)))
    return stats


UTC = dt.UTC
INSTANT = dt.datetime(2024, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("array", "type", "low", "high"),
    [
        (pa.array([3, 1, None], pa.int32()), "int64", "1", "3"),
        (pa.array([2**32 - 1, 7], pa.uint32()), "uint64", "7", "4294967295"),
        (pa.array([1.5, -2.5], pa.float32()), "float64", "-2.5", "1.5"),
        (pa.array([1.5, float("nan")]), "float64", "1.5", "1.5"),
        (pa.array([float("nan")]), "float64", None, None),
        (pa.array([1.5]), "float32", None, None),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), "decimal(9,3)", "1.500", "1.500"),
        (pa.array([Decimal("1.555")], pa.decimal128(5, 3)), "decimal(9,1)", None, None),
        (pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), "uint64", str(2**64 - 1), str(2**64 - 1)),
        (pa.array([5], pa.int64()), "decimal(9,2)", "5.00", "5.00"),
        (pa.array([INSTANT], pa.timestamp("ms")), "timestamp", "2024-01-02 03:04:05", "2024-01-02 03:04:05"),
        (pa.array([INSTANT], pa.timestamp("ns")), "timestamp_ns", "2024-01-02 03:04:05", "2024-01-02 03:04:05"),
        (pa.array([INSTANT], pa.timestamp("us", "UTC")), "timestamptz", *["2024-01-02 03:04:05+00"] * 2),
        (pa.array([INSTANT], pa.timestamp("us", "UTC")), "timestamp", None, None),
        (pa.array([INSTANT], pa.timestamp("us")), "timestamptz", None, None),
        (pa.array([INSTANT.date()]), "timestamp", "2024-01-02 00:00:00", "2024-01-02 00:00:00"),
        (pa.array([INSTANT.time()], pa.time32("ms")), "time", "03:04:05", "03:04:05"),
        (pa.array(["b", "a"]), "json", "a", "b"),
        (pa.array([b"b", b"a"]), "varchar", "a", "b"),
        (pa.array([b"\xff", b"a"]), "varchar", "a", None),
        (pa.array(["b"]), "int32", None, None),
        (pa.array([1]), "varchar", None, None),
        (pa.array(["b", "a"]).dictionary_encode(), "varchar", "a", "b"),
        (pa.array([None], pa.int32()), "int32", None, None),
        (pa.array([], pa.int32()), "int32", None, None),
    ],
)
def test_bounds_of_other_writers_fit_the_column_or_are_left_out(
    local_store: Store, array: pa.Array, type: str, low: str | None, high: str | None
) -> None:
    stats = stats_of(local_store, array, type)
    assert (stats.min, stats.max) == (low, high)
    assert (stats.value_count, stats.null_count) == (len(array) - array.null_count, array.null_count)


def test_legacy_timestamps_have_no_bounds(local_store: Store) -> None:
    stats = stats_of(
        local_store, pa.array([INSTANT], pa.timestamp("us")), "timestamp", use_deprecated_int96_timestamps=True
    )
    assert (stats.min, stats.max) == (None, None)


def test_long_text_is_cut_to_a_bound(local_store: Store) -> None:
    value = "é" * 500
    stats = stats_of(local_store, pa.array([value]), "varchar")
    assert stats.min is not None
    assert stats.max is not None
    assert len(stats.min.encode()) <= 256
    assert stats.min <= value <= stats.max


def test_a_file_without_statistics_has_sizes_only(local_store: Store) -> None:
    stats = stats_of(local_store, pa.array([1, None]), "int64", write_statistics=False)
    assert (stats.value_count, stats.null_count, stats.min, stats.max) == (None, None, None, None)
    assert stats.size_bytes


def test_columns_are_found_by_field_id_and_others_are_passed_over(local_store: Store) -> None:
    inner = pa.struct([field("deep", pa.int32(), 12), field("no_id", pa.int32(), None)])
    fields = [
        field("renamed", pa.int64(), 7),
        field("gone", pa.int64(), 8),
        field("inner", inner, 11),
        field("plain", pa.int64(), None),
    ]
    arrays = [pa.array([1]), pa.array([2]), pa.array([{"deep": 3, "no_id": 4}], inner), pa.array([5])]
    table = pa.table(arrays, pa.schema(fields))
    path = written(local_store, table)
    footer = read_footer(local_store, path)
    assert [(c.path, c.field_id, c.inherited) for c in footer.columns] == [
        ("renamed", 7, False),
        ("gone", 8, False),
        ("inner.deep", 12, False),
        ("inner.no_id", 11, True),
        ("plain", None, False),
    ]
    schema = TableSchema(
        (
            Column(7, "n", "int64"),
            Column(11, "s", "struct", children=(Column(12, "deep", "int32"),)),
            Column(13, "new", "int64"),
        )
    )
    assert [(s.column_id, s.min) for s in column_stats(footer, schema)] == [(7, "1"), (12, "3")]
    by_name = column_stats(footer, schema, columns={"plain": 7, "gone": 13})
    assert [(s.column_id, s.min) for s in by_name] == [(7, "5"), (13, "2")]


def test_row_groups_are_merged(local_store: Store) -> None:
    table = pa.table([pa.array([5, None, None, None, 9, -3])], pa.schema([field("x", pa.int64(), 1)]))
    path = written(local_store, table, row_group_size=2)
    footer = read_footer(local_store, path)
    (stats,) = column_stats(footer, TableSchema((Column(1, "x", "int64"),)))
    assert footer.row_groups == 3
    assert (stats.min, stats.max, stats.value_count, stats.null_count) == ("-3", "9", 3, 3)


def test_a_very_large_footer_is_read_whole(local_store: Store) -> None:
    names = [f"a_rather_long_column_name_{n}" for n in range(1500)]
    path = written(local_store, pa.table({name: [1] for name in names}))
    footer = read_footer(local_store, path)
    assert footer.footer_size > 64 * 1024
    assert [column.path for column in footer.columns] == names


def test_footers_are_read_from_s3(s3_store: Store) -> None:
    path = written(s3_store, pa.table({"x": range(1000)}))
    assert read_footer(s3_store, path).rows == 1000


def whole_file() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": list(range(100))}), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"PAR1",
        lambda data: b"id,name\n1,x\n" * 20,
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1",
        lambda data: data[:-8] + b"\x00\x00\x00\x00PAR1",
        lambda data: data[:-100] + b"\xff" * 92 + data[-8:],
        lambda data: data[-200:],
    ],
)
def test_a_damaged_file_is_reported_as_corrupt(local_store: Store, damage: Any) -> None:
    local_store.write("f.parquet", damage(whole_file()))
    with pytest.raises(CorruptFileError, match=r"f\.parquet") as caught:
        read_footer(local_store, "f.parquet")
    assert not caught.value.transient


def test_every_truncation_is_noticed(local_store: Store) -> None:
    data = whole_file()
    for length in range(0, len(data), 7):
        local_store.write("f.parquet", data[:length])
        with pytest.raises(CorruptFileError):
            read_footer(local_store, "f.parquet")


def test_a_missing_file_is_reported_as_missing(local_store: Store) -> None:
    with pytest.raises(CorruptFileError, match="is missing"):
        read_footer(local_store, "f.parquet")


def test_an_encrypted_file_is_not_called_corrupt(local_store: Store) -> None:
    local_store.write("f.parquet", whole_file()[:-4] + b"PARE")
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        read_footer(local_store, "f.parquet")


def test_a_count_that_cannot_be_is_unknown(local_store: Store) -> None:
    footer = read_footer(local_store, written(local_store, pa.table({"x": [1, 2]})))
    columns = tuple(column._replace(value_count=-3, null_count=5) for column in footer.columns)
    wrong = replace(footer, columns=columns)
    schema = TableSchema((Column(1, "x", "int64"),))
    (stats,) = column_stats(wrong, schema, columns={"x": 1})
    assert (stats.value_count, stats.null_count, stats.min, stats.max) == (None, None, "1", "2")
