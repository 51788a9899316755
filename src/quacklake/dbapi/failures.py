"""The exceptions of PEP 249, and those of the lake as such."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from quacklake import errors


class Warning(Exception):  # PEP 249 wants this name
    """Never raised."""


class Error(Exception):
    """The base of all errors here. ``code`` and ``hint`` are those of the lake's own error, which is the cause."""

    code: str | None = None
    hint: str | None = None


class InterfaceError(Error):
    """The interface was used wrongly: a connection or cursor is closed, or there are no rows to fetch."""


class DatabaseError(Error):
    """The base of the errors that come from the lake."""


class DataError(DatabaseError):
    """Values do not fit."""


class OperationalError(DatabaseError):
    """The catalog or the store failed, another commit conflicts, or a limit was reached."""


class IntegrityError(DatabaseError):
    """A constraint does not hold, or an object exists already."""


class InternalError(DatabaseError):
    """A bug."""


class ProgrammingError(DatabaseError):
    """A statement is not valid, or names something that does not exist."""


class NotSupportedError(DatabaseError):
    """A feature does not exist here."""


CLASSES: tuple[tuple[type[errors.QuacklakeError], type[DatabaseError]], ...] = (
    (errors.ConstraintError, IntegrityError),
    (errors.AlreadyExistsError, ProgrammingError),
    (errors.SchemaMismatchError, DataError),
    (errors.InputError, ProgrammingError),
    (errors.NotFoundError, ProgrammingError),
    (errors.NotPermittedError, ProgrammingError),
    (errors.ConfigError, ProgrammingError),
    (errors.UnsupportedFeatureError, NotSupportedError),
    (errors.ReadOnlyError, NotSupportedError),
    (errors.InternalError, InternalError),
    (errors.QuacklakeError, OperationalError),
)


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of the lake as those of PEP 249."""
    try:
        yield
    except errors.QuacklakeError as error:
        wanted = next(ours for theirs, ours in CLASSES if isinstance(error, theirs))
        raised = wanted(str(error))
        raised.code, raised.hint = error.code, error.hint
        raise raised from error
