"""The statements that change rows, as data: SQL of both dialects, the builder of merges and the methods make them.

:mod:`.row_changes` runs them on DuckDB, :mod:`quacklake.spark.changes` on Spark. A value is a Python value (a literal),
an ``Expression``, or, for Spark, a column of Spark. A condition is SQL text, an ``Expression``, or a column of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import pyarrow.compute as pc

from quacklake.core.format.schema import TableSchema
from quacklake.core.operations.expression import Expression
from quacklake.core.progress import Report
from quacklake.errors import ConstraintError, InputError

Value = Any
Condition = Any

#: The rows that a clause applies to: those with a match, and those of the source or the target without one.
Matched = Literal["both", "source", "target"]
Action = Literal["update", "delete", "insert", "nothing", "error"]
DUPLICATES_SHOWN = 5
_B = TypeVar("_B", bound="MergeBuilder")


@dataclass(frozen=True, slots=True)
class Clause:
    """A WHEN clause of a merge.

    An update or insert sets ``columns`` (None: all of the table, in order) to ``values``. Without values it takes the
    columns of the source, by name or by position. ``message`` is the text of an error.
    """

    matched: Matched
    action: Action
    condition: Condition | None = None
    columns: tuple[str, ...] | None = None
    values: tuple[Value, ...] | None = None
    by_name: bool = True
    message: Expression | None = None

    @property
    def takes_all(self) -> bool:
        """True when the clause takes the columns of the source."""
        return self.action in ("update", "insert") and self.values is None

    def assigned(self) -> dict[str, Value]:
        """Return the values by column. The clause must name its columns."""
        return dict(zip(self.columns or (), self.values or (), strict=True))


@dataclass(frozen=True, slots=True)
class Merge:
    """MERGE: rows match by the columns ``on``, or by a condition; the first clause that fits a row changes it.

    With ``once``, it is an error if several rows of the source change one row. ``evolve`` adds the columns of the
    source to the table.
    """

    on: tuple[str, ...] | Condition
    clauses: tuple[Clause, ...]
    returning: str = ""
    once: bool = False
    evolve: bool = False

    def has(self, matched: Matched) -> bool:
        """Return True when a clause applies to rows of this kind."""
        return any(clause.matched == matched for clause in self.clauses)


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE: set columns of the rows that match a filter; ``others`` are the tables of FROM."""

    columns: tuple[str, ...]
    values: tuple[Value, ...]
    where: Condition | None = None
    others: str = ""
    returning: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE: delete the rows that match a filter; ``others`` are the tables of USING."""

    where: Condition | None = None
    others: str = ""
    returning: str = ""


@dataclass(frozen=True, slots=True)
class Conflict:
    """ON CONFLICT: what happens to a row whose key exists.

    ``columns`` and ``values`` are set in the existing row. With ``replacing`` it gets all values of the INSERT; without
    either it stays unchanged.
    """

    key: tuple[str, ...] | None = None
    replacing: bool = False
    columns: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT: add the rows of a query (None: one row of defaults); with a conflict it becomes a :class:`Merge`."""

    query: str | None
    columns: tuple[str, ...] | None = None
    by_name: bool = False
    conflict: Conflict | None = None
    returning: str = ""


@dataclass(frozen=True, slots=True)
class MergeResult(Report):
    """The numbers of rows that a statement changed."""

    updated: int = 0
    inserted: int = 0
    deleted: int = 0

    @property
    def rows_updated(self) -> int:
        """Equal to ``updated``."""
        return self.updated

    @property
    def rows_inserted(self) -> int:
        """Equal to ``inserted``."""
        return self.inserted

    @property
    def rows_deleted(self) -> int:
        """Equal to ``deleted``."""
        return self.deleted


def _some(names: Sequence[str], found: Sequence[Sequence[Any]]) -> str:
    shown = ", ".join(str(row[0] if len(names) == 1 else tuple(row)) for row in found[:DUPLICATES_SHOWN])
    return f"{shown} and more" if len(found) > DUPLICATES_SHOWN else shown


def duplicate_keys(names: Sequence[str], found: Sequence[tuple[Any, ...]]) -> ConstraintError:
    """Return the error about duplicate keys; it shows the first ``DUPLICATES_SHOWN``."""
    return ConstraintError(
        f"the rows have duplicate keys ({', '.join(names)}): {_some(names, found)}", hint="keep one row for each key"
    )


