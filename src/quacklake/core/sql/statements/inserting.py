"""INSERT, also with ON CONFLICT, MERGE INTO, and inserting the rows of any query into a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quacklake.core.duckdb_versions import IS_2
from quacklake.core.format.names import fold, quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column
from quacklake.core.format.snapshots import Operation
from quacklake.core.operations import row_changes
from quacklake.core.operations.conform import check_not_null, default_value
from quacklake.core.operations.expression import Expression
from quacklake.core.operations.row_changes import WHEN
from quacklake.core.operations.statements import Clause, Conflict, Insert, Matched, Merge
from quacklake.core.sql import tree
from quacklake.core.sql.attached import Target
from quacklake.core.sql.result import Result
from quacklake.core.sql.statements import queries
from quacklake.core.sql.statements.rows import (
    Place,
    SessionScope,
    append_bound,
    assignments,
    find_table,
    place_of,
    returning_of,
    run_change,
    stand_in,
)
from quacklake.core.sql.tree import Node
from quacklake.core.sql.words import Cursor
from quacklake.errors import SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session


def insert(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run INSERT [OR REPLACE | OR IGNORE] INTO name [(columns)] [BY NAME] query | VALUES … | DEFAULT VALUES.

    ON CONFLICT … and RETURNING … may follow.
    """
    parsed = parse_insert(session, cursor)
    if parsed is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    place, statement = parsed
    conflict = statement.conflict

    def change(scope: SessionScope) -> int:
        return _insert(scope, statement) if conflict is None else _upsert(scope, statement, conflict)

    return run_change(session, place, params, Operation.INSERT, change, statement.returning)


def parse_insert(session: Session, cursor: Cursor) -> tuple[Place, Insert] | None:
    """Return the table and the parts of an INSERT; None for a table of DuckDB itself."""
    prefix = cursor.prefix()
    cursor.expect("INSERT")
    replacing, ignoring = cursor.accept("OR", "REPLACE"), cursor.accept("OR", "IGNORE")
    cursor.expect("INTO")
    first = cursor.at
    target = session.names.target(cursor.names())
    named = cursor.slice(first, cursor.at)
    if target is None:
        return None
    place = Place(target, named, cursor.name() if cursor.accept("AS") else None)
    columns = None
    if cursor.sees("(") and not _is_query(cursor):
        columns = tuple(Cursor(item).name() for item in cursor.items())
    by_name = cursor.accept("BY", "NAME")
    cursor.accept("BY", "POSITION")
    query = None if cursor.accept("DEFAULT", "VALUES") else prefix + _query(cursor)
    conflict = _conflict(cursor, replacing=replacing, ignoring=ignoring)
    statement = Insert(query, columns, by_name, conflict, returning_of(cursor))
    cursor.end()
    return place, statement


def with_columns(session: Session, cursor: Cursor, sql: str) -> str:
    """Return an INSERT with the names of the columns that it fills by their order; any other statement as it is.

    ``cursor`` is at the start of the statement, in which more than in ``sql`` may be spelled out.
    """
    if not cursor.sees("INSERT"):
        return sql
    parsed = parse_insert(session, Cursor(cursor.text, cursor.words))
    if parsed is None or parsed[1].columns is not None or parsed[1].by_name or parsed[1].query is None:
        return sql
    target = parsed[0].target
    words = Cursor(sql)
    words.until("INTO")
    words.expect("INTO")
    words.names()
    if words.accept("AS"):
        words.name()
    end = words.words[words.at - 1].end
    columns = find_table(target, session.view(target.attached)).schema.columns
    return f"{sql[:end]} ({', '.join(quote(column.name) for column in columns)}){sql[end:]}"


def _insert(scope: SessionScope, statement: Insert) -> int:
    sql, values, _ = _bind_proposed(scope, statement)
    if statement.returning:
        rows = scope.create(sql, values)
        scope.show(rows)
        sql, values = f"FROM {rows}", None
    return append_bound(scope.session, scope.tx, scope.place.target.attached, scope.table, sql, values)


