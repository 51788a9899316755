"""Turning DuckDB's errors into ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import duckdb
import pyarrow as pa

from quacklake.engines.duckdb.exactness import REFUSALS
from quacklake.errors import (
    CancelledError,
    ConstraintError,
    CorruptFileError,
    InputError,
    PredicateError,
    QuacklakeError,
    StorageError,
)
from quacklake.storage.failures import outage_of

_WRITING = "write the data files"
#: What httpfs says when it cannot begin to write a file.
_UPLOAD = re.compile(r"Unable to connect to URL .*\(HTTP code 404\)")


#: What DuckDB says of a file that a key does not open.
_KEY_SIGNS = ("AES tag", "'encryption_config' was", "encrypted file", "Invalid AES key")


def translate(error: BaseException, doing: str) -> QuacklakeError | None:
    """Return the error of ours that a DuckDB error means, or None for one that is not DuckDB's."""
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
    refusal = next((words for words in REFUSALS if words in text), None)
    if isinstance(error, duckdb.InvalidInputException) and refusal is not None:
        return ConstraintError(first.removeprefix("Invalid Input Error: "), hint=REFUSALS[refusal])
    if isinstance(error, duckdb.IOException) and "Parquet files do not support" in text:
        return ConstraintError(f"a value does not fit into a file: {first}")
    if any(sign in text for sign in _KEY_SIGNS):
        return CorruptFileError(
            f"cannot {doing}: the encryption key of a file is missing or wrong",
            hint="the keys are in the catalog, one for each file; its row or the file is not the original",
        )
    bare = type(error) is duckdb.Error  # raised for a broken footer, and by an Arrow file system
    if bare or isinstance(error, duckdb.IOException | duckdb.HTTPException):
        outage = outage_of(first, doing)
        if outage is not None:
            return outage
        if doing == _WRITING and _UPLOAD.search(first):
            hint = "check the bucket or the folder of the data path"
            return StorageError(f"cannot {doing}, the place does not exist: {first}", hint=hint)
    damaged = isinstance(error, duckdb.IOException | duckdb.InvalidInputException | duckdb.HTTPException)
    if damaged or bare:
        return CorruptFileError(f"cannot {doing}: {first}", hint="lake.verify() tells which files are damaged")
    if isinstance(error, duckdb.Error):
        return StorageError(f"cannot {doing}: {first}")
    if isinstance(error, pa.ArrowInvalid):
        return ConstraintError(f"a value does not fit: {first}")
    return None


def message_of(error: UnicodeDecodeError) -> str:
    """Return what DuckDB said, of a value that it has cut in the middle of a character: ``unhex('é')``."""
    text = error.object.decode(errors="replace").strip()
    return text.splitlines()[0] if text else str(error)


def interrupted(error: BaseException) -> bool:
    """Return whether DuckDB has stopped because of Ctrl-C, which it tells as an error of its own."""
    return isinstance(error, RuntimeError) and isinstance(error.__cause__, KeyboardInterrupt)


@contextmanager
def _translating(doing: str) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid) as error:
        ours = translate(error, doing)
        raise (ours or error) from error
    except UnicodeDecodeError as error:
        raise ConstraintError(f"a value does not fit: {message_of(error)}") from error
    except RuntimeError as error:
        if interrupted(error):
            raise KeyboardInterrupt from error
        raise


def reading() -> AbstractContextManager[None]:
    """Translate what goes wrong while data files are read."""
    return _translating("read the data files")


def writing() -> AbstractContextManager[None]:
    """Translate what goes wrong while data files are written."""
    return _translating(_WRITING)
