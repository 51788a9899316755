"""Parquet files as a DataFrame, without Spark inspecting each of them first.

Given paths, Spark's reader asks the store whether each file exists and what is in it: several requests for each file on
an object store, and twenty seconds of the driver for 100,000 files on a disk. The catalog knows the files, so on a
classic session Spark gets an index of them that is built in one call (``QuacklakeFiles.java``). If that does not work,
or the setting ``spark.quacklake.fileIndex`` is false, Spark's reader is given the paths.

Known facts about a file, numbers or texts, can be columns of its rows. In the index they are the values of a partition
that holds only this file; elsewhere they come from a join on its path.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, reduce
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote as percent_encode
from uuid import uuid4
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from quacklake.core.format.objects import NAME_POS, NAME_SNAPSHOT_ID
from quacklake.core.storage.vectors import deleted_positions
from quacklake.errors import CorruptFileError, UnsupportedFeatureError
from quacklake.extend.names import fold
from quacklake.spark.runtime.local import to_frame
from quacklake.spark.runtime.session import LISTING, has_scalars, is_connect, place_of, settings
from quacklake.spark.runtime.settings import file_path, spark_path, spark_uri
from quacklake.spark.runtime.types import literal, quote

if TYPE_CHECKING:
    from quacklake.extend.plans import ScanPlan
    from quacklake.extend.stores import Store

#: No setting of a session may skip a file or shift its times.
READ_OPTIONS = {
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}

_HIDDEN = re.compile(r"/(\.[^/]*|_[^/=]*|[^/]*\._COPYING_)$")  # names of files that Spark's reader skips silently

_NAME = "QuacklakeFiles"
_SEQUENCE = "scala.collection.immutable.Seq"
"""The index's type for a sequence, which is another class in each version of Scala."""
SETTING = "spark.quacklake.fileIndex"  # the session setting that switches the index off
_SOURCES = "org.apache.spark.sql.execution.datasources"

#: The index builder of each JVM, or None where it does not work.
_makers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_lock = threading.Lock()


class FileRows(NamedTuple):
    """The rows of files. ``joined`` says that facts come from a join, below which Spark moves conditions."""

    rows: DataFrame
    joined: bool


def read_files(
    session: SparkSession,
    store: Store,
    files: pa.Table | None,
    urls: Sequence[str],
    schema: str,
    facts: Mapping[str, pa.Array] | None = None,
    position: str | None = None,
) -> FileRows:
    """Return the rows of files, with the columns of ``schema`` as the files name them, facts and a ``position``.

    The facts have a value for each file. ``files`` is None for delete files, whose sizes are not known.
    """
    facts = facts or {}
    sizes = None if store.is_local else "" if files is None else _sizes(files)
    found = None if is_connect(session) else _read_index(session, store, urls, sizes, schema, facts)
    if found is not None:
        return FileRows(_number_rows(found, position), joined=False)
    parts = []
    for chosen in _distinct(urls) if facts else (range(len(urls)),):
        some, theirs = [urls[i] for i in chosen], pa.array(chosen, pa.int64())
        rows = _number_rows(read_paths(session, store, some, schema), position)
        parts.append(_join_facts(session, rows, some, {name: values.take(theirs) for name, values in facts.items()}))
    return FileRows(reduce(DataFrame.union, parts), joined=bool(facts))


def _distinct(urls: Sequence[str]) -> list[list[int]]:
    """Group file numbers so that no path occurs twice in a group: a table may contain a file more than once."""
    groups: list[list[int]] = []
    times: Counter[str] = Counter()
    for index, url in enumerate(urls):
        if times[url] == len(groups):
            groups.append([])
        groups[times[url]].append(index)
        times[url] += 1
    return groups


def _number_rows(rows: DataFrame, position: str | None) -> DataFrame:
    return rows if position is None else rows.select("*", place_of(rows, "row_index").alias(position))


