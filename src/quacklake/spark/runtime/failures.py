"""Spark's errors as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PySparkException, PythonException

from quacklake.errors import ConstraintError, InputError, MissingExtraError, StorageError
from quacklake.spark.runtime.types import RAISED

__all__ = ["computing", "reaching", "writing"]

_NO_STORE = re.compile(r"S3AFileSystem not found|No FileSystem for scheme")
_IN_PYTHON = re.compile(r"^[A-Za-z_][\w.]*: .*", re.MULTILINE)
_OUR_CODE = re.compile(r'File "[^"]*[/\\]quacklake[/\\](engines|lake|storage)[/\\]')
_STATE = re.compile(r"SQLSTATE: (\w{5})")
_USERS = ("21", "22", "23", "42", "P0")
"""Classes of SQLSTATEs: too many rows, data, constraints, names and syntax, and what a user raises."""
_OURS = re.compile(re.escape(RAISED) + r"(.*)")


@contextmanager
def computing() -> Iterator[None]:
    """Turn what Spark says of expressions that it cannot compute into errors of Quacklake."""
    try:
        yield
    except AnalysisException as error:
        raise InputError(f"Spark cannot compute the rows: {_first(error)}") from error


def _first(error: Exception) -> str:
    """The line of an error that says what is wrong: the first, or where Python failed on an executor the last."""
    text = str(error).strip()
    raised = _IN_PYTHON.findall(text) if isinstance(error, PythonException) else []
    return raised[-1] if raised else text.splitlines()[0] if text else type(error).__name__


@contextmanager
def reaching() -> Iterator[None]:
    """Tell what to do where Spark has no jars for the store of a lake."""
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
    # what the JVM raises and Spark does not know is the bridge's own error, which Connect has not
    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")


def _of_user(error: Exception) -> bool:
    """Whether an error is one of rows, expressions or functions of the user's, and not of what stores them."""
    if isinstance(error, AnalysisException):
        return True
    text = str(error)
    if isinstance(error, PythonException):  # in Python on an executor: the user's, unless we were at work
        return _OUR_CODE.search(text) is None
    return any(state.startswith(_USERS) for state in _STATE.findall(text))


@contextmanager
def writing() -> Iterator[None]:
    """Turn what Spark raises while it writes into errors of Quacklake."""
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
