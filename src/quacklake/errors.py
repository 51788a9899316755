"""Every error Quacklake raises.

The tree::

    QuacklakeError                     base: ``code``, ``hint``
    ├── ConfigError                    a setting, URL or option is wrong
    │   ├── MissingExtraError          an optional package is not installed
    │   └── UnsupportedVersionError    the format version of the lake, or the version of Spark, is not supported
    ├── InputError                     the caller's data or arguments are wrong
    │   ├── SchemaMismatchError        columns or types do not fit the table
    │   ├── ConstraintError            NULL in NOT NULL, value out of range, duplicate keys
    │   ├── PredicateError             a filter is not valid
    │   ├── SqlError                   a statement is not valid, or cannot run now
    │   ├── InvalidNameError           a name is empty, too long or otherwise unusable
    │   └── ClosedError                the lake was closed
    ├── NotFoundError                  a lake, table, snapshot or another object does not exist
    │   └── SnapshotExpiredError       a snapshot has expired
    ├── AlreadyExistsError             an object exists already
    ├── ReadOnlyError                  a write on a read-only lake, snapshot or catalog
    ├── NotPermittedError              a safe session does not allow the statement, or its user may not do this
    ├── UnauthenticatedError           a request has no valid token
    ├── LimitError                     a statement exceeds a limit
    │   ├── StatementTimeoutError      a statement takes too long
    │   ├── MemoryLimitError           a statement needs too much memory or temporary space
    │   ├── ResultTooLargeError        a result has too many rows or bytes
    │   ├── StatementTooLargeError     a statement has too many parts, tables or columns
    │   ├── ConsumerLimitError         a principal of a service has as many consumers as it may
    │   └── TenantLimitError           a catalog (tenant) would exceed a limit
    │       └── TenantBusyError        a catalog commits or scans too often at the moment  (Transient)
    ├── CatalogError                   the metadata database failed
    │   └── CatalogUnavailableError    the metadata database cannot be reached or is busy   (Transient)
    │       └── CatalogLockedError     another client in this process has locked the database (Transient)
    ├── StorageError                   the object store failed
    │   ├── PathError                  a path leads out of the data path
    │   ├── CorruptFileError           a file is missing, truncated or damaged
    │   └── StorageUnavailableError    the object store cannot be reached or is busy        (Transient)
    ├── CommitError                    a commit failed
    │   ├── CommitConflict             another commit conflicts; nothing was changed (Transient)
    │   └── CommitUnknown              the connection was lost, and it is unknown whether the commit was made
    ├── MergeConflictError             rows were changed on both sides; nothing was changed
    ├── StreamError                    a stream cannot continue
    │   ├── StreamFencedError          another query has taken over the stream
    │   ├── StreamMismatchError        the checkpoint or the table is not the one that the stream started with
    │   └── StreamBatchDoneError       the batch is in the lake already; nothing was changed
    ├── ConnectorError                 a system that a source reads, or a sink writes, failed
    │   └── ConnectorUnavailableError  the system cannot be reached; a retry may help       (Transient)
    ├── LeaseHeldError                 another process is doing this work already           (Transient)
    ├── StaleViewError                 a materialized view can no longer be refreshed
    ├── CancelledError                 the caller cancelled the operation
    ├── UnsupportedFeatureError        this version does not support a feature
    └── InternalError                  a bug in Quacklake

``Transient`` and ``Terminal`` are mix-ins that decide whether a retry can help; an error that is not
``Transient`` is ``Terminal``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


class QuacklakeError(Exception):
    """Base of every error: a message, a stable ``code`` for programs and a ``hint`` for people."""

    code: str = "quacklake"
    hint: str | None = None

    def __init_subclass__(cls, *, code: str | None = None) -> None:
        cls.code = code or cls.code

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


class ConfigError(QuacklakeError, Terminal, code="config"): ...


class MissingExtraError(ConfigError, code="config.missing_extra"): ...


class UnsupportedVersionError(ConfigError, code="config.unsupported_version"): ...


class InputError(QuacklakeError, Terminal, code="input"): ...


class SchemaMismatchError(InputError, code="input.schema_mismatch"): ...


class ConstraintError(InputError, code="input.constraint"): ...


class PredicateError(InputError, code="input.predicate"): ...


class SqlError(InputError, code="input.sql"):
    """A statement is not valid, or cannot run now; the message shows the position if it is known.

    ``aborts`` is True for an error with which DuckDB aborts the open transaction.
    """

    def __init__(self, message: str, *, hint: str | None = None, aborts: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.aborts = aborts


class InvalidNameError(InputError, code="input.name"): ...


class ClosedError(InputError, code="input.closed"):
    """The lake, or the object that manages tenants, was closed."""

    def __init__(self) -> None:
        super().__init__("the lake is closed", hint="open it again with quacklake.connect()")


class NotFoundError(QuacklakeError, Terminal, code="not_found"): ...


class SnapshotExpiredError(NotFoundError, code="not_found.expired"):
    """A snapshot that is needed has expired: its changes are no longer known."""


class AlreadyExistsError(QuacklakeError, Terminal, code="already_exists"): ...


class ReadOnlyError(QuacklakeError, Terminal, code="read_only"): ...


class NotPermittedError(QuacklakeError, Terminal, code="not_permitted"):
    """A safe session does not allow the statement, or its user may not do this; nothing was changed."""


class UnauthenticatedError(QuacklakeError, Terminal, code="unauthenticated"):
    """A request carries no token, or one that is unknown, expired or revoked. The message does not say which."""

    def __init__(self) -> None:
        super().__init__(
            "the request has no valid token", hint="send Authorization: Bearer <token>; an administrator makes tokens"
        )


class LimitError(QuacklakeError, Terminal, code="limit"): ...


class StatementTimeoutError(LimitError, code="limit.timeout"): ...


class MemoryLimitError(LimitError, code="limit.memory"): ...


class ResultTooLargeError(LimitError, code="limit.result"): ...


class StatementTooLargeError(LimitError, code="limit.statement"): ...


class ConsumerLimitError(LimitError, code="limit.consumers"): ...


class TenantLimitError(LimitError, code="limit.tenant"):
    """A catalog of a shared lake would exceed a limit that its operator has set; nothing was changed."""

    def __init__(self, message: str, *, limit: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.limit = limit
        """The name of the limit."""


class TenantBusyError(TenantLimitError, Transient, code="limit.tenant_busy"):
    """A catalog is at a limit at the moment; nothing was changed. Try again in ``after`` seconds."""

    def __init__(self, message: str, *, limit: str, after: float, hint: str | None = None) -> None:
        super().__init__(message, limit=limit, hint=hint)
        self.after = after


class CatalogError(QuacklakeError, code="catalog"): ...


class CatalogUnavailableError(CatalogError, Transient, code="catalog.unavailable"): ...


class CatalogLockedError(CatalogUnavailableError, code="catalog.locked"):
    """Another client in this process has locked the database until its transaction ends."""


class StorageError(QuacklakeError, code="storage"): ...


class PathError(StorageError, Terminal, code="storage.path"): ...


class CorruptFileError(StorageError, Terminal, code="storage.corrupt"): ...


class StorageUnavailableError(StorageError, Transient, code="storage.unavailable"): ...


class CommitError(QuacklakeError, code="commit"): ...


class CommitConflict(CommitError, Transient, code="commit.conflict"):
    """Another commit conflicts; nothing was changed. Plan again on the newer snapshot."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        begin = "Transaction conflict - "
        super().__init__(begin + message.removeprefix(begin), hint=hint)


