"""Run statements that change rows on DuckDB, inside a transaction.

The source of a merge is read once, into a temporary table. A join with the target finds the matching rows; the rows
without a match are then found on each side. So an expression sees the columns that its clause allows, as in DuckDB:
those of both sides, or of one side only. The first clause that fits a row applies to it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from quacklake.core.duckdb_versions import arrow_table, first_row
from quacklake.core.engines.duckdb.engine import places_to_target
from quacklake.core.engines.duckdb.expressions import plain_expression
from quacklake.core.engines.duckdb.sql import ROW_COLUMNS
from quacklake.core.engines.duckdb.values import exact_value
from quacklake.core.format import names
from quacklake.core.format.bounds import ANYTHING, Predicate
from quacklake.core.format.names import fold, quote
from quacklake.core.format.schema import Column
from quacklake.core.operations.conform import RowWriter, check_not_null, default_value, given_value
from quacklake.core.operations.expression import Expression
from quacklake.core.operations.statements import (
    DUPLICATES_SHOWN,
    Clause,
    Condition,
    Delete,
    Matched,
    Merge,
    MergeResult,
    Update,
    Value,
    ambiguous,
)
from quacklake.core.scan import ScanPlan
from quacklake.errors import ConstraintError, InputError, SqlError

PLACES = "_ql_file_id, _ql_version, _ql_position"
"""The columns that hold the position of a row."""
SOURCE_ROW = "_ql_source"
"""The column that numbers the rows of the source."""
_ACTION = "_ql_action"
_MESSAGE = "_ql_message"
_NOWHERE = -9223372036854775807
_QUERY = re.compile(r"\b(SELECT|FROM|VALUES|EXISTS)\b", re.IGNORECASE)
WHEN: dict[Matched, str] = {
    "both": "WHEN MATCHED",
    "source": "WHEN NOT MATCHED",
    "target": "WHEN NOT MATCHED BY SOURCE",
}


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query that DuckDB runs, its parameters, and the plan of the target with what the query reads of it."""

    sql: str
    values: Any = None
    plan: ScanPlan | None = None
    predicate: Predicate = ANYTHING


@dataclass
class Scope(RowWriter):
    """The meaning of a statement's texts on a connection; ``own`` and ``theirs`` qualify columns of the sides."""

    target: str = ""
    own: str = "target"
    source: str = ""
    theirs: str = "source"
    given: Sequence[str] = ()
    plan: ScanPlan | None = None
    predicate: Predicate = ANYTHING
    prefix: str = ""
    conformed: bool = True
    """True when columns of the source can be taken as they are."""

    def bind(self, query: str, *, target: bool) -> BoundQuery:
        """Return a query in the form that the connection runs; ``target`` says that it reads the target's positions."""
        return BoundQuery(query, None, self.plan if target else None, self.predicate)

    def fresh_name(self) -> str:
        """Return a name for a temporary relation."""
        return f"ql_{uuid.uuid4().hex}"

    def sql(self, value: Value) -> str:
        """Return the SQL of a value or condition. Raise ``InputError`` for SQL that reaches more than a row."""
        return plain_expression(value.sql) if isinstance(value, Expression) else literal(value)

    def condition(self, given: Condition) -> str:
        """Return the SQL of a condition: a text, or an expression. Raise ``InputError`` for anything else."""
        given = Expression(given) if isinstance(given, str) else given
        if not isinstance(given, Expression):
            raise InputError(f"a condition must be SQL text, not {type(given).__name__}", hint='"source.n > target.n"')
        return self.sql(given)

    def title(self, given: Condition) -> str:
        """Return the text of a condition as an error shows it."""
        return str(given.sql) if isinstance(given, Expression) else str(given)

    def taken(self, column: Column, name: str) -> str:
        """Return the SQL of a column of the source as a value for a column of the table."""
        return f"{self.theirs}.{quote(name)}" if self.conformed else given_value(column, name, f"{self.theirs}.")

    def insert(self, query: str) -> int:
        """Insert the rows of a query that has the table's columns and types; return how many."""
        check_not_null(self.connection, f"({query})", self.table.schema.columns)
        return self.insert_query(query)

    def show(self, rows: str, *, read: str = "false") -> None:
        """Compute RETURNING from changed rows, before anything is changed, so that an error changes nothing.

        ``read`` is true of rows that were read from the table, which shows of them what may be seen; others are new.
        """

    def create(self, query: str, values: Any = None, *, view: bool = False) -> str:
        """Create a temporary relation of a query."""
        name = self.fresh_name()
        self.connection.execute(f"CREATE TEMP {'VIEW' if view else 'TABLE'} {name} AS {query}", values)
        return name

    def numbered(self, query: str, values: Any = None, *, first: Sequence[str] = ()) -> str:
        """Create a temporary relation of a source with numbered rows, the ``first`` of each key. Finds ``given``."""
        rows = self.create(query, values)
        if not self.given:
            self.given = [str(row[0]) for row in self.connection.execute(f"DESCRIBE {rows}").fetchall()]
        rows = self.create(f"SELECT *, rowid AS {SOURCE_ROW} FROM {rows}", view=True)
        if not first:
            return rows
        keys = ", ".join(map(quote, first))
        return self.create(f"FROM {rows} QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {SOURCE_ROW}) = 1")


