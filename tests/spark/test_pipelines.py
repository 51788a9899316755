"""Pipelines on Spark: windows and other state, several sinks behind one barrier, and what faults leave of it."""

from __future__ import annotations

import datetime as dt
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.core.faults import Fault, FaultInjected, arm
from quacklake.errors import ConfigError, SqlError, StreamMismatchError
from quacklake.pipelines import Pipeline
from quacklake.pipelines.windows import spark_query
from services import NatsServer
from tests import seeds
from tests.pipelines.tables import KINDS, connect, end_lease, rows, sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_spark(since="4.1")
MIDNIGHT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def lake(tmp_path: Path, session: SparkSession) -> Iterator[quacklake.Lake]:
    with connect(tmp_path) as opened:
        opened.sql("CREATE TABLE orders (id BIGINT, v BIGINT, ts TIMESTAMP)")
        yield opened


def add(lake: quacklake.Lake, first: int, end: int) -> None:
    times = [MIDNIGHT.replace(tzinfo=None) + dt.timedelta(seconds=10 * n) for n in range(first, end)]
    lake.table("orders").append(pa.table({"id": range(first, end), "v": range(first, end), "ts": times}))


def definition(path: Path, **options: Any) -> dict[str, Any]:
    return {
        "pipeline": "p",
        "engine": "spark",
        "source": {"type": "lake", "table": "orders"},
        "query": "SELECT id, v * 2 AS v FROM source",
        "sinks": [sink(kind, path) for kind in KINDS],
        "lease": "5 minutes",
        **options,
    }


def doubled(first: int, end: int) -> Counter[tuple[Any, ...]]:
    return Counter((n, n * 2) for n in range(first, end))


def test_faults_neither_lose_nor_double_a_row_in_any_sink(lake: quacklake.Lake, tmp_path: Path) -> None:
    add(lake, 0, 20)
    given = definition(tmp_path)
    assert Pipeline(lake, given).run(until_caught_up=True).sinks == dict.fromkeys(KINDS, 20)
    points = [
        "pipeline.batch.read",
        "connector.delta.prepare.after",
        "pipeline.confirm.before",
        "pipeline.confirm.after",
        "connector.iceberg.commit.after",
        "pipeline.finish.after",
    ]
    end = 20
    for point in seeds.some(points, 2, "faults of a pipeline on Spark"):
        add(lake, end, end + 5)
        end += 5
        with arm(Fault(pattern=point)), pytest.raises(FaultInjected):
            Pipeline(lake, given).run(until_caught_up=True)
        end_lease(lake)
        Pipeline(lake, given).run(until_caught_up=True)
    for kind in KINDS:
        assert rows(kind, tmp_path, lake) == doubled(0, end), kind


def test_the_batches_of_a_stream_register_the_format_once(lake: quacklake.Lake, tmp_path: Path) -> None:
    """Each registration is a warning of Spark, a thread and a folder."""

    def registered() -> int:
        return sum(thread.name == "quacklake-format" for thread in threading.enumerate())

    for first in range(0, 60, 20):
        add(lake, first, first + 20)
    before = registered()
    source = {"type": "lake", "table": "orders", "max_files": 1}
    report = Pipeline(lake, definition(tmp_path, source=source, sinks=[sink("lake", tmp_path)])).run(
        until_caught_up=True
    )
    assert report.batches >= 3
    assert registered() - before <= 2  # of the session, and of that of the query


