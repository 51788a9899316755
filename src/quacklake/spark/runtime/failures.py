"""Translate Spark's errors into Quacklake's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PySparkException, PythonException

from quacklake.errors import ConstraintError, InputError, MissingExtraError, StorageError
from quacklake.spark.runtime.types import RAISED

_NO_STORE = re.compile(r"S3AFileSystem not found|No FileSystem for scheme")
_IN_PYTHON = re.compile(r"^[A-Za-z_][\w.]*: .*", re.MULTILINE)
_OUR_CODE = re.compile(r'File "[^"]*[/\\]quacklake[/\\](engines|lake|storage)[/\\]')
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
        if _of_spark(error):
            _check_store(error)
        raise


def _check_store(error: Exception) -> None:
    if _NO_STORE.search(str(error)) is not None:
        raise MissingExtraError(
            "this session of Spark lacks the jars for the store of the lake",
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
