"""The ``Table`` class."""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from quacklake.core.format.evolution import PRIMARY_KEY
from quacklake.core.format.layout import key_texts
from quacklake.core.format.objects import TableInfo
from quacklake.core.lazy import provided
from quacklake.core.maintenance.table_maintenance import TableMaintenance
from quacklake.core.operations import dml, evolution
from quacklake.core.operations.add_files import AddOptions, add_files, to_patterns
from quacklake.core.operations.change_feed import Bound, ChangeScan
from quacklake.core.operations.context import boundary
from quacklake.core.operations.expression import Expression
from quacklake.core.operations.rows import Row
from quacklake.core.operations.sources import Input
from quacklake.core.operations.statements import MergeBuilder, MergeResult
from quacklake.core.operations.versions import Version, choose_version
from quacklake.core.operations.views import COMMENT, check_tags
from quacklake.core.scan import Filter, ScanPlan, as_filter
from quacklake.core.scan.plan import SECRET
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError, NotFoundError
from quacklake.inputs.column_types import to_column
from quacklake.inputs.frames import to_source
from quacklake.lake.adopting import ADOPTED
from quacklake.lake.restoring import UndoReport
from quacklake.lake.table_scan import TableScan
from quacklake.lake.undoing import restore_table
from quacklake.lake.view import Tagged

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    from pyspark.sql import DataFrame

    from quacklake.core.operations.handles import Handle
    from quacklake.core.operations.reference import TableRef
    from quacklake.lake.arrow_dataset import TableDataset

T = TypeVar("T")


