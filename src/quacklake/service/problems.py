"""Errors as ``application/problem+json`` (RFC 9457), with Quacklake's codes and hints.

A client reads of its own mistakes in full. Of what went wrong inside, it learns the kind and a request id: the log has
the rest, so that no path, address or secret leaves the service.
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from quacklake import errors
from quacklake.config import redact
from quacklake.errors import QuacklakeError, TenantBusyError
from quacklake.telemetry import error_facts

__all__ = [
    "PROBLEM",
    "PROBLEMS",
    "LakesFullError",
    "StalledError",
    "TooBusyError",
    "add_handlers",
    "problem",
    "status_of",
]

PROBLEM = "application/problem+json"
_RETRY_SECONDS = 1
_log = logging.getLogger("quacklake.service")


class TooBusyError(QuacklakeError, errors.Transient, code="limit.busy"):
    """Too many requests wait, or a principal makes too many; nothing was done."""

    def __init__(self, message: str, *, after: float = _RETRY_SECONDS) -> None:
        super().__init__(message, hint="send it again later")
        self.after = after


class LakesFullError(errors.LimitError, errors.Transient, code="limit.lakes"):
    """As many catalogs of a shared lake are open as may be, and all of them are in use; nothing was done."""

    def __init__(self, most: int, *, after: float) -> None:
        super().__init__(f"{most} lakes are in use", hint="send it again later")
        self.after = after


class StalledError(QuacklakeError, errors.Terminal, code="limit.stalled"):
    """A request did not arrive, or an answer was not read, in time."""


_STATUS: tuple[tuple[type[QuacklakeError], int], ...] = (
    (errors.UnauthenticatedError, 401),
    (errors.NotPermittedError, 403),
    (errors.ReadOnlyError, 403),
    (errors.SnapshotExpiredError, 410),
    (errors.NotFoundError, 404),
    (errors.AlreadyExistsError, 409),
    (TooBusyError, 429),
    (TenantBusyError, 429),
    (errors.StatementTimeoutError, 408),
    (StalledError, 408),
    (LakesFullError, 503),
    (errors.TenantLimitError, 403),
    (errors.ConsumerLimitError, 403),
    (errors.LimitError, 413),
    (errors.CommitConflict, 409),
    (errors.MergeConflictError, 409),
    (errors.CommitUnknown, 503),
    (errors.StreamError, 409),
    (errors.LeaseHeldError, 409),
    (errors.StaleViewError, 409),
    (errors.CancelledError, 409),
    (errors.UnsupportedFeatureError, 422),
    (errors.SchemaMismatchError, 422),
    (errors.ConstraintError, 422),
    (errors.ClosedError, 503),
    (errors.InputError, 400),
    (errors.ConfigError, 400),
    (errors.CatalogUnavailableError, 503),
    (errors.StorageUnavailableError, 503),
    (errors.ConnectorUnavailableError, 503),
    (errors.PathError, 400),
)
_INSIDE = "the service could not do this; its log says more under the request id"
_AWAY = "the service cannot reach its catalog or its store at the moment"

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "The request failed",
        "content": {
            PROBLEM: {
                "schema": {
                    "type": "object",
                    "required": ["type", "title", "status", "code", "request_id"],
                    "properties": {
                        "type": {"type": "string"},
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string"},
                        "code": {"type": "string"},
                        "hint": {"type": ["string", "null"]},
                        "transient": {"type": "boolean"},
                        "request_id": {"type": "string"},
                    },
                },
                "example": {
                    "type": "urn:quacklake:problem:not_found",
                    "title": "Not Found",
                    "status": 404,
                    "detail": 'there is no table "main.evnets"',
                    "code": "not_found",
                    "hint": 'did you mean "main.events"?',
                    "transient": False,
                    "request_id": "0198f2c4a1b27c3d",
                },
            }
        },
    }
}
"""The answer of every route that fails, for its description."""


def status_of(error: QuacklakeError) -> int:
    """Return the HTTP status of an error: 500 for what is nobody's mistake but ours."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem(error: QuacklakeError, request_id: str) -> Response:
    """Return the answer for an error; what a client must not know is left out."""
    status = status_of(error)
    shown, hint = redact(error.message), None if error.hint is None else redact(error.hint)
    if status >= 500 and not isinstance(error, LakesFullError):
        facts = error_facts(error, request_id=request_id)
        _log.warning("request %s failed: %s: %s", request_id, type(error).__name__, redact(str(error)), extra=facts)
        shown, hint = (_AWAY if status == 503 else _INSIDE), None
    answer = _response(status, error.code, shown, hint, request_id, transient=error.transient)
    if status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="quacklake"'
    if isinstance(error, StalledError):
        answer.headers["Connection"] = "close"  # what is left of the request would be taken for the next one
    if status in (429, 503):
        after = getattr(error, "after", _RETRY_SECONDS)
        answer.headers["Retry-After"] = str(max(1, round(after)))
    return answer


def _response(
    status: int, code: str, detail: str, hint: str | None, request_id: str, *, transient: bool = False
) -> Response:
    body = {
        "type": f"urn:quacklake:problem:{code}",
        "title": _title(status),
        "status": status,
        "detail": detail,
        "code": code,
        "hint": hint,
        "transient": transient,
        "request_id": request_id,
    }
    return Response(json.dumps(body, ensure_ascii=False), status, media_type=PROBLEM)


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def request_id_of(request: Request) -> str:
    """Return the id of a request, which its answer carries too."""
    return str(request.scope.get("request_id", ""))


def unexpected(error: Exception, request_id: str) -> Response:
    """Return the answer for a bug, and log it."""
    _log.error(
        "request %s failed unexpectedly", request_id, exc_info=error, extra=error_facts(error, request_id=request_id)
    )
    return _response(500, errors.InternalError.code, _INSIDE, None, request_id)


def add_handlers(app: FastAPI) -> None:
    """Let every error of the application become a problem."""

    @app.exception_handler(QuacklakeError)
    async def own(request: Request, error: Exception) -> Response:
        assert isinstance(error, QuacklakeError)
        return problem(error, request_id_of(request))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = error.errors()[:5]
        places = "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in found)
        return _response(
            422, "input.request", places[:1000] or "the request is not valid", None, request_id_of(request)
        )

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error.__cause__, QuacklakeError):  # raised while the body was read
            return problem(error.__cause__, request_id_of(request))
        code = {404: "not_found.route", 405: "input.method"}.get(error.status_code, "input.request")
        answer = _response(error.status_code, code, str(error.detail), None, request_id_of(request))
        answer.headers.update(error.headers or {})
        return answer