def _upsert(scope: SessionScope, statement: Insert, conflict: Conflict) -> int:
    """Run ON CONFLICT as a merge by the primary key, whose source has one column ``excluded``; the first row counts."""
    table, theirs = scope.table, "_ql_proposed"
    key = scope.tx.objects.primary_key(table)
    _check_conflict(conflict, key)
    sql, values, given = _bind_proposed(scope, statement)
    rows = scope.numbered(sql, values, first=key)
    check_not_null(scope.connection, rows, [table.schema.find(column) for column in key])
    fields = ", ".join(f"{quote(column.name)} := {quote(column.name)}" for column in table.schema.columns)
    kept = f"{row_changes.SOURCE_ROW}, struct_pack({fields}) AS excluded"
    scope.source, scope.theirs = f"(SELECT {kept} FROM temp.main.{rows}) AS {theirs}", theirs
    clauses = [
        Clause("source", "insert", values=tuple(_excluded_column(column.name) for column in table.schema.columns))
    ]
    columns, assigned = conflict.columns, conflict.values
    if conflict.replacing:
        others = tuple(column.name for column in given if fold(column.name) not in {fold(each) for each in key})
        columns = others or key
        assigned = tuple(map(_excluded_column, columns))
    if columns:
        clauses.append(Clause("both", "update", conflict.condition, columns, assigned))
    on = " AND ".join(f"{scope.own}.{quote(column)} = {_excluded_column(column).sql}" for column in key)
    done = row_changes.merge(scope, Merge(Expression(on), tuple(clauses), statement.returning), unique=True)
    return done.updated + done.inserted


def _excluded_column(column: str) -> Expression:
    return Expression(f"excluded.{quote(column)}")


def _check_conflict(conflict: Conflict, key: Sequence[str]) -> None:
    """Raise ``SqlError`` unless the clause names the primary key of the table."""
    if conflict.key is None and not key:
        raise SqlError(
            "Binder Error: There are no UNIQUE/PRIMARY KEY constraints that refer to this table",
            hint="declare a PRIMARY KEY, or use MERGE INTO, which matches by any columns",
        )
    folded = {fold(name) for name in key}
    if conflict.key is not None and {fold(name) for name in conflict.key} != folded:
        raise SqlError(
            "Binder Error: The specified columns as conflict target are not referenced by a UNIQUE/PRIMARY KEY"
            " CONSTRAINT or INDEX",
            hint=f"the primary key is ({', '.join(key)})" if key else "there is none: use MERGE INTO",
        )
    changed = next((name for name in conflict.columns if fold(name) in folded), None)
    if changed is not None:
        raise SqlError(
            f'Binder Error: DO UPDATE cannot set "{changed}", a column of the primary key', hint="use UPDATE instead"
        )


def _conflict(cursor: Cursor, *, replacing: bool, ignoring: bool) -> Conflict | None:
    """Parse ``ON CONFLICT [(columns)] DO NOTHING | DO UPDATE SET … [WHERE …]``; OR REPLACE and OR IGNORE count too."""
    if not cursor.accept("ON", "CONFLICT"):
        return Conflict(replacing=replacing) if replacing or ignoring else None
    if replacing or ignoring:
        raise SqlError(
            "Parser Error: You can not provide both OR REPLACE|IGNORE and an ON CONFLICT clause", hint="leave one out"
        )
    key = tuple(Cursor(item).name() for item in cursor.items()) if cursor.sees("(") else None
    if cursor.sees("WHERE"):
        raise SqlError("Binder Error: ON CONFLICT WHERE clause is only supported in DO UPDATE SET ... WHERE ...")
    cursor.expect("DO")
    if cursor.accept("NOTHING"):
        return Conflict(key)
    cursor.expect("UPDATE", "SET")
    columns, values = assignments(cursor)
    condition = Expression(cursor.until("RETURNING")) if cursor.accept("WHERE") else None
    return Conflict(key, columns=columns, values=values, condition=condition)


