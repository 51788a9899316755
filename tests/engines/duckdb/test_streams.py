"""The DuckDB engine: the SQL of a plan, streams that are lazy and can be cancelled, and limits that hold."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.engines.duckdb.sql import scan_sql
from quacklake.errors import CancelledError, CorruptFileError, InputError, QuacklakeError
from tests.catalog.stock import Stock
from tests.layout import folder

HOSTILE = [
    "file_index",
    "file_row_number",
    "filename",
    "row_id",
    "p",
    "d",
    "key",
    "pos",
    "snapshot_id",
    'quo"te',
    "it's",
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path / 'lake.db'}", data_path=tmp_path / "data") as opened:
        yield opened


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A table of 12 files, about 8 MB each, in row groups of 20,000 rows."""
    folder = tmp_path_factory.mktemp("large")
    with quacklake.connect(f"sqlite:///{folder / 'lake.db'}", data_path=folder / "data", duckdb_threads=1) as opened:
        opened.create_table("t", {"id": pa.int64(), "text": pa.string()})
        opened.options.set("parquet_row_group_size", 20_000)
        with duckdb.connect() as source:
            for n in range(12):
                query = f"SELECT range AS id, md5(range::VARCHAR) || sha256(range::VARCHAR) AS text FROM range({n}00000, {n + 1}00000)"
                opened.table("t").append(arrow_table(source, query))
        yield opened


