"""Write rows of Spark into a table: match columns, place the files, and describe them in the catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from quacklake.core.engines.duckdb import WriteOptions
from quacklake.core.engines.duckdb.connections import writing as duckdb_writing
from quacklake.core.format.bounds import encode_comparable
from quacklake.core.format.layout import IDENTITY, directory
from quacklake.core.format.mappings import MappedColumn, NameMapping
from quacklake.core.format.names import data_file_name
from quacklake.core.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID, RESERVED_FIELDS
from quacklake.core.operations.conform import Match, given_schema, insert_few, match_given, to_table
from quacklake.core.operations.context import LakeContext
from quacklake.core.storage import Footer, column_stats
from quacklake.core.transaction import NewDataFile
from quacklake.errors import (
    CommitUnknown,
    ConstraintError,
    NotPermittedError,
    QuacklakeError,
    SqlError,
    UnsupportedFeatureError,
)
from quacklake.extend.schemas import Column, TableInfo, TableSchema, parse_type
from quacklake.spark.runtime.failures import each_task
from quacklake.spark.runtime.local import arrow_schema, with_variants
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.stored_texts import expression_text
from quacklake.spark.runtime.types import adopted, initial_value, plain_in_parquet, quote, required, stored
from quacklake.spark.write.tasks import Fetch, write_task
from quacklake.spark.write.writer import SortBy, SparkWriter, WriteJob, Written

if TYPE_CHECKING:
    from quacklake.extend.writes import Transaction


@dataclass(frozen=True, slots=True)
class Prepared:
    """Written files with their paths, which lack only ids; ``mapped`` ones have no field ids in lists and maps."""

    table: TableInfo
    files: tuple[tuple[NewDataFile, str], ...]
    mapped: bool = False

    @classmethod
    def of(cls, table: TableInfo, files: Iterable[NewDataFile]) -> Prepared:
        """Return files that have all field ids."""
        return cls(table, tuple((file, table.location + file.path) for file in files))

    @property
    def paths(self) -> list[str]:
        return [path for _, path in self.files]

    def fits(self, table: TableInfo) -> bool:
        """Return True when writing the rows again for this table would give the same files."""
        own, keys = self.table, None if self.table.partition is None else self.table.partition.keys
        others = None if table.partition is None else table.partition.keys
        return (own.schema, own.location, own.sort, keys) == (table.schema, table.location, table.sort, others)

    def add_to(self, tx: Transaction, table: TableInfo) -> None:
        pending = tx.pending(table)
        mapping_id = None
        if self.mapped:
            mapping = NameMapping(0, tuple(_map_column(column) for column in table.schema.columns))
            mapping_id = tx.known_mappings(table).get(mapping.key)
            if mapping_id is None:
                mapping_id = tx.local_id()
                pending.mappings.append(replace(mapping, id=mapping_id))
        pending.files.extend(replace(file, mapping_id=mapping_id) for file in self.placed(tx, table))

    def placed(self, tx: Transaction, table: TableInfo) -> list[NewDataFile]:
        """Return the files with new ids, in the current partitioning of the table."""
        spec = table.partition
        partition_id = spec.id if spec is not None and spec.keys else None
        return [replace(file, id=tx.local_id(), partition_id=partition_id) for file, _ in self.files]


@dataclass
class SparkRows:
    """The rows of one DataFrame for one table. Written files are used again when a commit is retried.

    ``kept`` are columns of the frame with internal values of existing rows, by field id: their row ids, their
    snapshots. With ``partial``, columns of the table may be missing. ``folder`` is the folder, below the table's, for
    the files of a table without partitions; ``tasks`` is the number of tasks that write them. ``order`` replaces the
    table's sort order. ``count`` is a lower bound of the number of rows, if it is known. The driver itself writes rows
    that ``fetch`` fetches.
    """

    context: LakeContext
    writer: SparkWriter
    frame: DataFrame
    kept: Mapping[int, str] = field(default_factory=dict)
    folder: str = ""
    tasks: int | None = None
    order: Sequence[SortBy] | None = None
    partial: bool = False
    count: int | None = None
    fetch: Fetch = field(default_factory=Fetch)
    _few: pa.Table | None = None
    _looked: bool = False
    _prepared: Prepared | None = field(default=None, repr=False)

    @property
    def session(self) -> SparkSession:
        return self.writer.session

    def add_to(self, tx: Transaction, table: TableInfo) -> None:
        """Add the rows to a transaction: inlined when they are few, else as files. Raise the errors of ``append``."""
        time = has_time(self.session)
        matches, given = self._match(table, time=time)
        few = self._small(table, matches, given)
        if few is not None and few.num_rows <= self.context.inline_limit(table):
            if few.num_rows:
                row_ids = few.column(self.kept[FIELD_ROW_ID]).to_pylist() if self.kept else [None] * few.num_rows
                rows = to_table(self.context.engine, few, matches)
                insert_few(self.context, tx, table, rows, row_ids)
            return
        if self._prepared is None or not self._prepared.fits(table):
            self.discard()
            if few is not None:
                task = replace(write_task(self.context, table, matches, given, self.kept), folder=self.folder)
                with self.context.engine.connection() as connection:
                    with duckdb_writing():
                        connection.register("ql_source", few)
                    self._prepared = Prepared.of(table, task.files(connection, self.context.writer, few.nbytes))
            else:
                self._prepared = self._write(table, matches, given, time=time)
        self._prepared.add_to(tx, table)

    def files(self, tx: Transaction, table: TableInfo) -> list[NewDataFile]:
        """Write the rows as files that are not yet part of the transaction, which removes them if it fails."""
        time = has_time(self.session)
        matches, given = self._match(table, time=time)
        prepared = self._write(table, matches, given, time=time)
        for path in prepared.paths:
            tx.wrote(path)
        return prepared.placed(tx, table)

    @contextmanager
    def discarded_on_failure(self) -> Iterator[None]:
        """Remove the files when the block fails, unless they may belong to the lake."""
        try:
            yield
        except CommitUnknown:
            raise
        except QuacklakeError:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the written files. A file that cannot be removed is left to maintenance as an orphan."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            self.writer.store.delete(prepared.paths)

    def _match(self, table: TableInfo, *, time: bool) -> tuple[list[Match], TableSchema]:
        """Match the columns of the rows with those of the table. Return the matches and the given columns."""
        schema = StructType([each for each in self.frame.schema.fields if each.name not in self.kept.values()])
        given = given_columns(schema, table, time=time)
        return match_given(given, table.schema, table.qualified_name, partial=self.partial), given

    def _small(self, table: TableInfo, matches: Sequence[Match], given: TableSchema) -> pa.Table | None:
        """Return all rows when they are few enough for the catalog or for the driver, else None."""
        inlined, alike = self.context.inline_limit(table), all(_written_alike(found, given) for found in matches)
        limit = max(inlined, self.fetch.limit if alike else 0)
        if not limit or (self.count or 0) > limit or not all(carries(found, given) for found in matches):
            return None
        if not self._looked:
            self._few = self.fetch.few(self.frame, inlined, more=alike)
            self._looked = True
        return self._few

    def _write(self, table: TableInfo, matches: Sequence[Match], given: TableSchema, *, time: bool) -> Prepared:
        options = self.context.write_options(table)
        plain = all(map(plain_in_parquet, table.schema.columns))
        if self.context.catalog.encrypted or (self.kept and not plain):
            # Spark has no encryption keys, and files that need a name mapping have no place for row ids
            frame = self.frame if self.tasks is None else self.frame.coalesce(self.tasks)
            if self.order and self.tasks is not None:
                order = [each.column() for each in self.order]
                frame = self.frame.repartitionByRange(self.tasks, *order).sortWithinPartitions(*order)
            task = replace(write_task(self.context, table, matches, given, self.kept), folder=self.folder)
            return Prepared.of(table, [file for done in each_task(frame, task) for file in done.files])
        stem = data_file_name().removesuffix(".parquet")
        job = WriteJob(
            table,
            [_value(found, given, time=time) for found in matches],
            f"{table.location}{stem}/",
            self._parquet_options(table),
            spark_order(table) if options.sort and self.order is None else self.order or (),
            {id_: quote(name) for id_, name in self.kept.items()},
            self.tasks,
        )
        self.writer.store.make_parent(job.folder + stem)
        placed: list[str] = []
        try:
            written = self.writer.write(self.frame, job)
            keys = self._key_texts(table, written)
            paths = self._paths(table, written, keys, stem)
            if self.writer.store.is_local:
                for each, path in zip(written, paths, strict=True):
                    placed.append(path)
                    self.writer.store.rename(each.path, path)
                self.writer.store.sync(paths)
            ids = [_ids(each.footer, table.schema) for each in written]
            mapped = not plain or not all(
                leaf.field_id in RESERVED_FIELDS or leaf.field_id == known.get(leaf.path)
                for each, known in zip(written, ids, strict=True)
                for leaf in each.footer.columns
            )
            if mapped and self.kept:
                raise QuacklakeError("Spark wrote files without field ids")
            rows = zip(written, paths, keys, ids, strict=True)
            return Prepared(table, tuple((_file(table, *row), row[1]) for row in rows), mapped)
        except BaseException:
            left = [entry.path for entry in self.writer.store.list(job.folder.rstrip("/"))]
            self.writer.store.delete([*left, *placed])
            raise
        finally:
            self.writer.store.prune(job.folder)

    def _parquet_options(self, table: TableInfo) -> dict[str, str]:
        options = self.context.write_options(table)
        found = {
            "compression": options.compression,
            "parquet.writer.version": f"v{options.parquet_version:d}",
            "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        }
        if options.compression == "zstd" and options.compression_level is not None:
            found["parquet.compression.codec.zstd.level"] = f"{options.compression_level:d}"
        if options.row_group_size != WriteOptions().row_group_size:
            # the default is DuckDB's; Spark is faster with its own, which counts bytes
            found["parquet.block.row.count.limit"] = f"{options.row_group_size:d}"
        if options.row_group_size_bytes is not None:
            found["parquet.block.size"] = f"{options.row_group_size_bytes:d}"
        if self.fetch.row_bytes:
            # rows take more space in memory than in a file, so files stay below the target
            found["maxRecordsPerFile"] = f"{max(1, int(options.target_file_size / self.fetch.row_bytes)):d}"
        return found

    def _key_texts(self, table: TableInfo, written: Sequence[Written]) -> list[dict[int, str | None]]:
        """Return the partition values of each file as the catalog stores them: as DuckDB's text."""
        if table.partition is None:
            return [{} for _ in written]
        found: list[dict[int, str | None]] = [{} for _ in written]
        for number, key in enumerate(table.partition.keys):
            texts = [each.keys[number] for each in written]
            if key.parsed == IDENTITY:
                column = table.schema.by_id(key.column_id)
                values = self.context.engine.cast(pa.array(texts, pa.string()), column)
                texts = self.context.engine.texts(pa.table({column.name: values}), [column])[column.id]
            for values_of, text in zip(found, texts, strict=True):
                values_of[key.index] = text
        return found

    def _paths(
        self, table: TableInfo, written: Sequence[Written], keys: Sequence[Mapping[int, str | None]], stem: str
    ) -> list[str]:
        """Return the final paths of the files: the usual ones on a local disk, elsewhere those that Spark wrote."""
        if not self.writer.store.is_local:
            return [each.path for each in written]
        spec, hive = table.partition, self.context.write_options(table).hive
        folders = [self.folder if spec is None else directory(spec, table.schema, values, hive=hive) for values in keys]
        return [f"{table.location}{folder}{stem}_{number}.parquet" for number, folder in enumerate(folders)]


