"""Parquet files as a DataFrame, without Spark inspecting each of them first.

Given paths, Spark's reader asks the store whether each file exists and what is in it: several requests for each file on
an object store, and twenty seconds of the driver for 100,000 files on a disk. The catalog knows the files, so on a
classic session Spark gets an index of them that is built in one call (``QuacklakeFiles.java``). If that does not work,
or the setting ``spark.quacklake.fileIndex`` is false, Spark's reader is given the paths.

Known facts about a file, numbers or texts, can be columns of its rows. In the index they are the values of a partition
that holds only this file; elsewhere they come from a join on its path.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from quacklake.errors import UnsupportedFeatureError
from quacklake.format.names import fold
from quacklake.spark.runtime.compat import is_connect, place_of
from quacklake.spark.runtime.local import to_frame
from quacklake.spark.runtime.paths import file_path, spark_paths, spark_uri
from quacklake.spark.runtime.session import LISTING, settings
from quacklake.spark.runtime.types import literal

if TYPE_CHECKING:
    from quacklake.storage import Store

#: No setting of a session may skip a file or shift its times.
READ_OPTIONS = {
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}

_HIDDEN = re.compile(r"/(\.[^/]*|_[^/=]*|[^/]*\._COPYING_)$")
"""Names of files that Spark's reader skips silently."""

_NAME = "QuacklakeFiles"
_SEQUENCE = "scala.collection.immutable.Seq"
"""The index's type for a sequence, which is another class in each version of Scala."""
SETTING = "spark.quacklake.fileIndex"
"""The session setting that switches the index off."""
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
    files: pa.Table,
    urls: Sequence[str],
    schema: str,
    facts: Mapping[str, pa.Array] | None = None,
    position: str | None = None,
) -> FileRows:
    """Return the rows of data files of a plan, with the columns of ``schema`` as the files name them, and the facts.

    ``urls`` are the URLs of the files; the facts have a value for each file. ``position`` is a name for the position of
    a row in its file, if it is needed.
    """
    sizes = None if store.is_local else _sizes(files)
    return _read(session, store, urls, sizes, schema, facts or {}, position)


def read_deletes(
    session: SparkSession, store: Store, urls: Sequence[str], schema: str, facts: Mapping[str, pa.Array]
) -> DataFrame:
    """Return the rows of delete files, like ``read_files``."""
    return _read(session, store, urls, None if store.is_local else "", schema, facts).rows


def _read(
    session: SparkSession,
    store: Store,
    urls: Sequence[str],
    sizes: str | None,
    schema: str,
    facts: Mapping[str, pa.Array],
    position: str | None = None,
) -> FileRows:
    found = None if is_connect(session) else _indexed(session, store, urls, sizes, schema, facts)
    if found is not None:
        return FileRows(_numbered(found, position), joined=False)
    parts = []
    for chosen in _distinct(urls) if facts else (range(len(urls)),):
        some, theirs = [urls[i] for i in chosen], pa.array(chosen, pa.int64())
        rows = _numbered(read_paths(session, store, some, schema), position)
        parts.append(_joined(session, rows, some, {name: values.take(theirs) for name, values in facts.items()}))
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


def _numbered(rows: DataFrame, position: str | None) -> DataFrame:
    return rows if position is None else rows.select("*", place_of(rows, "row_index").alias(position))


def _joined(session: SparkSession, rows: DataFrame, urls: Sequence[str], facts: Mapping[str, pa.Array]) -> DataFrame:
    """Return rows with the facts of their files, joined on the path that Spark reports."""
    if not facts:
        return rows
    if len(urls) == 1:
        return rows.selectExpr("*", *(f"{_fact(values)} AS {name}" for name, values in facts.items()))
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
    """Return a name that is not among these."""
    used = {fold(each) for each in taken}
    while name in used:
        name += "_"
    return name


def read_paths(session: SparkSession, store: Store, urls: Sequence[str], schema: str) -> DataFrame:
    """Return the rows of any Parquet files, which Spark inspects now.

    Raises ``UnsupportedFeatureError`` for a file that Spark would skip.
    """
    hidden = next((url for url in urls if _HIDDEN.search(url)), None)
    if hidden is not None:
        raise UnsupportedFeatureError(
            f"Spark passes over files with names like that of {hidden}",
            hint="rewrite the table's files, or read it with a classic session or by lake.table(…)",
        )
    with settings(session, LISTING if store.is_local else {}):
        return session.read.options(**READ_OPTIONS).schema(schema).parquet(*spark_paths(urls))


