"""The boundary of the library: public methods raise our own errors, or those of the caller's code."""

from __future__ import annotations

import functools
import inspect
import sysconfig
from collections.abc import Callable
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from quacklake.engines.duckdb.connections import translate
from quacklake.errors import CatalogError, InputError, QuacklakeError, StorageError
from quacklake.storage.failures import outage_of

C = TypeVar("C", bound=type[Any])

_HOME = str(Path(__file__).resolve().parents[1])
_PYTHON = (sysconfig.get_paths()["stdlib"], "<frozen ")
#: Packages of databases, and of the frames that users pass to us.
_DATABASES = frozenset({"sqlalchemy", "sqlite3", "psycopg", "pymysql"})
_FRAMES = frozenset({"polars", "pandas", "numpy"})

#: Left alone: ``sql`` reads variables of its caller, which another frame would hide, and sessions translate errors.
_LEFT = frozenset({"sql"})


def boundary(cls: C) -> C:
    """Make every public method of a class, inherited ones too, raise errors of other libraries as ours."""
    for name, function in inspect.getmembers(cls, inspect.isfunction):
        bound = not isinstance(inspect.getattr_static(cls, name), staticmethod | classmethod)
        if bound and name not in _LEFT and not name.startswith("_") and not inspect.isgeneratorfunction(function):
            setattr(cls, name, _bounded(function))
    return cls


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(function, "_is_bounded"):
        return function

    @functools.wraps(function)
    def bounded(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except QuacklakeError:
            raise
        except Exception as error:
            ours = ours_for(error)
            if ours is None:
                raise
            raise ours from error

    bounded._is_bounded = True  # type: ignore[attr-defined]
    return bounded


def ours_for(error: Exception) -> QuacklakeError | None:
    """Return the error to raise instead of another library's error; None if it comes from the caller's code."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, RecursionError):
        return InputError("an expression, a type or a value is nested too deeply", hint="use fewer levels")
    if isinstance(error, duckdb.Error):
        return _of_duckdb(error, first)
    if isinstance(error, pa.ArrowException):
        return InputError(f"Arrow cannot do this: {first}")
    package = type(error).__module__.partition(".")[0]
    if package in _DATABASES:
        return CatalogError(f"the catalog failed: {type(error).__name__}: {first}")
    if package in _FRAMES:
        return InputError(f"the rows cannot be read: {type(error).__name__}: {first}")
    if isinstance(error, UnicodeEncodeError):
        return InputError("a text holds a character that UTF-8 has none for", hint="replace lone surrogates")
    if isinstance(error, TypeError | AttributeError | ValueError) and _is_ours(error.__traceback__):
        return InputError(f"an argument has the wrong type or value: {first}")
    return None


def _of_duckdb(error: duckdb.Error, first: str) -> QuacklakeError:
    if isinstance(error, duckdb.IOException | duckdb.HTTPException):
        return outage_of(first, "do this") or StorageError(f"DuckDB cannot do this: {first}")
    ours = translate(error, "do this")
    if ours is None or type(ours) is StorageError or isinstance(error, duckdb.InvalidInputException):
        return InputError(f"DuckDB cannot do this: {first}")
    return ours


def _is_ours(trace: TracebackType | None) -> bool:
    """Return whether an error comes from a line of this package below the call itself, or from Python code it called.

    An error of the call itself is about its signature; one from any other file may come from the caller's code.
    """
    files = [frame.f_code.co_filename for frame, _ in walk_tb(trace)][1:]
    theirs = [file for file in files if not (file.startswith(_PYTHON) and "site-packages" not in file)]
    return bool(theirs) and theirs[-1].startswith(_HOME)
