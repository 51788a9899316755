"""Names in the databases: how one is found whatever the case of its letters, and by which index.

As in DuckDB, only the case of ASCII letters does not count. The function ``lower`` of most databases changes other
letters too, in a way that may depend on the server and its version, so that no index may hold what it returns.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

#: The indexes of names; name -> (table, columns before the name).
NAME_INDEXES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {"quacklake_schema_name": ("schema", ()), "quacklake_table_name": ("table", ("schema_id",))}
)
_MAX_LENGTH = 255
"""The characters of a name in an index of PostgreSQL, which refuses long texts, while clients may choose any names."""


def name_key(name: sa.ColumnElement[str], database: str) -> sa.ColumnElement[Any]:
    """Return what stands for a name in a comparison: the same for equal names, and rarely for others."""
    if database == "sqlite":
        return name.collate("NOCASE")
    if database == "postgres":
        return sa.func.left(sa.func.lower(name.collate("C")), sa.literal_column(str(_MAX_LENGTH)))
    if database == "duckdb":
        return sa.func.translate(name, string.ascii_uppercase, string.ascii_lowercase)
    return sa.func.lower(name)


def is_called(
    name: sa.ColumnElement[str], wanted: Sequence[sa.ColumnElement[str]], database: str
) -> sa.ColumnElement[bool]:
    """Return the condition that a name is one of those wanted. It may find a few others, which ``fold`` tells apart."""
    return name_key(name, database).in_([name_key(one, database) for one in wanted])


def name_indexes(tables: Mapping[str, sa.Table], database: str, first: Sequence[str] = ()) -> list[sa.Index]:
    """Return the indexes of names over ``tables``; the columns ``first`` come before all others.

    DuckDB needs none, and not everything that speaks MySQL can index what a function returns.
    """
    if database not in ("sqlite", "postgres"):
        return []
    return [
        sa.Index(
            name,
            *(tables[table].c[column] for column in (*first, *columns)),
            name_key(tables[table].c[f"{table}_name"], database),
            tables[table].c.begin_snapshot,  # or SQLite prefers the index of a schema's tables, which has it
        )
        for name, (table, columns) in NAME_INDEXES.items()
    ]
