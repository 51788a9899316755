"""The limits of a row that lives inside the catalog.

Every database has a limit of columns, and some have one of bytes. What a row takes at most follows from its columns
alone, so that a table either inlines its rows or never does, whatever their values are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quacklake.format.inline import sql_type
from quacklake.format.packed import LIFE
from quacklake.format.schema import Column


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of one row of a table, in a database as it is usually built.

    ``sizes`` are the most bytes that a value takes inside the row, and what its place is a multiple of; a type that is
    not named is as long as ``others``. Longer values lie outside the row.
    """

    columns: int
    row_bytes: int | None = None
    head: int = 0
    others: int = 0
    sizes: Mapping[str, tuple[int, int]] | None = None


_LIMITS: Mapping[str, _Limits] = {
    "sqlite": _Limits(columns=2000),
    # a page of 8 kB holds a whole row; a value goes elsewhere when it takes more than a pointer, rounded up to 24 bytes
    "postgres": _Limits(
        columns=1600,
        row_bytes=8160,
        head=23,
        others=24,
        sizes={
            "BOOLEAN": (1, 1),
            "SMALLINT": (2, 2),
            "INTEGER": (4, 4),
            "BIGINT": (8, 8),
            "REAL": (4, 4),
            "DOUBLE PRECISION": (8, 8),
            "UUID": (16, 1),
            "TIME": (8, 8),
            "TIME WITH TIME ZONE": (12, 8),
            "INTERVAL": (16, 8),
        },
    ),
    # InnoDB, half a page of 16 kB; a text goes elsewhere from 41 bytes on, its length takes one more
    "mysql": _Limits(columns=1017, row_bytes=8125, head=24, others=41, sizes={"BIGINT": (8, 1)}),
}


def fits(columns: Sequence[Column], database: str) -> bool:
    """Return True when a row with these columns, and those before them, has room in a table of the database."""
    limits = _LIMITS.get(database)
    if limits is None:
        return True
    count = len(LIFE) + len(columns)
    if count > limits.columns:
        return False
    if limits.row_bytes is None:
        return True
    sizes = limits.sizes or {}
    types = ["BIGINT"] * len(LIFE) + [sql_type(column, database) for column in columns]
    end = limits.head + -(-count // 8)  # a bit for each column says whether it is NULL
    for type_ in types:
        size, multiple = sizes.get(type_, (limits.others, 1))
        end = -(-end // multiple) * multiple + size
    return end <= limits.row_bytes
