"""Find or create Spark sessions, change their settings temporarily, and replace features that some versions lack."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from quacklake.errors import InputError, MissingExtraError, UnsupportedFeatureError
from quacklake.spark.runtime.settings import STEADY, Version, find_java, parse_version, spark_settings
from quacklake.spark.runtime.types import quote

if TYPE_CHECKING:
    from quacklake.extend.schemas import Column
    from quacklake.extend.stores import Store

_TYPES: Mapping[str, Version] = {"json": (4, 0), "variant": (4, 0), "time": (4, 1)}
"""Types of the format that not every Spark can write, with the first version that can."""

_REMOTE_TASKS = 16  # for Spark Connect, which does not say how many tasks run at once


def is_connect(session: SparkSession) -> bool:
    """Return True for a Spark Connect session, whose work runs in another process, on the server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def has_scalars(session: SparkSession) -> bool:
    """Return True when a DataFrame of one value can be part of an expression: since 4.0, here and on the server."""
    return _version(session) >= (4, 0)


def check_session(session: object) -> None:
    """Raise ``InputError`` or ``UnsupportedVersionError`` for a session that does not work in this process."""
    if not isinstance(session, SparkSession) and not is_connect(session):  # type: ignore[arg-type]
        raise InputError(f"{type(session).__name__} is not a Spark session", hint="pass a SparkSession")
    parse_version(pyspark.__version__)
    parse_version(session.version)  # type: ignore[attr-defined]
    from pyspark.sql.utils import is_remote

    if is_connect(session) and not is_remote():  # type: ignore[arg-type]
        raise InputError(
            "the functions of PySpark make columns for a classic session in this process, not for Spark Connect",
            hint="make the session with SparkSession.builder.remote(…), in a process without a classic one",
        )


def _version(session: SparkSession) -> Version:
    """Return the older of the versions of the session and of the package in this process."""
    return min(parse_version(pyspark.__version__), parse_version(session.version))


def parallelism(session: SparkSession) -> int:
    """Return the number of tasks that a session runs at once, as far as it is known."""
    return _REMOTE_TASKS if is_connect(session) else session.sparkContext.defaultParallelism


def require(session: SparkSession, what: str) -> None:
    """Raise ``UnsupportedFeatureError`` for an operation that Spark 3.5 cannot do."""
    if _version(session) < STEADY:
        raise UnsupportedFeatureError(
            f"{what} on Spark {session.version} does not work: it takes Spark 4.0",
            hint="with 3.5 tables can be read, made, appended to and overwritten; the rest does lake.table(…)",
        )


def has_type(session: SparkSession, name: str) -> bool:
    return name not in _TYPES or _version(session) >= _TYPES[name]


def require_types(session: SparkSession, columns: Iterable[Column], *, shown: Sequence[str] = ()) -> None:
    """Raise ``UnsupportedFeatureError`` for columns of types that this Spark lacks, except those ``shown`` as text."""
    for leaf in (leaf for column in columns for leaf in column.leaves()):
        if leaf.type not in shown and not has_type(session, leaf.type):
            since = ".".join(map(str, _TYPES[leaf.type]))
            raise UnsupportedFeatureError(
                f'the {leaf.type} column "{leaf.name}" takes Spark {since} or newer, and this is {session.version}',
                hint="read and write it with lake.table(…)",
            )


def new_client() -> bool:
    """Return True for the package of Spark 4 in this process."""
    return parse_version(pyspark.__version__) >= STEADY


