"""A table, as users hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from quacklake.format.objects import TableInfo
from quacklake.lake import operations
from quacklake.lake.add_files import AddOptions, add_files, to_patterns
from quacklake.lake.dataframe import DataFrame
from quacklake.lake.frames import to_source
from quacklake.lake.operations import MergeResult
from quacklake.lake.reference import TableRef
from quacklake.lake.settings import Shared
from quacklake.scan import Filter, ScanPlan
from quacklake.scan.plan import SECRET
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    import pandas
    import polars

__all__ = ["Table"]

T = TypeVar("T")
Run = Callable[..., Any]


class Table:
    """One table of a lake, of a past snapshot, or of an open transaction.

    Reading methods take ``columns`` and ``where``; writing methods make one snapshot each, or belong to the transaction
    the table was taken from. Nothing is read before it is asked for, so a table may be held for long.
    """

    def __init__(self, shared: Shared, ref: TableRef, view: Callable[[], Transaction], run: Run) -> None:
        self._shared = shared
        self._ref = ref
        self._view = view
        self._run = run

    def _find(self, view: Transaction) -> TableInfo:
        return view.find_table(self._ref.schema, self._ref.name)

    # -- facts -------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """``schema.table``."""
        return f"{self._ref.schema}.{self._ref.name}"

    @property
    def info(self) -> TableInfo:
        """The table as the catalog knows it: ids, path, columns with their field ids."""
        return self._find(self._view())

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return self.info.schema.to_arrow()

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.info.schema.names)

    def count(self, where: Filter | None = None) -> int:
        """The number of rows that satisfy a filter, or of all."""
        return self.scan(where=where).count()

    def __len__(self) -> int:
        return self.count()

    # -- reading -----------------------------------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        *,
        limit: int | None = None,
        row_ids: bool = False,
    ) -> DataFrame:
        """A lazy frame of chosen columns and rows; with ``row_ids`` a column ``rowid`` comes last."""
        chosen = None if columns is None else tuple(columns)
        return DataFrame(self._shared, self._view, self._find, chosen, where, limit, row_ids)

    def plan(self, where: Filter | None = None) -> ScanPlan:
        """The scan plan of a read."""
        return self.scan(where=where).plan()

    def to_arrow(self, columns: Sequence[str] | None = None, where: Filter | None = None) -> pa.Table:
        """The rows as an Arrow table."""
        return self.scan(columns, where).to_arrow()

    def to_pandas(self, columns: Sequence[str] | None = None, where: Filter | None = None) -> pandas.DataFrame:
        """The rows as a pandas frame."""
        return self.scan(columns, where).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None, where: Filter | None = None) -> polars.DataFrame:
        """The rows as a polars frame."""
        return self.scan(columns, where).to_polars()

    def to_batches(
        self, columns: Sequence[str] | None = None, where: Filter | None = None, *, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches, in bounded memory."""
        return self.scan(columns, where).to_batches(batch_rows)

    def to_pylist(self, columns: Sequence[str] | None = None, where: Filter | None = None) -> list[dict[str, Any]]:
        """The rows as dictionaries; for small results."""
        return self.scan(columns, where).to_pylist()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, data: Any) -> int:
        """Add rows; returns how many.

        Takes pandas, polars, Arrow tables, batches, readers and streams, a DuckDB relation or a list of dictionaries.
        Raises ``SchemaMismatchError`` or ``ConstraintError`` when the rows do not fit; then nothing is changed.
        """
        source = to_source(data)
        return self._write(
            lambda tx, table: operations.append(self._shared, tx, table, source) or 0, blind=True, source=source
        )

    def add_files(
        self,
        paths: str | Path | Iterable[str | Path],
        *,
        allow_missing: bool = False,
        ignore_extra_columns: bool = False,
        hive_partitioning: bool | None = None,
    ) -> int:
        """Make existing Parquet files part of the table where they are, without copying; returns their rows.

        ``paths`` is a path, a pattern such as ``"in/*.parquet"``, or a list of them. Columns are found by name. One
        that only the table has needs ``allow_missing``, one that only a file has ``ignore_extra_columns``; a column may
        also be in the names of the folders (``year=2024/``) unless ``hive_partitioning`` is false. Files outside the
        data path must be in one of the ``foreign_paths`` of the lake's settings; they are never changed or deleted.
        """
        patterns = to_patterns(paths)
        options = AddOptions(allow_missing, ignore_extra_columns, hive_partitioning)
        return self._write(lambda tx, table: add_files(self._shared, tx, table, patterns, options))

    def overwrite(self, data: Any, where: str | None = None) -> int:
        """Replace the rows that satisfy a filter (all without one), in one snapshot; returns how many are new."""
        source = to_source(data)
        return self._write(
            lambda tx, table: operations.overwrite(self._shared, tx, table, source, where) or 0, source=source
        )

    def delete(self, where: str | None = None) -> int | None:
        """Delete the rows that satisfy a filter (all without one); returns how many where that is known."""
        return self._write(lambda tx, table: operations.delete(self._shared, tx, table, where))

    def update(self, values: Mapping[str, Any], where: str | None = None) -> int:
        """Set columns of the rows that satisfy a filter; returns how many.

        Python values are literals; ``quacklake.expr("n + 1")`` is SQL over the row.
        """
        return self._write(lambda tx, table: operations.update(self._shared, tx, table, values, where))

    def merge(self, data: Any, on: str | Sequence[str]) -> MergeResult:
        """Update the rows whose keys ``data`` has and insert the others; row ids of updated rows stay.

        Two rows with one key in ``data`` are a ``ConstraintError`` that names it.
        """
        source = to_source(data)
        keys = [on] if isinstance(on, str) else list(on)
        return self._write(lambda tx, table: operations.merge(self._shared, tx, table, source, keys), source=source)

    def _write(self, work: Callable[[Transaction, TableInfo], T], *, blind: bool = False, source: Any = None) -> T:
        replayable = source is None or source.replayable
        result: T = self._run(lambda tx: work(tx, self._find(tx)), blind=blind, replayable=replayable)
        return result

    # -- history -----------------------------------------------------------------------------------------------------

    def files(self) -> pa.Table:
        """The data files of the newest snapshot with their delete files."""
        return self.plan().files.drop_columns(list(SECRET))

    def history(self) -> pa.Table:
        """The snapshots that changed this table, newest first."""
        from quacklake.lake.history import table_history

        return table_history(self._shared, self.info)

    # -- showing -----------------------------------------------------------------------------------------------------

    def show(self, rows: int = 10) -> None:
        """Print the first rows as a table."""
        self.scan().show(rows)

    def __repr__(self) -> str:
        return f"{self.name}\n{self.scan()!r}"

    def _repr_html_(self) -> str:
        return self.scan()._repr_html_()
