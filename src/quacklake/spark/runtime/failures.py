"""Translate Spark's errors into Quacklake's, and run Python on the executors for small results."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TypeVar
from zipimport import zipimporter

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession

from quacklake.errors import ConstraintError, InputError, MissingExtraError, QuacklakeError, StorageError
from quacklake.spark.runtime.local import to_frame
from quacklake.spark.runtime.types import RAISED

_NO_STORE = re.compile(r"S3AFileSystem not found|No FileSystem for scheme")
_IN_PYTHON = re.compile(r"^[A-Za-z_][\w.]*: .*", re.MULTILINE)
_OUR_CODE = re.compile(r'File "[^"]*[/\\]quacklake[/\\]core[/\\](engines|storage)[/\\]')
_NO_PACKAGE = re.compile(r"^ModuleNotFoundError: No module named ", re.MULTILINE)
_STATE = re.compile(r"SQLSTATE: (\w{5})")
_USERS = ("21", "22", "23", "42", "P0")
"""Classes of SQLSTATE: too many rows, data, constraints, names and syntax, and errors that a user raises."""
_OURS = re.compile(re.escape(RAISED) + r"(.*)")


@contextmanager
def computing() -> Iterator[None]:
    """Translate Spark's errors about expressions that it cannot compute."""
    try:
        yield
    except AnalysisException as error:
        raise InputError(f"Spark cannot compute the rows: {_first(error)}") from error


def _first(error: Exception) -> str:
    """Return the line that describes an error: the first, or the last if Python failed on an executor."""
    text = str(error).strip()
    raised = _IN_PYTHON.findall(text) if isinstance(error, PythonException) else []
    return raised[-1] if raised else text.splitlines()[0] if text else type(error).__name__


@contextmanager
def reaching() -> Iterator[None]:
    """Add a hint to errors of a Spark that has no jars for the store of a lake."""
    try:
        yield
    except Exception as error:
        _check_store(error)
        raise


def _check_store(error: Exception) -> None:
    if _of_spark(error) and _NO_STORE.search(str(error)) is not None:
        raise MissingExtraError(
            "this Spark session lacks the jars for the store of the lake",
            hint='start Spark with what `quacklake spark-settings` prints, or use format("quacklake"): it needs none',
        ) from error


def _of_spark(error: Exception) -> bool:
    # an error of the JVM that Spark does not know is the bridge's own; Connect has no bridge
    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")


def _of_user(error: Exception) -> bool:
    """Return True for an error in rows, expressions or functions of the user, rather than in storage."""
    if isinstance(error, AnalysisException):
        return True
    text = str(error)
    if isinstance(error, PythonException):  # in Python on an executor: the user's code, unless Quacklake was running
        return _OUR_CODE.search(text) is None
    return any(state.startswith(_USERS) for state in _STATE.findall(text))


@contextmanager
def writing() -> Iterator[None]:
    """Translate Spark's errors during a write."""
    try:
        yield
    except Exception as error:
        if not _of_spark(error):
            raise
        _check_store(error)
        found, first = _OURS.search(str(error)), _first(error)
        if found is not None:
            raise ConstraintError(found[1].removesuffix(" SQLSTATE: P0001").strip()) from error
        if _of_user(error):
            raise InputError(f"Spark cannot compute the rows: {first}") from error
        raise StorageError(f"Spark could not write the rows: {first}") from error


T = TypeVar("T")

_ANSWER = "answer BINARY"
_NOTHING = pa.schema([("answer", pa.binary())]).empty_table()


def each_task(frame: DataFrame, work: Callable[[Iterable[pa.RecordBatch]], T]) -> list[T]:
    """Run ``work`` on the rows of each task that has any. It must be safe to run twice."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = iter(batches)
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is not None:
            yield _answer(work(chain([first], rows)))

    return _gather_answers(frame.mapInArrow(run, _ANSWER))


def each_part(session: SparkSession, work: Sequence[Callable[[], T]]) -> list[T] | None:
    """Run pieces of work in tasks. Only the task that runs one sees it. Return None if executors lack ``quacklake``."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for packed in batch.column("work").to_pylist():
                yield _answer(pickle.loads(packed)())

    own = pa.table({"work": pa.array([pickle.dumps(each) for each in work], pa.binary())})
    try:
        return _gather_answers(to_frame(session, own).mapInArrow(run, _ANSWER))
    except QuacklakeError as error:
        cause = error.__cause__
        if isinstance(cause, PythonException) and _NO_PACKAGE.search(str(cause)) is not None:
            return None
        raise


def each_group(frame: DataFrame, key: str, work: Callable[[pa.Table], T]) -> list[T]:
    """Run ``work`` on each group of rows with the same value of a column."""

    def run(rows: pa.Table) -> pa.Table:
        return pa.Table.from_batches([_answer(work(rows))])

    return _gather_answers(frame.groupBy(key).applyInArrow(run, _ANSWER))


def each_own_group(frame: DataFrame, key: str, work: Mapping[int, Callable[[pa.Table], T]]) -> list[T]:
    """Run separate work for each value of a column. Only the task that runs it sees it."""

    def run(rows: pa.Table, packed: pa.Table) -> pa.Table:
        if not (rows.num_rows and packed.num_rows):
            return _NOTHING
        return pa.Table.from_batches([_answer(pickle.loads(packed.column("work")[0].as_py())(rows))])

    own = [pickle.dumps(each) for each in work.values()]
    packed = pa.table({key: pa.array(work.keys(), pa.int64()), "work": pa.array(own, pa.binary())})
    groups = frame.groupBy(key).cogroup(to_frame(frame.sparkSession, packed).groupBy(key))
    return _gather_answers(groups.applyInArrow(run, _ANSWER))


def _answer(found: object) -> pa.RecordBatch:
    """Return the result of a task as its only row."""
    forget_importers(os.environ.get("PYTHONPATH", ""))
    return pa.record_batch({"answer": pa.array([pickle.dumps(found)], pa.binary())})


def forget_importers(path: str) -> None:
    """Remove the importers of archives on a ``PYTHONPATH`` from Python's cache, which makes them again when needed.

    A process that runs tasks renews all importers before each task. Older versions of Python then read the directory of
    an archive once for every package that came from it: of Spark's own archives, which do not change while it runs.
    """
    archives = {os.path.abspath(each) for each in path.split(os.pathsep) if each}  # noqa: PTH100 - links stay
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in archives:
            sys.path_importer_cache.pop(place, None)


def _gather_answers(answers: DataFrame) -> list[T]:
    with writing():
        return [pickle.loads(row["answer"]) for row in answers.collect()]