def given_columns(schema: StructType, table: TableInfo, *, time: bool) -> TableSchema:
    """Return the columns of a DataFrame. They have the table's type if Spark shows that type in the same form."""
    given = with_variants(given_schema(arrow_schema(schema, required=False), table.qualified_name), schema)
    wanted = ((column, table.schema.get(column.name)) for column in given.columns)
    return TableSchema(tuple(one if two is None else adopted(one, two, time=time) for one, two in wanted))


def carries(found: Match, given: TableSchema) -> bool:
    """Return True when Arrow carries values of a column from Spark to DuckDB without loss."""
    return found.source is None or not _is_hard(given.find(found.source), found.column)


def carried_alike(given: TableSchema, table: TableInfo) -> bool:
    """Return True when Arrow carries the values of all columns that the table has too without loss."""
    both = ((one, table.schema.get(one.name)) for one in given.columns)
    return not any(two is not None and _is_hard(one, two) for one, two in both)


def _is_hard(given: Column, wanted: Column) -> bool:
    hard = ("variant", "timetz", "interval", "time", "time_ns", "timestamp_ns", "int128", "uint128")
    pairs = zip(given.leaves(), wanted.leaves(), strict=False)
    return any(one.type in hard or two.type in hard for one, two in pairs)


def _written_alike(found: Match, given: TableSchema) -> bool:
    """Return True when DuckDB and Spark write the same values for a column that :func:`carries`."""
    if found.source is None:
        return found.column.default_kind != "expression"
    one, two = (
        Counter(parse_type(leaf.type).base for leaf in each.leaves())
        for each in (given.find(found.source), found.column)
    )
    more_floats = one["float32"] + one["float64"] < two["float32"] + two["float64"]
    # the float for a decimal may differ in the last bit
    return not two["geometry"] and not (one["decimal"] and more_floats)


