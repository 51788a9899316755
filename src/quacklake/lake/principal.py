"""A lake as one principal may use it.

The handle decides what a principal reads and changes: every transaction asks the rules, and every commit is held
against them. The objects leave out the methods that go around that, because they deal with files, keys, metadata or all
rows: a method is refused unless it is listed. They protect against the principals of a service, not against Python code
in its process.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from quacklake.core.access import audit
from quacklake.core.access.rules import PrincipalRules, current_rules
from quacklake.core.duckdb_versions import first_row
from quacklake.core.engines.duckdb.visible import hiding
from quacklake.core.format.access import Privilege
from quacklake.core.format.names import quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.signatures import NO_SIGNATURE, Signature
from quacklake.core.format.snapshots import Operation
from quacklake.core.operations.context import LakeContext, boundary
from quacklake.core.operations.handles import LakeHandle, TransactionHandle
from quacklake.core.operations.options import checked_limit
from quacklake.core.operations.reference import TableRef
from quacklake.core.operations.versions import Version
from quacklake.core.scan.visibility import value_name
from quacklake.core.transaction import ChangeSet, TableChange, Transaction
from quacklake.errors import NotPermittedError
from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
from quacklake.lake.table import Table
from quacklake.lake.writing import LakeReader

C = TypeVar("C", bound=type)

#: What lakes, past snapshots and transactions let a principal do.
READING = frozenset({"scan", "schemas", "sql", "table", "tables", "views"})
OF_LAKES = READING | {
    "at",
    "catalog",
    "close",
    "create_table",
    "current_snapshot",
    "run",
    "snapshots",
    "transaction",
    "version",
}
OF_SNAPSHOTS = READING | {"snapshot_id"}
OF_TRANSACTIONS = READING | {"create_table", "of"}
OF_TABLES = frozenset(
    """
    append changes columns count delete deletions head insertions is_current merge merge_builder name
    overwrite partitioned_by rows scan scan_polars schema show sorted_by to_arrow to_arrow_dataset to_batches to_duckdb
    to_pandas to_polars to_pylist update
    """.split()  # noqa: SIM905
)


def _refuse_member(name: str) -> property:
    def refuse(_: object) -> Any:
        raise NotPermittedError(f"only administrators may use {name!r}", hint="ask an administrator for the role admin")

    return property(refuse)


def _only(names: frozenset[str]) -> Any:
    """Refuse every public method and property of a class but some, and those that later versions add to its bases."""

    def changed(cls: C) -> C:
        for name in dir(cls):
            if not name.startswith("_") and name not in names:
                setattr(cls, name, _refuse_member(name))
        return cls

    return changed


#: What a change set may have. Whatever else it has, only administrators may do.
_ALLOWED = frozenset({"tables", "created_tables"})
#: What a change set has besides changes. Marks come from a service, which writes down there what it has done for whom:
#: nothing that a principal can call makes one.
_BESIDE = frozenset({"token", "base", "inlining", "schema_ids", "signature", "marks"})


class PrincipalHandle(LakeHandle):
    """A handle on the newest snapshot, as a principal may use it. The rules are read again for each statement."""

    def __init__(self, context: LakeContext, principal: str, signature: Signature = NO_SIGNATURE) -> None:
        super().__init__(context, signature)
        self.principal = principal

    @property
    def rules(self) -> Callable[[], PrincipalRules]:
        return self.current_rules

    def current_rules(self) -> PrincipalRules:
        """Return what the principal may see and change now."""
        rules = current_rules(self.context.catalog, self.principal)
        return replace(rules, note=self._note) if self.context.config.access_audit else rules

    def _note(self, table: TableInfo, columns: Sequence[str], snapshot_id: int) -> None:
        audit.note_read(self.context, self.principal, table.qualified_name, list(columns), snapshot_id)

    @contextmanager
    def auditing(self, kind: str, text: str) -> Iterator[None]:
        """Record a statement of the principal, with what it reads and changes, and how it ends."""
        with audit.statement(self.context, self.principal, kind, text):
            yield

    def signed(self, signature: Signature) -> LakeHandle:
        """Return the same handle with an author, message and extra text for its snapshots."""
        return PrincipalHandle(self.context, self.principal, signature)

    def close(self) -> None:
        """Do nothing: whoever has opened the lake closes it."""

    def _follow(self, tx: Transaction) -> None:
        if tx.committed is not None and self.context.config.access_audit:
            names = [change.table.qualified_name for change in tx.changes.tables]
            names += [table.qualified_name for table in tx.changes.created_tables]
            audit.note_change(self.context, self.principal, names, tx.committed.id)
        # views are refreshed from all rows, not from those that this principal sees
        LakeHandle(self.context)._follow(tx)

    def check_rows(self, tx: Transaction) -> None:
        """Raise ``NotPermittedError`` for new rows that the principal would not see itself."""
        rules = self.current_rules()
        for pending in tx.pendings():
            table = tx.whole(pending.table)
            condition = rules.row_condition(table)
            if condition is None or not (pending.files or pending.inserts):
                continue
            names = ", ".join(f"{quote(column.name)} AS {value_name(column)}" for column in table.schema.columns)
            with hiding(), self.context.engine.connection() as connection:
                rows = self.context.engine.bind(connection, tx.plan_new(table))
                query = f"SELECT 1 FROM (SELECT {names} FROM ({rows})) WHERE ({condition}) IS NOT TRUE LIMIT 1"
                outside = first_row(connection, query) is not None
            if outside:
                raise NotPermittedError(
                    f"a new row of {table.qualified_name} does not satisfy its row filters",
                    hint="rows can be added only where they are visible",
                )

    def check_changes(self, tx: Transaction, changes: ChangeSet) -> None:
        """Raise ``NotPermittedError`` for a change that the principal may not make."""
        rules = self.current_rules()
        for field in fields(changes):
            if field.name not in _ALLOWED | _BESIDE and getattr(changes, field.name) != field.default:
                raise NotPermittedError(
                    f"only administrators may do this: {field.name.replace('_', ' ')}", hint="ask an administrator"
                )
        for table in changes.created_tables:
            rules.check_create(table.schema_id, table.schema_name)
        created = {table.id for table in changes.created_tables}
        for change in changes.tables:
            if change.table.id not in created:
                self._check_change(rules, tx, change)

    def _check_change(self, rules: PrincipalRules, tx: Transaction, change: TableChange) -> None:
        table = change.table
        if change.compaction or change.replaced_files or change.dated_deletes or change.flushed:
            raise NotPermittedError("only administrators may move the rows of a table")
        rules.check_change(table, tx.whole(table))
        new = bool(change.data_files or change.inlined)
        gone = bool(change.delete_files or change.inlined_deletes or change.ended_rows or change.ended_files)
        gone = gone or bool(change.past_deletes)
        needed: tuple[Privilege, ...] = ()
        if new and gone:
            every = (Privilege.UPDATE, Privilege.INSERT, Privilege.DELETE)
            needed = every[:1] if tx.operation == Operation.UPDATE else every
        elif new or gone:
            needed = (Privilege.INSERT if new else Privilege.DELETE,)
        for privilege in needed:
            if not rules.on_table(privilege, table.schema_id, table.id):
                raise NotPermittedError(f"the privilege {privilege.upper()} on {table.qualified_name} is missing")


@_only(OF_TABLES)
@boundary
class PrincipalTable(Table):
    """A table as a principal may use it."""

    @property
    def _own(self) -> TableInfo:
        return self._find(self.handle.view())

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return self._own.schema.to_arrow()

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._own.schema.names)

    @property
    def partitioned_by(self) -> list[str]:
        """The partition keys of new files; none where columns are hidden."""
        return Table(self.handle, self._ref).partitioned_by

    @property
    def sorted_by(self) -> list[str]:
        """The sort keys of new files; none where columns are hidden."""
        return Table(self.handle, self._ref).sorted_by

    def append(self, data: Any, *, evolve: bool = False, dedup: bool = False, index: bool = True) -> int:
        """Add rows and return how many; see ``Table.append``. Rows do not come from files here."""
        return super().append(_rows(data), evolve=evolve, dedup=dedup, index=index)

    def overwrite(self, data: Any, where: Any = None, *, evolve: bool = False, index: bool = True) -> int:
        """Replace the visible rows that match a filter; see ``Table.overwrite``."""
        return super().overwrite(_rows(data), where, evolve=evolve, index=index)

    def merge(self, data: Any, on: Any = None, *, evolve: bool = False, index: bool = True) -> Any:
        """Update visible rows and insert others; see ``Table.merge``."""
        return super().merge(_rows(data), on, evolve=evolve, index=index)

    def merge_builder(self, data: Any, on: Any = None, *, index: bool = True) -> Any:
        """Return a builder of a merge; see ``Table.merge_builder``."""
        return super().merge_builder(_rows(data), on, index=index)


def _rows(data: Any) -> Any:
    """Return rows. Raise ``NotPermittedError`` for names of files, which are not the principal's to read."""
    listed = data if isinstance(data, list | tuple) else [data]
    kind = type(data).__module__.partition(".")[0]
    if any(isinstance(item, str | bytes | Path) for item in listed) or kind in ("pyspark", "duckdb"):
        raise NotPermittedError("only administrators add rows from files, Spark or other databases")
    return data


