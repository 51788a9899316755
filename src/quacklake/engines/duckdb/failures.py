"""DuckDB's errors as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import duckdb
import pyarrow as pa

from quacklake.engines.duckdb.exactness import ROUNDED
from quacklake.engines.duckdb.interval_files import CUT
from quacklake.errors import (
    CancelledError,
    ConstraintError,
    CorruptFileError,
    InputError,
    PredicateError,
    QuacklakeError,
    StorageError,
)

__all__ = ["reading", "translate", "writing"]


#: What DuckDB says of a file that a key does not open.
_KEY_SIGNS = ("AES tag", "'encryption_config' was", "encrypted file", "Invalid AES key")


def translate(error: BaseException, doing: str) -> QuacklakeError | None:
    """The error of ours that a DuckDB error means, or None for one that is not DuckDB's."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    if isinstance(error, duckdb.InterruptException):
        return CancelledError("the operation was cancelled")
    if isinstance(
        error, duckdb.BinderException | duckdb.ParserException | duckdb.SyntaxException | duckdb.CatalogException
    ):
        return PredicateError(f"cannot evaluate the expression: {first}")
    if isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException | duckdb.TypeMismatchException):
        return ConstraintError(f"a value does not fit: {first}")
    if isinstance(error, duckdb.OutOfMemoryException):
        return InputError(f"not enough memory to {doing}: {first}", hint="raise the setting duckdb_memory_limit")
    if isinstance(error, duckdb.InvalidInputException) and "in the NOT NULL column" in text:
        return ConstraintError(first.removeprefix("Invalid Input Error: "))
    if isinstance(error, duckdb.InvalidInputException) and ROUNDED in text:
        return ConstraintError(
            first.removeprefix("Invalid Input Error: "),
            hint="a column of the type DECIMAL(38, 0) keeps every digit, in files too",
        )
    if isinstance(error, duckdb.InvalidInputException) and CUT in text:
        return ConstraintError(
            first.removeprefix("Invalid Input Error: "),
            hint="in files intervals have whole milliseconds, less than 50 days of them, and no part below zero",
        )
    if isinstance(error, duckdb.IOException) and "Parquet files do not support" in text:
        return ConstraintError(f"a value does not fit into a file: {first}")
    if any(sign in text for sign in _KEY_SIGNS):
        return CorruptFileError(
            f"cannot {doing}: the encryption key of a file is missing or wrong",
            hint="the keys are in the catalog, one for each file; its row or the file is not the original",
        )
    damaged = isinstance(error, duckdb.IOException | duckdb.InvalidInputException | duckdb.HTTPException)
    if damaged or type(error) is duckdb.Error:  # the bare class is what a broken footer raises
        return CorruptFileError(f"cannot {doing}: {first}", hint="lake.verify() tells which files are damaged")
    if isinstance(error, duckdb.Error):
        return StorageError(f"cannot {doing}: {first}")
    if isinstance(error, pa.ArrowInvalid):
        return ConstraintError(f"a value does not fit: {first}")
    return None


@contextmanager
def _translating(doing: str) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid) as error:
        ours = translate(error, doing)
        raise (ours or error) from error


def reading() -> AbstractContextManager[None]:
    """Translate what goes wrong while data files are read."""
    return _translating("read the data files")


def writing() -> AbstractContextManager[None]:
    """Translate what goes wrong while data files are written."""
    return _translating("write the data files")