def literal(value: Any) -> str:
    """Return the SQL of a Python value, exactly: a float stays a float, and NaN stays NaN."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 and value.dtype.kind in "biufSU":
        value = value.item()
    match value:
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case str():
            return " || chr(0) || ".join(map(names.literal, value.split("\0")))
        case list() | tuple():
            return f"[{', '.join(map(literal, value))}]"
        case Mapping() if value and all(isinstance(key, str) for key in value):
            return f"{{{', '.join(f'{names.literal(key)}: {literal(item)}' for key, item in value.items())}}}"
    try:
        return str(duckdb.ConstantExpression(exact_value(value)))
    except duckdb.Error as error:
        raise InputError(f"a value of type {type(value).__name__} cannot be written: {error}") from error


def cast_to(sql: str, column: Column) -> str:
    """Return the SQL that casts a value to the type of a column."""
    return f"CAST(({sql}) AS {column.duckdb_type()})"


def _new_values(scope: Scope, columns: Sequence[str], values: Sequence[Value]) -> dict[int, str]:
    """Return the SQL of new values by column id. Raise ``SqlError`` for a column that is set twice."""
    found: dict[int, str] = {}
    for name, value in zip(columns, values, strict=True):
        column = scope.table.schema.find(name)
        if column.id in found:
            raise SqlError(f'Binder Error: the column "{name}" is set twice')
        found[column.id] = default_value(column) if _is_default(value) else scope.sql(value)
    if not found:
        raise InputError("nothing to update", hint='pass {"column": value}')
    return found


def _is_default(value: Value) -> bool:
    return isinstance(value, Expression) and fold(value.sql) == "default"


def update(scope: Scope, statement: Update) -> int:
    """Set columns of rows; return how many rows changed. Row ids stay."""
    scope.check_updates()
    columns = scope.table.schema.columns
    values = _new_values(scope, statement.columns, statement.values)
    select = [
        f"{cast_to(values[column.id], column) if column.id in values else f'{scope.own}.{quote(column.name)}'}"
        f" AS _ql_c{column.id}"  # so that no expression refers to another one by the name of its column
        for column in columns
    ]
    shown = [f"_ql_c{column.id} AS {quote(column.name)}" for column in columns]
    bound = scope.bind(_query(scope, select, statement), target=True)
    once = f" QUALIFY row_number() OVER (PARTITION BY {PLACES}) = 1" if statement.others else ""
    changed = scope.create(f"SELECT {', '.join([*shown, *ROW_COLUMNS])} FROM ({bound.sql}){once}", bound.values)
    scope.show(changed)
    assert bound.plan is not None
    scope.tx.pending(scope.table).add_read(bound.predicate)
    check_not_null(scope.connection, changed, [column for column in columns if column.id in values])
    return scope.replace_rows(bound.plan, changed)


def delete(scope: Scope, statement: Delete) -> int:
    """Delete rows; return how many."""
    shown = [f"{scope.own}.{quote(column.name)}" for column in scope.table.schema.columns]
    bound = scope.bind(_query(scope, shown if statement.returning else [], statement), target=True)
    rows, values = f"({bound.sql})", bound.values
    if statement.returning:
        rows, values = scope.create(bound.sql, bound.values), None
    word = "DISTINCT " if statement.others else ""
    found = places_to_target(arrow_table(scope.connection, f"SELECT {word}{PLACES} FROM {rows}", values))
    if statement.returning:
        scope.show(rows, read="true")
    assert bound.plan is not None
    pending = scope.tx.pending(scope.table)
    pending.add_read(bound.predicate)
    pending.delete(bound.plan, found)
    return found.count


def _query(scope: Scope, select: Sequence[str], statement: Update | Delete) -> str:
    """Return the query of the rows to change, with their positions."""
    places = [f"{scope.own}.{name}" for name in ROW_COLUMNS]
    others = f", {statement.others}" if statement.others else ""
    where = "" if statement.where is None else f" WHERE {scope.condition(statement.where)}"
    # rows of USING may match a row several times: RETURNING shows it once
    word = "DISTINCT " if isinstance(statement, Delete) and statement.others else ""
    return f"{scope.prefix}SELECT {word}{', '.join([*select, *places])} FROM {scope.target}{others}{where}"


@dataclass(frozen=True, slots=True)
class _Found:
    """A temporary table of rows with their actions; ``several``: a row of the target may occur more than once."""

    name: str
    actions: frozenset[str]
    plan: ScanPlan | None = None
    several: bool = True


def merge(scope: Scope, statement: Merge, *, unique: bool = False) -> MergeResult:
    """Change the rows of the target by the clauses of a merge.

    A row that several rows of the source match is changed once, or an error with ``Merge.once``; ``updated`` and
    ``deleted`` count it as often as it matches, as DuckDB does. ``unique`` says that no two rows of the source match
    one row.
    """
    if any(clause.action == "update" for clause in statement.clauses):
        scope.check_updates()
    found = _find(scope, statement, unique=unique)
    scope.tx.pending(scope.table).add_read(scope.predicate)
    for rows in found:
        if "error" in rows.actions:
            _check_errors(scope, rows.name, statement)
        if statement.once and rows.several and rows.plan is not None:
            _check_once(scope, rows.name, statement)
    if statement.returning:
        columns = ", ".join(quote(column.name) for column in scope.table.schema.columns)
        parts = [
            f"SELECT upper(split_part({_ACTION}, ':', 1)) AS merge_action, {columns} FROM {rows.name}"
            f" WHERE {_ACTION} NOT LIKE 'nothing:%'"
            for rows in found
        ]
        scope.show(scope.create(" UNION ALL ".join(parts)), read="merge_action = 'DELETE'")
    return _apply(scope, found, once=statement.once)


def _find(scope: Scope, statement: Merge, *, unique: bool) -> list[_Found]:
    """Return the matching rows, then those of the source and the target without a match, if a clause needs them."""
    places = [f"{scope.own}.{name} AS {name}" for name in ROW_COLUMNS]
    if isinstance(statement.on, tuple):
        how = f"USING ({', '.join(map(quote, statement.on))})"
    else:
        how = f"ON {scope.condition(statement.on)}"
    joined = f"{scope.target} JOIN {scope.source} {how}"
    number = f"{scope.theirs}.{SOURCE_ROW}"
    both = _create_found(scope, statement, "both", [*places, f"{number} AS {SOURCE_ROW}"], joined, several=not unique)
    found = [both] if statement.has("both") else []
    if statement.has("source"):
        alone = f"{number} NOT IN (SELECT {SOURCE_ROW} FROM temp.main.{both.name})"
        found.append(_create_found(scope, statement, "source", [], f"{scope.source} WHERE {alone}"))
    if statement.has("target"):
        unmatched = f"ANTI JOIN temp.main.{both.name} AS _ql_m ON {_same_place(scope, both)}"
        found.append(_create_found(scope, statement, "target", places, f"{scope.target} {unmatched}"))
    return found


def _same_place(scope: Scope, found: _Found) -> str:
    """Return whether a row is among those found, without IS NOT DISTINCT FROM, which DuckDB does not push down."""
    parts = PLACES.split(", ")
    if found.plan is not None and found.plan.inlined is None:  # then all rows are in files
        return " AND ".join(f"_ql_m.{name} = {scope.own}.{name}" for name in parts if name != "_ql_version")
    return " AND ".join(
        f"coalesce(_ql_m.{name}, {_NOWHERE}) = coalesce({scope.own}.{name}, {_NOWHERE})" for name in parts
    )


def _create_found(
    scope: Scope, statement: Merge, matched: Matched, beside: Sequence[str], source: str, *, several: bool = False
) -> _Found:
    """Create a temporary table of the rows of a query, each with its action and its new columns."""
    clauses = [(f"{c.action}:{at}", c) for at, c in enumerate(statement.clauses) if c.matched == matched]
    select, shown = [], []
    if clauses:
        conditions = ["true" if c.condition is None else scope.condition(c.condition) for _, c in clauses]
        cases = " ".join(
            f"WHEN {condition} THEN '{label}'" for (label, _), condition in zip(clauses, conditions, strict=True)
        )
        # DuckDB lets no expression refer to one with a subquery by a name
        action = f"(CASE {cases} END)" if any(map(_QUERY.search, conditions)) else _ACTION
        messages = " ".join(
            f"WHEN '{label}' THEN CAST(({scope.sql(c.message)}) AS VARCHAR)" for label, c in clauses if c.message
        )
        message = f"CASE {action} {messages} END" if messages else "CAST(NULL AS VARCHAR)"
        select = [f"CASE {cases} END AS {_ACTION}", f"{message} AS {_MESSAGE}"]
        shown = [_ACTION, _MESSAGE]
        values = [(label, _values(scope, clause)) for label, clause in clauses]
        kept = matched != "source" and (statement.returning or any(c.action == "update" for _, c in clauses))
        for column in scope.table.schema.columns:
            options = " ".join(
                f"WHEN '{label}' THEN {cast_to(new[column.id], column)}" for label, new in values if column.id in new
            )
            old = f"{scope.own}.{quote(column.name)}" if kept else f"CAST(NULL AS {column.duckdb_type()})"
            select.append(f"{f'CASE {action} {options} ELSE {old} END' if options else old} AS _ql_c{column.id}")
            shown.append(f"_ql_c{column.id} AS {quote(column.name)}")
    shown += [item.rpartition(" AS ")[2] for item in beside]
    query = f"{scope.prefix}SELECT {', '.join([*select, *beside])} FROM {source}"
    bound = scope.bind(query, target=matched != "source")
    # matching rows count as matched on both sides, whether a clause applies to them or not
    taken = "" if matched == "both" else f" WHERE {_ACTION} IS NOT NULL"
    name = scope.create(f"SELECT {', '.join(shown)} FROM ({bound.sql}){taken}", bound.values)
    return _Found(name, frozenset(clause.action for _, clause in clauses), bound.plan, several)


def _values(scope: Scope, clause: Clause) -> dict[int, str]:
    """Return the SQL of the values that a clause assigns, by column id."""
    columns = scope.table.schema.columns
    found = {column.id: default_value(column) for column in columns} if clause.action == "insert" else {}
    if clause.takes_all:
        if clause.by_name:
            return found | {c.id: scope.taken(c, name) for name in scope.given for c in [scope.table.schema.find(name)]}
        _check_number(scope, len(columns), len(scope.given), clause)
        return found | {column.id: scope.taken(column, name) for column, name in zip(columns, scope.given, strict=True)}
    if clause.values is None:
        return {}
    if clause.action == "update":
        return _new_values(scope, clause.columns or (), clause.values)
    chosen = columns if clause.columns is None else [scope.table.schema.find(name) for name in clause.columns]
    _check_number(scope, len(chosen), len(clause.values), clause)
    pairs = zip(chosen, clause.values, strict=True)
    return found | {column.id: scope.sql(value) for column, value in pairs if not _is_default(value)}


def _check_number(scope: Scope, wanted: int, given: int, clause: Clause) -> None:
    if wanted != given:
        named = f"table {scope.table.name} has {wanted} columns"
        what = named if clause.columns is None else f"{wanted} columns are named"
        raise SqlError(f"Binder Error: {what} but {given} values were supplied")


def _check_errors(scope: Scope, rows: str, statement: Merge) -> None:
    query = f"SELECT {_ACTION}, {_MESSAGE} FROM {rows} WHERE {_ACTION} LIKE 'error:%' LIMIT 1"
    row = first_row(scope.connection, query)
    if row is not None:
        clause = statement.clauses[int(str(row[0]).split(":")[1])]
        condition = "" if clause.condition is None else f" AND {scope.title(clause.condition)}"
        message = "" if row[1] is None else f": {row[1]}"
        raise ConstraintError(f"Merge error condition {WHEN[clause.matched]}{condition}{message}")


_CHANGES = f"({_ACTION} LIKE 'update:%' OR {_ACTION} LIKE 'delete:%')"


def _check_once(scope: Scope, rows: str, statement: Merge) -> None:
    """Raise ``ConstraintError`` if several rows of the source change one row. Deleting a row twice is not an error."""
    keys = list(statement.on) if isinstance(statement.on, tuple) else []
    several = (
        f"SELECT min(_ql_row_id) AS _ql_row_id FROM {rows} WHERE {_CHANGES} GROUP BY {PLACES}"
        f" HAVING count(*) > 1 AND count(*) FILTER ({_ACTION} LIKE 'update:%') > 0 LIMIT {DUPLICATES_SHOWN + 1:d}"
    )
    if first_row(scope.connection, several) is not None:
        shown = ", ".join(f"{scope.own}.{quote(key)}" for key in keys) or f"{scope.own}._ql_row_id"
        found = scope.connection.execute(
            f"SELECT {shown} FROM {scope.target} SEMI JOIN ({several}) AS _ql_m"
            f" ON {scope.own}._ql_row_id = _ql_m._ql_row_id ORDER BY ALL"
        ).fetchall()
        raise ambiguous(scope.table.qualified_name, keys or ["row id"], found)


def _apply(scope: Scope, found: Sequence[_Found], *, once: bool) -> MergeResult:
    """Insert, delete and update. A row of the target that matches several rows of the source is changed once."""
    tx, connection, table = scope.tx, scope.connection, scope.table
    columns = list(table.schema.columns)
    chosen = ", ".join(quote(column.name) for column in columns)
    changed: dict[str, str] = {}
    gone: dict[str, pa.Table] = {}
    for rows in (each for each in found if each.plan is not None):
        if "update" in rows.actions:
            only = f" QUALIFY row_number() OVER (PARTITION BY {PLACES}) = 1" if rows.several else ""
            changed[rows.name] = scope.create(
                f"SELECT {chosen}, {', '.join(ROW_COLUMNS)} FROM {rows.name} WHERE {_ACTION} LIKE 'update:%'{only}",
                view=not rows.several,
            )
            check_not_null(connection, changed[rows.name], columns)
        if "delete" in rows.actions:
            word = "DISTINCT " if rows.several else ""
            query = f"SELECT {word}{PLACES} FROM {rows.name} WHERE {_ACTION} LIKE 'delete:%'"
            gone[rows.name] = arrow_table(connection, query)
    inserted = updated = deleted = 0
    for rows in (each for each in found if "insert" in each.actions):
        inserted += scope.insert(f"SELECT {chosen} FROM {rows.name} WHERE {_ACTION} LIKE 'insert:%'")
    for rows in (each for each in found if each.plan is not None):
        assert rows.plan is not None
        updates = deletes = 0
        if rows.name in changed:
            updates = scope.replace_rows(rows.plan, changed[rows.name])
        if rows.name in gone:
            deletes = gone[rows.name].num_rows
        if deletes:
            tx.pending(table).delete(rows.plan, places_to_target(gone[rows.name]))
        if rows.several and not once:
            counts = [f"count(*) FILTER ({_ACTION} LIKE '{action}:%')" for action in ("update", "delete")]
            row = first_row(connection, f"SELECT {', '.join(counts)} FROM {rows.name}")
            assert row is not None
            updates, deletes = int(row[0]), int(row[1])
        updated, deleted = updated + updates, deleted + deletes
    return MergeResult(updated, inserted, deleted)
