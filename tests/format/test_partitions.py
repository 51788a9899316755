"""Partition keys, values and folders, against real writes of the reference implementation."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.format.bounds import decode
from quacklake.core.format.layout import (
    IDENTITY,
    PartitionKey,
    PartitionSpec,
    Transform,
    decode_value,
    directory,
    key_names,
    key_texts,
    make_spec,
    parse_partition,
    parse_transform,
)
from quacklake.core.format.names import checked_relative
from quacklake.core.format.schema import Column, TableSchema, from_arrow
from quacklake.core.format.texts import literal_text
from quacklake.core.format.transforms import apply, duckdb_expression
from quacklake.core.format.types import duckdb_type
from quacklake.errors import InputError, UnsupportedFeatureError

from .oracle import lake, value_text

SCHEMA = TableSchema(
    (
        Column(1, "id", "int64"),
        Column(2, "ts", "timestamp"),
        Column(3, "Country", "varchar"),
        Column(4, "s", "struct", children=(Column(5, "x", "int32"),)),
        Column(6, "we ird/c=ol", "int32"),
        Column(7, "raw", "blob"),
        Column(8, "at", "time"),
        Column(9, "day(odd)", "int32"),
        Column(10, "zoned", "timetz"),
        Column(11, "day", "date"),
    )
)
META = "__ducklake_metadata_l"


# -- spellings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "transform"),
    [
        ("id", "id", "identity"),
        ("COUNTRY", "Country", "identity"),
        ('"Country"', "Country", "identity"),
        ("we ird/c=ol", "we ird/c=ol", "identity"),
        ('"we ird/c=ol"', "we ird/c=ol", "identity"),
        ("day(odd)", "day(odd)", "identity"),
        ("day", "day", "identity"),
        ("day(day)", "day", "day"),
        ("day(ts)", "ts", "day"),
        (" Year ( TS ) ", "ts", "year"),
        ("months(ts)", "ts", "month"),
        ("DAYS(ts)", "ts", "day"),
        ("hours(ts)", "ts", "hour"),
        ("years(day)", "day", "year"),
        ("hour(at)", "at", "hour"),
        ("hour(day)", "day", "hour"),
        ("bucket(16, id)", "id", "bucket(16)"),
        ('BUCKET(4,"we ird/c=ol")', "we ird/c=ol", "bucket(4)"),
        ("bucket(2, raw)", "raw", "bucket(2)"),
        ("bucket(2, s)", "s", "bucket(2)"),
    ],
)
def test_a_key_is_a_column_or_a_function_of_one(text: str, column: str, transform: str) -> None:
    found, parsed = parse_partition(text, SCHEMA)
    assert (found.name, str(parsed)) == (column, transform)
    assert parse_transform(transform) == parsed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope", 'column "nope" does not exist'),
        ("day(nope)", 'column "nope" does not exist'),
        ("s.x", "only unqualified columns are supported"),
        ("day(s.x)", "only unqualified columns are supported"),
        ("s", "cannot be partitioned"),
        ("raw", "cannot be partitioned"),
        ("year(id)", "cannot be partitioned"),
        ("day(at)", "cannot be partitioned"),
        ("bucket(2, zoned)", "cannot be partitioned"),
        ("bucket(0, id)", "Bucket count must be positive"),
        ("bucket(-1, id)", "Bucket count must be positive"),
        ("bucket(5000000000, id)", "Bucket count cannot exceed 2147483647"),
        ("bucket(x, id)", "Bucket count must be a constant integer"),
        ("bucket(id)", "Expected bucket"),
        ("truncate(id)", "only year, month, day, hour, and bucket are supported"),
        ("", "Unsupported partition key"),
        ("day()", "Unsupported partition key"),
    ],
)
def test_what_is_no_key_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_partition(text, SCHEMA)


@pytest.mark.parametrize("name", ["epoch_year", "epoch_month", "epoch_day", "epoch_hour"])
def test_epochs_are_keys_of_dates_and_times(name: str) -> None:
    assert parse_transform(name) == Transform(name)
    assert parse_partition(f"{name}(ts)", SCHEMA) == (SCHEMA.find("ts"), Transform(name))
    with pytest.raises(InputError, match="cannot be partitioned"):
        parse_partition(f"{name}(id)", SCHEMA)


def test_keys_are_spelled_as_they_are_read() -> None:
    schema = TableSchema((Column(1, "id", "int64"), Column(2, "order date", "date"), Column(3, "Größe", "varchar")))
    keys = ["id", 'year("order date")', "bucket(16, id)", '"Größe"']
    assert key_texts(make_spec(1, keys, schema), schema) == keys
    assert key_texts(None, schema) == []


@pytest.mark.parametrize("text", ["", "truncate(3)", "bucket", "bucket()", "bucket(x)", "epoch"])
def test_an_unknown_transform_is_told(text: str) -> None:
    with pytest.raises(UnsupportedFeatureError):
        parse_transform(text)


def test_a_key_is_not_given_twice() -> None:
    assert make_spec(7, ["day(ts)", "id"], SCHEMA) == PartitionSpec(
        7, (PartitionKey(0, 2, "day"), PartitionKey(1, 1, "identity"))
    )
    with pytest.raises(InputError, match="twice"):
        make_spec(7, ["day(ts)", "DAYS(ts)"], SCHEMA)


# -- real writes -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with lake(tmp_path_factory.mktemp("partitions")) as connection:
        yield connection


def written(
    connection: duckdb.DuckDBPyConnection, columns: str, keys: str, select: str, *, hive: bool = True
) -> tuple[TableSchema, PartitionSpec, list[tuple[dict[int, str | None], str, pa.Table]]]:
    """Partition some rows with the reference implementation, and return the values, folder and rows of each file."""
    connection.execute(f"CREATE TABLE l.t ({columns})")
    try:
        if not hive:
            connection.execute("CALL l.set_option('hive_file_pattern', false, table_name => 't')")
        connection.execute(f"ALTER TABLE l.t SET PARTITIONED BY ({keys})")
        connection.execute(f"INSERT INTO l.t {select}")
        (table,) = connection.execute(f"SELECT max(table_id) FROM {META}.ducklake_table").fetchone() or (0,)
        schema = TableSchema(
            tuple(
                Column(*row)
                for row in connection.execute(
                    f"SELECT column_id, column_name, column_type FROM {META}.ducklake_column "
                    "WHERE table_id = ? ORDER BY column_order",
                    [table],
                ).fetchall()
            )
        )
        spec_rows = connection.execute(
            f"SELECT partition_id, partition_key_index, column_id, transform FROM {META}.ducklake_partition_column "
            "WHERE table_id = ? ORDER BY 2",
            [table],
        ).fetchall()
        spec = PartitionSpec(spec_rows[0][0], tuple(PartitionKey(*row[1:]) for row in spec_rows))
        files = []
        for id, path in connection.execute(
            f"SELECT data_file_id, path FROM {META}.ducklake_data_file WHERE table_id = ? ORDER BY 1", [table]
        ).fetchall():
            values = connection.execute(
                f"SELECT partition_key_index, partition_value FROM {META}.ducklake_file_partition_value "
                "WHERE data_file_id = ?",
                [id],
            ).fetchall()
            name = path.rpartition("/")[2]
            rows = connection.execute(
                f"SELECT * EXCLUDE filename FROM (SELECT *, filename FROM l.t) WHERE filename LIKE '%{name}'"
            )
            files.append((dict(values), path.removesuffix(name), rows.to_arrow_table()))
        return schema, spec, files
    finally:
        connection.execute("DROP TABLE l.t")


VALUES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "int8": ["-5", "0", "127"],
    "int32": ["-5", "7", "100000"],
    "int64": ["-9223372036854775808", "9"],
    "uint8": ["255", "3"],
    "uint64": ["18446744073709551615", "1"],
    "int128": ["-1000000000000000000000", "5"],  # DuckDB writes doubles to the file
    "uint128": ["1000000000000000000000", "5"],
    "float32": ["0.1", "16777216.0", "inf", "nan"],
    "float64": ["0.1", "1e+20", "-inf", "1e-07", "nan"],
    "decimal(4,1)": ["1.5", "-0.5", "0.0"],
    "decimal(4,4)": [".5000", "-.0005"],
    "decimal(18,3)": ["123456789012345.678", "0.001"],
    "decimal(38,10)": ["1.5000000000", "-1234567890123456789.0000000001"],
    "date": ["2024-01-05", "infinity", "-infinity", "0044-03-15 (BC)", "5881580-07-10"],
    "time": ["01:02:03.5", "24:00:00", "00:00:00"],
    "timestamp": ["2024-02-29 23:59:59.999999", "infinity", "-infinity", "1969-12-31 23:00:00",
                  "0044-03-15 (BC) 01:00:00", "294247-01-10 04:00:54.775806", "290309-12-22 (BC) 00:00:00"],
    "timestamp_s": ["2024-02-29 23:59:59", "1969-12-31 23:00:00", "40000-01-01 00:00:00"],
    "timestamp_ms": ["2024-02-29 23:59:59.999", "-infinity"],
    "timestamp_ns": ["2024-02-29 23:59:59.999999999", "1677-09-22 00:00:00", "infinity"],
    # DuckDB takes the parts of a time with a zone from another calendar, in which years before Christ are positive.
    "timestamptz": ["2024-02-29 23:59:59.5+00", "infinity", "1969-12-31 23:00:00+00"],
    "varchar": ["", "a b", "a/b", "ü€", "%", "a=b", "__HIVE_DEFAULT_PARTITION__", "NULL", ".", "..", "x\\y", ":",
                "it's", '"', "~!@#$^&*()+,;<>?[]{}|`", " lead", "\n", "\x01", "\x7f", "A", "a", "-_", "e\u0301"],
    "json": ['{"a": 1}', "[]"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "blob": ["ab", "\\x00\\xFF", ""],
}  # fmt: skip
DATES = [type for type in VALUES if type == "date" or type.startswith("timestamp")]
CASES = [
    *((type, "identity") for type in VALUES if type not in ("blob", "uint128")),
    *((type, "bucket(13)") for type in VALUES),
    *((type, part) for type in DATES for part in ("year", "month", "day", "hour")),
    ("time", "hour"),
]


@pytest.mark.parametrize(("type", "transform"), CASES)
def test_values_and_folders_are_those_of_real_writes(
    reference: duckdb.DuckDBPyConnection, type: str, transform: str
) -> None:
    parsed = parse_transform(transform)
    key = "c" if parsed == IDENTITY else f"bucket({parsed.buckets}, c)" if parsed.buckets else f"{transform}(c)"
    texts = ", ".join("'" + text.replace("'", "''") + "'" for text in VALUES[type])
    schema, spec, files = written(
        reference, f"c {duckdb_type(type)}", key, f"SELECT unnest([{texts}, NULL])::{duckdb_type(type)}"
    )
    assert spec.keys == make_spec(spec.id, [key], schema).keys
    assert sum(rows.num_rows for _, _, rows in files) == len(VALUES[type]) + 1
    for values, folder, rows in files:
        assert directory(spec, schema, values) == folder
        column = rows["c"]
        (text,) = values.values()
        computed = reference.execute(
            f"SELECT DISTINCT CAST({duckdb_expression(parsed, 'c', type)} AS VARCHAR) FROM rows"
        ).fetchall()
        assert computed == [(text,)]
        found = apply(column, parsed, type)
        if parsed == IDENTITY:
            assert len(found) == len(column)
            # Python has no place for infinity, other years and the nanosecond.
            source = decode(text, type) if type in DATES or type == "time" else found[0].as_py()
            if type == "float32" and text is not None:
                assert float(value_text(source, type, parsed) or 0) == pytest.approx(float(text), nan_ok=True)
            else:
                assert value_text(source, type, parsed) == text
        else:
            assert {value_text(value, type, parsed) for value in found.to_pylist()} == {text}
            assert decode_value(text, type, parsed) == (None if text is None else int(text))


@pytest.mark.parametrize("transform", ["year", "month", "day", "hour"])
def test_parts_are_those_of_the_session_that_writes(reference: duckdb.DuckDBPyConnection, transform: str) -> None:
    # So a reader can not know the zone: see the tests of pruning.
    reference.execute("SET timezone = 'Asia/Tokyo'")
    try:
        _, _, files = written(
            reference, "c TIMESTAMPTZ", f"{transform}(c)", "SELECT TIMESTAMPTZ '2023-12-31 23:00:00+00'"
        )
    finally:
        reference.execute("SET timezone = 'UTC'")
    ((values, _, rows),) = files
    assert values == {0: {"year": "2024", "month": "1", "day": "1", "hour": "8"}[transform]}
    ours = apply(rows["c"], Transform(transform), "timestamptz").to_pylist()
    assert ours == [{"year": 2023, "month": 12, "day": 31, "hour": 23}[transform]]


@pytest.mark.parametrize(
    ("columns", "keys", "select"),
    [
        ("year INT, ts TIMESTAMP", "year, year(ts)", "SELECT 5, TIMESTAMP '2024-01-01'"),
        ("year INT, ts TIMESTAMP", "year(ts), year", "SELECT 5, TIMESTAMP '2024-01-01'"),
        ("a INT, b INT", "bucket(2, a), bucket(3, b), a, b", "SELECT 5, 6"),
        ("a INT, b INT", "bucket(2, a), bucket(3, a)", "SELECT 5, 6"),
        ("bucket INT, b INT", "bucket, bucket(4, b)", "SELECT 5, NULL"),
        ('"we ird/c=ol" INT, "ü" INT', '"we ird/c=ol", "ü"', "SELECT 5, 6"),
        ("Bucket INT, b INT", "Bucket, bucket(4, b)", "SELECT 5, NULL"),
        (
            "ts TIMESTAMP, id INT",
            "year(ts), month(ts), day(ts), hour(ts), bucket(4, id)",
            "VALUES (TIMESTAMP '2024-03-05 07:00:00', 1), (NULL, NULL), ('infinity', 3)",
        ),
    ],
)
def test_folders_of_several_keys_are_those_of_real_writes(
    reference: duckdb.DuckDBPyConnection, columns: str, keys: str, select: str
) -> None:
    schema, spec, files = written(reference, columns, keys, select)
    assert files
    for values, folder, _ in files:
        assert directory(spec, schema, values) == folder


def test_files_lie_flat_when_so_asked(reference: duckdb.DuckDBPyConnection) -> None:
    schema, spec, files = written(reference, "a INT", "a", "SELECT 5", hive=False)
    assert [(values, folder) for values, folder, _ in files] == [({0: "5"}, "")]
    assert directory(spec, schema, {0: "5"}, hive=False) == ""


def test_names_never_collide() -> None:
    schema = from_arrow(pa.schema([("a", pa.int32()), ("bucket_a", pa.int32())]))
    spec = make_spec(1, ["bucket_a", "bucket(2, a)", "bucket(3, a)", "bucket(4, a)"], schema)
    assert (
        key_names(spec, schema) == ("bucket_a", "bucket", "bucket_a_2", "bucket_a_3")
        or len(set(key_names(spec, schema))) == 4
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_a_folder_is_safe_whatever_the_value(text: str) -> None:
    schema = from_arrow(pa.schema([("a", pa.string())]))
    folder = directory(make_spec(1, ["a"], schema), schema, {0: text})
    if folder:
        assert checked_relative(folder) == folder
        assert folder.count("/") == 1
        assert len(folder) <= 256


@pytest.mark.parametrize("text", ["x/../y", "z" * 300, "x\\..\\y"])
def test_a_value_that_makes_no_folder_lies_flat(text: str) -> None:
    schema = from_arrow(pa.schema([("a", pa.string())]))
    assert directory(make_spec(1, ["a"], schema), schema, {0: text}) == ""


@pytest.mark.parametrize(
    ("text", "type", "transform", "value"),
    [
        (None, "int32", "identity", None),
        ("5", "int32", "identity", 5),
        ("true", "boolean", "identity", True),
        ("ab", "blob", "identity", None),
        ("x", "int32", "identity", None),
        ("-43", "timestamp", "year", -43),
        ("x", "timestamp", "year", None),
        ("", "timestamp", "year", None),
        ("7", "varchar", "bucket(9)", 7),
    ],
)
def test_stored_values_are_read_or_unknown(text: str | None, type: str, transform: str, value: object) -> None:
    assert decode_value(text, type, parse_transform(transform)) == value


@given(
    st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
)
def test_a_stored_value_comes_back(value: bool | int | str) -> None:
    type = {bool: "boolean", int: "int32", str: "varchar"}[value.__class__]
    text = value_text(value, type, IDENTITY)
    assert text == literal_text(value, type)
    assert decode_value(text, type, IDENTITY) == value
