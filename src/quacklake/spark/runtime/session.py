"""Spark sessions: found or made, and their settings for the time of one piece of work."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from quacklake.errors import MissingExtraError
from quacklake.spark.runtime.compat import check_session, has_type, is_connect, user_settings
from quacklake.spark.runtime.settings import find_java, spark_settings
from quacklake.storage import Store

__all__ = ["LISTING", "WRITING", "add_keys", "find_session", "has_time", "overwrites_dynamically", "settings"]

#: Spark looks at each file when a frame is made: a job for that costs more than it saves on a local disk.
LISTING: Mapping[str, str] = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000"}

#: What decides the form of files, set while Spark writes them: times as every client of the format reads them.
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
    """A setting that blocks of ours have changed: what it was, and how many they are."""

    before: str | None
    blocks: int = 0


_held: dict[tuple[int, str], _Held] = {}
_refused: set[tuple[str, str]] = set()
"""Settings that a version of Spark does not let be set: to be told so again takes longer than all others."""
_lock = threading.Lock()


def find_session(session: SparkSession | None, store: Store) -> SparkSession:
    """The given session, else the active one, else a new one that can reach the store.

    Raises ``MissingExtraError`` where a new one cannot be made, and as :func:`check_session` does.
    """
    found = session or _active() or _new(store)
    check_session(found)
    return found


def add_keys(session: SparkSession, store: Store) -> None:
    """Let a classic session reach the bucket of a store with keys of its own; other sessions have their server's."""
    if store.s3 is None or not store.s3.scoped or is_connect(session):
        return
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for name, value in spark_settings(store, secrets=True).items():
        if name.startswith("spark.hadoop.fs.s3a.bucket."):
            hadoop.set(name.removeprefix("spark.hadoop."), value)


def _active() -> SparkSession | None:
    """The session of this thread, else that of the process: to build one would change its settings."""
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def _new(store: Store) -> SparkSession:
    builder = SparkSession.builder
    if "SPARK_REMOTE" in os.environ:  # its server has been told where files are
        return _built(builder)
    if find_java() is None:
        raise MissingExtraError(
            "Spark needs Java", hint="install openjdk-17-jre-headless, or let JAVA_HOME name a folder with Java 17"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.appName("quacklake")
    for key, value in spark_settings(store, secrets=True).items():
        builder = builder.config(key, value)
    return _built(builder)


def _built(builder: SparkSession.Builder) -> SparkSession:
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise MissingExtraError(
            f"no session of Spark could be made: {str(error).strip().splitlines()[0]}",
            hint="what Spark printed tells why: packages that Spark Connect needs, or jars that cannot be downloaded",
        ) from error


def has_time(session: SparkSession) -> bool:
    """Whether the session has the type TIME, by its version and its own settings."""
    if not has_type(session, "time"):
        return False
    with _lock:
        held = _held.get((id(session), _TIME))
        found = session.conf.get(_TIME, "false") if held is None else held.before
    return found == "true"


def overwrites_dynamically(session: SparkSession) -> bool:
    """Whether the session wants only those partitions replaced that there are new rows of."""
    return str(session.conf.get("spark.sql.sources.partitionOverwriteMode", "static")).lower() == "dynamic"


@contextmanager
def settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Let settings hold for the block and be as before afterwards; one that this Spark does not know is left out.

    Other work in the same session sees them meanwhile. Blocks of several threads may overlap: the last one restores.
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
