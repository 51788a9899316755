"""Find or create Spark sessions, and change their settings temporarily."""

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
    """Return the given session, else the active one, else a new one that can reach the store.

    Raises ``MissingExtraError`` when a new one cannot be created, and the errors of :func:`check_session`.
    """
    found = session or _active() or _new(store)
    check_session(found)
    return found


def add_keys(session: SparkSession, store: Store) -> None:
    """Give a classic session the keys for the bucket of a store. Other sessions have those of their server."""
    if store.s3 is None or not store.s3.scoped or is_connect(session):
        return
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for name, value in spark_settings(store, secrets=True).items():
        if name.startswith("spark.hadoop.fs.s3a.bucket."):
            hadoop.set(name.removeprefix("spark.hadoop."), value)


def _active() -> SparkSession | None:
    """Return the session of this thread, else of the process. Building a session would change its settings."""
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def _new(store: Store) -> SparkSession:
    builder = SparkSession.builder
    if "SPARK_REMOTE" in os.environ:  # the server is configured to reach the files
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
    """Change settings within a block, and restore them afterwards. Settings that this Spark lacks are skipped.

    Other work in the same session sees the changed settings. Blocks of several threads may overlap: the last one
    restores the settings.
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
