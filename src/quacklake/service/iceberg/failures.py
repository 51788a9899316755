"""Errors as the REST catalog of Iceberg tells them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from quacklake.config import redact
from quacklake.errors import (
    InputError,
    LimitError,
    NotFoundError,
    NotPermittedError,
    QuacklakeError,
    Transient,
    UnauthenticatedError,
    UnsupportedFeatureError,
)
from quacklake.telemetry import error_facts

__all__ = ["Failure", "Refusal", "failure_of"]

_log = logging.getLogger("quacklake.service.iceberg")


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the REST catalog: the status of HTTP, the type that clients know, and a text."""

    status: int
    type: str
    message: str
    after: float | None = None
    """Seconds after which the same request may succeed, where that is known."""

    def json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"error": {"message": self.message, "type": self.type, "code": self.status}}


class Refusal(Exception):
    """Ends a request with a failure."""

    def __init__(self, status: int, type_: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(status, type_, message)


def failure_of(error: QuacklakeError) -> Failure:
    """Return what a client is told of an error, with its hint. What may tell of places and secrets is for the log."""
    text = redact(error.message if error.hint is None else f"{error.message} ({error.hint})")
    match error:
        case UnauthenticatedError():
            return Failure(401, "NotAuthorizedException", text)
        case NotPermittedError():
            return Failure(403, "ForbiddenException", text)
        case NotFoundError():
            return Failure(404, "NotFoundException", text)
        case UnsupportedFeatureError():
            return Failure(406, "UnsupportedOperationException", text)
        case InputError():
            return Failure(400, "BadRequestException", text)
        case LimitError():
            return Failure(503, "ServiceUnavailableException", text, getattr(error, "after", None))
    _log.warning("the Iceberg catalog failed: %s: %s", type(error).__name__, text, extra=error_facts(error))
    if isinstance(error, Transient):
        return Failure(503, "ServiceUnavailableException", f"the catalog or the store does not answer [{error.code}]")
    return Failure(500, "InternalServerError", f"the Iceberg catalog failed; its log says more [{error.code}]")
