"""Every error Quacklake raises.

The tree::

    QuacklakeError                     base: ``code``, ``hint``
    ├── ConfigError                    a setting, URL or option is wrong
    │   ├── MissingExtraError          an optional package is not installed
    │   └── UnsupportedVersionError    the version of the catalog's format, or of Spark, is unknown
    ├── InputError                     the caller's data or arguments are wrong
    │   ├── SchemaMismatchError        columns or types do not fit the table
    │   ├── ConstraintError            NULL in NOT NULL, value out of range, duplicate keys
    │   ├── PredicateError             a filter cannot be parsed or bound
    │   ├── SqlError                   a statement cannot be parsed, bound or run here
    │   ├── InvalidNameError           a name is empty, too long or otherwise unusable
    │   └── ClosedError                the lake was closed
    ├── NotFoundError                  table, schema, snapshot … does not exist
    │   └── SnapshotExpiredError       the history that is needed has been removed
    ├── AlreadyExistsError             it exists already
    ├── ReadOnlyError                  a write on a read-only lake, snapshot or catalog
    ├── NotPermittedError              a safe session does not run such a statement
    ├── LimitError                     a statement needs more than its session may take
    │   ├── StatementTimeoutError      … of time
    │   ├── MemoryLimitError           … of memory, or of room for what does not fit into it
    │   ├── ResultTooLargeError        … of rows or bytes in its result
    │   ├── StatementTooLargeError     … of parts, tables or columns in the statement itself
    │   └── TenantLimitError           a catalog (tenant) would have more than it may
    │       └── TenantBusyError        … commits in a second, or scans at a time            (Transient)
    ├── CatalogError                   the metadata database failed
    │   └── CatalogUnavailableError    … and trying again may help        (Transient)
    │       └── CatalogLockedError     another client in this process has locked it (Transient)
    ├── StorageError                   the object store failed
    │   ├── PathError                  a path would leave the data root
    │   ├── CorruptFileError           a file is missing, truncated or not what it should be
    │   └── StorageUnavailableError    trying again may help              (Transient)
    ├── CommitError                    a commit did not go through
    │   ├── CommitConflict             another commit got in the way; nothing was changed (Transient)
    │   └── CommitUnknown              the answer was lost and could not be recovered
    ├── StreamError                    a stream cannot go on
    │   ├── StreamFencedError          another query has taken the stream over
    │   ├── StreamMismatchError        the checkpoint, or the table, is not the one the stream began with
    │   └── StreamBatchDoneError       the batch is in the lake already; nothing was changed
    ├── ConnectorError                 a system that a source reads, or a sink writes, failed
    │   └── ConnectorUnavailableError  … and trying again may help                          (Transient)
    ├── LeaseHeldError                 another process does this work already               (Transient)
    ├── CancelledError                 the caller cancelled the operation
    ├── UnsupportedFeatureError        the lake uses something this version cannot read or write
    └── InternalError                  an invariant of Quacklake itself is broken

``Transient`` and ``Terminal`` are mix-ins that decide whether a retry can help; an error that is not
``Transient`` is ``Terminal``.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class QuacklakeError(Exception):
    """Base of every error: a message, a stable ``code`` for programs and a ``hint`` for people."""

    code: str = "quacklake"
    hint: str | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    @property
    def transient(self) -> bool:
        """True when the same call may succeed later without any change."""
        return isinstance(self, Transient)


class Transient:
    """Mix-in: the same call may succeed later."""


class Terminal:
    """Mix-in: the same call will fail again until something is changed."""


class ConfigError(QuacklakeError, Terminal):
    code = "config"


class MissingExtraError(ConfigError):
    code = "config.missing_extra"


class UnsupportedVersionError(ConfigError):
    code = "config.unsupported_version"


class InputError(QuacklakeError, Terminal):
    code = "input"


class SchemaMismatchError(InputError):
    code = "input.schema_mismatch"


class ConstraintError(InputError):
    code = "input.constraint"


class PredicateError(InputError):
    code = "input.predicate"


class SqlError(InputError):
    """A statement cannot be parsed or bound, or makes no sense now; the message shows the place where it is known."""

    code = "input.sql"


class InvalidNameError(InputError):
    code = "input.name"


class ClosedError(InputError):
    """The lake was closed, or the tenants were."""

    code = "input.closed"

    def __init__(self) -> None:
        super().__init__("the lake is closed", hint="open it again with quacklake.connect()")


class NotFoundError(QuacklakeError, Terminal):
    code = "not_found"


class SnapshotExpiredError(NotFoundError):
    """Snapshots that are needed have expired: what they changed cannot be told any more."""

    code = "not_found.expired"


class AlreadyExistsError(QuacklakeError, Terminal):
    code = "already_exists"


class ReadOnlyError(QuacklakeError, Terminal):
    code = "read_only"


class NotPermittedError(QuacklakeError, Terminal):
    """A statement reaches for something that a safe session does not give; nothing of it was run."""

    code = "not_permitted"


class LimitError(QuacklakeError, Terminal):
    code = "limit"


class StatementTimeoutError(LimitError):
    code = "limit.timeout"


class MemoryLimitError(LimitError):
    code = "limit.memory"


class ResultTooLargeError(LimitError):
    code = "limit.result"


class StatementTooLargeError(LimitError):
    code = "limit.statement"


class TenantLimitError(LimitError):
    """A catalog of a shared lake would have more than its operator lets it; nothing was changed."""

    code = "limit.tenant"

    def __init__(self, message: str, *, limit: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.limit = limit
        """The name of the limit."""


class TenantBusyError(TenantLimitError, Transient):
    """A catalog does as much at a time as it may; nothing was changed. ``after`` seconds there may be room."""

    code = "limit.tenant_busy"

    def __init__(self, message: str, *, limit: str, after: float, hint: str | None = None) -> None:
        super().__init__(message, limit=limit, hint=hint)
        self.after = after


class CatalogError(QuacklakeError):
    code = "catalog"


class CatalogUnavailableError(CatalogError, Transient):
    code = "catalog.unavailable"


class CatalogLockedError(CatalogUnavailableError):
    """Another client in this process has locked the database, and gives it back when its transaction ends."""

    code = "catalog.locked"


class StorageError(QuacklakeError):
    code = "storage"


class PathError(StorageError, Terminal):
    code = "storage.path"


class CorruptFileError(StorageError, Terminal):
    code = "storage.corrupt"


class StorageUnavailableError(StorageError, Transient):
    code = "storage.unavailable"


class CommitError(QuacklakeError):
    code = "commit"


class CommitConflict(CommitError, Transient):
    """Another commit got in the way; nothing was changed. Plan again on the newer snapshot."""

    code = "commit.conflict"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        begin = "Transaction conflict - "
        super().__init__(begin + message.removeprefix(begin), hint=hint)


class CommitUnknown(CommitError, Terminal):
    """The database may or may not have committed, and its answer could not be recovered."""

    code = "commit.unknown"


class StreamError(QuacklakeError):
    code = "stream"


class StreamFencedError(StreamError, Terminal):
    """Another query has taken over the stream; this one has written nothing since."""

    code = "stream.fenced"


class StreamMismatchError(StreamError, Terminal):
    """What a stream is asked to go on from is not what the lake knows of it."""

    code = "stream.mismatch"


class StreamBatchDoneError(StreamError, Terminal):
    """The batch is in the lake already: there is nothing to do."""

    code = "stream.done"


class ConnectorError(QuacklakeError, Terminal):
    """A foreign system refused or failed; ``number`` is its own code of the error, if it has one."""

    code = "connector"

    def __init__(self, message: str, *, hint: str | None = None, number: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.number = number


class ConnectorUnavailableError(ConnectorError, Transient):
    code = "connector.unavailable"


class LeaseHeldError(QuacklakeError, Transient):
    """Another process does this work, and two would only be in each other's way."""

    code = "lease_held"


class CancelledError(QuacklakeError, Terminal):
    code = "cancelled"


class UnsupportedFeatureError(QuacklakeError, Terminal):
    code = "unsupported"


class InternalError(QuacklakeError, Terminal):
    code = "internal"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint that names what the caller probably meant, or ``None``.

    >>> nearest("evnets", ["events", "users"])
    'did you mean "events"?'
    """
    matches = get_close_matches(name, list(known), n=3, cutoff=0.6)
    if not matches:
        return None
    return "did you mean " + " or ".join(f'"{match}"' for match in matches) + "?"
