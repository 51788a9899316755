"""Translate DuckDB's errors about statements into Quacklake's errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from quacklake.engines.duckdb.connections import message_of, translate
from quacklake.errors import CancelledError, MemoryLimitError, NotPermittedError, SqlError, StorageError
from quacklake.storage.failures import outage_of

_STATEMENT = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.NotImplementedException,
    duckdb.PermissionException,
    duckdb.InvalidInputException,
    duckdb.TransactionException,
    duckdb.DependencyException,
)


@contextmanager
def translated(roots: Sequence[str] = (), *, safe: bool = False) -> Iterator[None]:
    """Raise DuckDB's errors as Quacklake's. Errors about the statement keep their whole text, which shows the position.

    A file below one of ``roots``, where lakes keep their files, counts as damaged when it cannot be read. In a ``safe``
    session, an error about DuckDB's limits becomes one about the limits of the session.
    """
    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid) as error:
        if safe and isinstance(error, duckdb.PermissionException):
            raise NotPermittedError(str(error).strip().splitlines()[0]) from error
        if safe and isinstance(error, duckdb.OutOfMemoryException):
            raise _out_of_memory() from error
        if isinstance(error, _STATEMENT):
            raise SqlError(str(error).strip()) from error
        if isinstance(error, duckdb.IOException) and not any(root in str(error) for root in roots):
            text = str(error).strip()
            raise outage_of(text, "run the statement") or StorageError(text) from error
        raise translate(error, "run the statement") or error from error
    except RecursionError as error:
        raise SqlError("the statement is nested too deeply", hint="use fewer levels of subqueries") from error
    except UnicodeDecodeError as error:
        raise SqlError(message_of(error)) from error
    except UnicodeEncodeError as error:
        raise SqlError("the statement holds a character that UTF-8 has none for") from error
    except OSError as error:
        if "INTERRUPT Error" in str(error):
            raise CancelledError("the statement was cancelled") from error
        if safe and "Out of Memory Error" in str(error):
            raise _out_of_memory() from error
        outage = outage_of(str(error), "run the statement")
        if outage is not None:
            raise outage from error
        # Arrow's message when DuckDB has no Arrow type for a column
        raise SqlError(str(error)) from error


def _out_of_memory() -> MemoryLimitError:
    return MemoryLimitError("the statement needs more memory than this session may take")