def ambiguous(table: str, names: Sequence[str], found: Sequence[Sequence[Any]]) -> ConstraintError:
    """Return the error about rows of a table that several rows of the source would change."""
    return ConstraintError(
        f"several rows of the source match one row of {table} ({', '.join(names)}): {_some(names, found)}",
        hint="keep one row for each key in the source, or let a condition choose",
    )


class MergeBuilder:
    """A merge of rows into a table: add clauses, then ``execute``.

    In conditions and expressions, ``target`` refers to the rows of the table and ``source`` to the rows that are
    merged. Of the clauses of one kind, the first whose condition holds applies. A row without such a clause stays
    unchanged.
    """

    _clauses: tuple[Clause, ...] = ()
    _evolve: bool = False

    def when_matched_update(self: _B, set: Mapping[str, Value], condition: Condition | None = None) -> _B:
        """Set columns of rows that have a match in the source."""
        return self._with("both", "update", condition, set)

    def when_matched_update_all(self: _B, condition: Condition | None = None) -> _B:
        """Set every column that the source has, in rows that have a match in the source."""
        return self._with("both", "update", condition)

    def when_matched_delete(self: _B, condition: Condition | None = None) -> _B:
        """Delete rows that have a match in the source."""
        return self._with("both", "delete", condition)

    def when_not_matched_insert(self: _B, values: Mapping[str, Value], condition: Condition | None = None) -> _B:
        """Insert the source rows without a match. Columns that are not given get their default."""
        return self._with("source", "insert", condition, values)

    def when_not_matched_insert_all(self: _B, condition: Condition | None = None) -> _B:
        """Insert the source rows without a match, with every column of the source."""
        return self._with("source", "insert", condition)

    def when_not_matched_by_source_update(self: _B, set: Mapping[str, Value], condition: Condition | None = None) -> _B:
        """Set columns of rows that have no match in the source."""
        return self._with("target", "update", condition, set)

    def when_not_matched_by_source_delete(self: _B, condition: Condition | None = None) -> _B:
        """Delete rows that have no match in the source."""
        return self._with("target", "delete", condition)

    def with_schema_evolution(self: _B) -> _B:
        """Add columns that only the source has to the table, and widen types where necessary."""
        self._evolve = True
        return self

    whenMatchedUpdate = when_matched_update
    whenMatchedUpdateAll = when_matched_update_all
    whenMatchedDelete = when_matched_delete
    whenNotMatchedInsert = when_not_matched_insert
    whenNotMatchedInsertAll = when_not_matched_insert_all
    whenNotMatchedBySourceUpdate = when_not_matched_by_source_update
    whenNotMatchedBySourceDelete = when_not_matched_by_source_delete
    withSchemaEvolution = with_schema_evolution

    def execute(self) -> MergeResult:
        """Run the merge, in one snapshot, and return the numbers of changed rows.

        Raise ``ConstraintError``, with a few keys, when several rows of the source would change one row.
        """
        raise NotImplementedError

    def _with(
        self: _B,
        matched: Matched,
        action: Action,
        condition: Condition | None,
        values: Mapping[str, Value] | None = None,
    ) -> _B:
        if isinstance(condition, pc.Expression):
            raise InputError(
                "a pyarrow.compute expression does not say to which side its columns belong",
                hint='write the condition of a merge as SQL, such as "source.n > target.n"',
            )
        columns = given = None
        if values is not None:
            columns, given = tuple(values), tuple(values.values())
            if not values:
                raise InputError("nothing is set", hint='pass {"column": quacklake.expr("source.column")}')
            wrong = next((name for name, value in values.items() if isinstance(value, str)), None)
            if wrong is not None:
                raise InputError(
                    f'the text for the column "{wrong}" may be meant as SQL or as a value',
                    hint='pass quacklake.expr("source.x") for SQL, or quacklake.expr("\'x\'") for the text itself',
                )
        self._clauses = (*self._clauses, Clause(matched, action, condition, columns, given))
        return self

    def _statement(self, on: str | Sequence[str] | Condition, schema: TableSchema) -> Merge:
        """Return the merge into a table with these columns. ``on`` names key columns, or is a condition."""
        if not self._clauses:
            raise InputError("a merge needs at least one clause", hint="add when_matched_update_all()")
        if isinstance(on, str):
            on = (on,) if schema.get(on) is not None else Expression(on)
        elif isinstance(on, Sequence):
            on = tuple(on)
        if isinstance(on, tuple) and not on:
            raise InputError("merge needs at least one key column", hint='pass on="id"')
        return Merge(on, self._clauses, once=True, evolve=self._evolve)
