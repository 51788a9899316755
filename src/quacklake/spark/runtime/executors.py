"""Run Python on the executors and return small results: the metadata of files that they wrote."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from quacklake.spark.runtime.failures import writing
from quacklake.spark.runtime.local import to_frame

T = TypeVar("T")

_ANSWER = "answer BINARY"
_NOTHING = pa.schema([("answer", pa.binary())]).empty_table()


def each_task(frame: DataFrame, work: Callable[[Iterable[pa.RecordBatch]], T]) -> list[T]:
    """Run ``work`` on the rows of each task that has any. It must be safe to run twice."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = iter(batches)
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is not None:
            yield _answer(work(_chained(first, rows)))

    return _gathered(frame.mapInArrow(run, _ANSWER))


def each_group(frame: DataFrame, key: str, work: Callable[[pa.Table], T]) -> list[T]:
    """Run ``work`` on each group of rows with the same value of a column."""

    def run(rows: pa.Table) -> pa.Table:
        return pa.Table.from_batches([_answer(work(rows))])

    return _gathered(frame.groupBy(key).applyInArrow(run, _ANSWER))


def each_own_group(frame: DataFrame, key: str, work: Mapping[int, Callable[[pa.Table], T]]) -> list[T]:
    """Run separate work for each value of a column. Only the task that runs it sees it."""

    def run(rows: pa.Table, packed: pa.Table) -> pa.Table:
        if not (rows.num_rows and packed.num_rows):
            return _NOTHING
        return pa.Table.from_batches([_answer(pickle.loads(packed.column("work")[0].as_py())(rows))])

    own = [pickle.dumps(each) for each in work.values()]
    packed = pa.table({key: pa.array(work.keys(), pa.int64()), "work": pa.array(own, pa.binary())})
    groups = frame.groupBy(key).cogroup(to_frame(frame.sparkSession, packed).groupBy(key))
    return _gathered(groups.applyInArrow(run, _ANSWER))


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _answer(found: object) -> pa.RecordBatch:
    return pa.record_batch({"answer": pa.array([pickle.dumps(found)], pa.binary())})


def _gathered(answers: DataFrame) -> list[T]:
    with writing():
        return [pickle.loads(row["answer"]) for row in answers.collect()]
