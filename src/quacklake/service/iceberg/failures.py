"""Errors as the REST catalog of Iceberg tells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quacklake.errors import (
    CatalogUnavailableError,
    InputError,
    LimitError,
    NotFoundError,
    NotPermittedError,
    QuacklakeError,
    StorageUnavailableError,
    Transient,
    UnauthenticatedError,
    UnsupportedFeatureError,
)

__all__ = ["Failure", "failure_of"]


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the REST catalog: the status of HTTP, the type that clients know, and a text."""

    status: int
    type: str
    message: str

    def json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"error": {"message": self.message, "type": self.type, "code": self.status}}

    @property
    def error(self) -> NamedNotFoundError:
        """Return an exception that becomes this failure."""
        return NamedNotFoundError(self)


class NamedNotFoundError(NotFoundError, code="not_found.iceberg"):
    """A missing thing for which Iceberg has its own type of error."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def failure_of(error: QuacklakeError) -> Failure:
    """Return what a client is told of an error, with its hint."""
    if isinstance(error, NamedNotFoundError):
        return error.failure
    text = error.message if error.hint is None else f"{error.message} ({error.hint})"
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
        case CatalogUnavailableError() | StorageUnavailableError() | LimitError() | Transient():
            return Failure(503, "ServiceUnavailableException", text)
    return Failure(500, "InternalServerError", f"{text} [{error.code}]")
