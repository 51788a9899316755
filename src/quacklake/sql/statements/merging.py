"""MERGE INTO: one join finds every row, and each goes by the first clause that fits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.duckdb_versions import first_row
from quacklake.engines.duckdb.engine import places_to_target
from quacklake.engines.duckdb.sql import ROW_COLUMNS
from quacklake.errors import ConstraintError, SqlError
from quacklake.format.names import fold, quote
from quacklake.format.objects import TableInfo
from quacklake.format.operations import Operation
from quacklake.format.predicate import ANYTHING
from quacklake.format.schema import Column
from quacklake.lake import inserting
from quacklake.lake.conform import default_value
from quacklake.lake.result import Result
from quacklake.sql.attached import Target
from quacklake.sql.binder import Binder
from quacklake.sql.statements import queries
from quacklake.sql.statements.inserting import append_bound, conforming
from quacklake.sql.statements.rows import (
    PLACES,
    alias_of,
    assignments,
    cast_to,
    counted,
    find_table,
    new_values,
    prefix_of,
)
from quacklake.sql.words import Cursor
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from quacklake.sql.session import Session

__all__ = ["Clause", "Merge", "answer", "change_rows", "merge"]

_SOURCE = "_ql_source"
_ACTION = "_ql_action"


@dataclass(frozen=True, slots=True)
class Clause:
    """WHEN …: ``matched`` says which rows it is for (both, target only, source only), and what happens to them."""

    matched: str
    condition: str
    action: str
    columns: tuple[str, ...] | None = None
    values: tuple[str, ...] | None = None
    assigned: tuple[tuple[str, str], ...] | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Merge:
    """A statement: the target, the source, how their rows are matched, and what becomes of each."""

    prefix: str
    target: Target
    named: str
    alias: str | None
    source: str
    source_alias: str
    on: str
    using: tuple[str, ...]
    clauses: tuple[Clause, ...]
    returning: str


def merge(session: Session, cursor: Cursor, params: Any) -> Result:
    """MERGE INTO name [alias] USING source [alias] ON condition | USING (columns) WHEN … [RETURNING …]."""
    prefix = prefix_of(cursor, "MERGE")
    cursor.expect("MERGE", "INTO")
    first = cursor.at
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    named = cursor.slice(first, cursor.at)
    alias = alias_of(cursor, "USING")
    cursor.expect("USING")
    first = cursor.at
    default = "src"
    if cursor.sees("("):
        cursor.skip_group()
    else:
        default = cursor.names()[-1]
        if cursor.sees("("):
            cursor.skip_group()
    source = cursor.slice(first, cursor.at)
    at_alias = alias_of(cursor, "ON", "USING", "AT")
    if cursor.sees("AT"):
        first = cursor.at
        cursor.take()
        cursor.skip_group()
        source = f"{source} AS ql_past {cursor.slice(first, cursor.at)}"
    columns = f" {cursor.slice(cursor.at, cursor.at)}"
    if cursor.sees("("):
        first = cursor.at
        cursor.skip_group()
        columns = cursor.slice(first, cursor.at)
    using: tuple[str, ...] = ()
    on = ""
    if cursor.accept("USING"):
        using = tuple(type(cursor)(item).name() for item in cursor.items())
    else:
        cursor.expect("ON")
        on = cursor.until("WHEN")
    clauses = []
    while cursor.accept("WHEN"):
        clauses.append(_clause(cursor))
    returning = cursor.rest() if cursor.accept("RETURNING") else ""
    cursor.end()
    if not clauses:
        raise cursor.unexpected()
    statement = Merge(
        prefix,
        target,
        named,
        alias,
        f"{source}{_renamed(columns)}",
        at_alias or default,
        on,
        using,
        tuple(clauses),
        returning,
    )
    return _merge(session, statement, params)


def _renamed(columns: str) -> str:
    return f" AS ql_named{columns}" if columns.strip() else ""


def _clause(cursor: Cursor) -> Clause:
    matched = "both"
    if cursor.accept("NOT", "MATCHED"):
        matched = "source"
        if cursor.accept("BY", "SOURCE"):
            matched = "target"
        else:
            cursor.accept("BY", "TARGET")
    else:
        cursor.expect("MATCHED")
    condition = cursor.until("THEN") if cursor.accept("AND") else ""
    cursor.expect("THEN")
    if cursor.accept("DELETE"):
        return Clause(matched, condition, "delete")
    if cursor.accept("DO", "NOTHING"):
        return Clause(matched, condition, "nothing")
    if cursor.accept("ERROR"):
        return Clause(matched, condition, "error", message=cursor.until("WHEN", "RETURNING"))
    if cursor.accept("UPDATE"):
        if cursor.accept("SET"):
            if cursor.accept("*"):
                return Clause(matched, condition, "update")
            return Clause(matched, condition, "update", assigned=tuple(assignments(cursor)))
        cursor.accept("BY", "NAME") or cursor.accept("BY", "POSITION")
        return Clause(matched, condition, "update")
    cursor.expect("INSERT")
    cursor.accept("*")
    if cursor.accept("BY", "NAME") or cursor.accept("BY", "POSITION"):
        return Clause(matched, condition, "insert")
    if cursor.accept("DEFAULT", "VALUES"):
        return Clause(matched, condition, "insert", columns=(), values=())
    columns = tuple(type(cursor)(item).name() for item in cursor.items()) if cursor.sees("(") else None
    if cursor.accept("VALUES"):
        return Clause(matched, condition, "insert", columns, tuple(cursor.items()))
    return Clause(matched, condition, "insert", columns)


def _merge(session: Session, statement: Merge, params: Any) -> Result:
    returned: list[pa.Table] = []

    def work(tx: Transaction) -> int:
        return change_rows(session, tx, statement, params, returned, Operation.MERGE)

    count = session.write(statement.target.attached, work)
    return answer(session, statement, count, returned, params)


def change_rows(
    session: Session, tx: Transaction, statement: Merge, params: Any, returned: list[pa.Table], asked: Operation
) -> int:
    """Change the rows of the target; ``returned`` gets those that RETURNING is about. Returns how many there are."""
    tx.asks(asked)
    table = find_table(statement.target, tx)
    own = quote(statement.alias or statement.target.name)
    query = _query(session, statement, table, own, params)
    bound = Binder(session, params).bind(query, target=True)
    joined = session.fresh_name()
    session.connection.execute(f"CREATE TEMP TABLE {joined} AS {bound.sql}", bound.values)
    assert bound.target is not None
    assert bound.target.plan is not None
    tx.pending(table).add_read(ANYTHING)
    _check_errors(session, joined, statement)
    count = _apply(session, tx, statement, table, bound.target.plan, joined, asked)
    if statement.returning:
        returned[:] = [session.rows(_returning_rows(joined, table))]
    return count


def answer(session: Session, statement: Merge, count: int, returned: list[pa.Table], params: Any) -> Result:
    """Return the number of rows, or what RETURNING asks for."""
    if not statement.returning:
        return counted(count)
    name = session.fresh_name()
    session.connection.register(name, returned[0])
    alias = quote(statement.alias or statement.target.name)
    return session.query(f"SELECT {_without_action(statement.returning)} FROM temp.main.{name} AS {alias}", params)


def _without_action(returning: str) -> str:
    """What is returned, where ``*`` means the table's columns only."""
    words = Cursor(returning).words
    parts, done = [], 0
    for number, word in enumerate(words):
        if word.text == "*" and (number == 0 or words[number - 1].text == ","):
            parts += [returning[done : word.end], " EXCLUDE (merge_action)"]
            done = word.end
    return "".join([*parts, returning[done:]])