def _query(cursor: Cursor) -> str:
    """Return the text up to RETURNING or ON CONFLICT; any other ON belongs to a join."""
    first = cursor.at
    while True:
        cursor.until("RETURNING", "ON")
        if not cursor.sees("ON") or cursor.sees("ON", "CONFLICT"):
            return cursor.slice(first, cursor.at)
        cursor.take()


def _is_query(cursor: Cursor) -> bool:
    """Return True when parentheses hold a query rather than column names."""
    following = cursor.peek(1)
    return following is not None and following.upper in ("SELECT", "FROM", "VALUES", "WITH", "(", "TABLE")


def _bind_proposed(scope: SessionScope, statement: Insert) -> tuple[str, Any, list[Column]]:
    """Return the rows to insert as a bound query of the table's columns, its values, and the columns that are given."""
    table, session = scope.table, scope.session
    chosen = chosen_columns(table, statement.columns)
    if statement.query is None:
        return conforming(table, {}, "SELECT 1"), None, []
    bound = queries.bind_rows(
        session,
        statement.query,
        scope.params,
        lambda node: fit_values(session, node, table, chosen, statement.by_name),
    )
    given = session.connection.execute(f"DESCRIBE {bound.sql}", bound.values).fetchall()
    places = _pairs(table, chosen, [str(row[0]) for row in given], statement)
    columns = [column for column in table.schema.columns if column.id in places]
    return conforming(table, places, bound.sql), bound.values, columns


def chosen_columns(table: TableInfo, columns: Sequence[str] | None) -> list[Column]:
    """Return the columns that a statement names, or all of them. Raise ``SqlError`` for one that is named twice."""
    if columns is None:
        return list(table.schema.columns)
    found = [table.schema.find(name) for name in columns]
    if len({column.id for column in found}) != len(found):
        raise SqlError(f"Binder Error: a column is named twice in INSERT INTO {table.name}")
    return found


def _pairs(table: TableInfo, chosen: Sequence[Column], given: Sequence[str], statement: Insert) -> dict[int, int]:
    """Map the id of each column to the position of its value in the query."""
    if statement.by_name:
        if statement.columns is not None:
            raise SqlError("Binder Error: INSERT BY NAME takes no list of columns")
        return {table.schema.find(name).id: place for place, name in enumerate(given)}
    if len(given) != len(chosen):
        named = f"table {table.name} has {len(chosen)} columns"
        what = named if statement.columns is None else f"{len(chosen)} columns are named"
        raise SqlError(f"Binder Error: {what} but {len(given)} values were supplied")
    return {column.id: place for place, column in enumerate(chosen)}


def conforming(table: TableInfo, places: dict[int, int], query: str) -> str:
    """Wrap the query so that it returns exactly the columns and types of the table."""
    width = max(places.values(), default=0) + 1
    values = [
        (column, f"src.c{places[column.id]}" if column.id in places else default_value(column))
        for column in table.schema.columns
    ]
    select = ", ".join(f"CAST({sql} AS {column.duckdb_type()}) AS {quote(column.name)}" for column, sql in values)
    return f"SELECT {select} FROM ({query}) AS src({', '.join(f'c{place}' for place in range(width))})"


def fit_values(session: Session, parsed: Node, table: TableInfo, chosen: Sequence[Column], by_name: bool) -> None:
    """Cast values to the types of their columns, and replace DEFAULT by the defaults of the columns."""
    source = parsed["node"].get("from_table") or {}
    if source.get("type") != "EXPRESSION_LIST" or by_name:
        return
    types = [tree.type_node(session.connection, column.duckdb_type()) for column in chosen]
    defaults: dict[int, Node] = {}
    for row in source["values"]:
        if len(row) != len(chosen):
            continue
        for place, column in enumerate(chosen):
            value = row[place]
            if value.get("class") == "DEFAULT":
                if place not in defaults:
                    defaults[place] = tree.expression_of(session.connection, default_value(column))
                value = defaults[place]
            row[place] = tree.cast(value, types[place])


