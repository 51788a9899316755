"""A lake as one principal may use it: every transaction asks the rules, and every commit is held against them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace

from quacklake.core.access import audit
from quacklake.core.access.rules import PrincipalRules, current_rules
from quacklake.core.duckdb_versions import first_row
from quacklake.core.engines.duckdb.visible import hiding
from quacklake.core.format.access import Privilege
from quacklake.core.format.names import quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.signatures import NO_SIGNATURE, Signature
from quacklake.core.format.snapshots import Operation
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.scan.visibility import value_name
from quacklake.core.transaction import ChangeSet, TableChange, Transaction
from quacklake.errors import NotPermittedError

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
