"""A scan plan as a DataFrame.

Files are read by Spark's own Parquet reader under the names they have in the files, in one branch for all files of one
shape; deletes are an anti-join for the files that have any, inlined rows a branch of their own. Nothing depends on a
setting of the session when the frame runs, only the type TIME when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, replace

from quacklake.engines.spark.deletes import READ_OPTIONS, Deletes, key_sql, separate
from quacklake.engines.spark.local import inlined_columns, inlined_rows, to_frame
from quacklake.engines.spark.paths import file_path, spark_paths
from quacklake.engines.spark.session import LISTING, has_time, settings
from quacklake.engines.spark.shapes import FileShapes, Shape
from quacklake.errors import UnsupportedFeatureError
from quacklake.format.mappings import NameMapping, hive_values
from quacklake.format.names import fold
from quacklake.format.objects import NAME_SNAPSHOT_ID
from quacklake.format.schema import Column
from quacklake.format.spark import initial_value, literal, quote, read_type, shown, shown_type
from quacklake.scan import ScanPlan
from quacklake.scan.plan import column_key
from quacklake.storage import Store

__all__ = ["SparkScan"]


@dataclass(frozen=True, slots=True)
class _Branch:
    """Files of one shape; ``group`` is that of their deletes, if they have any."""

    indexes: tuple[int, ...]
    shape: Shape
    mapping: NameMapping | None
    partial: bool
    group: int | None


class SparkScan:
    """Makes DataFrames of the plans of one lake. Safe to share between threads."""

    def __init__(self, session: SparkSession, store: Store) -> None:
        self.session = session
        self.store = store
        self._shapes = FileShapes(session, store)

    def frame(self, plan: ScanPlan) -> DataFrame:
        """The rows of a plan. Nothing is read yet but footers of files older than the table's columns.

        Raises ``UnsupportedFeatureError`` for encrypted files.
        """
        if pc.any(pc.is_valid(plan.files.column("encryption_key"))).as_py():
            raise UnsupportedFeatureError(
                f"{plan.schema_name}.{plan.table_name} has encrypted files, which Spark cannot read yet",
                hint="read it with lake.table(…), which decrypts them in this process",
            )
        time = has_time(self.session)
        local = LISTING if self.store.is_local else {}
        with settings(self.session, local):
            parts = [self._files(plan, branch, time=time) for branch in self._branches(plan)]
        if plan.inlined is not None and plan.inlined.num_rows:
            parts.append(self._inlined(plan, time=time))
        if not parts:
            columns = (
                f"CAST(NULL AS {shown_type(column, time=time)}) AS {quote(column.name)}"
                for column in plan.schema.columns
            )
            return self.session.range(0).selectExpr(*columns)
        return reduce(DataFrame.union, parts)

    def _branches(self, plan: ScanPlan) -> list[_Branch]:
        files = plan.files
        deleted = pc.or_(
            pc.is_valid(files.column("delete_path")),
            pc.is_in(files.column("data_file_id"), value_set=plan.deletes.column("file_id").combine_chunks()),
        ).to_pylist()
        partial = pc.fill_null(pc.greater(files.column("partial_max"), plan.snapshot_id), False).to_pylist()
        mappings = files.column("mapping_id").to_pylist()
        shapes = self._shapes.find(plan)
        # equal shapes are one object, and to compare them would take long for very many files
        found: dict[tuple[int, int | None, bool, bool], list[int]] = {}
        for index, key in enumerate(zip(map(id, shapes), mappings, partial, deleted, strict=True)):
            found.setdefault(key, []).append(index)
        branches: list[_Branch] = []
        for (_, mapping_id, some, with_deletes), indexes in found.items():
            shape = shapes[indexes[0]]
            mapping = None if mapping_id is None else plan.mapping(mapping_id)
            some = some and mapping is None
            if not with_deletes:
                branches.append(_Branch(tuple(indexes), shape, mapping, some, None))
                continue
            for number, group in enumerate(self._groups(plan, indexes)):
                branches.append(_Branch(tuple(group), shape, mapping, some, number))
        return branches

    def _groups(self, plan: ScanPlan, indexes: Sequence[int]) -> list[list[int]]:
        files = plan.files.take(pa.array(indexes, pa.int64()))
        numbers = separate(
            self.store.urls(files.column("path").to_pylist()),
            files.column("record_count").to_pylist(),
            files.column("delete_path").to_pylist(),
        )
        groups: dict[int, list[int]] = {}
        for index, number in zip(indexes, numbers, strict=True):
            groups.setdefault(number, []).append(index)
        return list(groups.values())

    def _files(self, plan: ScanPlan, branch: _Branch, *, time: bool) -> DataFrame:
        files = plan.files.take(pa.array(branch.indexes, pa.int64()))
        urls = self.store.urls(files.column("path").to_pylist())
        stored = [column for _, column in branch.shape]
        fields = [f"{quote(column.name)} {read_type(column, time=time)}" for column in stored]
        if branch.partial:
            fields.append(f"{quote(NAME_SNAPSHOT_ID)} BIGINT")
        reader = self.session.read.options(**READ_OPTIONS)
        # without any column of the table in the file, its rows still count
        rows = reader.schema(", ".join(fields) or "_ql_nothing BOOLEAN").parquet(*spark_paths(urls))
        places = _Places.beside([column.name for column in stored])
        folders = _folders(branch, plan.schema.columns)
        if folders or branch.group is not None:
            rows = places.add_to(rows)
        if branch.group is not None:
            key = key_sql(urls, places.name, places.position)
            deleted = Deletes(self.session, self.store, plan, files, urls).frame(places.key)
            rows = rows.selectExpr("*", f"{key} AS {places.key}").join(deleted, places.key, "left_anti")
        if branch.partial:
            name = quote(NAME_SNAPSHOT_ID)
            rows = rows.filter(f"{name} IS NULL OR {name} <= {plan.snapshot_id:d}")
        if folders:
            rows = self._with_folders(rows, urls, folders, branch, places.path)
        by_id = dict(branch.shape)
        return rows.selectExpr(*(_select(column, by_id, folders, time=time) for column in plan.schema.columns))

    def _with_folders(
        self, rows: DataFrame, urls: Sequence[str], folders: Sequence[Column], branch: _Branch, path: str
    ) -> DataFrame:
        """The rows with the texts in the names of their folders, each in a column of its own."""
        assert branch.mapping is not None
        names = {column.id: branch.mapping.by_target[column.id].source_name for column in folders}
        values = [hive_values(url) for url in urls]
        table: dict[str, pa.Array] = {path: pa.array([file_path(url) for url in urls], pa.string())}
        for column in folders:
            texts = [found.get(names[column.id]) for found in values]
            texts = [None if text == "" and column.type != "varchar" else text for text in texts]
            table[_folder_key(column)] = pa.array(texts, pa.string())
        table["_ql_known"] = pa.array([True] * len(urls))
        joined = rows.join(to_frame(self.session, pa.table(table)).hint("broadcast"), path, "left")
        missing = literal("quacklake: an unknown file path")
        return joined.filter(f"coalesce(_ql_known, CAST(raise_error({missing}) AS BOOLEAN))")

    def _inlined(self, plan: ScanPlan, *, time: bool) -> DataFrame:
        assert plan.inlined is not None
        columns = plan.schema.columns
        rows = inlined_rows(self.session, plan.inlined, columns)
        select = (
            f"{shown(column_key(column), stored, column, time=time)} AS {quote(column.name)}"
            for stored, column in zip(inlined_columns(columns), columns, strict=True)
        )
        return rows.selectExpr(*select)


@dataclass(frozen=True, slots=True)
class _Places:
    """Names for what tells where a row is, which no column of its file has."""

    name: str
    position: str
    path: str
    key: str

    @classmethod
    def beside(cls, taken: Sequence[str]) -> _Places:
        return cls(*(_free(name, taken) for name in ("_ql_name", "_ql_position", "_ql_path", "_ql_key")))

    def add_to(self, rows: DataFrame) -> DataFrame:
        """Rows as they are read, with the name and path of their file and their position in it."""
        place = rows.metadataColumn("_metadata")
        placed = rows.select(
            "*",
            place.getField("file_name").alias(self.name),
            place.getField("row_index").alias(self.position),
            place.getField("file_path").alias(self.path),
        )
        return placed.withColumn(self.path, replace(placed[self.path], lit("file:///"), lit("file:/")))


def _folders(branch: _Branch, columns: Sequence[Column]) -> list[Column]:
    """The columns whose values are in the names of folders."""
    if branch.mapping is None:
        return []
    entries = branch.mapping.by_target
    return [column for column in columns if column.id in entries and entries[column.id].is_partition]


def _folder_key(column: Column) -> str:
    return f"_ql_folder_{column.id}"


def _select(column: Column, by_id: dict[int, Column], folders: Sequence[Column], *, time: bool) -> str:
    stored = by_id.get(column.id)
    if column in folders:
        text = Column(column.id, column.name, "varchar")
        value = shown(_folder_key(column), text, column, time=time)
    elif stored is None:
        value = initial_value(column, time=time)
    else:
        value = shown(quote(stored.name), stored, column, time=time)
    return f"{value} AS {quote(column.name)}"


def _free(name: str, taken: Sequence[str]) -> str:
    """A name that no column of a file has."""
    used = {fold(each) for each in taken}
    while name in used:
        name += "_"
    return name