class CommitUnknown(CommitError, Terminal, code="commit.unknown"):
    """The connection was lost during a commit, and it is unknown whether the commit was made."""


class MergeConflictError(QuacklakeError, Terminal, code="merge.conflict"):
    """Rows were changed on both sides; nothing was changed. ``conflicts`` has them by table: base, ours and theirs."""

    def __init__(self, message: str, *, hint: str | None = None, conflicts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.conflicts: Mapping[str, Any] = conflicts or {}


class StreamError(QuacklakeError, code="stream"): ...


class StreamFencedError(StreamError, Terminal, code="stream.fenced"):
    """Another query has taken over the stream; this one has written nothing since then."""


class StreamMismatchError(StreamError, Terminal, code="stream.mismatch"):
    """The checkpoint or table of a stream does not match what the lake knows about it."""


class StreamBatchDoneError(StreamError, Terminal, code="stream.done"):
    """The batch is in the lake already: there is nothing to do."""


class StaleViewError(QuacklakeError, Terminal, code="view.stale"):
    """A materialized view can no longer be refreshed; its rows stay as they were."""


class ConnectorError(QuacklakeError, Terminal, code="connector"):
    """A foreign system refused or failed; ``number`` is its own code of the error, if it has one."""

    def __init__(self, message: str, *, hint: str | None = None, number: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.number = number


class ConnectorUnavailableError(ConnectorError, Transient, code="connector.unavailable"):
    """A foreign system cannot be reached."""


class LeaseHeldError(QuacklakeError, Transient, code="lease_held"):
    """Another process is doing this work already."""


class CancelledError(QuacklakeError, Terminal, code="cancelled"): ...


class UnsupportedFeatureError(QuacklakeError, Terminal, code="unsupported"): ...


class InternalError(QuacklakeError, Terminal, code="internal"): ...


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint that names what the caller probably meant, or ``None``.

    >>> nearest("evnets", ["events", "users"])
    'did you mean "events"?'
    """
    matches = get_close_matches(name, list(known), n=3, cutoff=0.6)
    if not matches:
        return None
    return "did you mean " + " or ".join(f'"{match}"' for match in matches) + "?"
