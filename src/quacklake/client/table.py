"""A table of a lake that a service has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from quacklake import MergeResult, Result, RowType
from quacklake.client.transport import segment
from quacklake.errors import InputError
from quacklake.extend.names import TableRef, quote
from quacklake.extend.schemas import to_rows

if TYPE_CHECKING:
    import pandas
    import polars
    from _typeshed import DataclassInstance

    from quacklake.client.lake import RemoteReader

__all__ = ["RemoteTable"]

Row = TypeVar("Row", bound="DataclassInstance")


class RemoteTable:
    """A table, with the methods of ``quacklake.Table`` for reading and appending."""

    def __init__(self, lake: RemoteReader, name: str) -> None:
        self._lake = lake
        self._ref = TableRef.parse(name)
        self._path = f"/tables/{segment(f'{quote(self._ref.schema)}.{quote(self._ref.name)}')}"

    @property
    def name(self) -> str:
        """The name with its schema."""
        return f"{self._ref.schema}.{self._ref.name}"

    def __repr__(self) -> str:
        return f"<Table {self.name} of {self._lake!r}>"

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return self._read(None, None, limit=0).schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def describe(self) -> dict[str, Any]:
        """Return the columns, the layout and the size, as the service tells them."""
        return self._lake.transport.facts(self._path, self._lake.at_params)

    def count(self, where: str | None = None) -> int:
        """Return the number of rows, or of the rows that match a filter."""
        text = f"SELECT count(*) FROM {self._from}{_where(where)}"
        row = self._lake.sql(text).fetchone()
        assert row is not None
        return int(row[0])

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._read(columns, where).to_arrow()

    def to_batches(self, columns: Sequence[str] | None = None, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches, as they arrive."""
        return self._read(columns, where).to_batches()

    def to_pandas(self, columns: Sequence[str] | None = None, where: str | None = None) -> pandas.DataFrame:
        """Return the rows as a pandas frame."""
        return self._read(columns, where).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None, where: str | None = None) -> polars.DataFrame:
        """Return the rows as a polars frame."""
        return self._read(columns, where).to_polars()

    def to_pylist(self, columns: Sequence[str] | None = None, where: str | None = None) -> list[dict[str, Any]]:
        """Return the rows as dictionaries; for small results."""
        found: list[dict[str, Any]] = self.to_arrow(columns, where).to_pylist()
        return found

    def rows(self, row: type[Row], where: str | None = None) -> Iterator[Row]:
        """Yield the rows as instances of a dataclass, as they arrive; see ``quacklake.RowType``."""
        return self._read(RowType(row).match(self.columns), where).rows(row)

    def head(self, rows: int = 10) -> pa.Table:
        """Return the first rows as an Arrow table."""
        return self._read(None, None, limit=rows).to_arrow()

    def changes(self, since: int, until: int | None = None) -> Result:
        """Return the row changes of snapshots ``since`` to ``until`` (inclusive; default: the newest)."""
        params = {"since": since, "until": until}
        return self._lake.transport.rows("GET", f"{self._path}/changes", params)

    def history(self) -> list[dict[str, Any]]:
        """Return the snapshots that changed this table, newest first."""
        found: list[dict[str, Any]] = self._lake.transport.facts(f"{self._path}/history")["history"]
        return found

    def append(self, data: Any, *, index: bool = True) -> int:
        """Add rows and return how many; a lost answer leads to a retry that adds nothing twice.

        ``data`` is a pandas or polars frame, Arrow data, a list of dictionaries, or instances of a dataclass. ``index``
        is that of ``quacklake.Table.append``.
        """
        self._lake.check_writable()
        return int(self._lake.transport.write(f"{self._path}/rows", _table(data, index))["rows"])

    def merge(self, data: Any, on: str | Sequence[str] | None = None, *, index: bool = True) -> MergeResult:
        """Update the rows whose keys occur in ``data``, and insert its others; ``on`` defaults to the primary key."""
        self._lake.check_writable()
        keys = [on] if isinstance(on, str) else on
        found = self._lake.transport.write(f"{self._path}/merge", _table(data, index), {"on": keys})
        return MergeResult(inserted=found["inserted"], updated=found["updated"])

    @property
    def _from(self) -> str:
        return f"{quote(self._ref.schema)}.{quote(self._ref.name)}"

    def _read(self, columns: Sequence[str] | None, where: str | None, limit: int | None = None) -> Result:
        chosen = [columns] if isinstance(columns, str) else columns
        listed = "*" if chosen is None else ", ".join(quote(name) for name in chosen)
        most = "" if limit is None else f" LIMIT {limit:d}"
        return self._lake.sql(f"SELECT {listed} FROM {self._from}{_where(where)}{most}")


def _where(where: str | None) -> str:
    return "" if where is None else f" WHERE ({where})"


def _table(data: Any, index: bool) -> pa.Table:
    if isinstance(data, str | os.PathLike):
        raise InputError(f"{str(data)!r} is a path", hint="pass a frame, Arrow data or a list of dictionaries")
    return to_rows(data, index=index)
