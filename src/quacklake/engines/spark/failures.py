"""Spark's errors as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PySparkException

from quacklake.errors import ConstraintError, InputError, StorageError
from quacklake.format.spark import RAISED

__all__ = ["writing"]

_OURS = re.compile(re.escape(RAISED) + r"(.*)")


@contextmanager
def writing() -> Iterator[None]:
    """Turn what Spark raises while it writes into errors of Quacklake."""
    try:
        yield
    except Exception as error:
        # what the JVM raises and Spark does not know is the bridge's own error, which Connect has not
        if not (isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")):
            raise
        text = str(error)
        found = _OURS.search(text)
        first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        if found is not None:
            raise ConstraintError(found[1].removesuffix(" SQLSTATE: P0001").strip()) from error
        if isinstance(error, AnalysisException):
            raise InputError(f"Spark cannot compute the rows: {first}") from error
        raise StorageError(f"Spark could not write the rows: {first}") from error
