"""A table, as users hold it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from quacklake.catalog.objects import Tags
from quacklake.errors import InputError, NotFoundError
from quacklake.format.keys import PRIMARY_KEY, key_columns
from quacklake.format.objects import TableInfo
from quacklake.format.partitions import key_texts
from quacklake.maintenance.table_maintenance import TableMaintenance
from quacklake.operations import dml, evolution, layout
from quacklake.operations.add_files import AddOptions, add_files, to_patterns
from quacklake.operations.boundary import boundary
from quacklake.operations.change_feed import Bound, ChangeScan
from quacklake.operations.dml import MergeResult
from quacklake.operations.evolution import ColumnType
from quacklake.operations.frames import to_source
from quacklake.operations.table_scan import TableScan
from quacklake.operations.undo import UndoReport
from quacklake.operations.undoing import Version, restore_table
from quacklake.operations.views import COMMENT, check_tags
from quacklake.scan import Filter, ScanPlan
from quacklake.scan.plan import SECRET
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

__all__ = ["Table"]

T = TypeVar("T")


@boundary
class Table(TableMaintenance):
    """One table of a lake, of a past snapshot, or of an open transaction.

    Reading methods take ``columns`` and ``where``; writing methods make one snapshot each, or belong to the transaction
    the table was taken from. Nothing is read before it is asked for, so a table may be held for long.
    """

    # -- facts -------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """``schema.table``."""
        return f"{self._ref.schema}.{self._ref.name}"

    @property
    def info(self) -> TableInfo:
        """The table as the catalog knows it: ids, path, columns with their field ids."""
        return self._find(self.handle.view())

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return self.info.schema.to_arrow()

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.info.schema.names)

    @property
    def partitioned_by(self) -> list[str]:
        """The keys by which new files are partitioned, such as ``month(ts)``."""
        info = self.info
        return key_texts(info.partition, info.schema)

    @property
    def sorted_by(self) -> list[str]:
        """The keys by which the rows of new files are sorted, such as ``ts DESC NULLS LAST``."""
        sort = self.info.sort
        return [] if sort is None else [str(key) for key in sort.keys]

    # -- comments and tags -------------------------------------------------------------------------------------------

    @property
    def comment(self) -> str | None:
        """What the table is said to be."""
        return self._tags().own.get(COMMENT)

    @property
    def column_comments(self) -> dict[str, str]:
        """Return the comments of columns by name; only those with a comment."""
        found = self._tags().columns
        return {c.name: found[c.id][COMMENT] for c in self.info.schema.columns if COMMENT in found.get(c.id, {})}

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the table, without the comment and without our own."""
        own = self._tags().own
        return {key: value for key, value in own.items() if key not in (COMMENT, PRIMARY_KEY)}

    def _tags(self) -> Tags:
        view = self.handle.view()
        return view.objects.tags(self._find(view))

    def set_comment(self, text: str | None) -> None:
        """Say what the table is; None takes it back."""
        self._set_tags({COMMENT: text})

    def set_column_comment(self, column: str, text: str | None) -> None:
        """Say what a column is; None takes it back."""
        tags = check_tags({COMMENT: text})

        def work(tx: Transaction, table: TableInfo) -> None:
            tx.objects.set_tags(table, tags, column_id=table.schema.find(column).id)

        self._write(work)

    def set_tags(self, tags: Mapping[str, str | None]) -> None:
        """Set tags; a value of None takes one away, others stay. Every client sees them."""
        if PRIMARY_KEY in tags:
            raise InputError(f'the tag "{PRIMARY_KEY}" is kept by quacklake itself')
        self._set_tags(tags)

    def _set_tags(self, tags: Mapping[str, str | None]) -> None:
        checked = check_tags(tags)
        self._write(lambda tx, table: tx.objects.set_tags(table, checked))

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that ``merge`` and ``append(dedup=True)`` go by; none when the table has no primary key."""
        view = self.handle.view()
        table = self._find(view)
        return key_columns(table.schema, view.objects.tags(table).own.get(PRIMARY_KEY))

    # -- size --------------------------------------------------------------------------------------------------------

    def count(self, where: Filter | None = None) -> int:
        """The number of rows that satisfy a filter, or of all."""
        return self.scan(where=where).count()

    # -- reading -----------------------------------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        *,
        limit: int | None = None,
        row_ids: bool = False,
    ) -> TableScan:
        """A lazy frame of chosen columns and rows; with ``row_ids`` a column ``rowid`` comes last."""
        chosen = None if columns is None else tuple(columns)
        return TableScan(self.handle, self._ref, chosen, where, limit, row_ids)

    def plan(self, where: Filter | None = None) -> ScanPlan:
        """The scan plan of a read."""
        return self.scan(where=where).plan()

    def manifest(self, where: Filter | None = None) -> bytes:
        """Return the scan plan of a read as an Arrow IPC file, with partition values and statistics of each file."""
        return self.scan(where=where).manifest()

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

    def head(self, rows: int = 10) -> pa.Table:
        """The first rows as an Arrow table."""
        return self.scan().head(rows)

    def to_duckdb(
        self,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        *,
        connection: duckdb.DuckDBPyConnection | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """The rows as a relation of DuckDB, in ``connection`` or DuckDB's default one.

        The relation follows the lake: each time it runs, it reads the newest snapshot (that of the past snapshot or
        transaction the table was taken from). ``where`` rules out files; filters of the relation itself do not. It
        keeps the columns it was made with, and fails when one of them is gone or has another type.
        """
        return self.scan(columns, where).to_duckdb(connection)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, data: Any, *, evolve: bool = False, dedup: bool = False) -> int:
        """Add rows; returns how many.

        Takes pandas and polars frames (lazy ones too), Arrow tables, batches, readers, streams and datasets, a DuckDB
        relation, a DataFrame of Spark, a list of dictionaries, and files (Parquet, CSV, JSON, Arrow): a path, a folder,
        a pattern such as ``"in/*.csv"`` or a list of them. Files, datasets, lazy frames and streams are never in memory
        whole; Spark's executors write the files of a DataFrame.
        With ``evolve`` the table gets the columns it lacks, and wider types where the rows need them, in the same
        snapshot. With ``dedup`` only rows whose primary key the table does not have yet are added, and of several with
        one key the first.
        Raises ``SchemaMismatchError`` or ``ConstraintError`` when the rows do not fit; then nothing is changed.
        """
        if _is_spark(data):
            if evolve or dedup:
                raise InputError("a DataFrame of Spark cannot be appended with evolve= or dedup=", hint="use merge")
            from quacklake.spark.frames import append_frame

            return append_frame(self.handle, self._ref, data)
        source = to_source(data, self._context.store)
        if dedup:
            return self._write(
                lambda tx, table: dml.append_new(self._context, tx, table, source, _key(tx, table), evolve=evolve),
                source=source,
            )
        return self._write(
            lambda tx, table: dml.append(self._context, tx, table, source, evolve=evolve) or 0,
            blind=True,
            source=source,
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
        return self._write(lambda tx, table: add_files(self._context, tx, table, patterns, options))

    def overwrite(self, data: Any, where: str | None = None, *, evolve: bool = False) -> int:
        """Replace the rows that satisfy a filter (all without one), in one snapshot; returns how many are new."""
        if _is_spark(data):
            if evolve:
                raise InputError("a DataFrame of Spark cannot overwrite with evolve=", hint="add the columns first")
            from quacklake.spark.frames import overwrite_frame

            return overwrite_frame(self.handle, self._ref, data, where)
        source = to_source(data, self._context.store)
        return self._write(
            lambda tx, table: dml.overwrite(self._context, tx, table, source, where, evolve=evolve) or 0,
            source=source,
        )

    def delete(self, where: str | None = None) -> int | None:
        """Delete the rows that satisfy a filter (all without one); returns how many where that is known."""
        return self._write(lambda tx, table: dml.delete(self._context, tx, table, where))

    def update(self, values: Mapping[str, Any], where: str | None = None) -> int:
        """Set columns of the rows that satisfy a filter; returns how many.

        Python values are literals; ``quacklake.expr("n + 1")`` is SQL over the row.
        """
        return self._write(lambda tx, table: dml.update(self._context, tx, table, values, where))

    def merge(self, data: Any, on: str | Sequence[str] | None = None, *, evolve: bool = False) -> MergeResult:
        """Update the rows whose keys ``data`` has and insert the others; row ids of updated rows stay.

        Without ``on`` the primary key decides. Two rows with one key are a ``ConstraintError`` that names it.
        """
        given = [on] if isinstance(on, str) else on
        if _is_spark(data):
            from quacklake.spark.frames import merge_frame

            view = self.handle.view()
            keys = _key(view, self._find(view)) if given is None else list(given)
            return merge_frame(self.handle, self._ref, data, keys, evolve=evolve)
        source = to_source(data, self._context.store)

        def work(tx: Transaction, table: TableInfo) -> MergeResult:
            keys = _key(tx, table) if given is None else list(given)
            return dml.merge(self._context, tx, table, source, keys, evolve=evolve)

        return self._write(work, source=source)

    # -- layout ------------------------------------------------------------------------------------------------------

    def set_partitioned_by(self, *keys: str) -> None:
        """Partition what is written from now on; files that exist stay as they are.

        A key is a column, or ``year``, ``month``, ``day`` or ``hour`` of one, or ``bucket(16, id)``: one of 16 by a
        hash. Raises ``InputError`` when a column is missing or of another type; then nothing is changed.
        """
        self._write(lambda tx, table: layout.partition(tx, table, keys))

    def reset_partitioned_by(self) -> None:
        """Write without partitions from now on."""
        self._write(lambda tx, table: layout.reset_partition(tx, table))

    def set_sorted_by(self, *keys: str) -> None:
        """Sort the rows of every file written from now on, by keys such as ``ts DESC NULLS LAST`` or ``lower(name)``.

        Without more said, a key is ascending and NULL comes last. Raises ``InputError``; then nothing is changed.
        """
        self._write(lambda tx, table: layout.sort(self._context, tx, table, keys))

    def reset_sorted_by(self) -> None:
        """Write rows in the order in which they come from now on."""
        self._write(lambda tx, table: layout.reset_sort(tx, table))

    def _write(self, work: Callable[[Transaction, TableInfo], T], *, blind: bool = False, source: Any = None) -> T:
        replayable = source is None or source.replayable
        return self.handle.run(lambda tx: work(tx, self._find(tx)), blind=blind, replayable=replayable)

    # -- columns -----------------------------------------------------------------------------------------------------

    def add_column(self, path: str, type: ColumnType, default: Any = None) -> None:
        """Add a column at the end, or with ``a.b`` a field to the struct ``a``; existing rows have ``default`` in it.

        ``type`` is an Arrow type or DuckDB's text for one, such as ``DECIMAL(10,2)`` or ``STRUCT(x INTEGER)[]``. The
        values of a list are called ``element``, those of a map ``key`` and ``value``: ``items.element.price``.
        """
        self._write(lambda tx, table: evolution.add_column(self._context, tx, table, path, type, default))

    def drop_column(self, path: str) -> None:
        """Drop a column, or a field of a struct; older snapshots keep it."""
        self._write(lambda tx, table: evolution.drop_column(self._context, tx, table, path))

    def rename_column(self, path: str, new_name: str) -> None:
        """Give a column, or a field of a struct, another name."""
        self._write(lambda tx, table: evolution.rename_column(self._context, tx, table, path, new_name))

    def alter_column(self, path: str, type: ColumnType) -> None:
        """Widen the type of a column or field; a nested type may also gain and lose fields, matched by name.

        Raises ``InputError`` for a change that could lose a value.
        """
        self._write(lambda tx, table: evolution.alter_column(self._context, tx, table, path, type))

    def set_default(self, path: str, value: Any) -> None:
        """Let new rows that lack a column have a value in it: a literal, or ``quacklake.expr("now()")``."""
        self._write(lambda tx, table: evolution.set_default(self._context, tx, table, path, value))

    def drop_default(self, path: str) -> None:
        """Let a column have no default any more."""
        self._write(lambda tx, table: evolution.drop_default(self._context, tx, table, path))

    def set_not_null(self, path: str) -> None:
        """Refuse NULL in a column from now on. Raises ``ConstraintError`` when a row has one."""
        self._write(lambda tx, table: evolution.set_not_null(self._context, tx, table, path))

    def drop_not_null(self, path: str) -> None:
        """Allow NULL in a column."""
        self._write(lambda tx, table: evolution.drop_not_null(self._context, tx, table, path))

    # -- history -----------------------------------------------------------------------------------------------------

    def files(self) -> pa.Table:
        """The data files of the newest snapshot with their delete files."""
        return self.plan().files.drop_columns(list(SECRET))

    def changes(self, since: Bound, until: Bound | None = None) -> ChangeScan:
        """What snapshots ``since`` to ``until`` (both included; the newest when not given) did to the rows.

        Bounds are snapshot ids or times. A lazy frame with the columns ``snapshot_id``, ``rowid``, ``change_type`` and
        the table's own. Reading it raises ``SnapshotExpiredError`` when the history it needs is gone.
        """
        return ChangeScan(self.handle, self._ref, since, until)

    def insertions(self, since: Bound, until: Bound | None = None) -> ChangeScan:
        """The rows that came: inserted ones, and updated ones as they are after."""
        return ChangeScan(self.handle, self._ref, since, until, _deletes=False)

    def deletions(self, since: Bound, until: Bound | None = None) -> ChangeScan:
        """The rows that went: deleted ones, and updated ones as they were before."""
        return ChangeScan(self.handle, self._ref, since, until, _inserts=False)

    def history(self) -> pa.Table:
        """The snapshots that changed this table, newest first, with the columns of ``Lake.snapshots``."""
        from quacklake.operations.history import table_history

        return table_history(self._context, self.info)

    def restore(self, to: Version, *, dry_run: bool = False) -> UndoReport:
        """Let the table be as it was at a snapshot or a time, in a new snapshot; the history stays.

        Rows come back under their row ids, dropped columns with their values; layout, comments, tags and constraints
        are as they were. The name stays, and so does a type that is wider now (``kept_types``). ``dry_run`` changes
        nothing and tells what would be done. Raises ``NotFoundError`` when there is no such snapshot, or it has no such
        table, and ``SnapshotExpiredError`` when files are gone.
        """
        return restore_table(self.handle, self._find, to, dry_run=dry_run)

    # -- showing -----------------------------------------------------------------------------------------------------

    def show(self, rows: int = 10) -> None:
        """Print the first rows as a table."""
        self.scan().show(rows)

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def _repr_html_(self) -> str:
        try:
            return f"<p>{html.escape(self.name)}</p>{self.scan()._repr_html_()}"
        except NotFoundError as error:
            return f"<p>{html.escape(self.name)}: {html.escape(error.message)}</p>"


def _is_spark(data: object) -> bool:
    return type(data).__module__.partition(".")[0] == "pyspark"


def _key(tx: Transaction, table: TableInfo) -> tuple[str, ...]:
    found = key_columns(table.schema, tx.objects.tags(table).own.get(PRIMARY_KEY))
    if not found:
        raise InputError(
            f"the table {table.qualified_name} has no primary key",
            hint='name the columns, merge(…, on="id"), or create the table with primary_key=',
        )
    return found
