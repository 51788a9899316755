"""The statements that a safe session allows, each in the one form that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from quacklake.errors import NotPermittedError
from quacklake.format.names import fold, quote
from quacklake.sql import dispatch, tree
from quacklake.sql.statements import inserting, merging, queries, rows
from quacklake.sql.words import Cursor

if TYPE_CHECKING:
    from quacklake.sql.session_connection import SessionConnection

_CHANGES = (inserting.insert, merging.merge, rows.delete, rows.truncate, rows.update)
_TRANSACTIONS = {
    "ABORT": "ROLLBACK",
    "BEGIN": "BEGIN",
    "COMMIT": "COMMIT",
    "END": "COMMIT",
    "ROLLBACK": "ROLLBACK",
    "START": "BEGIN",
}
_FORMATS = frozenset({"TEXT", "JSON", "HTML", "GRAPHVIZ", "YAML", "MERMAID"})


def admit(session: SessionConnection, cursor: Cursor, *, read_only: bool) -> Cursor:
    """Return the statement in the form that may run. Raises ``NotPermittedError`` for any other statement."""
    first = cursor.peek()
    word = "" if first is None else first.upper
    if word in _TRANSACTIONS:
        return Cursor(_TRANSACTIONS[word])
    if word in _FORMS:
        return _FORMS[word](session, cursor)
    handler = dispatch.handler(cursor)
    if handler in _CHANGES and not read_only:
        _check_returning(session, cursor)
        return cursor
    if handler is queries.query:
        return cursor
    raise NotPermittedError(
        f"a safe session does not run {word or 'such a statement'}",
        hint="it only reads" if read_only else "it reads and changes the rows of tables",
    )


def _as_it_is(_: SessionConnection, cursor: Cursor) -> Cursor:
    return cursor


def _check_returning(session: SessionConnection, cursor: Cursor) -> None:
    """Check RETURNING now. It may be computed after the commit, which is too late to refuse it."""
    ahead = Cursor(cursor.text, cursor.words)
    ahead.until("RETURNING")
    if ahead.accept("RETURNING"):
        parsed = tree.parse(session.connection, f"SELECT {ahead.rest()}")
        for expression in parsed["node"]["select_list"]:
            session.guard.value(expression)


def _prepare(session: SessionConnection, cursor: Cursor) -> Cursor:
    """Admit the statement now, so that errors show early. It is admitted again when it is executed."""
    ahead = Cursor(cursor.text, cursor.words)
    ahead.expect("PREPARE")
    ahead.name()
    ahead.expect("AS")
    session.guard.admit(session, Cursor(ahead.rest()))
    return cursor


def _explain(_: SessionConnection, cursor: Cursor) -> Cursor:
    ahead = Cursor(cursor.text, cursor.words)
    ahead.expect("EXPLAIN")
    analyze = ahead.accept("ANALYZE")
    head = "EXPLAIN"
    if ahead.accept("(", "FORMAT"):
        word = ahead.take()
        if fold(word.value).upper() not in _FORMATS or not ahead.accept(")"):
            raise NotPermittedError("a safe session explains with (FORMAT …) only")
        head += f" (FORMAT {word.value})"
    if analyze:
        head = "EXPLAIN (ANALYZE, FORMAT JSON)"  # a JSON plan can be shown without file names
    query = Cursor(ahead.rest())
    if query.sees("(") or dispatch.handler(query) is not queries.query:  # parentheses may hold other options
        raise NotPermittedError("a safe session explains queries only")
    return Cursor(f"{head} {query.text}")


def _pivot(_: SessionConnection, cursor: Cursor) -> Cursor:
    """Turn PIVOT into a query. This needs the values in the text; otherwise DuckDB would create types first."""
    return Cursor(f"FROM ({cursor.text})")


def _show(session: SessionConnection, cursor: Cursor) -> Cursor:
    ahead = Cursor(cursor.text, cursor.words)
    word = ahead.take().upper
    if ahead.accept("ALL", "TABLES"):
        ahead.end()
        return Cursor("SHOW ALL TABLES")
    if word == "SHOW" and ahead.accept("TABLES"):
        names = ahead.names() if ahead.accept("FROM") else []
        ahead.end()
        if session.attachments.get(names[0]) is None if names else session.names.default is None:
            raise NotPermittedError("a safe session shows the tables of lakes only", hint="SHOW TABLES FROM lake")
        source = f" FROM {'.'.join(quote(name) for name in names)}" if names else ""
        return Cursor(f"SHOW TABLES{source}")
    if word == "SHOW" and ahead.accept("CREATE", "TABLE"):
        names = ahead.names()
        ahead.end()
        return Cursor(f"SHOW CREATE TABLE {'.'.join(quote(name) for name in names)}")
    ahead.accept("TABLE")
    following = ahead.peek()
    if following is not None and following.kind == "word" and dispatch.handler(_rest(ahead)) is queries.query:
        return Cursor(f"DESCRIBE {ahead.rest()}")
    names = ahead.names()
    ahead.end()
    return Cursor(f"DESCRIBE {'.'.join(quote(name) for name in names)}")


def _rest(cursor: Cursor) -> Cursor:
    """Return the rest of a statement as a statement of its own."""
    return Cursor(cursor.text, cursor.words[cursor.at :])


def _use(session: SessionConnection, cursor: Cursor) -> Cursor:
    ahead = Cursor(cursor.text, cursor.words)
    ahead.expect("USE")
    names = ahead.names()
    ahead.end()
    used = session.names.default
    of_lake = session.attachments.get(names[0]) is not None and len(names) <= 2
    if not of_lake and not (len(names) == 1 and used is not None and session.names.has_schema(used, names[0])):
        raise NotPermittedError("a safe session uses lakes only", hint="USE lake or USE lake.schema")
    return Cursor(f"USE {'.'.join(quote(name) for name in names)}")


_FORMS: Mapping[str, Callable[[SessionConnection, Cursor], Cursor]] = {
    "CALL": _as_it_is,
    "DEALLOCATE": _as_it_is,
    "DESC": _show,
    "DESCRIBE": _show,
    "EXECUTE": _as_it_is,
    "EXPLAIN": _explain,
    "PIVOT": _pivot,
    "PREPARE": _prepare,
    "SHOW": _show,
    "UNPIVOT": _pivot,
    "USE": _use,
}
