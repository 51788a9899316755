"""The tables of a source as data, in units that come back the same after an interruption."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

import pyarrow as pa

from quacklake import LakeTransaction
from quacklake.extend.names import TableRef
from quacklake.extend.schemas import TableSchema
from quacklake.lake.transfers import LeftOut

BATCH_ROWS = 65_536
"""Rows in memory at a time."""


class Unit(NamedTuple):
    """Rows that are copied together, such as those of a file."""

    name: str
    read: Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class SourceTable:
    """A table of a source.

    ``version`` is the same as long as the units have the same rows. ``add`` registers the files of units in a table
    without copying them, and returns the number of their rows; None where rows are copied. ``given`` are the columns of
    batches where they are others than those that the lake gives.
    """

    schema: str
    name: str
    columns: TableSchema
    units: Sequence[Unit]
    version: str = ""
    rows: int | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    column_comments: Mapping[str, str] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    add: Callable[[LakeTransaction, str, Sequence[Unit]], int] | None = None
    given: pa.Schema | None = None

    @property
    def arrow(self) -> pa.Schema:
        """The columns of all batches. Which of them are required is up to the lake."""
        fields = self.given or [column.arrow_field() for column in self.columns.columns]
        return pa.schema([field.with_nullable(True) for field in fields])

    @property
    def qualified_name(self) -> str:
        """The name as reports show it."""
        return f"{self.schema}.{self.name}"

    @property
    def sql_name(self) -> str:
        """The name as the methods of a lake take it, whatever characters it has."""
        return sql_name(self.schema, self.name)

    @property
    def digest(self) -> str:
        """A text that rows of another time do not have."""
        known = hashlib.sha256(self.version.encode())
        for unit in self.units:
            known.update(f"\0{unit.name}".encode())
        return known.hexdigest()[:32]


@dataclass(frozen=True)
class SourceView:
    """A view of a source, as a query in DuckDB's dialect."""

    schema: str
    name: str
    query: str
    columns: tuple[str, ...] = ()
    comment: str | None = None

    @property
    def qualified_name(self) -> str:
        """The name as reports show it."""
        return f"{self.schema}.{self.name}"


class ImportSource(Protocol):
    """Something that an import reads."""

    @property
    def origin(self) -> str:
        """The place, without secrets, which tells one source from another."""

    def tables(self, wanted: Selection) -> list[SourceTable]:
        """Return the tables that are wanted. Raise ``InputError`` for columns that a lake cannot hold."""

    def views(self, wanted: Selection) -> list[SourceView]:
        """Return the views that are wanted."""

    def left_out(self) -> list[LeftOut]:
        """Return what the source has besides tables and views, and what nobody takes over."""

    def close(self) -> None:
        """Let go of everything."""


@dataclass(frozen=True)
class Selection:
    """Names by patterns: those that match one of ``include``, or all, without those that match one of ``exclude``.

    A pattern with a dot is for ``schema.table``, one without for the table alone. Names are compared with their case.

    >>> chosen = Selection(("shop.*", "orders_??"), ("*.tmp_*",))
    >>> [chosen.has("shop", "a"), chosen.has("shop", "tmp_a"), chosen.has("main", "orders_24"), chosen.has("main", "b")]
    [True, False, True, False]
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def has(self, schema: str, name: str) -> bool:
        """Return whether a table is wanted."""

        def matches(pattern: str) -> bool:
            return fnmatchcase(f"{schema}.{name}" if "." in pattern else name, pattern)

        wanted = not self.include or any(map(matches, self.include))
        return wanted and not any(map(matches, self.exclude))


def sql_name(schema: str, name: str) -> str:
    """Return the name of a table as the methods of a lake take it.

    >>> sql_name("a.b", 'c"d')
    '"a.b"."c""d"'
    """
    return TableRef(schema, name).sql
