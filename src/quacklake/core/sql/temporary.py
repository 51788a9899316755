"""The temporary objects that statements of a session leave on its connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quacklake.core.format.names import quote
from quacklake.core.sql.attached import PREFIX

if TYPE_CHECKING:
    import duckdb

_RELATIONS = """
    SELECT 'VIEW', view_name FROM duckdb_views() WHERE temporary AND starts_with(view_name, $1)
    UNION ALL SELECT 'TABLE', table_name FROM duckdb_tables() WHERE temporary AND starts_with(table_name, $1)
"""
#: Macros have a separate query, because listing functions is slow.
_MACROS = """
    SELECT DISTINCT CASE function_type WHEN 'table_macro' THEN 'MACRO TABLE' ELSE 'MACRO' END, function_name
    FROM duckdb_functions() WHERE database_name = 'temp' AND starts_with(function_name, $1)
"""


def drop_temporary(connection: duckdb.DuckDBPyConnection, *, macros: bool) -> None:
    """Drop what Quacklake has made on a connection, and ``macros`` if it has made any."""
    for question in (_RELATIONS, _MACROS) if macros else (_RELATIONS,):
        for kind, name in connection.execute(question, [PREFIX]).fetchall():
            connection.execute(f"DROP {kind} IF EXISTS temp.main.{quote(name)}")
