"""A lake as one principal may use it.

What a principal reads and changes is decided below, where tables are planned and changes are committed. The classes
here leave out the methods that go around that, because they deal with files, keys, metadata or all rows: a method is
refused unless it is listed. They protect against the principals of a service, not against Python code in its process.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from quacklake.core.access import PrincipalHandle
from quacklake.core.format.objects import TableInfo
from quacklake.core.operations.context import boundary
from quacklake.core.operations.handles import TransactionHandle
from quacklake.core.operations.options import checked_limit
from quacklake.core.operations.reference import TableRef
from quacklake.core.transaction import Transaction
from quacklake.errors import NotPermittedError
from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
from quacklake.lake.table import Table
from quacklake.lake.writing import LakeReader

C = TypeVar("C", bound=type)

#: What lakes, past snapshots and transactions let a principal do.
READING = frozenset({"scan", "schemas", "sql", "table", "tables", "views"})
OF_LAKES = READING | {
    "at",
    "catalog",
    "close",
    "create_table",
    "current_snapshot",
    "run",
    "snapshots",
    "transaction",
    "version",
}
OF_SNAPSHOTS = READING | {"snapshot_id"}
OF_TRANSACTIONS = READING | {"create_table"}
OF_TABLES = frozenset(
    """
    append changes columns count delete deletions head insertions merge merge_builder name
    overwrite partitioned_by rows scan scan_polars schema show sorted_by to_arrow to_arrow_dataset to_batches to_duckdb
    to_pandas to_polars to_pylist update
    """.split()  # noqa: SIM905
)


def _refused(name: str) -> property:
    def refuse(_: object) -> Any:
        raise NotPermittedError(f"only administrators may use {name!r}", hint="ask an administrator for the role admin")

    return property(refuse)


def _only(names: frozenset[str]) -> Any:
    """Refuse every public method and property of a class but some, and those that later versions add to its bases."""

    def changed(cls: C) -> C:
        for name in dir(cls):
            if not name.startswith("_") and name not in names:
                setattr(cls, name, _refused(name))
        return cls

    return changed


@_only(OF_TABLES)
@boundary
class PrincipalTable(Table):
    """A table as a principal may use it."""

    @property
    def _own(self) -> TableInfo:
        return self._find(self.handle.view())

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return self._own.schema.to_arrow()

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._own.schema.names)

    @property
    def partitioned_by(self) -> list[str]:
        """The partition keys of new files; none where columns are hidden."""
        return Table(self.handle, self._ref).partitioned_by

    @property
    def sorted_by(self) -> list[str]:
        """The sort keys of new files; none where columns are hidden."""
        return Table(self.handle, self._ref).sorted_by

    def append(self, data: Any, *, evolve: bool = False, dedup: bool = False, index: bool = True) -> int:
        """Add rows and return how many; see ``Table.append``. Rows do not come from files here."""
        return super().append(_rows(data), evolve=evolve, dedup=dedup, index=index)

    def overwrite(self, data: Any, where: Any = None, *, evolve: bool = False, index: bool = True) -> int:
        """Replace the visible rows that match a filter; see ``Table.overwrite``."""
        return super().overwrite(_rows(data), where, evolve=evolve, index=index)

    def merge(self, data: Any, on: Any = None, *, evolve: bool = False, index: bool = True) -> Any:
        """Update visible rows and insert others; see ``Table.merge``."""
        return super().merge(_rows(data), on, evolve=evolve, index=index)

    def merge_builder(self, data: Any, on: Any = None, *, index: bool = True) -> Any:
        """Return a builder of a merge; see ``Table.merge_builder``."""
        return super().merge_builder(_rows(data), on, index=index)


def _rows(data: Any) -> Any:
    """Return rows. Raises ``NotPermittedError`` for names of files, which are not the principal's to read."""
    listed = data if isinstance(data, list | tuple) else [data]
    kind = type(data).__module__.partition(".")[0]
    if any(isinstance(item, str | bytes | Path) for item in listed) or kind in ("pyspark", "duckdb"):
        raise NotPermittedError("only administrators add rows from files, Spark or other databases")
    return data


class _Reads(LakeReader):
    def table(self, name: str) -> Table:
        """Return a table by name; see ``Lake.table``."""
        return PrincipalTable(self.handle, TableRef.parse(name, nested=self._context.catalog.is_next))


@_only(OF_SNAPSHOTS)
@boundary
class PrincipalLakeAt(_Reads, LakeAt):
    """A lake at one snapshot, as a principal may use it."""

    def __repr__(self) -> str:
        return f"<Lake at snapshot {self.handle.tx.base.id}>"


@_only(OF_TRANSACTIONS)
@boundary
class PrincipalTransaction(_Reads, LakeTransaction):
    """An open transaction of a principal."""

    def __init__(self, handle: TransactionHandle) -> None:
        LakeReader.__init__(self, handle)

    def __repr__(self) -> str:
        return "<Transaction>"


@_only(OF_LAKES)
@boundary
class PrincipalLake(_Reads, Lake):
    """A lake as a principal may use it; closing it leaves the lake open. What it may do is read for each statement."""

    handle: PrincipalHandle

    def __init__(self, handle: PrincipalHandle) -> None:
        LakeReader.__init__(self, handle)

    def close(self) -> None:
        """Close the sessions of the principal."""
        self._sessions.close()

    def __repr__(self) -> str:
        return f"<Lake as {self.handle.principal}>"

    def snapshots(self, limit: int | None = None, *, before: int | None = None) -> pa.Table:
        """Return the snapshots with their times, as ``Lake.snapshots`` does: what each changed may be hidden."""
        with self._context.catalog.read() as reader:
            found = reader.snapshots.last(checked_limit(limit), before)
        return pa.table(
            {
                "snapshot_id": pa.array([info.id for info in found], pa.int64()),
                "snapshot_time": pa.array([info.time for info in found], pa.timestamp("us", tz="UTC")),
            }
        )

    def at(
        self, version: int | str | None = None, timestamp: dt.datetime | str | None = None, tag: str | None = None
    ) -> LakeAt:
        """Return the lake, read-only, at a snapshot; see ``Lake.at``. Today's rules hold for all snapshots."""
        return PrincipalLakeAt(self.handle.at(version, timestamp, tag))

    def _open(self, tx: Transaction) -> LakeTransaction:
        return PrincipalTransaction.of(self._context, tx)
