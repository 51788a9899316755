"""Make ``hudi_tables.zip``: tables that Hudi wrote through Spark, with the rows that Spark reads of each commit.

Run it again for another version of Hudi: ``make test-hudi`` installs the Spark that it needs, then
``PYTHONPATH=.:.venv/spark-3.5.9 .venv/bin/python -m tests.connectors.hudi_tables``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.connectors.hudi_spark import hudi_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE = Path(__file__).with_name("hudi_tables.zip")
SMALL = {
    "hoodie.metadata.enable": "false",
    "hoodie.index.bloom.num_entries": "10",
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.delete.shuffle.parallelism": "1",
    "hoodie.table.timeline.timezone": "UTC",
}


def rows(session: SparkSession, first: int, end: int, text: str = "s") -> DataFrame:
    """Return rows with a key, a partition, and a text that says which commit wrote them."""
    return session.range(first, end).selectExpr(
        "id",
        "id % 2 AS part",
        f"concat('{text}', id) AS s",
        "timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, 0, cast(id AS int)) AS t",
    )


def write(path: Path, frame: DataFrame, operation: str, **options: str) -> None:
    """Write rows by an operation of Hudi's."""
    settings = {
        "hoodie.table.name": path.name,
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.recordkey.field": "id",
        **SMALL,
        **options,
    }
    frame.write.format("hudi").options(**settings).mode("append").save(str(path))


def copy_on_write(session: SparkSession, path: Path) -> None:
    """Write a table with partitions: inserts, an upsert, a delete, a clustering and an overwrite."""
    table = {
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.hive_style_partitioning": "true",
    }
    for first in (0, 10, 20):
        write(path, rows(session, first, first + 10), "insert", **table)
    write(path, rows(session, 25, 35, "u"), "upsert", **table)
    write(path, rows(session, 3, 4), "delete", **table)
    cluster = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}
    write(path, rows(session, 40, 45), "insert", **table, **cluster)
    write(path, rows(session, 50, 55), "insert_overwrite_table", **table)


def merge_on_read(session: SparkSession, path: Path) -> None:
    """Write a table with logs: inserts, upserts, a delete and a compaction."""
    table = {"hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.compact.inline": "false"}
    write(path, rows(session, 0, 10), "insert", **table)
    write(path, rows(session, 5, 10, "u"), "upsert", **table)
    write(path, rows(session, 10, 15), "insert", **table)
    write(path, rows(session, 2, 3), "delete", **table)
    write(path, rows(session, 6, 12, "v"), "upsert", **table)
    compact = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    write(path, rows(session, 7, 8, "w"), "upsert", **table | compact)
    write(path, rows(session, 0, 1, "x"), "upsert", **table)


def old_layout(session: SparkSession, path: Path) -> None:
    """Write a table of version 6, as Hudi before 1.0 did: its timeline has no times of completion."""
    for first in (0, 10, 20):
        write(path, rows(session, first, first + 10), "insert", **{"hoodie.write.table.version": "6"})


def wider(session: SparkSession, path: Path) -> None:
    """Write a table that gets a column later."""
    write(path, rows(session, 0, 5), "insert")
    write(path, rows(session, 5, 10).selectExpr("*", "CASE WHEN id >= 0 THEN id * 2 END AS more"), "insert")


def answers(session: SparkSession, path: Path) -> dict[str, Any]:
    """Return what Spark reads: the rows of the table at each commit."""
    found = {}
    for name in sorted(path.glob(".hoodie/timeline/*")) + sorted(path.glob(".hoodie/*")):
        if name.suffix in (".commit", ".deltacommit", ".replacecommit"):
            instant = name.stem.partition("_")[0]
            frame = session.read.format("hudi").option("as.of.instant", instant).load(str(path))
            found[instant] = sorted([row.id, row.s, row._hoodie_commit_time] for row in frame.collect())
    return found


def main() -> None:
    """Write the tables and what is in them."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(PLACE, "w", zipfile.ZIP_DEFLATED) as archive:
        session = hudi_session()
        expected = {}
        for make in (copy_on_write, merge_on_read, old_layout, wider):
            path = Path(folder) / make.__name__
            make(session, path)
            expected[path.name] = answers(session, path)
        session.stop()
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file() and not file.name.endswith(".crc"):
                archive.write(file, file.relative_to(folder))
        archive.writestr("expected.json", json.dumps(expected))
        print(len(archive.namelist()), "files", file=sys.stderr)


if __name__ == "__main__":
    main()
