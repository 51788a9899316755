"""Errors as Flight tells them: a status, and our code, message and hint; never a traceback, a path or a secret."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

from quacklake.errors import (
    CancelledError,
    CatalogError,
    CommitUnknown,
    InternalError,
    NotFoundError,
    NotPermittedError,
    QuacklakeError,
    ReadOnlyError,
    StatementTimeoutError,
    StorageError,
    Transient,
    UnauthenticatedError,
    UnsupportedFeatureError,
)
from quacklake.service.problems import StalledError
from quacklake.telemetry import error_facts

_log = logging.getLogger("quacklake.service.flight")


class _Untraced(Exception):
    """An error whose traceback cannot be rendered.

    Arrow puts the rendered traceback of an error into its answer, with the paths of the server, unless the error is one
    of Flight's own, which have no status for a wrong argument. When rendering fails, Arrow takes the name of the class.
    """

    @property
    def __cause__(self) -> BaseException | None:
        raise AttributeError

    @__cause__.setter
    def __cause__(self, _: object) -> None: ...


class InvalidArgument(_Untraced, pa.ArrowInvalid):  # type: ignore[misc]
    """The status INVALID_ARGUMENT."""


class NotFound(_Untraced, pa.ArrowKeyError):  # type: ignore[misc]
    """The status NOT_FOUND."""


class Unimplemented(_Untraced, pa.ArrowNotImplementedError):  # type: ignore[misc]
    """The status UNIMPLEMENTED."""


STATUSES = (flight.FlightError, InvalidArgument, NotFound, Unimplemented)
"""The errors that a handler may raise."""

_HIDDEN = CatalogError | StorageError | InternalError
"""Errors whose text may tell of places."""
_BY_CLASS: tuple[tuple[Any, type[Exception]], ...] = (
    (UnauthenticatedError, flight.FlightUnauthenticatedError),
    (NotPermittedError | ReadOnlyError, flight.FlightUnauthorizedError),
    (StatementTimeoutError | StalledError, flight.FlightTimedOutError),
    (CancelledError, flight.FlightServerError),  # a client of Arrow takes the status CANCELLED for its own Ctrl-C
    (Transient, flight.FlightUnavailableError),
    (_HIDDEN | CommitUnknown, flight.FlightInternalError),
    (NotFoundError, NotFound),
    (UnsupportedFeatureError, Unimplemented),
)


def to_status(error: BaseException) -> Any:
    """Return the error that Flight sends for another one."""
    if isinstance(error, STATUSES):
        return error
    if isinstance(error, pa.ArrowInvalid) and not isinstance(error, QuacklakeError):
        return InvalidArgument("[input] the stream of the client is no valid Arrow data")
    if not isinstance(error, QuacklakeError):
        return flight.FlightInternalError(*_encode_error(_log_error(error)))
    chosen = next((status for kind, status in _BY_CLASS if isinstance(error, kind)), InvalidArgument)
    shown = _log_error(error) if isinstance(error, _HIDDEN) and not isinstance(error, UnauthenticatedError) else error
    message, extra = _encode_error(shown)
    return chosen(message, extra) if issubclass(chosen, flight.FlightError) else chosen(message)


def _encode_error(error: QuacklakeError) -> tuple[str, bytes]:
    hint = "" if error.hint is None else f"\n  hint: {error.hint}"
    facts = {"code": error.code, "hint": error.hint, "transient": error.transient}
    return f"[{error.code}] {error.message}{hint}", json.dumps(facts).encode()


def _log_error(error: BaseException) -> QuacklakeError:
    """Log an error, and return one with its code and a number by which the log can be searched."""
    number = uuid.uuid4().hex[:12]
    _log.error("incident %s: %s", number, error, exc_info=error, extra=error_facts(error, incident=number))
    kind = "the catalog" if isinstance(error, CatalogError) else "the store of the lake"
    what = f"{kind} failed" if isinstance(error, CatalogError | StorageError) else "the server failed"
    shown = QuacklakeError(f"{what} (incident {number})", hint="the log of the server has the reason")
    shown.code = error.code if isinstance(error, QuacklakeError) else InternalError.code
    return shown


@contextmanager
def answering() -> Iterator[None]:
    """Raise the errors of a block as Flight sends them."""
    try:
        yield
    except STATUSES:
        raise
    except Exception as error:
        raise to_status(error) from None