def test_windows_close_when_the_watermark_has_passed_them(lake: quacklake.Lake, tmp_path: Path) -> None:
    place = {"type": "delta", "location": str(tmp_path / "minutes")}
    given = definition(
        tmp_path,
        engine="auto",
        source={"type": "lake", "table": "orders", "watermark": {"column": "ts", "delay": "20 seconds"}},
        query="SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS minute, count(*) AS n, sum(v) AS total FROM source"
        " GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        sinks=[{"type": "lake", "table": "minutes"}, place],
    )
    add(lake, 0, 9)
    pipeline = Pipeline(lake, given)
    assert pipeline.engine == "spark"
    pipeline.run(until_caught_up=True)
    add(lake, 9, 20)
    Pipeline(lake, given).run(until_caught_up=True)  # the state is that of the run before
    found = lake.sql("SELECT epoch(minute)::BIGINT, n, total FROM minutes ORDER BY 1").fetchall()
    start = int(MIDNIGHT.timestamp())
    assert found == [(start, 6, 15), (start + 60, 6, 51)]
    from deltalake import DeltaTable

    foreign = DeltaTable(place["location"]).to_pyarrow_table().sort_by("minute").to_pylist()
    assert [(int(row["minute"].timestamp()), row["n"], row["total"]) for row in foreign] == found


def test_a_batch_joins_tables_of_the_lake_and_upserts(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE names (rest BIGINT, name VARCHAR)")
    lake.sql("INSERT INTO names VALUES (0, 'even'), (1, 'odd')")
    given = definition(
        tmp_path,
        query="SELECT name, id AS v FROM source JOIN names ON source.id % 2 = names.rest",
        sinks=[
            {"type": "lake", "table": "latest", "mode": "upsert", "key": "name", "order_by": "v"},
            {"name": "odd", "type": "lake", "table": "odd", "where": "name = 'odd'"},
        ],
    )
    add(lake, 0, 6)
    Pipeline(lake, given).run(until_caught_up=True)
    assert sorted(lake.sql("FROM latest").fetchall()) == [("even", 4), ("odd", 5)]
    assert lake.table("odd").count() == 3


def test_a_query_with_state_sees_joined_tables_as_they_are_at_each_batch(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.sql("CREATE SCHEMA dims")
    lake.sql('CREATE TABLE dims."the names" (rest BIGINT, name VARCHAR)')
    lake.sql("INSERT INTO dims.\"the names\" VALUES (0, 'even')")
    given = definition(
        tmp_path,
        every="100 milliseconds",
        query="SELECT n.name, count(*) AS n FROM source AS s JOIN dims.`the names` AS n ON s.id % 2 = n.rest GROUP BY ALL",
        output_mode="update",
        sinks=[{"type": "lake", "table": "counts", "mode": "upsert", "key": "name"}],
    )
    add(lake, 0, 6)
    pipeline = Pipeline(lake, given)
    pipeline.start()
    try:
        until("SELECT n FROM counts WHERE name = 'even'", 3, lake)
        lake.sql("INSERT INTO dims.\"the names\" VALUES (1, 'odd')")
        add(lake, 6, 10)
        until("SELECT n FROM counts WHERE name = 'even'", 5, lake)
    finally:
        pipeline.stop()
    assert sorted(lake.sql("FROM counts").fetchall()) == [("even", 5), ("odd", 2)]


def until(query: str, expected: Any, lake: quacklake.Lake) -> None:
    """Wait for the answer to a query."""
    end = time.monotonic() + 60
    found: Any = None
    while found != [(expected,)]:
        assert time.monotonic() < end, found
        time.sleep(0.1)
        with suppress(SqlError):  # the table does not exist yet
            found = lake.sql(query).fetchall()


def test_messages_of_nats_are_rows_or_dead_letters_also_in_windows(
    lake: quacklake.Lake, nats_server: NatsServer, tmp_path: Path
) -> None:
    stream = f"s{secrets.token_hex(6)}"
    with NatsConnection(nats_server.url) as nats:
        nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "storage": "memory"})
        nats.publish([(f"{stream}.a", b'{"id": %d, "v": %d}' % (n, n * 2), None) for n in range(30)])
        nats.publish([(f"{stream}.a", b"no row", None)])
    source = {"type": "nats", "servers": nats_server.url, "stream": stream, "schema": "id BIGINT, v BIGINT"}
    plain = definition(tmp_path, source=source, query="SELECT id, v FROM source", dead_letters="letters")
    report = Pipeline(lake, plain).run(until_caught_up=True)
    assert (report.sinks["delta"], report.rejected) == (30, 1)
    for kind in KINDS:
        assert rows(kind, tmp_path, lake) == doubled(0, 30), kind
    counting = definition(
        tmp_path,
        pipeline="counting",
        source={**source, "watermark": {"column": "_time", "delay": "0 seconds"}},
        query="SELECT id % 3 AS rest, count(*) AS n FROM source GROUP BY id % 3",
        output_mode="update",
        sinks=[{"type": "lake", "table": "counts", "mode": "upsert", "key": "rest"}],
        dead_letters="letters2",
    )
    Pipeline(lake, counting).run(until_caught_up=True)
    assert sorted(lake.sql("FROM counts").fetchall()) == [(0, 10), (1, 10), (2, 10)]
    assert lake.sql("SELECT _sequence FROM letters UNION ALL SELECT _sequence FROM letters2").fetchall() == [
        (31,),
        (31,),
    ]


