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

from quacklake.storage import Store

__all__ = ["LISTING", "SESSION", "WRITING", "find_session", "has_time", "needed_settings", "settings"]

#: What a session of our own is made with. Reads and writes are right without any of these.
SESSION: Mapping[str, str] = {
    "spark.sql.timeType.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}

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

_SDK = ("s3", "s3-transfer-manager", "apache-client", "netty-nio-client", "sts")
#: What Spark's own Hadoop needs for S3, without the bundle of all of Amazon's services.
_S3A: Mapping[str, str] = {
    "spark.jars.packages": ",".join(
        ["org.apache.hadoop:hadoop-aws:3.4.2", *(f"software.amazon.awssdk:{name}:2.29.52" for name in _SDK)]
    ),
    "spark.jars.excludes": "software.amazon.awssdk:bundle",
}
_TIME = "spark.sql.timeType.enabled"


@dataclass
class _Held:
    """A setting that blocks of ours have changed: what it was, and how many they are."""

    before: str | None
    blocks: int = 0


_held: dict[tuple[int, str], _Held] = {}
_lock = threading.Lock()


def find_session(session: SparkSession | None, store: Store) -> SparkSession:
    """The given session, else the active one, else a new one that can reach the store."""
    if session is not None:
        return session
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("quacklake")
    for key, value in {**SESSION, **_store_settings(store, secrets=True)}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def needed_settings(store: Store) -> dict[str, str]:
    """What ``spark-defaults.conf`` should say for a lake; no secrets."""
    return {**SESSION, **_store_settings(store, secrets=False)}


def _store_settings(store: Store, *, secrets: bool) -> dict[str, str]:
    options = store.s3
    if store.scheme != "s3":
        return {}
    found = dict(_S3A)
    if options is None:
        return found
    if options.endpoint:
        found["spark.hadoop.fs.s3a.endpoint"] = options.endpoint
        found["spark.hadoop.fs.s3a.path.style.access"] = str(options.path_style).lower()
        found["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(options.secure).lower()
    if options.region:
        found["spark.hadoop.fs.s3a.endpoint.region"] = options.region
    if secrets and options.access_key and options.secret_key:
        found["spark.hadoop.fs.s3a.access.key"] = options.access_key
        found["spark.hadoop.fs.s3a.secret.key"] = options.secret_key
        if options.session_token:
            found["spark.hadoop.fs.s3a.session.token"] = options.session_token
    return found


def has_time(session: SparkSession) -> bool:
    """Whether the session has the type TIME, by its own settings."""
    with _lock:
        held = _held.get((id(session), _TIME))
        found = session.conf.get(_TIME, "false") if held is None else held.before
    return found == "true"


@contextmanager
def settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Let settings hold for the block and be as before afterwards; one that this Spark does not know is left out.

    Other work in the same session sees them meanwhile. Blocks of several threads may overlap: the last one restores.
    """
    changed: list[str] = []
    try:
        with _lock:
            given = session.conf.getAll if values else {}
            for key, value in values.items():
                held = _held.get((id(session), key))
                if held is None:
                    try:
                        session.conf.set(key, value)
                    except PySparkException:
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
