"""Parse MERGE INTO: the target, the source and the clauses.

``merge_rows`` finds and changes the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quacklake.errors import SqlError
from quacklake.format.names import fold, quote
from quacklake.format.snapshots import Operation
from quacklake.sql.attached import Target
from quacklake.sql.result import Result
from quacklake.sql.statements import queries
from quacklake.sql.statements.merge_rows import Merge, MergeClause, MergeSource, change_rows
from quacklake.sql.statements.rows import alias_of, assignments, counted, prefix_of, returning_of
from quacklake.sql.words import Cursor
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from quacklake.sql.session import Session


def merge(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run MERGE INTO name [alias] USING source [alias] ON condition | USING (columns) WHEN … [RETURNING …]."""
    prefix = prefix_of(cursor)
    cursor.expect("MERGE", "INTO")
    first = cursor.at
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    named = cursor.slice(first, cursor.at)
    alias = alias_of(cursor, "USING")
    cursor.expect("USING")
    source = _source(session, cursor, prefix)
    first = cursor.at
    if cursor.accept("USING"):
        cursor.skip_group()
    else:
        cursor.expect("ON")
        cursor.until("WHEN")
    how = cursor.slice(first, cursor.at)
    clauses: list[MergeClause] = []
    while cursor.accept("WHEN"):
        clauses.append(_clause(cursor))
    returning = returning_of(cursor)
    cursor.end()
    if not clauses:
        raise cursor.unexpected()
    _check_reachable(clauses)
    statement = Merge(prefix, target, named, alias, source, how, tuple(clauses), returning)
    returned: list[Result] = []

    def work(tx: Transaction) -> int:
        return change_rows(session, tx, statement, params, returned, Operation.MERGE)

    count = session.write(target.attached, work)
    return returned[0] if statement.returning else counted(count)


def _source(session: Session, cursor: Cursor, prefix: str) -> MergeSource:
    """Parse the relation after USING, and the qualifier of its columns."""
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
        names = (stands.attached.alias, stands.schema, stands.name)
        return MergeSource(text, text, ".".join(map(quote, names)), stands)
    own = quote(alias or default)
    return MergeSource(text, None, own, None)


def _lake_table(session: Session, names: list[str], prefix: str) -> Target | None:
    """Return the table or view of a lake that is the source, unless a common table has its name."""
    if len(names) == 1 and any(fold(word.value) == fold(names[0]) for word in Cursor(prefix).words):
        return None
    for place in session.names.places(names):
        tx = session.view(place.attached)
        if tx.get_table(place.schema, place.name) or tx.objects.get_view(place.schema, place.name):
            return place
    return None


_WHEN = {"both": "WHEN MATCHED", "source": "WHEN NOT MATCHED", "target": "WHEN NOT MATCHED BY SOURCE"}


def _check_reachable(clauses: list[MergeClause]) -> None:
    """Raise ``SqlError`` when two clauses for the same rows have no condition."""
    unconditional = [clause.matched for clause in clauses if not clause.condition]
    for matched, when in _WHEN.items():
        if unconditional.count(matched) > 1:
            raise SqlError(
                f"Parser Error: Unconditional {when} clause was already defined - only one unconditional {when}"
                " clause is supported"
            )


def _clause(cursor: Cursor) -> MergeClause:
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
        return MergeClause(matched, condition, "delete")
    if cursor.accept("DO", "NOTHING"):
        return MergeClause(matched, condition, "nothing")
    if cursor.accept("ERROR"):
        return MergeClause(matched, condition, "error", message=cursor.until("WHEN", "RETURNING"))
    if cursor.accept("UPDATE"):
        if cursor.accept("SET"):
            if cursor.accept("*"):
                return MergeClause(matched, condition, "update")
            return MergeClause(matched, condition, "update", assigned=tuple(assignments(cursor)))
        return MergeClause(matched, condition, "update", by_name=_by_name(cursor))
    cursor.expect("INSERT")
    by_name = _by_name(cursor)
    if cursor.accept("*") or by_name or cursor.done or cursor.sees("WHEN") or cursor.sees("RETURNING"):
        return MergeClause(matched, condition, "insert", by_name=by_name)
    if cursor.accept("DEFAULT", "VALUES"):
        return MergeClause(matched, condition, "insert", columns=(), values=())
    columns = tuple(type(cursor)(item).name() for item in cursor.items()) if cursor.sees("(") else None
    cursor.expect("VALUES")
    return MergeClause(matched, condition, "insert", columns, tuple(cursor.items()))


def _by_name(cursor: Cursor) -> bool:
    return cursor.accept("BY", "NAME") or (cursor.accept("BY", "POSITION") and False)