def test_any_source_of_spark_passes_through(lake: quacklake.Lake, tmp_path: Path) -> None:
    files = tmp_path / "in"
    files.mkdir()
    (files / "a.json").write_text('{"id": 1, "v": 2}\n{"id": 2, "v": 4}\n')
    source = {"type": "spark", "format": "json", "path": str(files), "schema": "id BIGINT, v BIGINT"}
    given = definition(tmp_path, engine="auto", source=source, query=None, sinks=[sink("lake", tmp_path)])
    del given["query"]
    assert Pipeline(lake, given).run(until_caught_up=True).rows == 2
    (files / "b.json").write_text('{"id": 3, "v": 6}\n')
    assert Pipeline(lake, given).run(until_caught_up=True).rows == 1
    assert rows("lake", tmp_path, lake) == doubled(1, 4)
    with pytest.raises(ConfigError, match="needs a format"):
        Pipeline(lake, {**given, "pipeline": "q", "source": {"type": "spark"}}).run()
    with pytest.raises(ConfigError, match="Spark cannot read 'nothing'"):
        Pipeline(lake, {**given, "pipeline": "q", "source": {"type": "spark", "format": "nothing"}}).run()


def test_progress_that_is_gone_is_an_error_and_not_a_loss(lake: quacklake.Lake, tmp_path: Path) -> None:
    import shutil

    given = definition(tmp_path, sinks=[sink("lake", tmp_path)])
    add(lake, 0, 5)
    Pipeline(lake, given).run(until_caught_up=True)
    shutil.rmtree(tmp_path / "data" / "_quacklake")
    with pytest.raises(StreamMismatchError, match="progress of Spark behind checkpoint 0 is gone"):
        Pipeline(lake, given).run(until_caught_up=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE)", "WINDOW(ts, '1 MINUTE', '30 SECOND')"),
        ("SESSION_END(ts, INTERVAL '5' MINUTE)", "SESSION_WINDOW(ts, '5 MINUTE').end"),
        ("SESSION(ts, INTERVAL '5' MINUTE)", "SESSION_WINDOW(ts, '5 MINUTE')"),
        ("tumble(ts, '1 hour')", "WINDOW(ts, '1 hour')"),
    ],
)
def test_windows_are_written_in_the_words_of_spark(text: str, expected: str) -> None:
    assert spark_query(f"SELECT {text} FROM source") == f"SELECT {expected} FROM source"


@pytest.mark.parametrize("text", ["TUMBLE(ts)", "HOP(ts, INTERVAL '1' MINUTE)", "TUMBLE(ts, 5)", "SESSION(ts, x)"])
def test_a_wrong_window_is_an_error(text: str) -> None:
    with pytest.raises(SqlError):
        spark_query(f"SELECT {text} FROM source")
