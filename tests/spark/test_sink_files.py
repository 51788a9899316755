"""Files that Spark writes for the sinks of other formats: the same rows as through Arrow, in files of the same kind."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from quacklake.connectors import connector
from quacklake.connectors.staging import StagedSink, is_staged
from quacklake.pipelines.spark_files import write_files
from quacklake.spark.runtime.local import arrow_schema
from tests.connectors.sinks import FORMATS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.needs_spark(since="4.1")

_COLUMNS = """
    id, CAST(id AS INT) AS small, CAST(id % 2 AS BOOLEAN) AS flag, CAST(id AS FLOAT) AS real,
    CASE id % 100 WHEN 7 THEN double('NaN') WHEN 8 THEN double('Infinity') ELSE id / 7 END AS ratio, id / 7 AS plain,
    CAST(id / 7 AS DECIMAL(12, 3)) AS price, IF(id % 5 = 0, NULL, concat('customer ', id)) AS name,
    CAST(concat('b', id) AS BINARY) AS raw, date_add(DATE'1960-01-01', CAST(id AS INT)) AS day,
    timestamp_micros(id * 1234567 - 1000000) AS instant, CAST(NULL AS STRING) AS nothing
"""


def frame(session: SparkSession, first: int, end: int, parts: int | None = None) -> DataFrame:
    return session.range(first, end, 1, parts).selectExpr(*[part.strip() for part in _split(_COLUMNS)])


def _split(columns: str) -> list[str]:
    parts, depth, begun = [], 0, 0
    for place, letter in enumerate(columns):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append(columns[begun:place])
            begun = place + 1
    return [*parts, columns[begun:]]


def opened(kind: str, path: Path, rows: DataFrame, **options: Any) -> StagedSink:
    sink = connector(kind, "sink")({**FORMATS[kind].place(path), **options})
    sink.initialize(arrow_schema(rows.schema, required=False))
    assert isinstance(sink, StagedSink)
    return sink


def commit(sink: Any, rows: DataFrame, number: int) -> list[str]:
    """Pass rows on as a pipeline does, and return the writers of the files."""
    sink.stage.files.extend(write_files(rows, sink.stage))
    prepared = sink.prepare_commit(number)
    assert sum(file.records for file in prepared.data_files) == prepared.records_written == rows.count()
    sink.finalize_commit(prepared)
    return sorted({_writer(sink, file.path) for file in prepared.data_files})


def _writer(sink: Any, path: str) -> str:
    with sink.stage.store.open_input(path) as source:
        return str(pq.read_metadata(source).created_by.split()[0])


def files(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file())


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_spark_writes_what_arrow_would(session: SparkSession, tmp_path: Path, kind: str) -> None:
    sink = opened(kind, tmp_path, frame(session, 0, 0))
    assert commit(sink, frame(session, 0, 300), 0) == ["parquet-cpp-arrow"]  # it tells how large a row is
    assert commit(sink, frame(session, 300, 600), 1) == ["parquet-mr"]
    found = FORMATS[kind].read(tmp_path).sort_by("id")
    expected = frame(session, 0, 600).toArrow().sort_by("id")
    assert found.select(expected.column_names).cast(expected.schema).drop_columns("ratio") == expected.drop_columns(
        "ratio"
    )
    pairs = zip(found.column("ratio").to_pylist(), expected.column("ratio").to_pylist(), strict=True)
    assert all(one == two or (math.isnan(one) and math.isnan(two)) for one, two in pairs)
    assert not [path for path in tmp_path.rglob("*") if "_temporary" in path.name]


def test_bounds_of_delta_are_right_whoever_wrote_the_file(session: SparkSession, tmp_path: Path) -> None:
    sink: Any = opened("delta", tmp_path, frame(session, 0, 0))
    described = []
    for number in range(2):
        written = write_files(frame(session, 0, 300, 1), sink.stage)
        described.append([json.loads(file.statistics or "") for file in written])
        sink.stage.files.extend(written)
        sink.finalize_commit(sink.prepare_commit(number))
    assert described[0] == described[1]
    assert described[0][0]["maxValues"]["plain"] == pytest.approx(299 / 7)
    assert not {"ratio", "nothing", "raw"} & described[0][0]["maxValues"].keys()
    assert described[0][0]["nullCount"]["name"] == 60


def test_files_stay_below_the_target(session: SparkSession, tmp_path: Path) -> None:
    sink: Any = opened("delta", tmp_path, frame(session, 0, 0), target_file_size="20 KB")
    commit(sink, frame(session, 0, 2000), 0)
    written = write_files(frame(session, 0, 4000, 1), sink.stage)
    assert len(written) > 3
    assert max(file.bytes for file in written) < 40_000
    sink.abort()


def test_a_failed_write_leaves_nothing_and_a_killed_one_only_orphans(session: SparkSession, tmp_path: Path) -> None:
    sink: Any = opened("delta", tmp_path, frame(session, 0, 0))
    commit(sink, frame(session, 0, 10), 0)
    before = files(tmp_path)
    bad = frame(session, 0, 10).withColumn("id", _raising())
    with pytest.raises(Exception, match="no such luck"):
        write_files(bad, sink.stage)
    assert files(tmp_path) == before
    assert is_staged("_quacklake/part-0b0e7a3c-1111-4222-8333-444444444444/_temporary/0/part-00000.parquet")
    assert not is_staged("_quacklake/rows/part-00000.parquet")


def _raising() -> Any:
    from pyspark.sql import functions as f

    return f.when(f.col("id") > 5, f.raise_error(f.lit("no such luck"))).otherwise(f.col("id")).cast("bigint")


def test_rows_of_other_types_go_through_arrow(session: SparkSession, tmp_path: Path) -> None:
    rows = session.range(10).selectExpr("id", "array(id) AS list")
    sink = opened("delta", tmp_path, rows)
    assert [commit(sink, rows, number) for number in range(2)] == [["parquet-cpp-arrow"]] * 2
    assert FORMATS["delta"].read(tmp_path).column("list").to_pylist() == [[n] for n in range(10)] * 2
