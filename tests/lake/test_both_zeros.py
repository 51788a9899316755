"""Equal values that are not the same, such as 0.0 and -0.0: files keep both, and filters find both, of any writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.duckdb_versions import IS_2
from quacklake.core.operations.signed_zeros import has_negative_zero, split_at_negative_zero
from tests.catalog.stock import Stock

# column -> its type and value, in which {0} is the zero, and the SQL that finds the zero again
COLUMNS = {
    "d": ("DOUBLE", "{0}", "d"),
    "f": ("FLOAT", "{0}", "f"),
    "l": ("DOUBLE[]", "[1, {0}]", "l[2]"),
    "s": ("STRUCT(a FLOAT, b STRUCT(c DOUBLE)[])", "{{'a': 0, 'b': [{{'c': {0}}}]}}", "s.b[1].c"),
    "m": ("MAP(VARCHAR, DOUBLE)", "MAP {{'k': {0}}}", "map_values(m)[1]"),
    "k": ("MAP(DOUBLE, INTEGER)", "MAP {{{0}: 1}}", "map_keys(k)[1]"),
    "x": ("VARIANT", "({0})::VARIANT", "x::DOUBLE"),
}
SELECT = ", ".join(f"count(*) FILTER (signbit({found})) AS {name}" for name, (_, _, found) in COLUMNS.items())


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as opened:
        yield opened


def _below(lake: quacklake.Lake, name: str = "t") -> int:
    """The number of rows with a zero below zero, which is the same in every column."""
    (counts,) = lake.sql(f"SELECT {SELECT} FROM {name}").fetchall()
    (count,) = set(counts)
    return int(count)


def _rows(count: int, first: int = 0) -> str:
    values = ", ".join(value.format("z") for _, value, _ in COLUMNS.values())
    zero = "CASE WHEN i % 3 = 0 THEN '-0.0'::DOUBLE ELSE 0.0::DOUBLE END"
    return f"SELECT i, {values} FROM (SELECT i::INTEGER AS i, {zero} AS z FROM range({first}, {first + count}) r(i))"


def test_zeros_go_through_every_kind_of_maintenance(lake: quacklake.Lake) -> None:
    lake.sql(f"CREATE TABLE t (i INTEGER, {', '.join(f'{n} {type_}' for n, (type_, _, _) in COLUMNS.items())})")
    table, sizes = lake.table("t"), (9, 30, 60)
    for number, size in enumerate(sizes):
        lake.sql(f"INSERT INTO t {_rows(size, 99 * number)}")
    expected = sum(size // 3 for size in sizes)
    steps: list[Callable[[], object]] = [
        table.flush_inlined_data,
        table.merge_adjacent_files,
        lambda: table.update({"i": quacklake.expr("i + 1000")}, "i < 5"),
        lambda: lake.sql("DELETE FROM t WHERE i = 102"),
        lambda: table.rewrite_data_files(delete_threshold=0.0),
        lambda: table.optimize(order_by=["d", "l", "s"]),
        lambda: table.optimize(zorder=["d", "f"]),
        lambda: lake.sql("CREATE OR REPLACE TABLE t AS FROM t"),
        lambda: lake.sql(f"INSERT INTO t {_rows(3, 300)}"),
        lambda: lake.table("t").set_sorted_by("f DESC"),
        lambda: lake.sql(f"INSERT INTO t {_rows(300, 600)}"),
        lambda: lake.table("t").flush_inlined_data(),
    ]
    changes = {3: -1, 8: 1, 10: 100}
    assert _below(lake) == expected
    for number, step in enumerate(steps):
        step()
        expected += changes.get(number, 0)
        assert _below(lake) == expected, f"step {number}"
        count = int(lake.sql("SELECT count(*) FROM t").fetchall()[0][0])
        assert lake.table("t").count("d = 0 AND f = '-0.0'::FLOAT") == count, f"step {number}"


@pytest.mark.parametrize("column", ["i", "v"])
def test_zeros_go_through_partitions(lake: quacklake.Lake, column: str) -> None:
    lake.create_table("p", {"i": pa.int64(), "v": pa.float64()}, partition_by=[column])
    for order in (None, "v"):
        if order:
            lake.table("p").set_sorted_by(order)
        lake.table("p").append(pa.table({"i": [n % 2 for n in range(60)], "v": [-0.0, 0.0, 1.0] * 20}))
    assert lake.sql("SELECT count(*) FILTER (signbit(v)) FROM p").fetchall() == [(40,)]
    assert lake.table("p").count("v = 0") == 80


@pytest.mark.parametrize("place", [0, 1, 199_999])
def test_a_stream_keeps_them_from_the_first_on(lake: quacklake.Lake, place: int) -> None:
    values = pa.array([1.0 if n == place + 1 else -0.0 if n == place else 0.0 for n in range(200_000)])
    rows = pa.table({"v": values, "s": pa.nulls(200_000, pa.string())})
    table = lake.create_table("t", rows.schema)
    table.append(pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=10_000)))
    assert lake.sql("SELECT count(*), count(*) FILTER (signbit(v)) FROM t").fetchall() == [(200_000, 1)]
    assert table.count("v = 0") == 200_000 - (place < 199_999)


def test_rows_without_such_zeros_keep_their_dictionaries(lake: quacklake.Lake, tmp_path: Path) -> None:
    rows = pa.table({"v": [0.0, 1.0] * 5_000, "s": ["a rather long text that is there again and again"] * 10_000})
    lake.create_table("t", rows)
    lake.create_table("u", rows.set_column(0, "v", pa.array([-0.0, 1.0] * 5_000)))
    (one,), (other,) = (lake.table(name).files().to_pylist() for name in "tu")
    query = "SELECT DISTINCT encodings FROM parquet_metadata('{}')"
    found = [lake.sql(query.format(tmp_path / "data" / file["path"])).fetchall() for file in (one, other)]
    assert "DICTIONARY" in str(found[0])
    assert ("DICTIONARY" in str(found[1])) == IS_2


QUESTIONS = (
    "t WHERE v = 0",
    "t WHERE v IN (0)",
    "t WHERE v IN (SELECT 0)",
    "t WHERE v = (SELECT v FROM s)",
    "t WHERE v = '0'",
    "t WHERE v = '-0.0'::DOUBLE",
    "t JOIN s USING (v)",
    "t JOIN s ON t.v = s.v",
    "t NATURAL JOIN s",
    "t WHERE EXISTS (SELECT 1 FROM s WHERE s.v = t.v)",
    "shown WHERE w = 0",
    "zeros(0.0)",
    "(SELECT id, v FROM t) x(a, b) WHERE b = 0",
    "(SELECT * RENAME (v AS b) FROM t) WHERE b = 0",
    "(SELECT 5 AS b UNION ALL SELECT v FROM t) WHERE b = 0",
    "(WITH c(a) AS (SELECT v FROM t) SELECT * FROM c WHERE a = 0)",
)


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[quacklake.Lake]:
    """A lake with a file of another writer, whose bloom filter has -0.0 alone."""
    url = f"sqlite:///{tmp_path}/l.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE t (id INTEGER, v DOUBLE); CREATE TABLE s (v DOUBLE)")
        lake.sql("INSERT INTO s VALUES (0.0)")
        lake.sql("CREATE VIEW shown AS SELECT id, v AS w FROM t; CREATE MACRO zeros(q) AS TABLE FROM t WHERE v = q")
    with Stock() as stock:
        stock.run(url, "INSERT INTO t SELECT i, if(i % 2 = 0, '-0.0'::DOUBLE, 1.5) FROM range(100) r(i)")
    with quacklake.connect(url) as lake:
        yield lake


def test_both_are_found_in_files_of_others(foreign: quacklake.Lake) -> None:
    wrong: list[Any] = []
    for question in QUESTIONS:
        found = foreign.sql(f"SELECT count(*) FROM {question}").fetchall()
        wrong += [] if found == [(50,)] else [(question, found)]
    assert not wrong
    assert foreign.sql("SELECT count(*) FROM t WHERE v = ?", [0.0]).fetchall() == [(50,)]


def test_the_api_finds_both_in_files_of_others(foreign: quacklake.Lake) -> None:
    table = foreign.table("t")
    assert table.count("v = 0") == table.to_arrow(where="v in (0)").num_rows == 50
    assert table.changes(since=1).where("v = 0").to_arrow().num_rows == 50
    table.merge(pa.table({"id": pa.array([-1], pa.int32()), "v": [0.0]}), on="v")
    assert foreign.sql("SELECT count(*) FROM t WHERE id = -1").fetchall() == [(50,)]
    table.merge_adjacent_files()
    assert table.delete("v = 0") == 50
    assert table.count() == 50


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([0.0, -0.0]), True),
        (pa.array([0.0, None, 1.0, -1.0]), False),
        (pa.array([-0.0], pa.float32()), True),
        (pa.array([-0.0], pa.float16()), True),
        (pa.array([[1.0, -0.0], None]), True),
        (pa.array([[[1.0], [0.0]]]), False),
        (pa.array([{"a": 1, "b": [-0.0]}]), True),
        (pa.array([[("k", -0.0)]], pa.map_(pa.string(), pa.float64())), True),
        (pa.array([[(-0.0, "v")]], pa.map_(pa.float64(), pa.string())), True),
        (pa.array([0.0, -0.0]).dictionary_encode(), True),
        (pa.array([5, 0, -(2**63)]), False),
        (pa.array([0.0, -0.0, 1.0]).slice(2), False),
    ],
)
def test_such_zeros_are_seen_in_arrow(array: pa.Array, expected: bool) -> None:
    assert has_negative_zero(array) is (expected and not IS_2)
    assert has_negative_zero(pa.chunked_array([array.slice(0, 0), array])) is (expected and not IS_2)


def test_a_stream_becomes_two_of_the_same_rows() -> None:
    batches = [pa.record_batch({"v": [float(n), -0.0 if n == 3 else 0.0]}) for n in range(6)]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    parts = [(part.read_all().num_rows, flag) for part, flag in split_at_negative_zero(reader)]
    assert parts == ([(12, False)] if IS_2 else [(6, False), (6, True)])


def test_equal_intervals_stay_apart(lake: quacklake.Lake) -> None:
    spans = ["1 month", "30 days", "24 hours", "1 day", "0 seconds", "1 year", "360 days"]
    values = f"list_transform({spans}, lambda text: text::INTERVAL)"
    lake.sql("CREATE TABLE t (i INTEGER, p INTEGER, span INTERVAL, l INTERVAL[], s STRUCT(a INTERVAL))")
    for first in (0, 100):
        lake.sql(
            f"INSERT INTO t SELECT i, i % 2, span, [span, NULL], {{'a': span}}"
            f" FROM range({first}, {first + 20}) r(i), (SELECT unnest({values}) AS span)"
        )
    shown = "SELECT i, span::VARCHAR, l::VARCHAR, s::VARCHAR FROM t ORDER BY ALL"
    table, before = lake.table("t"), lake.sql(shown).fetchall()
    assert len(set(before)) == 40 * len(spans)
    table.merge_adjacent_files()
    table.set_partitioned_by("p")
    table.rewrite_data_files(delete_threshold=0.0)
    lake.sql("DELETE FROM t WHERE i = 3")
    table.rewrite_data_files(delete_threshold=0.0)
    assert lake.sql(shown).fetchall() == [row for row in before if row[0] != 3]
