"""Memory: the peak of a process that appends a stream, and of one that reads a table batch by batch.

What a process needs must depend on a setting, not on the size of the table. DuckDB is limited to 512 MB on both sides;
a child process appends a stream of record batches that are generated as they are asked for, another reads the table
and lets go of each batch. Their peak resident set is what the kernel counted, the interpreter and libraries included.
The size is that of the Arrow data, and the second size is double the first: the peak must stay the same.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import quacklake
from benchmarks.common import EXTENSION, Bench, Measure, Place, Result, at_most, attach, install_extensions

TITLE = "peak memory of a streamed append and of a scan by batches, DuckDB limited to 512 MB"

_LIMIT = "512MB"
_BATCH_ROWS = 65_536
_TEXT = 32
_MB = 1e6
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("seen", pa.timestamp("us")),
        ("a", pa.float64()),
        ("b", pa.float64()),
        ("number", pa.int64()),
        ("text", pa.string()),
        ("kind", pa.string()),
    ]
)


def run(bench: Bench, result: Result) -> None:
    """Append and read at two sizes on both sides."""
    install_extensions("ducklake", "sqlite_scanner", "postgres_scanner")
    sizes = bench.pick((32e6, 64e6), (1e9, 2e9), (2e9, 4e9))
    peaks: dict[tuple[str, str, float], float] = {}
    for size in sizes:
        for side in ("ours", "peer"):
            with bench.directory() as directory:
                place = bench.place(directory, "sqlite", side)
                for work in ("append", "scan"):
                    with bench.step(f"{side}, {work} of {size / 1e9:g} GB"):
                        peaks[work, side, size] = _in_child(side, work, place, size)
    for work in ("append", "scan"):
        result.measures += _measures(work, sizes, peaks)


def _measures(work: str, sizes: tuple[float, float], peaks: dict[tuple[str, str, float], float]) -> list[Measure]:
    measures = []
    for size in sizes:
        ours, peer = (peaks[work, side, size] / _MB for side in ("ours", "peer"))
        what = f"{work}, {size / 1e9:g} GB: peak"
        measures.append(Measure(what, "MB", ours, peer, EXTENSION, ours / peer, "the memory", at_most(1000, "ours")))
    growth = {side: peaks[work, side, sizes[1]] / peaks[work, side, sizes[0]] for side in ("ours", "peer")}
    what = f"{work}, peak at double size / at single"
    return [*measures, Measure(what, "", growth["ours"], growth["peer"], EXTENSION, target=at_most(1.1, "ours"))]


# -- the child processes -----------------------------------------------------------------------------------------------


def _in_child(side: str, work: str, place: Place, size: float) -> float:
    """The peak bytes of a fresh process that does the work."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(side, work, place, size, sender))
    child.start()
    sender.close()
    try:
        rows, peak = receiver.recv()
    except EOFError:
        raise RuntimeError(f"the {work} of {side} failed") from None
    finally:
        child.join()
    if rows != _rows(size):
        raise RuntimeError(f"the {work} of {side} saw {rows} rows instead of {_rows(size)}")
    return float(peak)


def _child(side: str, work: str, place: Place, size: float, sender: Any) -> None:
    works = {
        ("ours", "append"): _append_ours,
        ("ours", "scan"): _scan_ours,
        ("peer", "append"): _append_peer,
        ("peer", "scan"): _scan_peer,
    }
    rows = works[side, work](place, size)
    sender.send((rows, peak()))


def _append_ours(place: Place, size: float) -> int:
    with quacklake.connect(place.url, data_path=place.data, duckdb_memory_limit=_LIMIT) as lake:
        return lake.create_table("t", _SCHEMA).append(_reader(size))


def _scan_ours(place: Place, size: float) -> int:
    with quacklake.connect(place.url, duckdb_memory_limit=_LIMIT) as lake:
        return sum(batch.num_rows for batch in lake.table("t").to_batches())


def _append_peer(place: Place, size: float) -> int:
    connection = attach(place, memory_limit=_LIMIT)
    connection.register("batch", _SCHEMA.empty_table())
    connection.execute("CREATE TABLE t AS FROM batch")
    connection.register("stream", _reader(size))
    row = connection.execute("INSERT INTO t SELECT * FROM stream").fetchone()
    return int(row[0]) if row else 0


def _scan_peer(place: Place, size: float) -> int:
    connection = attach(place, memory_limit=_LIMIT)
    return sum(batch.num_rows for batch in connection.execute("FROM t").to_arrow_reader(122_880))


def peak() -> int:
    """The most resident bytes this process ever had."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    used = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return used if sys.platform == "darwin" else used * 1024


# -- the stream --------------------------------------------------------------------------------------------------------


def _rows(size: float) -> int:
    """Return the number of rows that take that many bytes in Arrow, in whole batches."""
    batch = _batch(np.random.default_rng(0), 0)
    return max(1, round(size / int(batch.nbytes))) * _BATCH_ROWS


def _reader(size: float) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(_SCHEMA, _batches(_rows(size) // _BATCH_ROWS))


def _batches(count: int) -> Iterator[pa.RecordBatch]:
    generator = np.random.default_rng(7)
    for number in range(count):
        yield _batch(generator, number * _BATCH_ROWS)


def _batch(generator: np.random.Generator, first: int) -> pa.RecordBatch:
    """Values that hardly compress, with one column of few words."""
    ids = np.arange(first, first + _BATCH_ROWS, dtype=np.int64)
    floats = generator.random((2, _BATCH_ROWS))
    numbers = generator.integers(0, 2**62, _BATCH_ROWS)
    return pa.record_batch(
        [
            pa.array(ids),
            pa.array(ids * 1_000_000 + 1_700_000_000_000_000).cast(pa.timestamp("us")),
            pa.array(floats[0]),
            pa.array(floats[1]),
            pa.array(numbers),
            _texts(generator),
            pa.array(np.array([f"kind {i}" for i in range(16)])[numbers % 16], pa.string()),
        ],
        schema=_SCHEMA,
    )


def _texts(generator: np.random.Generator) -> pa.Array:
    letters = (generator.integers(0, 64, _BATCH_ROWS * _TEXT, dtype=np.uint8) + 48).tobytes()
    offsets = np.arange(0, _BATCH_ROWS * _TEXT + 1, _TEXT, dtype=np.int32)
    return pa.StringArray.from_buffers(_BATCH_ROWS, pa.py_buffer(offsets.tobytes()), pa.py_buffer(letters))
