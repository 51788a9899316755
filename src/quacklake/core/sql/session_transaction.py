"""The transaction of a session: which snapshot of each lake it reads, and how it commits or rolls back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from quacklake.core.format.names import fold
from quacklake.core.format.signatures import NO_SIGNATURE, Signature
from quacklake.core.operations.times import instant
from quacklake.core.sql.attached import Attached
from quacklake.core.sql.failures import UNDERSTANDING, engine_error, is_invalidated
from quacklake.errors import (
    AlreadyExistsError,
    CommitConflict,
    InputError,
    NotFoundError,
    NotPermittedError,
    ReadOnlyError,
    SchemaMismatchError,
    SqlError,
)

if TYPE_CHECKING:
    import duckdb

    from quacklake.core.transaction import Transaction

T = TypeVar("T")
ROLLED_BACK = "the transaction was aborted by an error: COMMIT has rolled it back"
_SNAPSHOTS = range(-(1 << 63), 1 << 63)
"""The numbers that a snapshot can have."""
_REFUSALS = NotFoundError | NotPermittedError | AlreadyExistsError | SchemaMismatchError | ReadOnlyError


@dataclass
class SessionTransaction:
    """The transaction of a connection: explicit after BEGIN, otherwise one for each statement.

    After BEGIN, a lake is read at the snapshot that was the newest when the transaction first used it. A transaction
    can write to only one lake, because two lakes cannot be committed together.
    """

    explicit: bool = False
    aborted: bool = False
    wrote: Attached | None = None
    wrote_others: bool = False
    signature: Signature = NO_SIGNATURE
    _open: dict[str, tuple[Attached, Transaction]] = field(default_factory=dict)
    _views: dict[str, Transaction] = field(default_factory=dict)
    _past: dict[tuple[Any, ...], Transaction] = field(default_factory=dict)
    afterwards: list[Callable[[], object]] = field(default_factory=list)
    """Functions to call after the transaction has been committed."""
    committed: dict[str, int] = field(default_factory=dict)
    """The last snapshot that connections of this session committed to each lake."""

    def view(self, attached: Attached) -> Transaction:
        """Return the lake at the snapshot that the statement reads."""
        key = fold(attached.alias)
        lake = attached.whole
        if self.explicit and lake is not None:
            if key not in self._open:
                self._open[key] = attached, lake.begin_open()
            return self._open[key][1]
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = attached.handle.view()
        return view

    def renew(self) -> None:
        """Read again what principals may see, before a statement in an open transaction."""
        for _, tx in self._open.values():
            tx.renew()

    def at(self, attached: Attached, unit: str, value: Any) -> Transaction:
        """Return the lake at a snapshot or time, which is looked up once per statement."""
        if attached.lake is None:
            raise SqlError(f'"{attached.alias}" is attached at one snapshot: AT cannot name another')
        if value is None:
            raise SqlError("the version or time of AT is NULL")
        chosen: dict[str, Any]
        if unit.upper() == "VERSION":
            try:
                chosen = {"version": int(value)}
            except ValueError:
                chosen = {"tag": str(value)}
            except (TypeError, OverflowError):
                raise SqlError(f"{value!r} is not a snapshot") from None
            if chosen.get("version", 0) not in _SNAPSHOTS:
                raise SqlError(f"{value!r} is not a snapshot")
        elif isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            chosen = {"timestamp": dt.datetime(value.year, value.month, value.day)}
        elif not isinstance(value, str | dt.datetime):
            raise SqlError(f"{value!r} is not a time", hint="AT (TIMESTAMP => TIMESTAMP '2024-01-31 12:00:00')")
        else:
            chosen = {"timestamp": instant(value)}
        key = (fold(attached.alias), *chosen.items())
        if key not in self._past:
            self._past[key] = attached.lake.at(**chosen).view()
        return self._past[key]

    def read(self, attached: Attached, tx: Transaction) -> None:
        """Let the next statement read a lake as a transaction sees it."""
        self._views[fold(attached.alias)] = tx

    def forget_views(self) -> None:
        """Forget the snapshots that the statement has read."""
        self._views.clear()
        self._past.clear()

    def write(self, attached: Attached, work: Callable[[Transaction], T]) -> T:
        """Change a lake in the open transaction, or in its own snapshot."""
        if attached.read_only:
            raise ReadOnlyError(
                f'Cannot execute a statement that changes "{attached.alias}": it is attached in read-only mode!'
            )
        if self.explicit:
            other = self.wrote.alias if self.wrote is not None else "memory" if self.wrote_others else None
            if other is not None and self.wrote is not attached:
                raise _one_database(attached.alias, other)
            self.wrote = attached
            if attached.whole is not None:
                return self._change(attached, work)
            return attached.handle.run(work)

        used: list[Transaction] = []

        def run(tx: Transaction) -> T:
            self._views[fold(attached.alias)] = tx
            used[:] = [tx]
            return work(tx)

        handle, lake = attached.handle, attached.whole
        if lake is not None and self.signature.given:
            handle = lake.signed(self.signature)
            self.signature = NO_SIGNATURE
        result = handle.run(run)
        self._note(attached, used[0])
        return result

    def _change(self, attached: Attached, work: Callable[[Transaction], T]) -> T:
        """Change a lake in the open transaction, which is aborted when a part of the change is left behind."""
        self._unflush(attached)
        tx = self.view(attached)
        before = tx.progress()
        try:
            return work(tx)
        except BaseException:
            self.aborted = self.aborted or tx.progress() != before
            raise

    def _unflush(self, attached: Attached) -> None:
        """Undo flushes of this transaction, whose rows may change now, and flush again after the commit."""
        lake = attached.whole
        undone = [table.id for table in self.view(attached).unflush()]
        if undone and lake is not None:
            from quacklake.core.maintenance.lake_maintenance import LakeMaintenance

            self.afterwards.append(lambda: LakeMaintenance(lake).flush_tables(undone))

    def _note(self, attached: Attached, tx: Transaction) -> None:
        if tx.committed is not None:
            self.committed[fold(attached.alias)] = tx.committed.id

    def claim_others(self) -> None:
        """Note that the statement changes a table of DuckDB's own. Raise ``SqlError`` after a write to a lake."""
        if not self.explicit:
            return
        if self.wrote is not None:
            raise _one_database("memory", self.wrote.alias)
        self.wrote_others = True

    def begin(self) -> None:
        """Start a transaction. Raise ``SqlError`` inside one."""
        if self.explicit:
            raise SqlError("TransactionContext Error: cannot start a transaction within a transaction")
        self.explicit = True

    def commit(self) -> None:
        """Commit the changes. The transaction ends even if the commit fails."""
        if not self.explicit:
            raise SqlError("TransactionContext Error: cannot commit - no transaction is active")
        try:
            for attached, tx in self._open.values():
                lake = attached.whole
                if attached is self.wrote and lake is not None:
                    try:
                        lake.commit(tx, self.signature)
                        self._note(attached, tx)
                    except BaseException:
                        tx.rollback()
                        raise
            afterwards = self.afterwards
        finally:
            self._end()
        for work in afterwards:
            work()

    def rollback(self) -> None:
        """Discard the changes."""
        for _, tx in self._open.values():
            tx.rollback()
        self._end()

    def _give_turns_back(self) -> None:
        for _, tx in self._open.values():
            tx.give_turn_back()

    def _end(self) -> None:
        self._give_turns_back()
        self._open.clear()
        self.afterwards = []
        self.forget_views()
        self.explicit = self.aborted = self.wrote_others = False
        self.wrote = None
        self.signature = NO_SIGNATURE

    def sign(self, author: str | None, message: str | None, extra: str | None) -> None:
        """Set the author, message and extra information of the next snapshot."""
        self.signature = replace(NO_SIGNATURE, author=author, message=message, extra=extra)

    def check(self, *, ends: bool) -> None:
        """Raise ``SqlError`` when the transaction has failed and this statement does not end it."""
        if self.aborted and not ends:
            raise SqlError("TransactionContext Error: Current transaction is aborted (please ROLLBACK)")

    def is_aborted(self, connection: duckdb.DuckDBPyConnection) -> bool:
        """Return True for a transaction that an error has aborted, here or in DuckDB."""
        return self.aborted or (self.explicit and is_invalidated(connection))

    def failed(self, error: BaseException, connection: duckdb.DuckDBPyConnection) -> None:
        """Abort the transaction after an error with which DuckDB aborts its own.

        The transaction of the session's connection tells whether DuckDB has aborted it. It knows nothing of errors that
        other connections or Quacklake itself have raised: of these, only refusals leave the transaction open.
        """
        if not self.explicit:
            return
        if isinstance(error, CommitConflict):  # a statement would have seen what others have changed
            for _, tx in self._open.values():
                tx.remember_loss()
        if not self.aborted:
            self.aborted = self._is_failure(error, connection)
        if self.aborted:
            self._give_turns_back()

    def _is_failure(self, error: BaseException, connection: duckdb.DuckDBPyConnection) -> bool:
        """Return whether an error of a statement aborts the transaction."""
        cause = engine_error(error)
        if cause is not None:
            refused = isinstance(cause, UNDERSTANDING)
        elif isinstance(error, SqlError):
            refused = not error.aborts
        else:
            refused = isinstance(error, _REFUSALS) or type(error) is InputError
        return not refused or is_invalidated(connection)


def _one_database(new: str, old: str) -> SqlError:
    return SqlError(
        f'Attempting to write to database "{new}" in a transaction that has already modified database "{old}" –'
        " a single transaction can only write to a single attached database.",
        aborts=True,
    )