def user_settings(session: SparkSession, keys: tuple[str, ...]) -> dict[str, str]:
    """Return the settings among ``keys`` that have been set explicitly."""
    if new_client():
        # fetching all settings would take a call for each
        every = session.conf.getAll if is_connect(session) else session.conf._jconf.getAllAsJava()
        return {key: every[key] for key in keys if key in every}
    found = {key: session.conf.get(key, None) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def place_of(frame: DataFrame, name: str) -> SparkColumn:
    """Return a column of the file metadata of a row."""
    column = frame.metadataColumn("_metadata") if new_client() else f.col("_metadata")
    return column.getField(name)


def rebalanced(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Bring rows with equal values of some columns together, in partitions of limited size if Spark can."""
    keys = [f.col(quote(name)) for name in names]
    return frame.hint("rebalance", *keys) if new_client() else frame.repartition(*keys)


def to_arrow(frame: DataFrame) -> pa.Table:
    """Return all rows. Spark's ``toArrow`` refuses a NULL struct with a field that is not nullable."""
    if is_connect(frame.sparkSession):
        table: pa.Table = frame._to_table()[0]  # type: ignore[operator]
        return table
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = frame._collect_as_arrow()  # type: ignore[operator]
    return pa.Table.from_batches(batches) if batches else to_arrow_schema(frame.schema).empty_table()


def arrow_udf(
    work: Callable[[pa.Array], pa.Array], one: Callable[[Any], str | None], argument: SparkColumn
) -> SparkColumn:
    """Return texts that Python computes from a column on the executors: from arrays, or row by row before Spark 4.1."""
    if hasattr(f, "arrow_udf"):

        @f.arrow_udf("string")  # type: ignore[untyped-decorator]
        def texts(values: pa.Array) -> pa.Array:
            return work(values)

        found: SparkColumn = texts(argument)
        return found

    return f.udf(one, "string")(argument)


#: Spark inspects each file when a DataFrame is created. On a local disk, a job for that costs more than it saves.
LISTING: Mapping[str, str] = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000"}

#: Settings for writing files: times in a form that every client of the format reads.
WRITING: Mapping[str, str] = {
    "spark.sql.timeType.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
}

_TIME = "spark.sql.timeType.enabled"


@dataclass
class _Held:
    """A setting that Quacklake has changed: its previous value, and the number of blocks that use it."""

    before: str | None
    blocks: int = 0


_held: dict[tuple[int, str], _Held] = {}
_refused: set[tuple[str, str]] = set()
"""Settings that a version of Spark does not allow; another attempt would take longer than all other settings."""
_lock = threading.Lock()


def find_session(session: SparkSession | None, store: Store) -> SparkSession:
    """Return the given session, else the active, else a new one. Raise ``MissingExtraError``."""
    if session is None:
        try:  # of this thread, else of the process; building a session would change the settings of the active one
            session = SparkSession.active()
        except PySparkException:
            session = _new(store)
    check_session(session)
    return session


def add_keys(session: SparkSession, store: Store) -> None:
    """Give a classic session the keys for the bucket of a store. Other sessions have those of their server."""
    if store.s3 is None or not store.s3.scoped or is_connect(session):
        return
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for name, value in spark_settings(store, secrets=True).items():
        if name.startswith("spark.hadoop.fs.s3a.bucket."):
            hadoop.set(name.removeprefix("spark.hadoop."), value)


def _new(store: Store) -> SparkSession:
    builder = SparkSession.builder
    if "SPARK_REMOTE" not in os.environ:  # otherwise the server is configured to reach the files
        if find_java() is None:
            raise MissingExtraError(
                "Spark needs Java", hint="install openjdk-17-jre-headless, or let JAVA_HOME name a folder with Java 17"
            )
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.appName("quacklake")
        for key, value in spark_settings(store, secrets=True).items():
            builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise MissingExtraError(
            f"no Spark session could be created: {str(error).strip().splitlines()[0]}",
            hint="what Spark printed says why: packages that Spark Connect needs, or jars that cannot be downloaded",
        ) from error


def has_time(session: SparkSession) -> bool:
    """Return True when the session has the type TIME, by its version and its own settings."""
    if not has_type(session, "time"):
        return False
    with _lock:
        held = _held.get((id(session), _TIME))
        found = session.conf.get(_TIME, "false") if held is None else held.before
    return found == "true"


def overwrites_dynamically(session: SparkSession) -> bool:
    """Return True when the session replaces only partitions with new rows."""
    return str(session.conf.get("spark.sql.sources.partitionOverwriteMode", "static")).lower() == "dynamic"


@contextmanager
def settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Change settings within a block, except those that this Spark lacks, and restore them afterwards.

    Other work in the session sees them. Blocks of several threads may overlap: the last one restores the settings.
    """
    changed: list[str] = []
    try:
        with _lock:
            version = session.version
            given = user_settings(session, tuple(values))
            for key, value in values.items():
                if (version, key) in _refused:
                    continue
                held = _held.get((id(session), key))
                if held is None:
                    try:
                        session.conf.set(key, value)
                    except PySparkException:
                        _refused.add((version, key))
                        continue
                    held = _held[id(session), key] = _Held(given.get(key))
                held.blocks += 1
                changed.append(key)
        yield
    finally:
        with _lock:
            for key in changed:
                held = _held[id(session), key]
                held.blocks -= 1
                if not held.blocks:
                    del _held[id(session), key]
                    if held.before is None:
                        session.conf.unset(key)
                    else:
                        session.conf.set(key, held.before)
