"""Write DataFrames as Parquet files with Spark itself, and read their statistics from the footers; z-order curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from quacklake import telemetry
from quacklake.core.format.layout import Transform, key_names
from quacklake.core.format.objects import RESERVED_FIELDS
from quacklake.core.format.transforms import apply
from quacklake.core.format.transforms import bucket as bucket_of
from quacklake.core.storage import Footer
from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.names import fold
from quacklake.extend.reporting import reach
from quacklake.extend.schemas import Column, TableInfo, TableSchema, parse_type
from quacklake.extend.stores import Store
from quacklake.spark.read.file_index import read_paths
from quacklake.spark.read.scan import all_footers
from quacklake.spark.runtime.failures import writing
from quacklake.spark.runtime.local import FIELD_ID, file_type
from quacklake.spark.runtime.session import WRITING, arrow_udf, place_of, rebalanced, require_types, settings
from quacklake.spark.runtime.settings import file_path, spark_uri
from quacklake.spark.runtime.types import RAISED, key_expression, literal, quote, read_type, shown_type

#: True if a file's numbers include NaN, with the minimum and maximum of the others.
FloatStats = tuple[bool, float | None, float | None]

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_MARK = "\x01"
"""Prefix of the folder name for an empty text, a text that Spark takes for NULL, or a text with this prefix."""
_MAX_LENGTH = 240 // 3  # the longest folder name, in which each byte may become three


@dataclass(frozen=True, slots=True)
class SortBy:
    sql: str
    descending: bool
    nulls_first: bool

    def column(self) -> SparkColumn:
        key = f.expr(self.sql)
        if self.descending:
            return key.desc_nulls_first() if self.nulls_first else key.desc_nulls_last()
        return key.asc_nulls_first() if self.nulls_first else key.asc_nulls_last()


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A write: ``values`` is the SQL of each column, ``reserved`` of columns of the format itself, by field id.

    ``folder`` is a new folder below the table's. Without ``tasks``, their number, Spark decides.
    """

    table: TableInfo
    values: Sequence[str]
    folder: str
    options: Mapping[str, str]
    sort: Sequence[SortBy] = ()
    reserved: Mapping[int, str] = field(default_factory=dict)
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A file that Spark wrote, with its partition keys as texts, and statistics of columns that may hold NaN."""

    path: str
    footer: Footer
    keys: tuple[str | None, ...]
    floats: Mapping[int, FloatStats | None]


class _Float(NamedTuple):
    """A column of floating-point numbers: its id, its SQL, and its path in a file."""

    id: int
    sql: str
    path: str


class SparkWriter:
    def __init__(self, session: SparkSession, store: Store) -> None:
        self.session = session
        self.store = store

    def write(self, frame: DataFrame, job: WriteJob) -> list[Written]:
        """Write rows; a failure leaves files. Raise ``ConstraintError`` or ``UnsupportedFeatureError``."""
        require_types(self.session, job.table.schema.columns)
        reach("engine.write.before")
        with telemetry.timed("engine.write", tenant=self.store.label), settings(self.session, WRITING), writing():
            keys = _key_columns(job.table)
            writer = self._prepare_rows(frame, job).write.mode("append").options(**job.options)
            if keys:
                writer = writer.partitionBy(*keys)
            writer.parquet(spark_uri(self.store.url(job.folder.rstrip("/"))))
        reach("engine.write.after")
        return self._gather(job)

    def _prepare_rows(self, frame: DataFrame, job: WriteJob) -> DataFrame:
        """Return the rows as the files store them: columns with field ids, then the partition keys."""
        columns = job.table.schema.columns
        neutral = frame.selectExpr(
            *(f"{sql} AS c{i}" for i, sql in enumerate(job.values)),
            *(f"{sql} AS r{id_}" for id_, sql in job.reserved.items()),
        )
        # field ids survive only if this is the last step that builds the columns
        select = [
            (neutral[f"c{i}"].cast(file_type(column)) if column.nested else neutral[f"c{i}"]).alias(
                column.name, metadata={FIELD_ID: column.id}
            )
            for i, column in enumerate(columns)
        ]
        select += [neutral[f"r{id_}"].alias(RESERVED_FIELDS[id_], metadata={FIELD_ID: id_}) for id_ in job.reserved]
        keys = _key_columns(job.table)
        select += [key.alias(name) for name, key in zip(keys, _keys(job.table), strict=True)]
        rows = neutral.select(*select)
        order = [each.column() for each in job.sort]
        names = [f.col(quote(name)) for name in keys]
        if job.tasks is not None:
            both = [*names, *order]
            few = rows.repartitionByRange(job.tasks, *both) if order and job.tasks > 1 else rows.coalesce(job.tasks)
            return few.sortWithinPartitions(*both) if both else few
        if keys:
            return rebalanced(rows, keys).sortWithinPartitions(*names, *order)
        if order:
            return rows.repartitionByRange(*order).sortWithinPartitions(*order)
        return rows

    def _gather(self, job: WriteJob) -> list[Written]:
        """Return the written files that have rows, and remove all others."""
        entries = list(self.store.list(job.folder.rstrip("/")))
        names = ((entry, entry.path.rsplit("/", 1)[-1]) for entry in entries)
        data = [entry for entry, name in names if name.endswith(".parquet") and not name.startswith((".", "_"))]
        footers = all_footers(self.session, self.store, [entry.path for entry in data])
        pairs = [(entry, footer) for entry, footer in zip(data, footers, strict=True) if footer.rows]
        wanted = {entry.path for entry, _ in pairs}
        self.store.delete([entry.path for entry in entries if entry.path not in wanted])
        size = sum(footer.size_bytes for _, footer in pairs)
        telemetry.count("engine.files_written", len(pairs), tenant=self.store.label)
        telemetry.count("engine.bytes_written", size, tenant=self.store.label)
        floats = _float_columns(job.table.schema.columns)
        # without a maximum there may be NaN, which the writers of all versions sort as the greatest number
        parts = [part for _, footer in pairs for part in footer.columns if part.value_count and part.max is None]
        doubtful = [each for each in floats if each.path in {part.path for part in parts}]
        numbers = self._numbers(job.table.schema, sorted(wanted), doubtful) if doubtful and wanted else {}
        clean: dict[int, FloatStats | None] = {each.id: None for each in floats if each not in doubtful}
        return [
            Written(entry.path, footer, _folder_texts(job, entry.path), {**clean, **numbers.get(entry.path, {})})
            for entry, footer in pairs
        ]

    def _numbers(
        self, schema: TableSchema, paths: Sequence[str], doubtful: Sequence[_Float]
    ) -> dict[str, dict[int, FloatStats | None]]:
        """Read from the files what Parquet does not record about numbers when NaN is among them."""
        columns = _only(schema.columns, {each.id for each in doubtful})
        fields = ", ".join(f"{quote(column.name)} {read_type(column, time=False)}" for column in columns)
        urls = self.store.urls(paths)
        known = dict(zip(map(file_path, urls), paths, strict=True))
        rows = read_paths(self.session, self.store, urls, fields)
        place = place_of(rows, "file_path").alias("_ql_path")
        measured = []
        for each in doubtful:
            number = f"IF(isnan({each.sql}), NULL, CAST({each.sql} AS DOUBLE))"
            found_nan = f"coalesce(bool_or(isnan({each.sql})), false)"
            measured += [f"{found_nan} AS n{each.id}", f"min({number}) AS l{each.id}", f"max({number}) AS h{each.id}"]
        found: dict[str, dict[int, FloatStats | None]] = {}
        grouped = rows.select("*", place).groupBy("_ql_path").agg(*(f.expr(each) for each in measured))
        for row in grouped.toLocalIterator():
            path = known[row["_ql_path"].replace("file:///", "file:/", 1)]
            found[path] = {each.id: (row[f"n{each.id}"], row[f"l{each.id}"], row[f"h{each.id}"]) for each in doubtful}
        return found


def _float_columns(columns: Sequence[Column], sql: str = "", path: str = "") -> list[_Float]:
    """Return the columns that may hold NaN and are not in a list or map."""
    found: list[_Float] = []
    for column in columns:
        name = sql + quote(column.name)
        if column.type == "struct":
            found += _float_columns(column.children, f"{name}.", f"{path}{column.name}.")
        elif column.type in ("float32", "float64"):
            found.append(_Float(column.id, name, path + column.name))
    return found


def _only(columns: Sequence[Column], ids: Set[int]) -> tuple[Column, ...]:
    """Return some columns that are not in a list or map, with the structs around them."""
    structs = (replace(each, children=_only(each.children, ids)) if each.type == "struct" else each for each in columns)
    return tuple(each for each in structs if each.id in ids or (each.type == "struct" and each.children))


def _key_columns(table: TableInfo) -> list[str]:
    """Return folder names for a partitioned table that no column of the files has."""
    if table.partition is None:
        return []
    taken = {fold(name) for name in table.schema.names}
    names = []
    for name in key_names(table.partition, table.schema):
        while fold(name) in taken:
            name += "_key"
        taken.add(fold(name))
        names.append(name)
    return names


def _keys(table: TableInfo) -> list[SparkColumn]:
    found = []
    for key in table.partition.keys if table.partition is not None else ():
        index = next(i for i, column in enumerate(table.schema.columns) if column.id == key.column_id)
        column = table.schema.columns[index]
        sql = key_expression(key.parsed, f"c{index}", column.type)
        value = _bucket(key.parsed, f"c{index}", column.type) if sql is None else f.expr(sql)
        found.append(_folder_name(value))
    return found


def _folder_name(value: SparkColumn) -> SparkColumn:
    """Return the text of a key in a form that folders allow and :func:`_folder_texts` reads."""
    unfit = f.lit(f"{RAISED}a partition value contains a NUL character, which no catalog can store\n")
    long = f.lit(f"{RAISED}a partition value is too long for the name of a folder, where Spark puts its files\n")
    marked = value.isin("", _NULL_FOLDER) | value.startswith(_MARK)
    return (
        f.when(f.contains(value, f.lit("\0")), f.raise_error(unfit))
        .when(f.octet_length(value) > _MAX_LENGTH, f.raise_error(long))
        .when(marked, f.concat(f.lit(_MARK), value))
        .otherwise(value)
    )


def _bucket(transform: Transform, name: str, type_: str) -> SparkColumn:
    """Return the bucket of a value. Spark lacks this hash, so Python computes it on the executors."""
    if type_ == "timestamptz" and not hasattr(f, "arrow_udf"):  # Python would get ambiguous local times
        raise UnsupportedFeatureError("buckets of timestamptz columns take Spark 4.1 or newer")

    def buckets(values: pa.Array) -> pa.Array:
        return apply(values, transform, type_).cast(pa.string())

    def one(value: object) -> str | None:
        found = bucket_of(value, type_, transform.buckets)
        return None if found is None else str(found)

    shown = key_expression(Transform("identity"), name, type_) if type_ == "uuid" else name
    return arrow_udf(buckets, one, f.expr(shown or name))


def _folder_texts(job: WriteJob, path: str) -> tuple[str | None, ...]:
    if job.table.partition is None:
        return ()
    texts: list[str | None] = []
    for segment in path.removeprefix(job.folder).split("/")[:-1]:
        text = unquote(segment.partition("=")[2])
        texts.append(None if text == _NULL_FOLDER else text.removeprefix(_MARK))
    return tuple(texts)


_SAMPLE = 20_000
_LETTERS = 64  # the number of leading characters of a text that count
_HARD = ("time", "timetz", "time_ns", "interval", "timestamp_ns")


def z_order(frame: DataFrame, columns: Sequence[Column], rows: int) -> SortBy:
    """Return the sort key of a z-order curve, from a sample of ``rows`` rows in shown form, for rows in stored form.

    Each column counts by its place among bounds of the sample, so that every distribution fills the curve evenly; then
    bits alternate. Raise ``UnsupportedFeatureError`` for a type whose two forms sort differently.
    """
    hard = next((column for column in columns if column.type in _HARD), None)
    if hard is not None:
        raise UnsupportedFeatureError(f'Spark has no curve through the column "{hard.name}" of type {hard.type}')
    bits = min(8, 62 // len(columns))
    sample = frame.sample(min(1.0, _SAMPLE / max(rows, 1)), seed=1)
    shown = [_cut(column, "replace({0}, '-', '')") for column in columns]
    lists = sample.selectExpr(*(f"sort_array(collect_list({value})) AS l{i}" for i, value in enumerate(shown)))
    parts = (1 << bits) - 1
    place = f"CAST(1 + i * size({{0}}) DIV {parts + 1} AS INT)"
    bounds = lists.selectExpr(
        *(
            f"CASE WHEN size(l{i}) > 0 THEN transform(sequence(1, {parts}),"
            f" i -> CAST(element_at(l{i}, least(size(l{i}), {place.format(f'l{i}')})) AS STRING)) END AS b{i}"
            for i in range(len(columns))
        )
    ).first()
    terms = []
    for i, column in enumerate(columns):
        texts = list(dict.fromkeys(bounds[f"b{i}"] or ())) if bounds is not None else []
        leaves = [_spread(number, bits, i, len(columns)) for number in range(len(texts) + 1)]
        value = _cut(column, "lower(hex({0}))")
        terms.append(f"IF({value} IS NULL, 0L, {_tree(value, [_literal(text, column) for text in texts], leaves)})")
    return SortBy(" | ".join(terms), descending=False, nulls_first=True)


def _spread(number: int, bits: int, place: int, count: int) -> int:
    """Return a number with gaps between its bits for the bits of the other columns."""
    return sum((number >> bit & 1) << (bit * count + count - 1 - place) for bit in range(bits))


def _cut(column: Column, uuid: str) -> str:
    """Return the part of a value that counts. ``uuid`` is the form for a UUID, which is stored otherwise than shown."""
    name = quote(column.name)
    match column.type:
        case "uuid":
            return uuid.format(name)
        case "varchar" | "json":
            return f"left({name}, {_LETTERS})"
        case "blob":
            return f"left(hex({name}), {_LETTERS})"
        case "boolean":
            return f"CAST({name} AS INT)"
        case _:
            return name


def _literal(text: str, column: Column) -> str:
    if parse_type(column.type).base in ("varchar", "json", "blob", "uuid"):
        return literal(text)
    type_ = "INT" if column.type == "boolean" else shown_type(column, time=False)
    return f"CAST({literal(text)} AS {type_})"


def _tree(value: str, bounds: Sequence[str], leaves: Sequence[int]) -> str:
    """Return the SQL that finds the leaf of a value between bounds by binary search."""
    if not bounds:
        return f"{leaves[0]:d}L"
    middle = len(bounds) // 2
    low = _tree(value, bounds[:middle], leaves[: middle + 1])
    high = _tree(value, bounds[middle + 1 :], leaves[middle + 1 :])
    return f"IF({value} < {bounds[middle]}, {low}, {high})"