def merge(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run MERGE INTO name [alias] USING source [alias] ON condition | USING (columns) WHEN … [RETURNING …]."""
    parsed = parse_merge(session, cursor)
    if parsed is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    place, statement, source = parsed
    prefix, theirs, stands = source.prefix, source.name, source.stands

    def change(scope: SessionScope) -> int:
        bound = scope.bind(f"{prefix}SELECT * FROM {source.text}", target=False)
        rows = scope.numbered(bound.sql, bound.values)
        scope.source, scope.theirs = f"temp.main.{rows} AS {theirs}", theirs
        if stands is not None:  # the text refers to the source still, and a temporary relation replaces the table
            scope.source, scope.stand_ins = source.text, stand_in(stands, rows)
        done = row_changes.merge(scope, statement)
        return done.updated + done.inserted + done.deleted

    return run_change(session, place, params, Operation.MERGE, change, statement.returning, prefix)


@dataclass(frozen=True, slots=True)
class MergeSource:
    """The relation after USING, with the common tables before the statement."""

    prefix: str
    text: str
    name: str
    """The qualifier of its columns."""
    stands: Target | None
    """The table or view of a lake that it is, without an alias."""


def parse_merge(session: Session, cursor: Cursor) -> tuple[Place, Merge, MergeSource] | None:
    """Return the table, the parts and the source of a MERGE; None for a table of DuckDB itself."""
    prefix = cursor.prefix()
    cursor.expect("MERGE", "INTO")
    place = place_of(session, cursor, "USING")
    if place is None:
        return None
    cursor.expect("USING")
    source = _source(session, cursor, prefix)
    tree.check_relations(session.connection, source.text)
    if cursor.accept("USING"):
        on: Any = tuple(Cursor(item).name() for item in cursor.items())
    else:
        cursor.expect("ON")
        on = Expression(cursor.until("WHEN"))
    clauses: list[Clause] = []
    while cursor.accept("WHEN"):
        clauses.append(_clause(cursor))
    # DuckDB tries the clauses with a condition first, wherever the one without stands
    ordered = sorted(clauses, key=lambda clause: clause.condition is None)
    statement = Merge(on, tuple(ordered), returning_of(cursor))
    cursor.end()
    if not clauses:
        raise cursor.unexpected()
    _check_reachable(clauses)
    return place, statement, source


def _source(session: Session, cursor: Cursor, prefix: str) -> MergeSource:
    """Parse the relation after USING."""
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
    alias = cursor.alias("ON", "USING", "AT")
    if cursor.sees("("):
        cursor.skip_group()
    if cursor.accept("AT"):
        table = []
        cursor.skip_group()
    text = cursor.slice(first, cursor.at)
    stands = None if alias is not None or not table else _lake_table(session, table, prefix)
    if stands is not None:
        name = ".".join(map(quote, (stands.attached.alias, stands.schema, stands.name)))
        return MergeSource(prefix, text, name, stands)
    return MergeSource(prefix, text, quote(alias or default), None)


def _lake_table(session: Session, names: list[str], prefix: str) -> Target | None:
    """Return the table or view of a lake that is the source, unless a common table has its name."""
    if len(names) == 1 and any(fold(word.value) == fold(names[0]) for word in Cursor(prefix).words):
        return None
    found = session.names.relation(names)
    return None if found is None else found[0]


def _check_reachable(clauses: list[Clause]) -> None:
    """Raise ``SqlError`` when two clauses for the same rows have no condition; in 2.x also for any after one."""
    unconditional = [clause.matched for clause in clauses if clause.condition is None]
    for number, clause in enumerate(clauses):
        when = WHEN[clause.matched]
        if IS_2 and clause.matched in (each.matched for each in clauses[:number] if each.condition is None):
            raise SqlError(
                f"Parser Error: Unconditional {when} clause was already defined - any following {when} clause would be"
                " unreachable"
            )
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