class _Reads(LakeReader):
    def table(self, name: str) -> Table:
        """Return a table by name; see ``Lake.table``."""
        return PrincipalTable(self.handle, TableRef.parse(name, nested=self._context.catalog.is_next))


@_only(OF_SNAPSHOTS)
@boundary
class PrincipalLakeAt(_Reads, LakeAt):
    """A lake at one snapshot, as a principal may use it."""

    def __repr__(self) -> str:
        return f"<Lake at snapshot {self.handle.tx.base.id}>"


@_only(OF_TRANSACTIONS)
@boundary
class PrincipalTransaction(_Reads, LakeTransaction):
    """An open transaction of a principal."""

    def __init__(self, handle: TransactionHandle) -> None:
        LakeReader.__init__(self, handle)

    def __repr__(self) -> str:
        return "<Transaction>"


@_only(OF_LAKES)
@boundary
class PrincipalLake(_Reads, Lake):
    """A lake as a principal may use it; closing it leaves the lake open. What it may do is read for each statement."""

    handle: PrincipalHandle

    def __init__(self, handle: PrincipalHandle) -> None:
        LakeReader.__init__(self, handle)

    def close(self) -> None:
        """Close the sessions of the principal."""
        self._sessions.close()

    def __repr__(self) -> str:
        return f"<Lake as {self.handle.principal}>"

    def snapshots(self, limit: int | None = None, *, before: int | None = None) -> pa.Table:
        """Return the snapshots with their times, as ``Lake.snapshots`` does: what each changed may be hidden."""
        with self._context.catalog.read() as reader:
            found = reader.snapshots.last(checked_limit(limit), before)
        return pa.table(
            {
                "snapshot_id": pa.array([info.id for info in found], pa.int64()),
                "snapshot_time": pa.array([info.time for info in found], pa.timestamp("us", tz="UTC")),
            }
        )

    def at(
        self,
        version: int | str | None = None,
        timestamp: dt.datetime | str | None = None,
        tag: str | None = None,
        *,
        to: Version | None = None,
    ) -> LakeAt:
        """Return the lake, read-only, at a snapshot; see ``Lake.at``. Today's rules hold for all snapshots."""
        return PrincipalLakeAt(self.handle.at(version, timestamp, tag, to))

    def _open(self, tx: Transaction) -> LakeTransaction:
        return PrincipalTransaction.of(self._context, tx)