def _returning_rows(joined: str, table: TableInfo) -> str:
    columns = ", ".join(quote(column.name) for column in table.schema.columns)
    return (
        f"SELECT upper(split_part({_ACTION}, ':', 1)) AS merge_action, {columns} FROM {joined}"
        f" WHERE {_ACTION} NOT LIKE 'nothing:%'"
    )


def _query(session: Session, statement: Merge, table: TableInfo, own: str, params: Any) -> str:
    """The join of target and source with what is to be done with each row, and the columns it then has."""
    source = quote(statement.source_alias)
    here = f"(SELECT *, true AS {_SOURCE} FROM {statement.source}) AS {source}"
    given = _source_columns(session, statement, params) if _needs_columns(statement) else []
    tests = {
        "both": f"{own}._ql_position IS NOT NULL AND {source}.{_SOURCE}",
        "target": f"{own}._ql_position IS NOT NULL AND {source}.{_SOURCE} IS NULL",
        "source": f"{own}._ql_position IS NULL",
    }
    labels = [f"{clause.action}:{number}" for number, clause in enumerate(statement.clauses)]
    cases = " ".join(
        f"WHEN {tests[clause.matched]}{f' AND ({clause.condition})' if clause.condition else ''} THEN '{label}'"
        for clause, label in zip(statement.clauses, labels, strict=True)
    )
    values = [_values(clause, table, own, source, given) for clause in statement.clauses]
    select = []
    for column in table.schema.columns:
        options = " ".join(
            f"WHEN '{label}' THEN {cast_to(found[column.id], column)}"
            for label, found in zip(labels, values, strict=True)
            if column.id in found
        )
        kept = f"{own}.{quote(column.name)}"
        select.append(f"{f'CASE {_ACTION} {options} ELSE {kept} END' if options else kept} AS {quote(column.name)}")
    places = ", ".join(f"{own}.{name} AS {name}" for name in ROW_COLUMNS)
    target = statement.named + (f" AS {quote(statement.alias)}" if statement.alias else "")
    on = statement.on or " AND ".join(f"{own}.{quote(name)} = {source}.{quote(name)}" for name in statement.using)
    return (
        f"{statement.prefix}SELECT CASE {cases} END AS {_ACTION}, {', '.join(select)}, {places}"
        f" FROM {target} FULL JOIN {here} ON {on} WHERE {_ACTION} IS NOT NULL"
    )