def _value(found: Match, given: TableSchema, *, time: bool) -> str:
    column = found.column
    if found.source is not None:
        value = stored(quote(found.source), given.find(found.source), column, column.name, time=time)
    else:
        value = stored(default_of(column, time=time), replace(column, name="default"), column, column.name, time=time)
    return value if column.nullable else required(value, column.name)


def default_of(column: Column, *, time: bool) -> str:
    """Return the default of a column in Spark SQL. Raise ``UnsupportedFeatureError`` for a computed default."""
    if column.default is not None and column.default_kind == "expression":
        raise UnsupportedFeatureError(
            f'the default of "{column.name}" is computed, which Spark cannot do', hint="give the column a value"
        )
    return initial_value(replace(column, initial_default=column.default), time=time)


def spark_order(table: TableInfo) -> list[SortBy]:
    """Return the sort order of a table in Spark SQL. Raise ``UnsupportedFeatureError``."""
    found = []
    for key in table.sort.keys if table.sort is not None else ():
        if key.dialect != "duckdb":
            continue
        try:
            sql = expression_text(key.expression, "duckdb")
        except (SqlError, NotPermittedError) as error:
            raise UnsupportedFeatureError(f"Spark cannot sort by {key.expression}: {error.message}") from None
        found.append(SortBy(sql, key.direction == "DESC", key.null_order == "NULLS_FIRST"))
    return found


