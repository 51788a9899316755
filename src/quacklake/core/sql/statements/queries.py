"""Queries, and the statements that DuckDB runs itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.format.names import literal, quote
from quacklake.core.sql.binder import Binder, Bound, Scan
from quacklake.core.sql.result import Result
from quacklake.core.sql.timetravel import NO_ALIAS
from quacklake.core.sql.tree import Node, Unserializable
from quacklake.core.sql.words import Cursor
from quacklake.errors import NotPermittedError, SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.attached import Attached
    from quacklake.core.sql.session import Session


def query(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run a statement that returns rows."""
    try:
        return session.query(cursor.text, params)
    except Unserializable:
        return native(session, cursor, params)


def native(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run a statement in DuckDB, with scans in place of the tables of lakes."""
    return session.native(_with_scans(session, cursor, params), params)


def bind_rows(session: Session, sql: str, params: Any, change: Callable[[Node], None] | None = None) -> Bound:
    """Return a bound query whose rows are stored. The rows of a PIVOT, for which DuckDB gives no tree, are kept first.

    ``change`` is that of ``Binder.bind``.
    """
    try:
        return Binder(session, params).bind(sql, change=change)
    except Unserializable:
        rows = session.fresh_name()
        text = _with_scans(session, Cursor(sql), params)
        session.guard.native()
        session.connection.execute(f"CREATE TEMP TABLE {rows} AS {text}", params)
        return Binder(session).bind(f"FROM temp.main.{rows}")


#: Keywords after which relations follow, and keywords that end a list of relations.
_FROM = frozenset({"FROM", "JOIN", "PIVOT", "UNPIVOT", "USING"})
_NO_FROM = frozenset(
    {"WHERE", "GROUP", "ORDER", "ON", "SET", "SELECT", "HAVING", "LIMIT", "QUALIFY", "UNION", "RETURNING", "WHEN"}
)


def _with_scans(session: Session, cursor: Cursor, params: Any) -> str:
    """Replace the tables of lakes by scans, in a statement for which DuckDB gives no tree."""
    if not session.attachments.lakes:
        return cursor.text
    words = Cursor(cursor.text, cursor.words)
    parts: list[str] = []
    done = 0
    inside = [False]
    expected = False
    while not words.done:
        word = words.take()
        if word.text == "(" and word.kind == "symbol":
            view = _query_scan(session, words, params) if expected else None
            if view is not None:
                parts += [cursor.text[done : word.start], f"temp.main.{view}"]
                done = words.words[words.at - 1].end
                expected = False
                continue
            inside.append(inside[-1])
        elif word.text == ")" and word.kind == "symbol":
            inside = inside[:-1] or [False]
            expected = False
        elif word.upper in _FROM or word.upper in _NO_FROM:
            inside[-1] = expected = word.upper in _FROM
        elif word.text == "," and word.kind == "symbol":
            expected = inside[-1]
        elif not expected and word.kind in ("word", "name"):
            words.at -= 1
            names = words.names()
            macro = Binder(session, params).create_macro(names) if words.sees("(") else None
            if macro is not None:
                parts += [cursor.text[done : word.start], macro]
                done = words.words[words.at - 1].end
        elif expected and word.kind in ("word", "name"):
            words.at -= 1
            first = words.at
            names = words.names()
            expected = False
            scan = None if words.sees("(") else _scan_of(session, names)
            if scan is not None:
                after = words.peek()
                own = after is not None and after.kind in ("word", "name") and after.upper not in NO_ALIAS
                alias = "" if own else f" AS {quote(names[-1])}"
                parts += [cursor.text[done : words.words[first].start], f"temp.main.{scan}{alias}"]
                done = words.words[words.at - 1].end
    return "".join([*parts, cursor.text[done:]])


def _query_scan(session: Session, words: Cursor, params: Any) -> str | None:
    """Create a view over the query in the group that has begun, and skip the group. Return None for any other group."""
    group = Cursor(words.text, words.words)
    group.at = words.at - 1
    text = group.parens()
    inner = words.words[words.at : group.at]
    if inner[0].upper not in ("SELECT", "FROM", "WITH") or any(word.kind == "parameter" for word in inner):
        return None
    view = session.fresh_name()
    try:
        bound = Binder(session, params).bind(text)
        session.connection.execute(f"CREATE TEMP VIEW {view} AS {bound.sql}")
    except (Unserializable, duckdb.BinderException):  # a PIVOT, or a query that names columns of the query around it
        return None
    words.at = group.at
    return view


def _scan_of(session: Session, names: list[str]) -> str | None:
    """Create a view over a table or view of a lake. Return None for any other name."""
    if session.names.relation(names) is None:
        return None
    bound = Binder(session).bind(f"SELECT * FROM {'.'.join(quote(name) for name in names)}")
    view = session.fresh_name()
    session.connection.execute(f"CREATE TEMP VIEW {view} AS {bound.sql}")
    return view


def native_ddl(session: Session, cursor: Cursor, params: Any) -> Result:
    """Create, alter or drop an object of DuckDB itself. Raise ``SqlError`` for one that a lake cannot have."""
    words = [word.upper for word in cursor.words[:4]]
    if "TEMP" in words or "TEMPORARY" in words:
        return session.native(cursor.text, params)
    ahead = Cursor(cursor.text, cursor.words)
    action = ahead.take().upper
    ahead.accept("OR", "REPLACE")
    ahead.accept("UNIQUE")
    kind = ahead.take().upper if action in ("CREATE", "ALTER", "DROP") and not ahead.done else ""
    if kind in ("SEQUENCE", "TYPE", "INDEX", "TRIGGER"):  # DuckDB would create it beside the lake
        ahead.accept("IF", "NOT", "EXISTS")
        ahead.accept("IF", "EXISTS")
        if kind == "INDEX" and action == "CREATE":
            ahead.until("ON")
            ahead.accept("ON")
        if session.names.target(ahead.names()) is not None:
            raise SqlError(f"Not implemented Error: a lake has no {kind.lower()}")
    session.work.claim_others()
    return session.native(cursor.text, params)


def not_for_lakes(session: Session, cursor: Cursor, params: Any) -> Result:
    """Raise ``SqlError`` for EXPORT or IMPORT DATABASE of a lake, which handle only DuckDB's own tables."""
    if session.names.default is not None:
        raise SqlError(
            f"Not implemented Error: {cursor.words[0].upper} DATABASE is not for lakes",
            hint="COPY FROM DATABASE copies a whole lake, COPY … TO a table",
        )
    return session.native(cursor.text, params)


def native_rows(session: Session, cursor: Cursor, params: Any) -> Result:
    """Change rows of DuckDB's own tables, or of a lake's metadata tables."""
    from quacklake.core.sql import metadata

    session.guard.native()
    changed = metadata.change(session, Cursor(cursor.text, cursor.words), params)
    if changed is not None:
        return changed
    session.work.claim_others()
    return native(session, cursor, params)


def native_create_as(session: Session, cursor: Cursor, params: Any, temporary: str | None) -> Result:
    """Run CREATE TABLE in DuckDB. Its query may read lakes."""
    if cursor.sees("("):
        cursor.skip_group()
    if temporary is None:
        session.work.claim_others()
    else:
        session.names.temporary.add(temporary.lower())
    if not cursor.sees("AS"):
        return session.native(cursor.text, params)
    cursor.take()
    head = cursor.slice(0, cursor.at)
    bound = Binder(session, params).bind(cursor.rest())
    return session.native(f"{head} {bound.sql}", bound.values)


def call(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run CALL function(…), and return the rows of the function."""
    cursor.expect("CALL")
    return session.query(f"SELECT * FROM {cursor.rest()}", params)


def checkpoint(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run CHECKPOINT [database]. For a lake, this runs all of its maintenance."""
    from quacklake.core.sql.lake_calls import LakeCall
    from quacklake.core.sql.lake_functions import checkpoint as maintain

    cursor.expect("CHECKPOINT")
    attached = session.names.default if cursor.done else session.attachments.get(cursor.name())
    if attached is None:
        return session.native(cursor.text, params)
    cursor.end()
    maintain(LakeCall(session, Binder(session), attached, {}))
    return Result()


def describe(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run DESCRIBE of a table or a query, or DESCRIBE HISTORY, which lists the snapshots that changed a table."""
    from quacklake.core.sql import listing

    cursor.take()
    following = cursor.peek(1)
    if cursor.sees("HISTORY") and following is not None and following.kind in ("word", "name"):
        from quacklake.core.operations.options import table_history

        cursor.take()
        target = session.names.target(cursor.names())
        cursor.end()
        if target is None:
            raise SqlError("DESCRIBE HISTORY needs a table of a lake")
        _check_restricted(target.attached, "the history of a table")
        table = session.view(target.attached).find_table(target.schema, target.name)
        return Result(table_history(target.attached.context, table))
    cursor.accept("TABLE")
    first = cursor.peek()
    if first is None:
        return show(session, Cursor("SHOW TABLES"), params)
    if first.kind in ("word", "name") and first.upper not in ("SELECT", "FROM", "VALUES", "WITH"):
        names = cursor.names()
        for place in session.names.places(names) if cursor.done else ():
            found = session.view(place.attached).get_table(place.schema, place.name)
            if found is not None:
                return listing.described(found, defaults=not place.attached.handle.restricted)
    return query(session, Cursor(cursor.text), params)


def show(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run SHOW TABLES, DATABASES, SCHEMAS … or SHOW table, which lists the columns."""
    from quacklake.core.sql import listing

    following = cursor.peek(1)
    word = "" if following is None else following.upper
    if word in ("TABLES", "ALL", "DATABASES", "SCHEMAS", ""):
        return listing.shown(session, cursor.text)
    if word == "CREATE":
        return _show_create(session, cursor, params)
    return describe(session, cursor, params)


def _check_restricted(attached: Attached, what: str) -> None:
    """Raise ``NotPermittedError`` for a principal: texts may name what is hidden from it."""
    if attached.handle.restricted:
        raise NotPermittedError(f"only administrators see {what}")


def _show_create(session: Session, cursor: Cursor, params: Any) -> Result:
    from quacklake.core.sql.listing import table_definition, view_definition

    cursor.expect("SHOW", "CREATE")
    if not cursor.accept("VIEW"):
        cursor.expect("TABLE")
    names = cursor.names()
    cursor.end()
    named = session.names.relation(names)
    if named is not None:
        from quacklake.core.format.objects import ViewInfo

        place, tx, info = named
        _check_restricted(place.attached, "the definition of a table or view")
        sql = f"{view_definition(info)};" if isinstance(info, ViewInfo) else table_definition(tx, info)
        return Result(pa.table({"name": [info.name], "sql": [sql]}))
    target = ".".join(quote(name) for name in names)
    session.query(f"SELECT * FROM {target} LIMIT 0", params)  # raises when DuckDB has no such table either
    found = "SELECT table_name AS name, sql FROM duckdb_tables() UNION ALL SELECT view_name, sql FROM duckdb_views()"
    return session.native(f"SELECT * FROM ({found}) WHERE lower(name) = lower({literal(names[-1])})")


def explain(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run EXPLAIN [ANALYZE] of a query."""
    cursor.expect("EXPLAIN")
    first = cursor.at
    cursor.accept("ANALYZE")
    if cursor.sees("("):
        cursor.skip_group()
    head = f"EXPLAIN {cursor.slice(first, cursor.at)}"
    bound = Binder(session, params).bind(_reading_part(Cursor(cursor.rest())), looking=True)
    rows = arrow_table(session.connection, f"{head} {bound.sql}", bound.values)
    if rows.num_columns == 2 and session.guard.safe:
        shown = [session.guard.plan(session, str(text)) for text in rows.column(1).to_pylist()]
        rows = pa.table([rows.column(0), pa.array(shown)], names=rows.column_names)
    facts = [_facts(scan) for scan in bound.scans]
    if facts:
        read = sum(scan.plan.files.num_rows for scan in bound.scans if scan.plan is not None)
        facts.insert(0, f"Total Files Read: {read} of lakes")
    facts += [f"{_place(scan)}: its metadata answers, no file is read" for scan in bound.answered]
    if not facts or rows.num_columns != 2 or "(" in head:
        return Result(rows)
    keys, texts = (column.to_pylist() for column in rows.columns)
    texts[-1] = "\n".join([str(texts[-1]).rstrip("\n"), *facts, ""])
    return Result(pa.table([pa.array(keys), pa.array(texts)], names=rows.column_names))


def _reading_part(cursor: Cursor) -> str:
    """Return the query that a statement runs; for a change, the query that finds its rows."""
    if cursor.sees("CREATE"):
        cursor.until("AS")
        cursor.accept("AS")
    elif cursor.accept("INSERT", "INTO"):
        cursor.until("SELECT", "FROM", "VALUES", "WITH", "TABLE")
    elif cursor.sees("UPDATE") or cursor.sees("DELETE", "FROM"):
        cursor.take()
        cursor.accept("FROM")
        named = cursor.until("SET", "USING", "WHERE", "RETURNING")
        cursor.until("FROM", "USING", "WHERE", "RETURNING")
        more = cursor.accept("FROM") or cursor.accept("USING")
        others = f", {cursor.until('WHERE', 'RETURNING')}" if more else ""
        return f"SELECT * FROM {named}{others} {cursor.until('RETURNING')}"
    elif cursor.accept("MERGE", "INTO"):
        named = cursor.until("USING")
        cursor.expect("USING")
        source = cursor.until("ON", "USING")
        return f"SELECT * FROM {named} FULL JOIN {source} {cursor.until('WHEN')}"
    return cursor.rest()


def _place(scan: Scan) -> str:
    return f"{scan.attached.alias}.{scan.table.qualified_name} at snapshot {scan.tx.base.id}"


def _facts(scan: Any) -> str:
    plan = scan.plan
    total = scan.tx.plan(scan.table).files.num_rows
    read = plan.files.num_rows
    inlined = 0 if plan.inlined is None else plan.inlined.num_rows
    return (
        f"{_place(scan)}: {total} files,"
        f" {total - read} pruned, {read} read, {plan.deletes.num_rows} deletes and {inlined} rows in the catalog"
    )
