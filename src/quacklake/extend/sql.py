"""SQL over lakes: statements and queries taken apart, and checked before they run."""

from __future__ import annotations

from quacklake.core.engines.duckdb.expressions import parser, plain_expression
from quacklake.core.engines.duckdb.stored_texts import parse_query
from quacklake.core.sql.words import Cursor
from quacklake.extend.duckdbs import connect

__all__ = ["Cursor", "check_query", "find_tables", "plain_expression"]


def check_query(query: str) -> None:
    """Raise ``NotPermittedError`` for a query that could read anything but tables and views, such as files.

    Raise ``SqlError`` for a text that is not one query. Names are not looked up.

    >>> check_query("SELECT count(*) FROM events WHERE id > 3")
    >>> check_query("SELECT * FROM read_csv('/etc/passwd')")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    NotPermittedError: a safe session does not call read_csv
    """
    from quacklake.core.sql import tree
    from quacklake.core.sql.safety.checks import check

    with connect() as connection:
        check(tree.parse(connection, query), lambda *_: False)


def find_tables(query: str) -> list[tuple[str | None, str]]:
    """Return the tables and views that a query names, each with its schema where it has one, before any is looked up.

    Raise ``InputError`` for any other statement, and for a query over another database.

    >>> find_tables("SELECT * FROM shop.orders JOIN events USING (id)")
    [('shop', 'orders'), (None, 'events')]
    """
    with parser() as connection:
        return list(parse_query(connection, query).relations)