def bytes_read() -> int:
    """Return the number of bytes that this process has read from files so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


# -- names --------------------------------------------------------------------------------------------------------------


def test_columns_may_be_called_like_anything_the_query_uses(lake: Lake, stock: Stock) -> None:
    """With delete files, inlined deletes, inlined rows and row ids, the query needs its own names."""
    rows = [{name: 100 * n + i for i, name in enumerate(HOSTILE)} for n in range(60)]
    t = lake.create_table("t", pa.Table.from_pylist(rows[:40]))
    t.append(pa.Table.from_pylist(rows[40:57]))
    t.append(pa.Table.from_pylist(rows[57:]))
    t.delete("file_index >= 500 AND file_index < 2000")
    t.delete('"file_row_number" = 2001 OR pos = 5807')
    t.update({"filename": -1}, '"quo""te" = 4109')
    expected = [row for n, row in enumerate(rows) if not (5 <= n < 20 or n in (20, 58))]
    next(row for row in expected if row['quo"te'] == 4109)["filename"] = -1
    found = t.scan(row_ids=True).to_arrow()
    ids = found.column("rowid").to_pylist()
    assert sorted(found.drop_columns("rowid").to_pylist(), key=repr) == sorted(expected, key=repr)
    assert sorted(ids) == sorted({*range(60)} - {*range(5, 20), 20, 58})
    theirs = stock.rows(lake.url)["main.t"]
    assert theirs == sorted((tuple(row.values()) for row in expected), key=repr)


def test_paths_with_quotes_are_read(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s a "lake" [1] {2} %20 ünï'
    with quacklake.connect(f"sqlite:///{tmp_path / 'lake.db'}", data_path=folder) as lake:
        t = lake.create_table("t", [{"x": n} for n in range(30)])
        t.delete("x < 15")
        assert t.count("x > 20") == 9
        assert t.to_arrow().num_rows == 15


def test_the_query_of_a_plan_names_every_file_once(lake: Lake) -> None:
    t = lake.create_table("t", [{"x": n} for n in range(30)])
    t.append([{"x": n} for n in range(30)])
    t.delete("x < 15")
    plan = t.plan()
    sql = scan_sql(plan, lake._context.store, "q", plan.schema.columns, rows=True)
    for path in plan.files.column("path").to_pylist():
        assert sql.query.count(path) == 1
        assert not any(path in statement for statement in sql.setup)
    assert len(sql.setup) == 1


def test_an_empty_table_has_its_columns(lake: Lake) -> None:
    schema = pa.schema(
        [("a", pa.int8()), ("l", pa.list_(pa.struct([("x", pa.decimal128(9, 2))]))), ("t", pa.time64("us"))]
    )
    lake.create_table("t", schema)
    found = lake.table("t").to_arrow()
    assert found.num_rows == 0
    assert found.schema.names == ["a", "l", "t"]
    assert found.schema.types[0] == pa.int8()


# -- streams ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count what a process reads")
def test_the_first_batch_of_a_large_scan_reads_little_of_it(large: Lake) -> None:
    total = sum(large.table("t").files().column("file_size_bytes").to_pylist())
    assert total > 50_000_000
    large.table("t").scan(limit=1).to_arrow()  # what is read once
    before = bytes_read()
    reader = large.table("t").scan().to_reader(batch_rows=1000)
    assert bytes_read() - before < 1_000_000  # nothing has been asked for yet
    first = reader.read_next_batch()
    used = bytes_read() - before
    assert 0 < first.num_rows <= 2048
    assert used < total / 4
    reader.close()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count what a process reads")
def test_pruned_files_and_unwanted_columns_are_not_read(large: Lake) -> None:
    total = sum(large.table("t").files().column("file_size_bytes").to_pylist())
    before = bytes_read()
    assert large.table("t").to_arrow(columns=["id"], where="id = 250000").num_rows == 1
    assert bytes_read() - before < total / 10


def test_a_limit_stops_the_scan(large: Lake) -> None:
    started = time.process_time()
    assert large.table("t").scan(limit=5).to_arrow().num_rows == 5
    assert time.process_time() - started < 5


def test_a_scan_can_be_cancelled_from_another_thread(large: Lake) -> None:
    scan = large.table("t").scan().scan(batch_rows=100)
    scan.reader.read_next_batch()
    thread = threading.Thread(target=scan.cancel)
    thread.start()
    thread.join()
    with pytest.raises(CancelledError):
        for _ in range(20_000):
            scan.reader.read_next_batch()
    # the lake goes on
    assert large.table("t").count("id < 10") == 10


def test_a_query_that_takes_long_can_be_cancelled_before_its_first_batch(large: Lake) -> None:
    where = "list_sum(list_transform(range(1000), x -> length(md5((x * id)::VARCHAR)))) < 0"
    scan = large.table("t").scan(where=where).scan()
    timer = threading.Timer(0.5, scan.cancel)
    timer.start()
    started = time.perf_counter()
    with pytest.raises(CancelledError):
        scan.reader.read_next_batch()
    timer.join()
    assert time.perf_counter() - started < 30
    assert large.table("t").count("id < 10") == 10


def test_a_stream_that_is_dropped_midway_leaves_nothing_open(large: Lake) -> None:
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    for _ in range(20):
        batches = large.table("t").to_batches(batch_rows=1000)
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    after = len(list(Path("/proc/self/fd").iterdir())) if before else 0
    assert after <= before + 2


def test_batches_have_the_size_that_was_asked_for(large: Lake) -> None:
    sizes = [batch.num_rows for batch in large.table("t").to_batches(columns=["id"], batch_rows=5000)]
    assert sum(sizes) == 1_200_000
    assert max(sizes) <= 8192


# -- limits -------------------------------------------------------------------------------------------------------------


def test_a_scan_needs_no_more_memory_than_allowed(large: Lake) -> None:
    with quacklake.connect(large.url, duckdb_memory_limit="64MB", duckdb_threads=1) as lake:
        assert sum(batch.num_rows for batch in lake.table("t").to_batches(batch_rows=10_000)) == 1_200_000


def test_too_little_memory_is_said_with_the_setting_to_raise(large: Lake) -> None:
    with quacklake.connect(large.url, duckdb_memory_limit="1MB", duckdb_threads=1) as lake:
        with pytest.raises(InputError, match="not enough memory") as caught:
            lake.table("t").to_arrow()
        assert "duckdb_memory_limit" in str(caught.value)


# -- damage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "junk"])
def test_a_damaged_file_is_named_and_other_tables_still_read(lake: Lake, tmp_path: Path, damage: str) -> None:
    t = lake.create_table("t", [{"x": n} for n in range(300)])
    lake.create_table("u", [{"x": n} for n in range(300)])
    [path] = t.files().column("path").to_pylist()
    file = folder(tmp_path / "data") / path
    if damage == "missing":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "junk": b"x" * len(content)}[damage])
    for read in (
        lambda: t.to_arrow(),
        lambda: t.count("x > 5"),
        lambda: t.delete("x = 1"),
        lambda: t.to_arrow(where="x > 5"),
    ):
        with pytest.raises(CorruptFileError) as caught:
            read()
        assert Path(path).name in str(caught.value)
    assert lake.table("u").count("x > 5") == 294


def test_a_damaged_delete_file_is_an_error_not_more_rows(lake: Lake, tmp_path: Path) -> None:
    t = lake.create_table("t", [{"x": n} for n in range(300)])
    t.delete("x < 200")
    [path] = t.files().column("delete_path").to_pylist()
    (folder(tmp_path / "data") / path).write_bytes(b"junk")
    for read in (lambda: t.to_arrow(), lambda: t.count("x > 5"), lambda: t.delete("x = 250")):
        with pytest.raises(QuacklakeError):
            read()


# -- values that DuckDB's bloom filters do not find -------------------------------------------------------------------------


def test_blobs_of_any_bytes_are_found_in_files(lake: Lake) -> None:
    values = [b"", b"\x00", b"\xff\xfe", b"a", b"\\x00", "ä".encode()]
    t = lake.create_table("t", pa.table({"b": pa.array(values * 50, pa.binary())}))
    for value in values:
        literal = "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        assert t.count(f"b = {literal}") == 50


def test_both_zeros_are_found_in_files(lake: Lake) -> None:
    t = lake.create_table("t", pa.table({"x": pa.array([-0.0, 1.0] * 50)}))
    assert math.copysign(1, t.to_arrow().column("x")[0].as_py()) == -1
    assert t.count("x = 0.0") == 50