@boundary
class Table(TableMaintenance, Tagged):
    """A table of a lake, of a past snapshot, or of an open transaction.

    Reading methods take ``columns`` and ``where``. Each writing method commits one snapshot, or belongs to the
    transaction that the table comes from. A table reads nothing until a method needs it, so it can be kept for long.
    """

    _own_tags = (PRIMARY_KEY, ADOPTED)

    @property
    def info(self) -> TableInfo:
        """The catalog entry of the table: ids, path, and columns with their field ids."""
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
        """The partition keys of new files, such as ``month(ts)``."""
        info = self.info
        return key_texts(info.partition, info.schema)

    @property
    def sorted_by(self) -> list[str]:
        """The sort keys of new files, such as ``ts DESC NULLS LAST``."""
        sort = self.info.sort
        return [] if sort is None else [str(key) for key in sort.keys]

    @property
    def column_comments(self) -> dict[str, str]:
        """The comments on columns, by column name; columns without a comment are left out."""
        found = self._tags().columns
        return {c.name: found[c.id][COMMENT] for c in self.info.schema.columns if COMMENT in found.get(c.id, {})}

    def set_column_comment(self, column: str, text: str | None) -> None:
        """Set the comment on a column; None removes it."""
        tags = check_tags({COMMENT: text})

        def work(tx: Transaction, table: TableInfo) -> None:
            tx.objects.set_tags(table, tags, column_id=table.schema.find(column).id)

        self._write(work)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that ``merge`` and ``append(dedup=True)`` match rows by; empty without a primary key."""
        view = self.handle.view()
        return view.objects.primary_key(self._find(view))

    def is_current(self) -> bool:
        """Return whether a materialized view has the answer of its query at this state; False for any other table.

        Raise ``NotFoundError`` when there is no such table.
        """
        from quacklake.core.materialized.views import is_current

        return is_current(self.handle, self._find(self.handle.view()))

    def count(self, where: Filter | None = None) -> int:
        """Return the number of rows, or of the rows that match a filter."""
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
        """Return a lazy scan of the chosen columns and rows; ``row_ids`` adds a last column ``rowid``."""
        chosen = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
        return TableScan(self.handle, self._ref, row_ids, _columns=chosen, _where=as_filter(where), _limit=limit)

    def plan(self, where: Filter | None = None) -> ScanPlan:
        """Return the scan plan of a read."""
        return self.scan(where=where).plan()

    def manifest(self, where: Filter | None = None) -> bytes:
        """Return the scan plan of a read as an Arrow IPC file, with partition values and statistics of each file."""
        return self.scan(where=where).manifest()

    def to_arrow(self, columns: Sequence[str] | None = None, where: Filter | None = None) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.scan(columns, where).to_arrow()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        *,
        dtype_backend: str | None = None,
    ) -> pandas.DataFrame:
        """Return the rows as a pandas frame; with ``dtype_backend="pyarrow"``, columns keep their Arrow types."""
        return self.scan(columns, where).to_pandas(dtype_backend=dtype_backend)

    def to_polars(self, columns: Sequence[str] | None = None, where: Filter | None = None) -> polars.DataFrame:
        """Return the rows as a polars frame."""
        return self.scan(columns, where).to_polars()

    def scan_polars(self, columns: Sequence[str] | None = None, where: Filter | None = None) -> polars.LazyFrame:
        """Return a polars lazy frame of the rows, read in batches each time it is collected.

        The columns that a query needs, its filters and its limit reach the files: statistics skip files, polars applies
        what cannot be said in SQL with the same meaning. The frame follows the lake, as ``to_duckdb`` does; that of a
        past snapshot or a transaction reads that state. It keeps its columns, and fails if one is dropped or changed.
        """
        return self.scan(columns, where).scan_polars()

    def to_batches(
        self, columns: Sequence[str] | None = None, where: Filter | None = None, *, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches, in bounded memory."""
        return self.scan(columns, where).to_batches(batch_rows)

    def rows(self, row: type[Row], where: Filter | None = None, *, batch_rows: int | None = None) -> Iterator[Row]:
        """Yield the rows as instances of a dataclass, in bounded memory; only columns with a field are read.

        See ``quacklake.RowType`` for the types of fields. A field with a default may have no column. Raise
        ``SchemaMismatchError`` or ``ConstraintError`` with the name of a field that cannot hold a value.
        """
        return self.scan(where=where).rows(row, batch_rows)

    def to_pylist(self, columns: Sequence[str] | None = None, where: Filter | None = None) -> list[dict[str, Any]]:
        """Return the rows as dictionaries; for small results."""
        return self.scan(columns, where).to_pylist()

    def head(self, rows: int = 10) -> pa.Table:
        """Return the first rows as an Arrow table."""
        return self.scan().head(rows)

    def to_duckdb(
        self,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        *,
        connection: duckdb.DuckDBPyConnection | None = None,
        push_filters: bool = True,
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation, in ``connection`` or DuckDB's default connection.

        The relation follows the lake: each time it runs, it reads the newest snapshot. If the table comes from a past
        snapshot or a transaction, it reads that state instead. Only the columns that a query needs are read, and
        ``where`` skips files; so do filters on the relation, unless they are on floats or inside of nested values, or
        without ``push_filters``: DuckDB cannot hand over ``IS DISTINCT FROM`` inside of ``OR``, and fails. Nothing is
        stored in the connection. The relation keeps its columns, and fails if one is dropped or changed.
        """
        return self.scan(columns, where).to_duckdb(connection, push_filters=push_filters)

    def to_arrow_dataset(self, columns: Sequence[str] | None = None, where: Filter | None = None) -> TableDataset:
        """Return the rows as an Arrow dataset, which reads the columns and skips the files that a scanner asks for.

        It follows the lake as ``to_duckdb`` does; ``get_fragments`` lists parts at one snapshot, for tasks of threads.
        """
        return self.scan(columns, where).to_arrow_dataset()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, data: Any, *, evolve: bool = False, dedup: bool = False, index: bool = True) -> int:
        """Add rows and return how many.

        ``data`` may be a pandas or polars frame (also lazy), an Arrow table, batch, reader, stream or dataset, a DuckDB
        relation, a Spark DataFrame, a list of dictionaries, instances of a dataclass, or files (Parquet, CSV, JSON,
        Arrow, Excel): a path, a folder, a pattern such as ``"in/*.csv"``, or a list of them. Files, datasets, lazy
        frames, streams and generators of instances are never loaded into memory whole; Spark executors write the files
        of a DataFrame.
        ``evolve`` adds missing columns to the table, and widens types where the rows need it, in the same snapshot.
        ``dedup`` skips rows whose primary key is in the table; of several new rows with one key, the first is added.
        The index of a pandas frame, also in a Parquet file, is a column like others, unless ``index`` is false. One of
        whole numbers without a name is always left out.
        Raise ``SchemaMismatchError`` or ``ConstraintError`` when the rows do not fit; nothing is changed then.
        """
        if _is_spark(data):
            if evolve or dedup:
                raise InputError("a Spark DataFrame cannot be appended with evolve= or dedup=", hint="use merge")
            return write_frame(self.handle, self._ref, data)
        source = to_source(data, self.handle.context.store, index=index)
        if dedup:
            return self._write(
                lambda tx, table: dml.append_new(
                    self.handle.context, tx, table, source, _key(tx, table), evolve=evolve
                ),
                source=source,
            )
        return self._write(
            lambda tx, table: dml.append(self.handle.context, tx, table, source, evolve=evolve) or 0,
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
        index: bool = True,
    ) -> int:
        """Add existing Parquet files to the table in place, without copying; return the number of their rows.

        ``paths`` is a path, a pattern such as ``"in/*.parquet"``, or a list of them. Columns are matched by name.
        ``allow_missing`` accepts files that lack a column of the table, ``ignore_extra_columns`` files that have more
        columns. A column may also come from folder names (``year=2024/``) unless ``hive_partitioning`` is false. Files
        outside the data path must be in the setting ``foreign_paths``; they are never changed or deleted. The index of
        a pandas frame in a file is treated as by ``append``.
        """
        patterns = to_patterns(paths)
        options = AddOptions(allow_missing, ignore_extra_columns, hive_partitioning, index)
        return self._write(lambda tx, table: add_files(self.handle.context, tx, table, patterns, options))

    def overwrite(self, data: Any, where: Filter | None = None, *, evolve: bool = False, index: bool = True) -> int:
        """Replace the rows that match a filter (default: all) in one snapshot; return the number of new rows.

        ``index`` is that of ``append``.
        """
        if _is_spark(data):
            if evolve:
                raise InputError("a Spark DataFrame cannot overwrite with evolve=", hint="add the columns first")
            return write_frame(self.handle, self._ref, data, where, replace=True)
        source = to_source(data, self.handle.context.store, index=index)
        return self._write(
            lambda tx, table: dml.overwrite(self.handle.context, tx, table, source, where, evolve=evolve) or 0,
            source=source,
        )

    def delete(self, where: Filter | None = None) -> int:
        """Delete the rows that match a filter (default: all); return their number."""
        return self._write(lambda tx, table: dml.delete(self.handle.context, tx, table, where))

    def update(self, values: Mapping[str, Any], where: Filter | None = None) -> int:
        """Set columns of the rows that match a filter and return how many rows changed.

        Python values are literals; ``quacklake.expr("n + 1")`` is SQL over the row.
        """
        return self._write(lambda tx, table: dml.update(self.handle.context, tx, table, values, where))

    def merge(
        self, data: Any, on: str | Sequence[str] | None = None, *, evolve: bool = False, index: bool = True
    ) -> MergeResult:
        """Update the rows whose keys occur in ``data``, and insert its other rows; updated rows keep their row ids.

        ``on`` defaults to the primary key; ``index`` is that of ``append``. Raise ``ConstraintError`` with the key
        when two rows of ``data`` share it.
        """
        given = [on] if isinstance(on, str) else on
        if _is_spark(data):
            keys = self._keys() if given is None else list(given)
            return merge_frame(self.handle, self._ref, data, keys, evolve=evolve)
        source = to_source(data, self.handle.context.store, index=index)

        def work(tx: Transaction, table: TableInfo) -> MergeResult:
            keys = _key(tx, table) if given is None else list(given)
            return dml.merge(self.handle.context, tx, table, source, keys, evolve=evolve)

        return self._write(work, source=source)

    def merge_builder(
        self, data: Any, on: str | Sequence[str] | Expression | None = None, *, index: bool = True
    ) -> MergeBuilder:
        """Return a builder of a merge with any clauses: add them, then call ``execute()``.

        ``on`` names the key columns (default: the primary key), or is an SQL condition over ``target``, the rows of the
        table, and ``source``, those of ``data``; ``index`` is that of ``append``.
        """
        if _is_spark(data):
            return build_frame_merge(self.handle, self._ref, data, self._keys() if on is None else on)
        return TableMerge(self, to_source(data, self.handle.context.store, index=index), on)

    def _keys(self) -> list[str]:
        view = self.handle.view()
        return list(_key(view, self._find(view)))

    # -- layout ------------------------------------------------------------------------------------------------------

    def set_partitioned_by(self, *keys: str) -> None:
        """Partition new files by these keys; existing files stay as they are.

        A key is a column, ``year``, ``month``, ``day`` or ``hour`` of a column, or ``bucket(16, id)``: one of 16
        buckets by hash. Raise ``InputError`` when a column is missing or unsuitable; nothing is changed then.
        """
        self._write(lambda tx, table: evolution.partition(tx, table, keys))

    def reset_partitioned_by(self) -> None:
        """Stop partitioning new files."""
        self._write(lambda tx, table: evolution.reset_partition(tx, table))

    def set_sorted_by(self, *keys: str) -> None:
        """Sort the rows of each new file by keys such as ``ts DESC NULLS LAST`` or ``lower(name)``.

        A key sorts ascending with NULL last unless it says otherwise. Raise ``InputError``; nothing is changed then.
        """
        self._write(lambda tx, table: evolution.sort(self.handle.context, tx, table, keys))

    def reset_sorted_by(self) -> None:
        """Stop sorting; new files keep rows in the order in which they arrive."""
        self._write(lambda tx, table: evolution.reset_sort(tx, table))

    def _write(self, work: Callable[[Transaction, TableInfo], T], *, blind: bool = False, source: Any = None) -> T:
        replayable = source is None or source.replayable
        ref = self._ref
        return self.handle.run(
            lambda tx: work(tx, tx.find_table(ref.schema, ref.name)), blind=blind, replayable=replayable
        )

    # -- columns -----------------------------------------------------------------------------------------------------

    def add_column(self, path: str, type: pa.DataType | str | type, default: Any = None) -> None:
        """Add a column at the end, or with ``a.b`` a field of the struct ``a``; existing rows get ``default``.

        ``type`` is an Arrow type or a DuckDB type name, such as ``DECIMAL(10,2)`` or ``STRUCT(x INTEGER)[]``. A path
        calls list values ``element`` and map values ``key`` and ``value``: ``items.element.price``.
        """
        column = _column_type(type)
        self._write(lambda tx, table: evolution.add_column(self.handle.context, tx, table, path, column, default))

    def drop_column(self, path: str) -> None:
        """Drop a column, or a field of a struct; older snapshots keep it."""
        self._write(lambda tx, table: evolution.drop_column(self.handle.context, tx, table, path))

    def rename_column(self, path: str, new_name: str) -> None:
        """Rename a column or a field of a struct."""
        self._write(lambda tx, table: evolution.rename_column(self.handle.context, tx, table, path, new_name))

    def alter_column(self, path: str, type: pa.DataType | str | type) -> None:
        """Widen the type of a column or field; a nested type may also gain or lose fields, matched by name.

        Raise ``InputError`` for a change that could lose a value.
        """
        column = _column_type(type)
        self._write(lambda tx, table: evolution.alter_column(self.handle.context, tx, table, path, column))

    def set_default(self, path: str, value: Any) -> None:
        """Set the default of a column for new rows: a literal, or ``quacklake.expr("now()")``."""
        self._write(lambda tx, table: evolution.set_default(self.handle.context, tx, table, path, value))

    def drop_default(self, path: str) -> None:
        """Remove the default of a column."""
        self._write(lambda tx, table: evolution.drop_default(self.handle.context, tx, table, path))

    def set_not_null(self, path: str) -> None:
        """Reject NULL in a column from now on. Raise ``ConstraintError`` when a row has NULL in it."""
        self._write(lambda tx, table: evolution.set_not_null(self.handle.context, tx, table, path))

    def drop_not_null(self, path: str) -> None:
        """Allow NULL in a column."""
        self._write(lambda tx, table: evolution.drop_not_null(self.handle.context, tx, table, path))

    # -- history -----------------------------------------------------------------------------------------------------

    def files(self) -> pa.Table:
        """Return the data files of the newest snapshot with their delete files."""
        return self.plan().files.drop_columns(list(SECRET))

    def changes(self, since: Bound, until: Bound | None = None) -> ChangeScan:
        """Return the row changes of snapshots ``since`` to ``until`` (inclusive; default: the newest).

        Bounds are snapshot ids or times. The result is a lazy frame with the columns ``snapshot_id``, ``rowid``,
        ``change_type`` and those of the table. Reading it raises ``SnapshotExpiredError`` when history is gone.
        """
        return ChangeScan(self.handle, self._ref, since, until)

    def insertions(self, since: Bound, until: Bound | None = None) -> ChangeScan:
        """Return the inserted rows, and the updated rows with their new values."""
        return ChangeScan(self.handle, self._ref, since, until, _deletes=False)

    def deletions(self, since: Bound, until: Bound | None = None) -> ChangeScan:
        """Return the deleted rows, and the updated rows with their old values."""
        return ChangeScan(self.handle, self._ref, since, until, _inserts=False)

    def history(self, limit: int | None = None) -> pa.Table:
        """Return the snapshots that changed this table, newest first, with the columns of ``Lake.snapshots``."""
        from quacklake.core.operations.options import table_history

        return table_history(self.handle.context, self.info, limit)

    def restore(
        self,
        to: Version | None = None,
        *,
        version: int | str | None = None,
        timestamp: dt.datetime | str | None = None,
        tag: str | None = None,
        dry_run: bool = False,
    ) -> UndoReport:
        """Restore the table to a snapshot id, a tag or a time, in a new snapshot. The history stays.

        Rows come back with their row ids, and dropped columns with their values. Layout, comments, tags and constraints
        are restored too. The table keeps its name, and any type that has been widened since (``kept_types``).
        ``dry_run`` changes nothing and reports what would be done. Raise ``NotFoundError`` when the snapshot does not
        exist or lacks the table, and ``SnapshotExpiredError`` when files are gone.
        """
        chosen = choose_version(to, version=version, timestamp=timestamp, tag=tag)
        return restore_table(self.handle, self._find, chosen, dry_run=dry_run)

    # -- display -----------------------------------------------------------------------------------------------------

    def show(self, rows: int = 10) -> None:
        """Print the first rows as a table."""
        self.scan().show(rows)

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def _repr_html_(self) -> str:
        """Return the columns of the table and its size, from the metadata alone."""
        from quacklake.core.operations.cells import html_table

        try:
            schema, size = self.scan().table_schema, self._size()
        except NotFoundError as error:
            return f"<p>{html.escape(self.name)}: {html.escape(error.message)}</p>"
        columns = [{"column": column.name, "type": column.duckdb_type()} for column in schema.columns]
        rows = pa.Table.from_pylist(columns, pa.schema([("column", pa.string()), ("type", pa.string())]))
        return f"<p>{html.escape(self.name)}{size}</p>{html_table(rows, unit='column')}"

    def _size(self) -> str:
        if self.handle.restricted:
            return ""
        plan = self.plan()
        count = plan.count()
        rows = "" if count is None else f"{count:,} row{'' if count == 1 else 's'}, "
        files = f"{plan.files.num_rows:,} file{'' if plan.files.num_rows == 1 else 's'}"
        return f": {rows}{files}, snapshot {plan.snapshot_id}"


@boundary
class TableMerge(MergeBuilder):
    """A merge of rows into a table, in this process."""

    def __init__(self, table: Table, source: Input, on: str | Sequence[str] | Expression | None) -> None:
        self._table, self._source, self._on = table, source, on

    def execute(self) -> MergeResult:
        """Run the merge, in one snapshot or in the transaction of the table, and return the numbers of changed rows.

        Raise ``ConstraintError``, with a few keys, when several rows of the source would change one row.
        """

        def work(tx: Transaction, table: TableInfo) -> MergeResult:
            statement = self._statement(_key(tx, table) if self._on is None else self._on, table.schema)
            return dml.run_merge(self._table.handle.context, tx, table, self._source, statement)

        return self._table._write(work, source=self._source)


def _column_type(type_: Any) -> evolution.ColumnType:
    """Return a type as the core takes it. Text is SQL, where FLOAT has one meaning."""
    return type_ if isinstance(type_, str) else to_column("column", type_)


def _is_spark(data: object) -> bool:
    return type(data).__module__.partition(".")[0] == "pyspark"


def _key(tx: Transaction, table: TableInfo) -> tuple[str, ...]:
    found = tx.objects.primary_key(table)
    if not found:
        raise InputError(
            f"the table {table.qualified_name} has no primary key",
            hint='name the columns, merge(…, on="id"), or create the table with primary_key=',
        )
    return found


@provided
def write_frame(
    handle: Handle, ref: TableRef, frame: DataFrame, where: Filter | None = None, *, replace: bool = False
) -> int:
    """Add the rows of a DataFrame of Spark, or replace those that match a filter; return how many are new."""
    raise NotImplementedError


@provided
def merge_frame(
    handle: Handle, ref: TableRef, frame: DataFrame, keys: Sequence[str], *, evolve: bool = False
) -> MergeResult:
    """Update the rows whose keys a DataFrame of Spark has, and insert the others, in one snapshot."""
    raise NotImplementedError


@provided
def build_frame_merge(
    handle: Handle, ref: TableRef, frame: DataFrame, on: str | Sequence[str] | Expression
) -> MergeBuilder:
    """Return a builder of a merge of a DataFrame of Spark."""
    raise NotImplementedError
