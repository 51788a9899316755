"""Let Spark write the files of a stage: by its own Parquet writer where that can, else by tasks in Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from quacklake.connectors.protocols import WrittenFile
from quacklake.connectors.staging import ARROW_FIELD_ID, FileStage
from quacklake.errors import ConstraintError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write_files"]

_FILES = "path STRING, bytes BIGINT, records BIGINT, partition STRING, statistics STRING"
_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "none": "uncompressed"}
_SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
"""Types that are one type in a file."""


def write_files(rows: DataFrame, stage: FileStage, key: Sequence[str] = ()) -> list[WrittenFile]:
    """Let executors write the files of a stage, and return them. Raise ``ConstraintError`` for a key that is NULL."""
    from quacklake.spark.runtime.types import quote

    for name in key:
        if rows.where(f"{quote(name)} IS NULL").limit(1).count():
            raise ConstraintError(f'NULL in the key "{name}" of a change')
    few = rows.coalesce(rows.sparkSession.sparkContext.defaultParallelism)
    return _by_writer(few, stage) if _is_native(few, stage) else _by_tasks(few, stage)


def _is_native(rows: DataFrame, stage: FileStage) -> bool:
    """Return whether Spark writes the same rows as Arrow would, in files below the target size.

    The first batch goes through Arrow: it tells how large a row is.
    """
    from quacklake.spark.runtime.local import arrow_schema

    if stage.aside is None or stage.schema is None or stage.row_bytes is None or stage.compression not in _CODECS:
        return False
    given = arrow_schema(rows.schema, required=False)
    return all(
        field.nullable
        and not pa.types.is_nested(field.type)
        and _SMALL.get(field.type, field.type) == given.field(field.name).type
        for field in stage.schema
    )


def _by_writer(rows: DataFrame, stage: FileStage) -> list[WrittenFile]:
    from quacklake.spark.runtime.failures import writing
    from quacklake.spark.runtime.local import FIELD_ID
    from quacklake.spark.runtime.session import WRITING, settings
    from quacklake.spark.runtime.settings import spark_uri
    from quacklake.spark.runtime.types import quote

    assert stage.schema is not None
    assert stage.row_bytes is not None
    columns = []
    for field in stage.schema:
        ids = {FIELD_ID: int(field.metadata[ARROW_FIELD_ID])} if ARROW_FIELD_ID in (field.metadata or {}) else {}
        columns.append(rows[quote(field.name)].alias(field.name, metadata=ids))
    options = {
        "compression": _CODECS[stage.compression],
        "maxRecordsPerFile": str(max(1, int(stage.target_bytes / stage.row_bytes))),
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    folder = f"{stage.aside}part-{uuid4()}"
    stage.store.make_parent(f"{folder}/rows")
    try:
        with settings(rows.sparkSession, WRITING), writing():
            place = spark_uri(stage.store.url(folder))
            rows.select(*columns).write.mode("append").options(**options).parquet(place)
        return stage.adopt(folder)
    except BaseException:
        stage.remove_aside(folder)
        raise


def _by_tasks(rows: DataFrame, stage: FileStage) -> list[WrittenFile]:
    found = rows.mapInArrow(_task(stage.empty()), _FILES).collect()
    files = [WrittenFile(row[0], row[1], row[2], json.loads(row[3]), row[4]) for row in found]
    stage.weigh(sum(file.bytes for file in files), sum(file.records for file in files))
    return files


def _task(stage: FileStage) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            stage.add(batch)
        files = stage.take()
        yield pa.record_batch(
            {
                "path": pa.array([file.path for file in files], pa.string()),
                "bytes": pa.array([file.bytes for file in files], pa.int64()),
                "records": pa.array([file.records for file in files], pa.int64()),
                "partition": pa.array([json.dumps(dict(file.partition)) for file in files], pa.string()),
                "statistics": pa.array([file.statistics for file in files], pa.string()),
            }
        )

    return write