def _leaf_paths(columns: Sequence[Column], above: str = "") -> dict[str, int]:
    """Map paths of leaves in Spark's files to column ids. The path of a variant, which is a group, ends with a dot."""
    found: dict[str, int] = {}
    for column in columns:
        path = above + column.name
        match column.type:
            case "struct":
                found |= _leaf_paths(column.children, f"{path}.")
            case "list" | "map":
                names = ("list.element",) if column.type == "list" else ("key_value.key", "key_value.value")
                pairs = zip(column.children, names, strict=True)
                found |= _leaf_paths([replace(child, name=name) for child, name in pairs], f"{path}.")
            case "variant":
                found[f"{path}."] = column.id
            case _:
                found[path] = column.id
    return found


def _ids(footer: Footer, schema: TableSchema) -> dict[str, int]:
    paths = _leaf_paths(schema.columns)
    groups = {path: id_ for path, id_ in paths.items() if path.endswith(".")}
    found: dict[str, int] = {}
    for leaf in footer.columns:
        group = next((id_ for path, id_ in groups.items() if leaf.path.startswith(path)), None)
        id_ = paths.get(leaf.path, group)
        if id_ is not None:
            found[leaf.path] = id_
    return found


def _file(
    table: TableInfo, written: Written, path: str, keys: Mapping[int, str | None], ids: Mapping[str, int]
) -> NewDataFile:
    footer = written.footer
    found = column_stats(footer, table.schema, columns=ids)
    stats = []
    for each in found:
        column, floats = table.schema.by_id(each.column_id), written.floats
        if column.id in floats:  # with what is known about NaN, which Parquet does not record
            nan, *bounds = floats[column.id] or (False, None, None)
            low, high = (None if bound is None else encode_comparable(bound, column.type) for bound in bounds)
            each = (
                each._replace(contains_nan=nan)
                if floats[column.id] is None
                else each._replace(contains_nan=nan, min=low, max=high)
            )
        stats.append(each)
    needed = {column.id: column.name for column in table.schema.columns if not (column.nullable or column.nested)}
    for each in stats:
        if each.column_id in needed and each.null_count:
            raise ConstraintError(f'NOT NULL constraint failed: NULL in the NOT NULL column "{needed[each.column_id]}"')
    if not path.startswith(table.location):
        raise QuacklakeError(f"Spark wrote {path} outside of the table's folder")
    dates = next((leaf for leaf in footer.columns if leaf.field_id == FIELD_SNAPSHOT_ID), None)
    return NewDataFile(
        id=0,
        path=path.removeprefix(table.location),
        record_count=footer.rows,
        file_size_bytes=footer.size_bytes,
        footer_size=footer.footer_size,
        stats=tuple(stats),
        row_groups=footer.row_groups,
        partition_values=keys,
        moved=dates is not None,
        begin_snapshot=None if dates is None else int(str(dates.min)),
        partial_max=None if dates is None else int(str(dates.max)),
    )


def _map_column(column: Column, name: str | None = None) -> MappedColumn:
    """Return a column under its own name in a file, with lists and maps as in the format's name mappings."""
    names: Sequence[str | None] = (None,) * len(column.children)
    if column.type in ("list", "map"):
        names = ("list",) if column.type == "list" else ("key", "value")
    children = tuple(_map_column(child, one) for child, one in zip(column.children, names, strict=True))
    return MappedColumn(name or column.name, column.id, children=children)