def _join_facts(
    session: SparkSession, rows: DataFrame, urls: Sequence[str], facts: Mapping[str, pa.Array]
) -> DataFrame:
    """Return rows with the facts of their files, joined on the path that Spark reports."""
    if not facts:
        return rows
    if len(urls) == 1:
        one = {name: (values[0].as_py(), _fact_type(values)) for name, values in facts.items()}
        texts = {
            name: literal(value) if isinstance(value, str) else f"CAST({'NULL' if value is None else value} AS {type_})"
            for name, (value, type_) in one.items()
        }
        return rows.selectExpr("*", *(f"{text} AS {name}" for name, text in texts.items()))
    path, known = (free_name(name, [*rows.columns, *facts]) for name in ("_ql_path", "_ql_known"))
    table = {path: pa.array([file_path(url) for url in urls], pa.string()), **facts}
    table[known] = pa.array([True] * len(urls))
    one_way = f.replace(place_of(rows, "file_path"), f.lit("file:///"), f.lit("file:/"))
    joined = rows.select("*", one_way.alias(path)).join(
        to_frame(session, pa.table(table)).hint("broadcast"), path, "left"
    )
    missing = literal("quacklake: an unknown file path")
    return joined.filter(f"coalesce({known}, CAST(raise_error({missing}) AS BOOLEAN))").drop(path, known)


def free_name(name: str, taken: Sequence[str]) -> str:
    used = {fold(each) for each in taken}
    while name in used:
        name += "_"
    return name


def read_paths(session: SparkSession, store: Store, urls: Sequence[str], schema: str) -> DataFrame:
    """Return the rows of files, which Spark inspects now. Raise ``UnsupportedFeatureError`` for a hidden name."""
    hidden = next((url for url in urls if _HIDDEN.search(url)), None)
    if hidden is not None:
        raise UnsupportedFeatureError(
            f"Spark passes over files with names like that of {hidden}",
            hint="rewrite the table's files, or read it with a classic session or by lake.table(…)",
        )
    with settings(session, LISTING if store.is_local else {}):
        return session.read.options(**READ_OPTIONS).schema(schema).parquet(*map(spark_path, urls))


def _read_index(
    session: SparkSession,
    store: Store,
    urls: Sequence[str],
    sizes: str | None,
    schema: str,
    facts: Mapping[str, pa.Array],
) -> DataFrame | None:
    """Return the rows by an index of the files, or None when it cannot be built."""
    maker = _maker(session)
    start, names = _lean(urls)
    if maker is None or sizes == "" or names.count("\n") != len(urls) - 1:
        return None
    if not store.is_local:  # raises the error that Spark would raise later if it has no jars for the store
        path = session._jvm.org.apache.hadoop.fs.Path(spark_uri(urls[0]))  # type: ignore[union-attr]
        path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
    try:
        types: Any = session._jvm.org.apache.spark.sql.types  # type: ignore[union-attr]
        kinds = ", ".join(f"{name} {_fact_type(values)}" for name, values in facts.items())
        of_facts = types.StructType.fromDDL(kinds) if kinds else types.StructType()
        index = maker.of(start, names, sizes, of_facts, _lines(facts))
        return None if index is None else _frame(session, index, schema)
    except PySparkException:  # Spark's reader will raise it too
        return None
    except Exception:  # an unknown version of Spark
        _makers[session._jvm] = None
        return None


def _lean(urls: Sequence[str]) -> tuple[str, str]:
    """Return the URIs of files as the folder that all are in and the rest of each, one per line."""
    length = os.path.commonprefix([min(urls), max(urls)]).rfind("/") + 1  # noqa: RUF071 - the slash is looked for
    start = urls[0][:length]
    if start.startswith("/") or "://" in start:
        return spark_uri(start), "\n".join([url[length:] for url in urls])
    return "", "\n".join(map(spark_uri, urls))


