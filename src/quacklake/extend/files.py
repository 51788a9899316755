"""Data files that an engine writes: names, partitions, statistics, and clean-up of what was not committed.

Files are staged outside of a transaction, so that work that runs again after a conflict finds them there::

    with stage(lake, "events") as staging:
        with staging.open() as sink:
            ...  # write Parquet with the schema staging.arrow_schema
        run(lake, lambda change: change.append(staging))

What no commit has taken when the block ends is removed. A process that is killed leaves files that nothing refers to,
and ``Lake.delete_orphaned_files`` removes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import pyarrow as pa

from quacklake.core.engines.duckdb.rows import fits_in_file
from quacklake.core.format.layout import IDENTITY, PartitionSpec, directory, key_texts
from quacklake.core.format.names import data_file_name
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.transforms import apply
from quacklake.core.operations.conform import to_table
from quacklake.core.operations.context import LakeContext
from quacklake.core.storage import column_stats, read_footer
from quacklake.core.transaction import NewDataFile, Transaction
from quacklake.errors import (
    CommitUnknown,
    ConstraintError,
    InputError,
    QuacklakeError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from quacklake.extend.reads import find_table
from quacklake.extend.schemas import TableSchema, is_portable
from quacklake.lake.lake import Lake

__all__ = ["StagedFile", "Staging", "fits_in_file", "stage"]

_ROW = "row"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A complete data file that no snapshot has yet; ``partition`` are the texts of its partition keys.

    >>> from quacklake.extend.example import example_lake
    >>> import pyarrow.parquet as pq
    >>> with example_lake() as lake, stage(lake, "events") as staging:
    ...     with staging.open() as sink:
    ...         pq.write_table(pa.table([[7], ["x"]], schema=staging.arrow_schema), sink)
    ...     (file,) = staging.files
    ...     file.rows, file.partition
    (1, ())
    """

    path: str
    rows: int
    size_bytes: int
    partition: tuple[str | None, ...]
    _file: NewDataFile = field(repr=False, compare=False)


