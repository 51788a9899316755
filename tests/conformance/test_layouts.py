"""Partitioned and sorted tables: the same catalog rows, the same partition of every row, readable by both clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake

from .clients import LakeSite, plain_duckdb
from .conftest import MakeSite, kinds
from .history import History, compare
from .steps import Append, Create, Delete, Stock, Update

pytestmark = pytest.mark.daily(0.33)

_LAYOUT = {
    "partition_info": "partition_id, table_id, begin_snapshot, end_snapshot",
    "partition_column": "partition_id, table_id, partition_key_index, column_id, transform",
    "sort_info": "sort_id, table_id, begin_snapshot, end_snapshot",
    "sort_expression": "sort_id, table_id, sort_key_index, expression, dialect, sort_direction, null_order",
    "schema_versions": "begin_snapshot, schema_version, table_id",
    "inlined_data_tables": "table_id, table_name, schema_version",
    "snapshot": "snapshot_id, schema_version, next_catalog_id",
    "snapshot_changes": "snapshot_id, changes_made",
    "data_file": "table_id, begin_snapshot, record_count, partition_id, regexp_replace(path, '[^/]*$', '')",
    "file_partition_value": "table_id, partition_key_index, partition_value",
}

Step = tuple[str, Callable[[quacklake.Lake], object]]

_ROWS = "SELECT i AS id, 'r' || (i % 2) AS region, TIMESTAMP '2024-01-01' + INTERVAL (i) DAY AS ts FROM range(60) r(i)"

_STEPS: list[Step] = [
    (
        "CREATE TABLE t(id BIGINT, region VARCHAR, ts TIMESTAMP)",
        lambda lake: lake.create_table("t", {"id": pa.int64(), "region": pa.string(), "ts": pa.timestamp("us")}),
    ),
    (
        "ALTER TABLE t SET PARTITIONED BY (region, month(ts), bucket(16, id))",
        lambda lake: lake.table("t").set_partitioned_by("region", "month(ts)", "bucket(16, id)"),
    ),
    (
        "ALTER TABLE t SET SORTED BY (ts DESC NULLS FIRST, lower(region), id % 7)",
        lambda lake: lake.table("t").set_sorted_by("ts DESC NULLS FIRST", "lower(region)", "id % 7"),
    ),
    ("ALTER TABLE t SET PARTITIONED BY (region)", lambda lake: lake.table("t").set_partitioned_by("region")),
    (f"INSERT INTO t {_ROWS}", lambda lake: lake.table("t").append(plain_duckdb().sql(_ROWS))),
    (
        "INSERT INTO t VALUES (1, 'x', NULL)",
        lambda lake: lake.table("t").append([{"id": 1, "region": "x", "ts": None}]),
    ),
    ("ALTER TABLE t SET SORTED BY (id)", lambda lake: lake.table("t").set_sorted_by("id")),
    ("ALTER TABLE t RESET SORTED BY", lambda lake: lake.table("t").reset_sorted_by()),
    ("ALTER TABLE t RESET PARTITIONED BY", lambda lake: lake.table("t").reset_partitioned_by()),
    (f"INSERT INTO t {_ROWS}", lambda lake: lake.table("t").append(plain_duckdb().sql(_ROWS))),
    ("ALTER TABLE t SET PARTITIONED BY (year(ts))", lambda lake: lake.table("t").set_partitioned_by("year(ts)")),
    ("DROP TABLE t", lambda lake: lake.drop_table("t")),
]


def layout(site: LakeSite) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: sorted(site.metadata(f"SELECT {columns} FROM {{m}}.ducklake_{name}"), key=repr)
        for name, columns in _LAYOUT.items()
    }


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
def test_the_same_statements_leave_the_same_rows_in_the_catalog(make_site: MakeSite, kind: str) -> None:
    ours, theirs = make_site(kind), make_site(kind)
    for number, (sql, step) in enumerate(_STEPS):
        step(ours.lake())
        theirs.stock().execute(sql)
        if number in (3, 5, 7, len(_STEPS) - 1):
            assert layout(ours) == layout(theirs), f"after {sql}"


def test_a_table_that_is_made_partitioned_has_the_same_rows_in_the_catalog(make_site: MakeSite) -> None:
    ours, theirs = make_site("sqlite"), make_site("sqlite")
    ours.lake().create_table("t", plain_duckdb().sql(_ROWS), partition_by="region", sort_by="id DESC")
    theirs.stock().execute(
        "BEGIN; CREATE TABLE t(id BIGINT, region VARCHAR, ts TIMESTAMP); ALTER TABLE t SET PARTITIONED BY (region);"
        f" ALTER TABLE t SET SORTED BY (id DESC); INSERT INTO t {_ROWS}; COMMIT"
    )
    mine, other = layout(ours), layout(theirs)
    changes = [sorted(rows[-1][1].split(",")) for rows in (mine.pop("snapshot_changes"), other.pop("snapshot_changes"))]
    assert changes[0] == changes[1]
    assert mine == other


# -- the values of every row -------------------------------------------------------------------------------------------

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT")
_MOMENTS = (
    "1970-01-01 00:00:00",
    "1969-12-31 23:59:59",
    "2024-02-29 13:14:15",
    "1582-10-15 01:02:03",
    "2262-04-11 00:00:00",
)
_VALUES: dict[str, list[str]] = {
    **{name: [f"{value}::{name}" for value in (0, 1, 7, 100, 127)] for name in _INTEGERS},
    "VARCHAR": ["''", "'a'", "'ab c'", "'ünïcödé ☃'", "'a/b=%'", "repeat('x', 40)", "'__HIVE_DEFAULT_PARTITION__'"],
    "BOOLEAN": ["true", "false"],
    "DOUBLE": ["0.0::DOUBLE", "1.5::DOUBLE", "-2e100::DOUBLE", "'inf'::DOUBLE", "'nan'::DOUBLE"],
    "FLOAT": ["0.1::FLOAT", "-3e7::FLOAT"],
    "DECIMAL(9,2)": ["1.50::DECIMAL(9,2)", "-0.07::DECIMAL(9,2)", "0::DECIMAL(9,2)"],
    "DECIMAL(30,4)": ["1.5::DECIMAL(30,4)", "-12345678901234567890.1234::DECIMAL(30,4)"],
    "UUID": ["'00000000-0000-0000-0000-000000000001'::UUID", "'f0000000-0000-0000-0000-00000000000a'::UUID"],
    "TIME": ["TIME '00:00:00'", "TIME '23:59:59.123456'"],
    "BLOB": [r"'\x00\xFF'::BLOB", "'abc'::BLOB"],
    "DATE": [f"DATE '{moment[:10]}'" for moment in _MOMENTS],
    **{
        name: [f"'{moment}'::{name}" for moment in _MOMENTS]
        for name in ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ")
        if name != "TIMESTAMP_NS"
    },
    "TIMESTAMP_NS": [f"'{moment}'::TIMESTAMP_NS" for moment in _MOMENTS if moment > "1900" and moment < "2262"],
}
_CALENDAR = ("year", "month", "day", "hour")


def transforms(name: str) -> list[str]:
    """The keys over a column ``v`` of a type."""
    found = ["bucket(5, v)"] + ([] if name == "BLOB" else ["v"])
    if name.startswith("TIMESTAMP") or name == "DATE":
        found += [f"{part}(v)" for part in _CALENDAR]
    return found + (["hour(v)"] if name == "TIME" else [])


def partitions_of_rows(site: LakeSite, tables: list[str]) -> dict[str, dict[int, tuple[str | None, ...]]]:
    """Of every table: the partition values of each row, by its id."""
    rows = site.metadata(
        "SELECT t.table_name, f.path, list(v.partition_value ORDER BY v.partition_key_index) FROM {m}.ducklake_data_file f"
        " JOIN {m}.ducklake_table t USING (table_id) JOIN {m}.ducklake_file_partition_value v USING (data_file_id)"
        " GROUP BY ALL"
    )
    found: dict[str, dict[int, tuple[str | None, ...]]] = {name: {} for name in tables}
    for name, path, texts in rows:
        file = Path(site.data_path, "main", name, path)
        ids = pq.read_table(file, columns=["id"], partitioning=None).column("id").to_pylist()
        found[name].update(dict.fromkeys(ids, tuple(texts)))
    return found


@pytest.mark.parametrize("in_turn", [False, True], ids=["at once", "in turn"])
def test_f3_1_every_row_is_in_the_partition_that_stock_puts_it_in(make_site: MakeSite, in_turn: bool) -> None:
    """All types and transforms: both clients write the same rows into the same tables, ours with other ids."""
    site = make_site("sqlite", inlining=0)
    stock = site.stock()
    names = {}
    for number, (type_, values) in enumerate(_VALUES.items()):
        name = names[type_] = f"t{number}"
        rows = "VALUES " + ", ".join(f"({index}, {value})" for index, value in enumerate([*values, f"NULL::{type_}"]))
        stock.execute(f"CREATE TABLE {name}(id INTEGER, v {type_})")
        stock.execute(f"ALTER TABLE {name} SET PARTITIONED BY ({', '.join(transforms(type_))})")
        stock.execute(f"INSERT INTO {name} {rows}")
    lake = site.lake()
    for type_, name in names.items():
        if in_turn:
            lake.table(name).set_sorted_by("id")
        values = [*_VALUES[type_], f"NULL::{type_}"]
        rows = ", ".join(f"({1000 + index}, {value})" for index, value in enumerate(values))
        source = plain_duckdb().sql(f"SELECT * FROM (VALUES {rows}) s(id, v)")
        assert lake.table(name).append(source) == len(values)
    for name, found in partitions_of_rows(site, list(names.values())).items():
        theirs = {id_: texts for id_, texts in found.items() if id_ < 1000}
        ours = {id_ - 1000: texts for id_, texts in found.items() if id_ >= 1000}
        assert ours == theirs, name
        type_ = next(each for each, table in names.items() if table == name)
        assert site.stock().execute(f"SELECT count(DISTINCT v), count(*) FROM {name}").fetchone() == (
            len(_VALUES[type_]),
            2 * len(theirs),
        )
    assert site.lake().table(names["DATE"]).count("v = DATE '1969-12-31'") == 2


# -- both clients, one lake --------------------------------------------------------------------------------------------

_MANY = "INSERT INTO p SELECT 'r' || (i % 3), DATE '2023-01-01' + (i * 20)::INTEGER, i FROM range(60) r(i)"


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
def test_f3_2_a_partitioned_table_is_the_same_for_both_at_every_snapshot(make_site: MakeSite, kind: str) -> None:
    site = make_site(kind)
    history = History(site)
    history.play(
        [
            Create("p", "region VARCHAR, day DATE, v INTEGER"),
            Stock("ALTER TABLE p SET PARTITIONED BY (region, year(day))"),
            Append(
                "p",
                "SELECT 'r' || (i % 4), DATE '2024-11-01' + (i * 9)::INTEGER, (1000 + i)::INTEGER FROM range(40) r(i)",
            ),
            Stock(_MANY, [_MANY]),
            Update("p", {"region": "'moved/on'"}, "v BETWEEN 1000 AND 1019"),
            Stock("ALTER TABLE p SET PARTITIONED BY (bucket(4, v), month(day))"),
            Append(
                "p", "SELECT NULL::VARCHAR, DATE '2025-03-01' + i::INTEGER, (2000 + i)::INTEGER FROM range(40) r(i)"
            ),
            Stock("ALTER TABLE p SET SORTED BY (v DESC)"),
            Append("p", "SELECT '', NULL::DATE, (3000 + i)::INTEGER FROM range(40) r(i)"),
            Delete("p", "v % 7 = 3"),
            Stock("CALL ducklake_merge_adjacent_files('l')"),
            Stock("ALTER TABLE p RESET PARTITIONED BY"),
            Update("p", {"v": "v + 10000"}, "region = 'r1'"),
        ],
        ("ours",),
    )
    compare(history)
    assert history.model is not None
    for condition in (
        "region = 'r1'",
        "region = 'moved/on'",
        "region = ''",
        "region IS NULL",
        "day >= '2025-01-01'",
        "day BETWEEN '2024-12-01' AND '2024-12-31'",
        "v = 2005",
        "v IN (10, 1005, 3001)",
        "v = 10001 AND region = 'r1'",
    ):
        expected = history.model.execute(f"SELECT count(*) FROM p WHERE {condition}").fetchone()
        assert (site.lake().table("p").count(condition),) == expected, condition
        assert site.stock().execute(f"SELECT count(*) FROM p WHERE {condition}").fetchone() == expected, condition


@pytest.mark.mysql
def test_a_partitioned_table_on_mysql(make_site: MakeSite) -> None:
    site = make_site("mysql")
    lake = site.lake()
    table = lake.create_table("t", plain_duckdb().sql(_ROWS), partition_by=["region", "month(ts)"], sort_by="id DESC")
    table.set_partitioned_by("bucket(4, id)")
    table.append(plain_duckdb().sql(_ROWS))
    assert table.count("region = 'r1' AND id = 5") == 2
    assert len(table.plan("id = 5").files) == 2 + 1, "January of both regions, and one bucket"
    with site.another_lake() as again:
        assert again.table("t").partitioned_by == ["bucket(4, id)"]
        assert again.table("t").sorted_by == ["id DESC NULLS LAST"]


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
def test_both_clients_leave_out_the_same_files(make_site: MakeSite, kind: str) -> None:
    """Our plans never have more files than the scans of stock, no matter who wrote the files."""
    site = make_site(kind, inlining=0)
    lake = site.lake()
    sql = (
        "SELECT i AS id, 'r' || (i % 3) AS region, TIMESTAMP '2023-01-01' + INTERVAL (i) DAY AS ts FROM range(720) r(i)"
    )
    keys = ["region", "year(ts)", "bucket(4, id)"]
    lake.create_table("t", plain_duckdb().sql(sql), partition_by=keys)
    site.stock().execute(f"INSERT INTO t {sql}")
    for condition in (
        "region = 'r1'",
        "ts >= '2024-06-01'",
        "id = 77",
        "region = 'r2' AND id = 77",
        "id IN (1, 2)",
        "true",
    ):
        theirs = _files_read(site, condition)
        plan = site.lake().table("t").plan(None if condition == "true" else condition)
        assert len(plan.files) <= theirs, condition
        assert len(plan.files) % 2 == 0, "both wrote the same rows, so files come in pairs"
    assert len(site.lake().table("t").plan("id = 77").files) == 2 * 3, "one year and one bucket of three regions"
    assert len(site.lake().table("t").plan("region = 'r2' AND id = 77").files) == 2


def _files_read(site: LakeSite, condition: str) -> int:
    rows = site.stock().execute(f"SELECT count(DISTINCT filename) FROM t WHERE {condition}").fetchone()
    plan = site.stock().execute(f"EXPLAIN ANALYZE SELECT * FROM t WHERE {condition}").fetchall()[0][1]
    found = [line for line in plan.splitlines() if "Total Files Read" in line]
    assert rows is not None
    return int("".join(filter(str.isdigit, found[0]))) if found else int(rows[0])


def test_files_from_before_a_partition_by_buckets_are_found_by_an_id(make_site: MakeSite) -> None:
    """Stock DuckLake looks for the id's bucket only, which files without partition values do not have."""
    site = make_site("sqlite")
    table = site.lake().create_table("t", {"id": pa.int32()})
    table.append(pa.table({"id": pa.array(range(50), pa.int32())}))
    table.set_partitioned_by("bucket(2, id)")
    assert all(table.to_pylist(where=f"id = {id_}") == [{"id": id_}] for id_ in range(50))
    assert table.delete("id = 35") == 1
    stock = site.stock()
    assert stock.execute("SELECT count(*) FROM t").fetchall() == [(49,)]
    assert stock.execute("SELECT * FROM t WHERE id = 7").fetchall() == []


def test_stock_reads_the_order_that_we_set(make_site: MakeSite) -> None:
    site = make_site("sqlite", inlining=0)
    lake = site.lake()
    lake.create_table("t", {"id": pa.int64(), "Name": pa.string()}, sort_by=['lower("Name") DESC', "id"])
    site.stock().execute("INSERT INTO t SELECT i, 'N' || (i % 10) FROM range(100) r(i)")
    (path,) = site.lake().table("t").files().column("path").to_pylist()
    names = pq.read_table(Path(site.data_path, path)).column("Name").to_pylist()
    assert names == sorted(names, reverse=True)