def _sizes(files: pa.Table) -> str:
    """Return the sizes of files, one per line; an empty text if one may be wrong, which would hide rows.

    A catalog that knows the size of a footer has seen the end of the file. DuckDB trusts these sizes too.
    """
    whole, footer = files.column("file_size_bytes"), files.column("footer_size")
    sure = pc.fill_null(pc.and_(pc.greater(footer, 0), pc.less(footer, whole)), False)
    return "\n".join(map(str, whole.to_pylist())) if pc.all(sure).as_py() else ""


def _fact_type(values: pa.Array) -> str:
    return "BIGINT" if pa.types.is_integer(values.type) else "STRING"


def _lines(facts: Mapping[str, pa.Array]) -> str:
    """Return the facts of each file in a line, with NULL as an empty text."""

    def text(value: int | str | None) -> str:
        return "" if value is None else f"={value if isinstance(value, int) else percent_encode(value)}"

    columns = (map(text, values.to_pylist()) for values in facts.values())
    return "\n".join(map("\t".join, zip(*columns, strict=True)))


def _maker(session: SparkSession) -> Any:
    """Return the index builder in the JVM of a session, compiled once; None where it is off or does not work."""
    if session.conf.get(SETTING, "true") != "true":
        return None
    with _lock:
        try:
            jvm = session._jvm
            if jvm not in _makers:
                _makers[jvm] = None
                _makers[jvm] = _compile_index(session, jvm)
            return _makers[jvm]
        except Exception:  # the bridge is closed, or the compiler or a class is missing: each raises its own error
            return None


def _compile_index(session: SparkSession, jvm: Any) -> Any:
    loader = session._jsparkSession.getClass().getClassLoader()
    trait = loader.loadClass(f"{_SOURCES}.FileIndex")
    methods = {method.getName(): method for method in trait.getMethods()}
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    package = f"quacklake_{uuid4().hex}"  # the bridge caches methods by class name for its whole life
    sequence = methods["rootPaths"].getReturnType().getName()
    java = files("quacklake.spark.read").joinpath(f"{_NAME}.java").read_text("utf-8")
    compiler.cook(java.replace("package quacklake;", f"package {package};").replace(_SEQUENCE, sequence))
    return compiler.getClassLoader().loadClass(f"{package}.{_NAME}").newInstance()


def _frame(session: SparkSession, index: Any, schema: str) -> DataFrame:
    jvm: Any = session._jvm
    options = jvm.java.util.HashMap()
    for key, value in READ_OPTIONS.items():
        options.put(key, value)
    sources = jvm.org.apache.spark.sql.execution.datasources
    relation = sources.HadoopFsRelation(
        index,
        index.partitionSchema(),
        jvm.org.apache.spark.sql.types.StructType.fromDDL(schema),
        jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        jvm.PythonUtils.toScalaMap(options),
        session._jsparkSession,
    )
    return DataFrame(session._jsparkSession.baseRelationToDataFrame(relation), session)


BARRIER = "spark_partition_id() >= 0"
"""A condition that always holds, but that Spark considers volatile, so it moves no other condition below it."""

_SHIFT = 40
_WORD = 6  # A word of bits covers ``1 << _WORD`` rows
_BROADCAST = 2_000_000  # the most deleted rows that are broadcast to every executor
_MAX_ROWS = 64_000_000  # the most rows of files with deletes for which the driver builds bits: 8 MB
_MAX_FILES = 256  # the most delete files that the driver reads
_READERS = 16


def _key_sql(number: str, position: str) -> str:
    """Return the SQL of the number of a row, from the number of its file in a branch and its position."""
    return f"shiftleft({number}, {_SHIFT}) + {position}"