def _needs_columns(statement: Merge) -> bool:
    return any(
        (clause.action == "update" and clause.assigned is None) or (clause.action == "insert" and clause.values is None)
        for clause in statement.clauses
    )


def _source_columns(session: Session, statement: Merge, params: Any) -> list[str]:
    bound = Binder(session, params).bind(f"{statement.prefix}SELECT * FROM {statement.source}")
    rows = session.connection.execute(f"DESCRIBE {bound.sql}", bound.values).fetchall()
    return [str(row[0]) for row in rows]


def _values(clause: Clause, table: TableInfo, own: str, source: str, given: list[str]) -> dict[int, str]:
    """The SQL of the values that a clause gives, by column id."""
    if clause.action == "update":
        if clause.assigned is not None:
            return new_values(table, clause.assigned)
        return {column.id: f"{source}.{quote(name)}" for name, column in _same_names(table, given)}
    if clause.action != "insert":
        return {}
    found = {column.id: default_value(column) for column in table.schema.columns}
    if clause.values is None:
        if clause.columns is None:
            found |= {column.id: f"{source}.{quote(name)}" for name, column in _same_names(table, given)}
        else:
            chosen = [table.schema.find(name) for name in clause.columns]
            found |= {column.id: f"{source}.{quote(column.name)}" for column in chosen}
        return found
    columns = table.schema.columns if clause.columns is None else [table.schema.find(name) for name in clause.columns]
    if len(columns) != len(clause.values):
        raise SqlError(f"Binder Error: {len(columns)} columns are named but {len(clause.values)} values were supplied")
    pairs = zip(columns, clause.values, strict=True)
    return found | {column.id: value for column, value in pairs if fold(value) != "default"}


def _same_names(table: TableInfo, given: list[str]) -> list[tuple[str, Column]]:
    if any(table.schema.get(name) is None for name in given) and len(given) == len(table.schema.columns):
        return list(zip(given, table.schema.columns, strict=True))
    return [(name, table.schema.find(name)) for name in given]


def _check_errors(session: Session, joined: str, statement: Merge) -> None:
    query = f"SELECT {_ACTION} FROM {joined} WHERE {_ACTION} LIKE 'error:%' LIMIT 1"
    rows = first_row(session.connection, query)
    if rows is not None:
        clause = statement.clauses[int(str(rows[0]).split(":")[1])]
        text = Binder(session).evaluate_text(clause.message) if clause.message else "Merge error condition"
        raise ConstraintError(str(text))


def _apply(
    session: Session, tx: Transaction, statement: Merge, table: TableInfo, plan: Any, joined: str, asked: Operation
) -> int:
    """Insert, delete and update; a row of the target that several rows of the source fit is changed once."""
    attached = statement.target.attached
    names = ", ".join(quote(column.name) for column in table.schema.columns)
    once = f"QUALIFY row_number() OVER (PARTITION BY {PLACES}) = 1"
    changed = session.fresh_name()
    session.connection.execute(
        f"CREATE TEMP TABLE {changed} AS SELECT {names}, {', '.join(ROW_COLUMNS)} FROM {joined}"
        f" WHERE {_ACTION} LIKE 'update:%' {once}"
    )
    inserting.check_not_null(session.connection, changed, list(table.schema.columns))
    gone = session.rows(f"SELECT DISTINCT {PLACES} FROM {joined} WHERE {_ACTION} LIKE 'delete:%'")
    places = {column.id: place for place, column in enumerate(table.schema.columns)}
    fresh = f"SELECT {names} FROM {joined} WHERE {_ACTION} LIKE 'insert:%'"
    has_new = first_row(session.connection, f"SELECT 1 FROM ({fresh}) LIMIT 1") is not None
    new_rows = conforming(table, places, fresh)
    inserted = append_bound(session, tx, attached, table, new_rows, None, asked) if has_new else 0
    updated = inserting.replace_rows(attached.shared, tx, session.connection, table, plan, changed)
    if gone.num_rows:
        tx.pending(table).delete(plan, places_to_target(gone))
    return inserted + updated + int(gone.num_rows)
