"""Spark's errors as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PySparkException, PythonException

from quacklake.errors import ConstraintError, InputError, StorageError
from quacklake.format.spark import RAISED

__all__ = ["computing", "writing"]

_IN_PYTHON = re.compile(r"^[A-Za-z_][\w.]*: .*", re.MULTILINE)
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
def writing() -> Iterator[None]:
    """Turn what Spark raises while it writes into errors of Quacklake."""
    try:
        yield
    except Exception as error:
        # what the JVM raises and Spark does not know is the bridge's own error, which Connect has not
        if not (isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")):
            raise
        found, first = _OURS.search(str(error)), _first(error)
        if found is not None:
            raise ConstraintError(found[1].removesuffix(" SQLSTATE: P0001").strip()) from error
        if isinstance(error, AnalysisException):
            raise InputError(f"Spark cannot compute the rows: {first}") from error
        raise StorageError(f"Spark could not write the rows: {first}") from error
