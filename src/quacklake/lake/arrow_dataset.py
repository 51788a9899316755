"""Tables as Arrow datasets, for DuckDB and for libraries that read datasets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from quacklake.core.engines.duckdb.sql import guarded_columns
from quacklake.core.format.names import quote
from quacklake.core.format.schema import TableSchema
from quacklake.core.operations.rows import Rows
from quacklake.errors import InputError, PredicateError, UnsupportedFeatureError

if TYPE_CHECKING:
    import duckdb

    from quacklake.lake.table_scan import TableScan


class TableDataset(ds.Dataset):  # type: ignore[misc]
    """The rows of a table as an Arrow dataset: what is asked of it is read through a scan.

    The data files alone would be wrong: some of their rows are deleted, some rows are in the catalog only, and columns
    may have had other names. So a dataset has no files to give away, but it skips them by a filter as a scan does.
    """

    def __init__(self, scan: TableScan, kept: pc.Expression | None = None) -> None:
        self._scan = scan
        self._kept = kept
        self._own: pa.Schema = scan.schema

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._scan!r}>"

    def __reduce__(self) -> Any:
        raise UnsupportedFeatureError(
            "the dataset of a lake cannot be sent to another process", hint="open the lake there, at the same snapshot"
        )

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self._own

    @property
    def partition_expression(self) -> pc.Expression:
        """An expression that is true for all rows."""
        return pc.scalar(True)

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> TableScanner:
        """Return a scanner of some columns and of the rows that a filter keeps. Options of reading are not needed."""
        if (columns is not None and not all(isinstance(name, str) for name in columns)) or isinstance(columns, dict):
            raise UnsupportedFeatureError(
                "the dataset of a lake has no computed columns", hint="compute them from the rows, or use lake.sql"
            )
        names = self._own.names if columns is None else columns
        return TableScanner(self._scan, self._own, names, self._both(filter))

    def to_table(self, **options: Any) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.scanner(**options).to_table()

    def to_batches(self, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches."""
        return self.scanner(**options).to_batches()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Return the first rows as an Arrow table."""
        return self.scanner(**options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """Return the number of rows, or of those that a filter keeps."""
        return self.scanner(filter=filter, **options).count_rows()

    def filter(self, expression: pc.Expression) -> TableDataset:
        """Return a dataset of the rows that a filter keeps."""
        return TableDataset(self._scan, self._both(expression))

    def _both(self, filter: pc.Expression | None) -> pc.Expression | None:
        return filter if self._kept is None else self._kept if filter is None else self._kept & filter

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[TableFragment]:
        """Yield parts of the table at one snapshot, a data file or the rows of the catalog each, for tasks of threads.

        Parts that a filter rules out are left out; it is not applied to the rows of the others.
        """
        chosen = self._both(filter)
        narrowed = self._scan if chosen is None else _push_filter(self._scan, chosen)[0]
        for part in narrowed.parts():
            yield TableFragment(TableDataset(replace(part, _where=self._scan._where), self._kept))

    def take(self, indices: Any, **options: Any) -> pa.Table:
        """Return rows by number."""
        return self.to_table(**options).take(indices)

    def sort_by(self, sorting: Any, **options: Any) -> Any:
        """Return the rows in an order, as a dataset in memory."""
        return ds.dataset(self.to_table(**options).sort_by(sorting))

    def join(self, *_: Any, **__: Any) -> Any:
        """Raise ``UnsupportedFeatureError``."""
        raise UnsupportedFeatureError("the dataset of a lake cannot be joined", hint="use lake.sql, or join its rows")

    join_asof = join

    def replace_schema(self, schema: pa.Schema) -> Any:
        """Raise ``UnsupportedFeatureError``."""
        raise UnsupportedFeatureError("the dataset of a lake keeps its schema", hint="cast the rows")


class TableFragment:
    """A part of a table at one snapshot."""

    def __init__(self, dataset: TableDataset) -> None:
        self._dataset = dataset
        self.scanner = dataset.scanner
        self.to_table = dataset.to_table
        self.to_batches = dataset.to_batches
        self.head = dataset.head
        self.count_rows = dataset.count_rows
        self.physical_schema: pa.Schema = dataset.schema

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._dataset!r}>"

    def __dask_tokenize__(self) -> object:
        return uuid.uuid4().hex  # the same part of another lake is another part


class TableScanner(Rows):
    """A scan that a dataset was asked for; it runs each time that rows are asked for."""

    def __init__(self, scan: TableScan, known: pa.Schema, columns: Sequence[str], filter: pc.Expression | None) -> None:
        self._known, self._columns = known, tuple(columns)
        named = replace(scan, _columns=tuple(known.names), _row_ids=False)
        self._scan, self._filter = (named, None) if filter is None else _push_filter(named, filter)

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the dataset."""
        return self._known

    @cached_property
    def projected_schema(self) -> pa.Schema:
        """The schema of the rows."""
        return pa.schema([self._known.field(name) for name in self._columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches. Raise ``InputError`` if the columns of the table have changed."""
        wanted = self._columns if self._filter is None else tuple(self._known.names)
        reader = self._scan.select(*wanted).to_reader()
        if reader.schema != pa.schema([self._known.field(name) for name in wanted]):
            raise InputError(
                "the columns of the table have other types than when the relation was created", hint="create it again"
            )
        if self._filter is None:
            return reader
        batches = (batch.filter(self._filter).select(self._columns) for batch in reader)
        return pa.RecordBatchReader.from_batches(self.projected_schema, batches)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches."""
        yield from self.to_reader()

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.to_reader().read_all()

    def to_table(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.to_arrow()

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows as an Arrow table."""
        if self._filter is not None:
            return self.to_arrow().slice(0, num_rows)
        limit = num_rows if self._scan._limit is None else min(num_rows, self._scan._limit)
        return self._scan.select(*self._columns).limit(limit).to_arrow()

    def count_rows(self) -> int:
        """Return the number of rows, from the metadata alone if possible."""
        return self._scan.count() if self._filter is None else self.to_arrow().num_rows


def _push_filter(scan: TableScan, expression: pc.Expression) -> tuple[TableScan, pc.Expression | None]:
    """Return a scan of the rows that a filter keeps, and the filter if it must be applied to the rows of the scan."""
    if scan._limit is not None:
        return scan, expression
    if scan._where is None or isinstance(scan._where, str):
        text = _text(expression, scan.table_schema)
        if text is not None:
            return scan.where(text), None
    return (scan, expression) if isinstance(scan._where, str) else (scan.where(expression), None)


class _Numbered(TableDataset):
    """A dataset for DuckDB, whose last column, ``number``, is always zero."""

    def __init__(self, scan: TableScan) -> None:
        super().__init__(scan)
        self.number = "_ql_number" + "_" * max((len(name) for name in self._own.names), default=0)

    @property
    def schema(self) -> pa.Schema:
        return self._own.append(pa.field(self.number, pa.int8(), nullable=False))

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> Any:
        names = self.schema.names if columns is None else list(columns)
        inner = super().scanner([name for name in names if name != self.number], filter)
        return _NumberedScanner(inner, pa.schema([self.schema.field(name) for name in names]), self.number)


class _NumberedScanner:
    def __init__(self, inner: TableScanner, schema: pa.Schema, number: str) -> None:
        self._inner = inner
        self.projected_schema = schema
        self._number = number

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, map(self._batch, self._inner.to_reader()))

    def _batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        zeros = pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)
        columns = [zeros if name == self._number else batch.column(name) for name in self.projected_schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.projected_schema)


def relation(
    scan: TableScan, connection: duckdb.DuckDBPyConnection | None, *, push_filters: bool
) -> duckdb.DuckDBPyRelation:
    """Return a scan as a DuckDB relation.

    DuckDB asks for the columns that a query needs, and for the rows that its filters keep, and does not filter again:
    it leaves that to Arrow, for which NaN is no number above the others. So it only sees those columns for what they
    are whose values Arrow compares as it does itself.
    """
    import duckdb

    dataset = _Numbered(scan)
    rows: duckdb.DuckDBPyRelation = (duckdb if connection is None else connection).from_arrow(dataset)
    guarded = [field.name for field in dataset._own if not (push_filters and _same_in_arrow(field.type))]
    hidden = dict(zip(guarded, guarded_columns(guarded, dataset.number), strict=True))
    return rows.project(", ".join(hidden.get(name, quote(name)) for name in dataset._own.names))


def _same_in_arrow(type_: pa.DataType) -> bool:
    is_ = pa.types
    known = (is_.is_integer, is_.is_boolean, is_.is_string, is_.is_date32, is_.is_timestamp)
    return any(check(type_) for check in known)


def _text(expression: pc.Expression, schema: TableSchema) -> str | None:
    from quacklake.core.scan.substrait import to_sql

    try:
        return to_sql(expression, schema)
    except (PredicateError, UnsupportedFeatureError):
        return None  # or one on virtual columns, or on none that exists: the scan says so