@dataclass
class Staging:
    """Data files of one table that are written before they are committed. Made by ``stage``; not thread-safe.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake, stage(lake, "events") as staging:
    ...     staging.fit(pa.table({"name": ["x"], "id": pa.array([1], pa.int8())})).to_pylist()
    [{'id': 1, 'name': 'x'}]
    """

    _context: LakeContext = field(repr=False)
    _table: TableInfo = field(repr=False)
    files: list[StagedFile] = field(default_factory=list)
    _offered: bool = field(default=False, repr=False)
    _settled: bool = field(default=False, repr=False)

    @property
    def table(self) -> str:
        """The name of the table, with its schema."""
        return self._table.qualified_name

    @property
    def schema(self) -> TableSchema:
        """The columns of the table when the block began."""
        return self._table.schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema that the files must have: the columns in order, with their ids as Parquet field ids."""
        return self._table.schema.to_arrow(field_ids=True)

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The partition keys of the table, such as ``month(ts)``; empty for a table without."""
        return tuple(key_texts(self._table.partition, self._table.schema))

    @property
    def target_file_size(self) -> int:
        """The bytes that a data file should have, by the options of the table."""
        return self._context.write_options(self._table).target_file_size

    def fit(self, rows: pa.Table) -> pa.Table:
        """Return rows in the columns of the table, by name: converted as ``Table.append`` does, with defaults.

        Raise ``SchemaMismatchError`` for columns that do not fit and ``ConstraintError`` for values that do not.
        """
        fitted = to_table(self._context.engine, rows, self._context.match(rows.schema, self._table))
        return fitted.cast(self.arrow_schema)

    def split(self, rows: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        """Yield rows that ``fit`` has made, apart by partition: the texts of its keys, which ``open`` takes, and rows.

        Rows of a table without partition keys are one part.
        """
        spec = self._table.partition
        if spec is None or not spec.keys:
            yield (), rows
            return
        keys = {f"key{number}": texts for number, texts in enumerate(self._key_texts(spec, rows))}
        numbered = pa.table({**keys, _ROW: pa.array(range(rows.num_rows), pa.int64())})
        groups = numbered.group_by(list(keys), use_threads=False).aggregate([(_ROW, "list")])
        for *values, numbers in zip(*(groups.column(name) for name in (*keys, f"{_ROW}_list")), strict=True):
            yield tuple(value.as_py() for value in values), rows.take(numbers.values)

    def _key_texts(self, spec: PartitionSpec, rows: pa.Table) -> Iterator[pa.Array]:
        for key in spec.keys:
            column = self._table.schema.by_id(key.column_id)
            values = rows.column(column.name)
            if key.parsed != IDENTITY:
                yield apply(values, key.parsed, column.type).cast(pa.string())
                continue
            distinct = values.combine_chunks().dictionary_encode()
            texts = self._context.engine.texts(pa.table({column.name: distinct.dictionary}), [column])[column.id]
            yield pa.array(texts, pa.string()).take(distinct.indices)

    @contextmanager
    def open(self, partition: tuple[str | None, ...] = ()) -> Iterator[pa.NativeFile]:
        """Open a new data file to write Parquet to, on every kind of store; it is one of ``files`` when the block ends.

        All its rows are of one ``partition``, as ``split`` returns it. A block that raises leaves no file. Raise
        ``InputError`` for a file without the ids of ``arrow_schema``, ``ConstraintError`` for NULL where it may not be.
        """
        spec = self._table.partition
        keys = () if spec is None else spec.keys
        if len(partition) != len(keys):
            raise InputError(f"a file of {self.table} has {len(keys)} partition values, not {len(partition)}")
        values = {key.index: text for key, text in zip(keys, partition, strict=True)}
        options = self._context.write_options(self._table)
        folder = "" if spec is None else directory(spec, self._table.schema, values, hive=options.hive)
        path = f"{folder}{data_file_name()}"
        place = self._table.location + path
        with self._context.store.open_output(place) as sink:
            yield sink
        try:
            file = self._describe(path, values)
        except BaseException:
            self._context.store.delete([place])
            raise
        self.files.append(StagedFile(path, file.record_count, file.file_size_bytes, partition, file))

    def _describe(self, path: str, values: Mapping[int, str | None]) -> NewDataFile:
        """Return a written file with its statistics."""
        footer = read_footer(self._context.store, self._table.location + path)
        schema = self._table.schema
        known = {leaf.field_id for leaf in footer.columns}
        lacking = [leaf.name for leaf in schema.leaves() if leaf.id not in known]
        if lacking:
            raise InputError(
                f'a data file of {self.table} has no column with the id of "{lacking[0]}"',
                hint="write it with the schema of Staging.arrow_schema",
            )
        stats = column_stats(footer, schema)
        needed = {column.id: column.name for column in schema.columns if not (column.nullable or column.nested)}
        for each in stats:
            if each.column_id in needed and each.null_count:
                name = needed[each.column_id]
                raise ConstraintError(f'NOT NULL constraint failed: NULL in the NOT NULL column "{name}"')
        spec = self._table.partition
        return NewDataFile(
            id=0,
            path=path,
            record_count=footer.rows,
            file_size_bytes=footer.size_bytes,
            footer_size=footer.footer_size,
            stats=stats,
            row_groups=footer.row_groups,
            partition_id=spec.id if spec is not None and spec.keys else None,
            partition_values=values,
        )

    # -- what becomes of the files -----------------------------------------------------------------------------------

    def offer(self, tx: Transaction) -> int:
        """Add the files to a transaction, for ``Change.append``; return the number of their rows."""
        if self._settled:
            raise InputError("the staged files are in the lake already, or removed", hint="stage others")
        table = tx.find_table(self._table.schema_name, self._table.name)
        if not _same_place(table, self._table):
            raise SchemaMismatchError(
                f"{self.table} has changed since its files were staged", hint="stage the rows again, for the new table"
            )
        tx.pending(table).files.extend(replace(each._file, id=tx.local_id()) for each in self.files if each.rows)
        self._offered = True
        return sum(each.rows for each in self.files)

    def withdraw(self) -> None:
        """Take the files back from a transaction that surely ends without a commit."""
        self._offered = False

    def settle(self, used: Collection[str]) -> None:
        """Leave the files that a commit has ``used``, paths below the data root, and remove the others."""
        self._settled = True
        self._remove(path for path in self._paths() if path not in used)

    def _paths(self) -> list[str]:
        return [self._table.location + file.path for file in self.files]

    def _remove(self, paths: Iterator[str]) -> None:
        self._context.store.delete(list(paths))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        # the commit may have happened: a file that is not in the lake is left to delete_orphaned_files
        unsure = isinstance(error, CommitUnknown) or not (error is None or isinstance(error, QuacklakeError))
        if not self._settled and not (self._offered and unsure):
            self._settled = True
            self._remove(iter(self._paths()))


def _same_place(one: TableInfo, two: TableInfo) -> bool:
    """Return whether files for one table are files for the other."""
    keys = [None if table.partition is None else (table.partition.id, table.partition.keys) for table in (one, two)]
    return (one.id, one.location, one.schema) == (two.id, two.location, two.schema) and keys[0] == keys[1]


def stage(lake: Lake, table: str) -> Staging:
    """Return a block in which data files of a table are written; what is not committed at its end is removed.

    Raise ``UnsupportedFeatureError`` for an encrypted lake and for a table with columns that are not portable (see
    ``schemas.is_portable``): ``Table.append`` writes their rows. Sort orders are left to the engine.

    >>> from quacklake.extend.example import example_lake
    >>> import pyarrow.parquet as pq
    >>> from quacklake.extend.writes import run
    >>> with example_lake() as lake:
    ...     with stage(lake, "events") as staging:
    ...         with staging.open() as sink:
    ...             pq.write_table(pa.table([[7], ["x"]], schema=staging.arrow_schema), sink)
    ...         outcome = run(lake, lambda change: change.append(staging))
    ...     outcome.value, lake.table("events").count()
    (1, 7)
    """
    lake.handle.check_whole("data files")
    context = lake.handle.context
    info = find_table(lake.handle.view(), table)
    if context.catalog.encrypted:
        raise UnsupportedFeatureError("other engines cannot write files of an encrypted lake", hint="use Table.append")
    foreign = next((column for column in info.schema.columns if not is_portable(column)), None)
    if foreign is not None:
        raise UnsupportedFeatureError(
            f'other engines cannot write the column "{foreign.name}" of type {foreign.type}', hint="use Table.append"
        )
    return Staging(context, info)