@dataclass(frozen=True)
class Deletes:
    """The deleted rows of some files of a plan, which form one branch.

    A condition of the user must not be computed for deleted rows: it may fail for them, as a cast does, and rows are
    often deleted for that very reason. Spark moves conditions below joins, but keeps the order of those that it
    combines with AND. So the driver builds one array of bits for the deleted rows of a branch, and a row must pass the
    test of its bit before any other condition is computed. Conditions that reach the Parquet reader are comparisons,
    which cannot fail. If there are too many bits, the rows go through an anti-join on one number, made of the file and
    the position in it. Above the join is a condition that Spark takes for volatile, below which it moves nothing.
    """

    session: SparkSession
    store: Store
    plan: ScanPlan
    files: pa.Table

    @property
    def numbers(self) -> pa.Array:
        """A fact for each file that tells its rows apart: the first of its words, or its number."""
        return pa.array(self._words[:-1] if self._in_bits else range(self.files.num_rows), pa.int64())

    def without(self, read: FileRows, number: str, position: str) -> DataFrame:
        """Return the rows of the files without the deleted ones. They have the fact ``number`` and a ``position``."""
        rows = (
            self._live(read.rows, number, position)
            if self._in_bits
            else self._remove_deleted(read.rows, number, position)
        )
        # Spark moves conditions below the join with facts too
        return rows if self._in_bits and not read.joined else rows.filter(BARRIER)

    @cached_property
    def _in_bits(self) -> bool:
        rows, files = self.files.column("record_count"), self.files.column("delete_path")
        return (
            has_scalars(self.session)
            and not rows.null_count
            and pc.sum(rows).as_py() <= _MAX_ROWS
            and self._count() <= _BROADCAST
            and len(files) - files.null_count <= _MAX_FILES
        )

    @cached_property
    def _words(self) -> list[int]:
        """The first word of each file, then the number of words."""
        found = [0]
        for count in self.files.column("record_count").to_pylist():
            found.append(found[-1] + (count >> _WORD) + 1)
        return found

    def _live(self, rows: DataFrame, number: str, position: str) -> DataFrame:
        bits = self._bits()
        word = f.expr(f"CAST({number} + shiftright({position}, {_WORD}) AS INT)")
        bit = f.expr(f"CAST({position} & {(1 << _WORD) - 1} AS INT)")
        words = to_frame(self.session, pa.table({"words": pa.ListArray.from_arrays([0, len(bits)], bits)})).scalar()
        return rows.filter(f.call_function("bit_get", f.get(words, word), bit) == 0)

    def _bits(self) -> pa.Array:
        counts = self.files.column("record_count")
        places = [
            pc.add(positions.filter(pc.less(positions, counts[index])), self._words[index] << _WORD)
            for index, positions in self._positions()
        ]
        rows = pc.unique(pa.chunked_array(places, pa.int64()))
        bits = pc.shift_left(pa.scalar(1, pa.uint64()), pc.bit_wise_and(rows, (1 << _WORD) - 1).cast(pa.uint64()))
        # each row has a bit of its own, so their sum has all bits
        some = pa.table({"word": pc.shift_right(rows, _WORD), "bit": bits}).group_by("word").aggregate([("bit", "sum")])
        at = pc.index_in(pa.array(range(self._words[-1]), pa.int64()), value_set=some.column("word").combine_chunks())
        return pc.fill_null(some.column("bit_sum").combine_chunks().take(at), 0).view(pa.int64())

    def _positions(self) -> list[tuple[int, pa.Array]]:
        """Return the deleted positions with the number of their file. A file may occur several times."""
        paths = self.files.column("delete_path").to_pylist()
        indexes = [index for index, path in enumerate(paths) if path is not None]
        with ThreadPoolExecutor(_READERS) as pool:
            found = list(zip(indexes, pool.map(self._of_file, indexes), strict=True))
        listed, rows = self._in_catalog()
        return [*found, *((index, rows.filter(pc.equal(listed, index))) for index in pc.unique(listed).to_pylist())]

    def _of_file(self, index: int) -> pa.Array:
        path, format_, count = (
            self.files.column(name)[index].as_py() for name in ("delete_path", "delete_format", "record_count")
        )
        if format_ == "puffin":
            return deleted_positions(self.store, path, count, self.plan.snapshot_id)
        try:
            file = pq.ParquetFile(pa.BufferReader(self.store.read(path)))
            # not the path of the data file, which is in each row
            rows = file.read([name for name in (NAME_POS, NAME_SNAPSHOT_ID) if name in file.schema_arrow.names])
            if NAME_SNAPSHOT_ID in rows.column_names:
                later = pc.greater(rows.column(NAME_SNAPSHOT_ID), self.plan.snapshot_id)
                rows = rows.filter(pc.invert(pc.fill_null(later, False)))
            return rows.column(NAME_POS).cast(pa.int64()).combine_chunks()
        except (pa.ArrowException, KeyError) as error:
            raise CorruptFileError(f"the delete file {self.store.url(path)} cannot be read: {error}") from error

    def _in_catalog(self) -> tuple[pa.Array, pa.Array]:
        """Return the file numbers and positions of rows that are deleted in the catalog."""
        ids, deletes = self.files.column("data_file_id").combine_chunks(), self.plan.deletes
        index = pc.index_in(deletes.column("file_id"), value_set=ids)
        known = pc.is_valid(index)
        return index.filter(known).combine_chunks(), deletes.column("row_id").filter(known).combine_chunks()

    def _remove_deleted(self, rows: DataFrame, number: str, position: str) -> DataFrame:
        name = free_name("_ql_key", rows.columns)
        parts = [part for part in (self._read_stored(), self._list_numbers()) if part is not None]
        keys = reduce(DataFrame.union, parts).toDF(name)
        keys = keys.hint("broadcast" if self._count() <= _BROADCAST else "merge")
        return rows.selectExpr("*", f"{_key_sql(number, position)} AS {name}").join(keys, name, "left_anti").drop(name)

    def _count(self) -> int:
        with_file = self.files.filter(pc.is_valid(self.files.column("delete_path")))
        most = pc.coalesce(with_file.column("delete_count"), with_file.column("record_count"), pa.scalar(1 << 40))
        return int((pc.sum(most).as_py() or 0) + self.plan.deletes.num_rows)

    def _read_stored(self) -> DataFrame | None:
        paths, formats = (self.files.column(name).to_pylist() for name in ("delete_path", "delete_format"))
        indexes = [i for i, path in enumerate(paths) if path is not None and formats[i] != "puffin"]
        if not indexes:
            return None
        urls = self.store.readable_urls([paths[i] for i in indexes])
        schema = f"{quote(NAME_POS)} BIGINT, {quote(NAME_SNAPSHOT_ID)} BIGINT"
        facts = {"_ql_number": pa.array(indexes, pa.int64())}
        found = read_files(self.session, self.store, None, urls, schema, facts).rows
        date = quote(NAME_SNAPSHOT_ID)
        found = found.filter(f"{date} IS NULL OR {date} <= {self.plan.snapshot_id:d}")
        return found.selectExpr(f"{_key_sql('_ql_number', quote(NAME_POS))} AS key")

    def _list_numbers(self) -> DataFrame | None:
        """Return the row numbers in the catalog and in deletion vectors."""
        paths, formats, counts = (
            self.files.column(name).to_pylist() for name in ("delete_path", "delete_format", "record_count")
        )
        parts = [
            pc.add(deleted_positions(self.store, paths[i], counts[i], self.plan.snapshot_id), pa.scalar(i << _SHIFT))
            for i, format_ in enumerate(formats)
            if format_ == "puffin" and paths[i] is not None
        ]
        index, positions = self._in_catalog()
        if len(index):
            parts.append(pc.add(pc.shift_left(index.cast(pa.int64()), _SHIFT), positions))
        if not parts:
            return None
        return to_frame(self.session, pa.table({"key": pa.chunked_array(parts, pa.int64())}))