def _indexed(
    session: SparkSession,
    store: Store,
    urls: Sequence[str],
    sizes: str | None,
    schema: str,
    facts: Mapping[str, pa.Array],
) -> DataFrame | None:
    """Return the rows by an index of the files, or None when it cannot be built."""
    maker = _maker(session)
    names = "\n".join(map(spark_uri, urls))
    if maker is None or sizes == "" or names.count("\n") != len(urls) - 1:
        return None
    if not store.is_local:
        _open_store(session, spark_uri(urls[0]))
    try:
        types: Any = session._jvm.org.apache.spark.sql.types  # type: ignore[union-attr]
        kinds = ", ".join(f"{name} {_fact_type(values)}" for name, values in facts.items())
        index = maker.of(names, sizes, types.StructType.fromDDL(kinds) if kinds else types.StructType(), _lines(facts))
        return None if index is None else _frame(session, index, schema)
    except PySparkException:  # Spark's reader will raise it too
        return None
    except Exception:  # an unknown version of Spark
        _makers[session._jvm] = None
        return None


def _sizes(files: pa.Table) -> str:
    """Return the sizes of files, one per line; an empty text if one may be wrong, which would hide rows.

    A catalog that knows the size of a footer has seen the end of the file. DuckDB trusts these sizes too.
    """
    whole, footer = files.column("file_size_bytes"), files.column("footer_size")
    sure = pc.fill_null(pc.and_(pc.greater(footer, 0), pc.less(footer, whole)), False)
    return "\n".join(map(str, whole.to_pylist())) if pc.all(sure).as_py() else ""


def _fact(values: pa.Array) -> str:
    """Return the SQL of a fact of a single file."""
    value = values[0].as_py()
    if isinstance(value, str):
        return literal(value)
    return f"CAST({'NULL' if value is None else value} AS {_fact_type(values)})"


def _fact_type(values: pa.Array) -> str:
    return "BIGINT" if pa.types.is_integer(values.type) else "STRING"


def _lines(facts: Mapping[str, pa.Array]) -> str:
    """Return the facts of each file in a line, with NULL as an empty text."""
    columns = [
        [
            "" if value is None else f"={value if isinstance(value, int) else quote(value)}"
            for value in values.to_pylist()
        ]
        for values in facts.values()
    ]
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
                _makers[jvm] = _compiled(session, jvm)
            return _makers[jvm]
        except Exception:  # the bridge is closed, or the compiler or a class is missing: each raises its own error
            return None


def _java() -> str:
    return files("quacklake.spark.read").joinpath(f"{_NAME}.java").read_text("utf-8")


def _compiled(session: SparkSession, jvm: Any) -> Any:
    loader = session._jsparkSession.getClass().getClassLoader()
    trait = loader.loadClass(f"{_SOURCES}.FileIndex")
    methods = {method.getName(): method for method in trait.getMethods()}
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    package = f"quacklake_{uuid4().hex}"  # the bridge caches methods by class name for its whole life
    sequence = methods["rootPaths"].getReturnType().getName()
    compiler.cook(_java().replace("package quacklake;", f"package {package};").replace(_SEQUENCE, sequence))
    return compiler.getClassLoader().loadClass(f"{package}.{_NAME}").newInstance()


def _open_store(session: SparkSession, name: str) -> None:
    """Raise the error that Spark would raise later if it has no jars for a store."""
    jvm: Any = session._jvm
    jvm.org.apache.hadoop.fs.Path(name).getFileSystem(session._jsparkSession.sessionState().newHadoopConf())


def _frame(session: SparkSession, index: Any, schema: str) -> DataFrame:
    jvm: Any = session._jvm
    options = jvm.java.util.HashMap()
    for key, value in READ_OPTIONS.items():
        options.put(key, value)
    sources = jvm.org.apache.spark.sql.execution.datasources
    types = jvm.org.apache.spark.sql.types
    relation = sources.HadoopFsRelation(
        index,
        index.partitionSchema(),
        types.StructType.fromDDL(schema),
        jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        jvm.PythonUtils.toScalaMap(options),
        session._jsparkSession,
    )
    return DataFrame(session._jsparkSession.baseRelationToDataFrame(relation), session)
