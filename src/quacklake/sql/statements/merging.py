"""MERGE INTO: parse the target, the source and the clauses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quacklake.errors import SqlError
from quacklake.format.names import fold, quote
from quacklake.format.snapshots import Operation
from quacklake.operations import row_changes
from quacklake.operations.expression import Expression
from quacklake.operations.row_changes import WHEN
from quacklake.operations.statements import Clause, Matched, Merge
from quacklake.sql.attached import Target
from quacklake.sql.result import Result
from quacklake.sql.statements import queries
from quacklake.sql.statements.rows import (
    SessionScope,
    alias_of,
    assignments,
    place_of,
    prefix_of,
    returning_of,
    run_change,
    stand_in,
)
from quacklake.sql.words import Cursor

if TYPE_CHECKING:
    from quacklake.sql.session import Session


def merge(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run MERGE INTO name [alias] USING source [alias] ON condition | USING (columns) WHEN … [RETURNING …]."""
    prefix = prefix_of(cursor)
    cursor.expect("MERGE", "INTO")
    place = place_of(session, cursor, "USING")
    if place is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    cursor.expect("USING")
    source, theirs, stands = _source(session, cursor, prefix)
    if cursor.accept("USING"):
        on: Any = tuple(Cursor(item).name() for item in cursor.items())
    else:
        cursor.expect("ON")
        on = Expression(cursor.until("WHEN"))
    clauses: list[Clause] = []
    while cursor.accept("WHEN"):
        clauses.append(_clause(cursor))
    statement = Merge(on, tuple(clauses), returning_of(cursor))
    cursor.end()
    if not clauses:
        raise cursor.unexpected()
    _check_reachable(clauses)

    def change(scope: SessionScope) -> int:
        bound = scope.bind(f"{prefix}SELECT * FROM {source}", target=False)
        rows = scope.numbered(bound.sql, bound.values)
        scope.source, scope.theirs = f"temp.main.{rows} AS {theirs}", theirs
        if stands is not None:  # the text refers to the source still, and a temporary relation replaces the table
            scope.source, scope.stand_ins = source, stand_in(stands, rows)
        done = row_changes.merge(scope, statement)
        return done.updated + done.inserted + done.deleted

    return run_change(session, place, params, Operation.MERGE, change, statement.returning, prefix)


def _source(session: Session, cursor: Cursor, prefix: str) -> tuple[str, str, Target | None]:
    """Parse the relation after USING: its text, the qualifier of its columns, and the lake table if it is one."""
    first = cursor.at
    table: list[str] = []
    default = "unnamed_subquery"
    if cursor.sees("("):
        cursor.skip_group()
    else:
        table = cursor.names()
        default = table[-1]
        if cursor.sees("("):
            table = []
            cursor.skip_group()
    alias = alias_of(cursor, "ON", "USING", "AT")
    if cursor.sees("("):
        cursor.skip_group()
    if cursor.accept("AT"):
        table = []
        cursor.skip_group()
    text = cursor.slice(first, cursor.at)
    stands = None if alias is not None or not table else _lake_table(session, table, prefix)
    if stands is not None:
        return text, ".".join(map(quote, (stands.attached.alias, stands.schema, stands.name))), stands
    return text, quote(alias or default), None


def _lake_table(session: Session, names: list[str], prefix: str) -> Target | None:
    """Return the table or view of a lake that is the source, unless a common table has its name."""
    if len(names) == 1 and any(fold(word.value) == fold(names[0]) for word in Cursor(prefix).words):
        return None
    found = session.names.relation(names)
    return None if found is None else found[0]


def _check_reachable(clauses: list[Clause]) -> None:
    """Raise ``SqlError`` when two clauses for the same rows have no condition."""
    unconditional = [clause.matched for clause in clauses if clause.condition is None]
    for matched, when in WHEN.items():
        if unconditional.count(matched) > 1:
            raise SqlError(
                f"Parser Error: Unconditional {when} clause was already defined - only one unconditional {when}"
                " clause is supported"
            )


def _clause(cursor: Cursor) -> Clause:
    matched: Matched = "both"
    if cursor.accept("NOT", "MATCHED"):
        matched = "source"
        if cursor.accept("BY", "SOURCE"):
            matched = "target"
        else:
            cursor.accept("BY", "TARGET")
    else:
        cursor.expect("MATCHED")
    condition = Expression(cursor.until("THEN")) if cursor.accept("AND") else None
    cursor.expect("THEN")
    clause = Clause(matched, "insert", condition, by_name=False)
    if cursor.accept("DELETE"):
        return replace(clause, action="delete")
    if cursor.accept("DO", "NOTHING"):
        return replace(clause, action="nothing")
    if cursor.accept("ERROR"):
        message = cursor.until("WHEN", "RETURNING")
        return replace(clause, action="error", message=Expression(message) if message else None)
    if cursor.accept("UPDATE"):
        if not cursor.accept("SET"):
            return replace(clause, action="update", by_name=_by_name(cursor))
        if cursor.accept("*"):
            return replace(clause, action="update")
        columns, values = assignments(cursor)
        return replace(clause, action="update", columns=columns, values=values)
    cursor.expect("INSERT")
    by_name = _by_name(cursor)
    if cursor.accept("*") or by_name or cursor.done or cursor.sees("WHEN") or cursor.sees("RETURNING"):
        return replace(clause, by_name=by_name)
    if cursor.accept("DEFAULT", "VALUES"):
        return replace(clause, columns=(), values=())
    columns_ = tuple(Cursor(item).name() for item in cursor.items()) if cursor.sees("(") else None
    cursor.expect("VALUES")
    return replace(clause, columns=columns_, values=tuple(map(Expression, cursor.items())))


def _by_name(cursor: Cursor) -> bool:
    return cursor.accept("BY", "NAME") or (cursor.accept("BY", "POSITION") and False)
