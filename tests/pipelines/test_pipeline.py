"""Pipelines in this process: every row reaches every sink once, no matter what happens in between."""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.connectors import CommitInfo, PreparedCommit, Sink, SourceCheckpoint, connector
from quacklake.core.faults import Fault, FaultInjected, _hooked, arm, record
from quacklake.errors import (
    AlreadyExistsError,
    CommitUnknown,
    ConfigError,
    ConnectorError,
    ConnectorUnavailableError,
    LeaseHeldError,
    NotFoundError,
    QuacklakeError,
    SnapshotExpiredError,
    SqlError,
    StreamFencedError,
    StreamMismatchError,
    UnsupportedFeatureError,
)
from quacklake.extend.checkpoints import Checkpoints
from quacklake.extend.writes import run as run_change
from quacklake.pipelines import Pipeline, PipelineDefinition
from quacklake.pipelines.checkpoints import Manifest, confirm
from quacklake.pipelines.definitions import Definitions
from tests import seeds
from tests.pipelines.tables import KINDS, connect, definition, end_lease, rows, sink


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with connect(tmp_path) as opened:
        opened.sql("CREATE TABLE orders (id BIGINT, v BIGINT)")
        yield opened


def add(lake: quacklake.Lake, first: int, end: int) -> None:
    lake.table("orders").append(pa.table({"id": range(first, end), "v": range(first, end)}))


def doubled(first: int, end: int) -> Counter[tuple[Any, ...]]:
    return Counter((n, n * 2) for n in range(first, end))


def test_rows_reach_every_sink_once_and_runs_go_on_where_the_last_ended(lake: quacklake.Lake, tmp_path: Path) -> None:
    add(lake, 0, 50)
    pipeline = Pipeline(lake, definition(tmp_path))
    assert pipeline.engine == "local"
    assert pipeline.run(until_caught_up=True).sinks == dict.fromkeys(KINDS, 50)
    add(lake, 50, 80)
    add(lake, 80, 81)
    again = Pipeline(lake, definition(tmp_path)).run(until_caught_up=True)
    assert again.sinks == dict.fromkeys(KINDS, 31)
    assert Pipeline(lake, definition(tmp_path)).run(until_caught_up=True).batches == 0
    for kind in KINDS:
        assert rows(kind, tmp_path, lake) == doubled(0, 81), kind
    assert all(each["state"] == "finished" for each in pipeline.status())


def test_views_over_a_sink_are_refreshed_on_commit(lake: quacklake.Lake, tmp_path: Path) -> None:
    add(lake, 0, 30)
    Pipeline(lake, definition(tmp_path, ("lake",))).run(until_caught_up=True)
    query = "SELECT id % 5 AS k, count(*) AS n FROM copied GROUP BY k"
    lake.create_materialized_view("counts", query, refresh="on commit")
    add(lake, 30, 45)
    Pipeline(lake, definition(tmp_path, ("lake",))).run(until_caught_up=True)
    assert sorted(lake.sql("FROM counts").fetchall()) == [(k, 9) for k in range(5)]
    assert lake.materialized_views.describe("counts")["last_way"] == "merge"


def test_branches_get_the_rows_of_their_conditions(lake: quacklake.Lake, tmp_path: Path) -> None:
    add(lake, 0, 10)
    sinks = [
        {"name": "small", "type": "lake", "table": "small", "where": "v < 10"},
        {"name": "rest", "type": "lake", "table": "rest", "where": "NOT v < 10"},
        sink("delta", tmp_path, where="id % 2 = 0"),
    ]
    report = Pipeline(lake, definition(tmp_path, sinks=sinks)).run(until_caught_up=True)
    assert report.sinks == {"small": 5, "rest": 5, "delta": 5}
    assert rows("delta", tmp_path, lake) == Counter((n, n * 2) for n in range(0, 10, 2))


def test_a_query_joins_tables_as_they_are_at_each_batch(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE names (id BIGINT, name VARCHAR)")
    lake.sql("INSERT INTO names VALUES (1, 'old')")
    query = "SELECT source.id, name FROM source JOIN names ON source.id % 10 = names.id"
    given = definition(tmp_path, sinks=[{"type": "lake", "table": "named"}], query=query)
    add(lake, 1, 2)
    Pipeline(lake, given).run(until_caught_up=True)
    lake.sql("UPDATE names SET name = 'new'")
    add(lake, 11, 12)
    Pipeline(lake, given).run(until_caught_up=True)
    assert sorted(lake.sql("FROM named").fetchall()) == [(1, "old"), (11, "new")]


def test_the_checkpoint_of_a_table_has_the_time_at_which_it_was_reached(
    lake: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L15: a pipeline keeps it, and continues from one without a time, as earlier releases kept."""
    given = definition(tmp_path, ("lake",))
    kept: list[str] = []

    def run() -> datetime | None:
        Pipeline(lake, given).run(until_caught_up=True, on_batch=lambda report: kept.append(report.position))
        return SourceCheckpoint.from_json(kept[-1]).timestamp

    add(lake, 0, 10)
    with monkeypatch.context() as earlier:
        earlier.setattr("quacklake.connectors.table_source.replace", lambda position, **_: position)
        assert run() is None
    add(lake, 10, 20)
    began = datetime.now(UTC)
    time = run()
    assert time is not None
    assert began <= time <= datetime.now(UTC)
    assert rows("lake", tmp_path, lake) == doubled(0, 20)


def test_the_limits_of_a_batch_hold(lake: quacklake.Lake, tmp_path: Path) -> None:
    for first in range(0, 100, 10):
        add(lake, first, first + 10)
    given = definition(tmp_path, ("lake",), batch_rows=20, every="1 hour")
    seen: list[int] = []
    Pipeline(lake, given).run(until_caught_up=True, on_batch=lambda report: seen.append(report.rows))
    assert seen == [100] or (sum(seen) == 100 and max(seen) <= 100)
    assert rows("lake", tmp_path, lake) == doubled(0, 100)


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_an_error_at_any_point_neither_loses_nor_doubles_a_row(lake: quacklake.Lake, tmp_path: Path, mode: str) -> None:
    add(lake, 0, 10)
    given = definition(tmp_path, mode=mode)
    Pipeline(lake, given).run(until_caught_up=True)
    end = 10

    def once() -> None:
        nonlocal end
        add(lake, end, end + 5)
        end += 5
        Pipeline(lake, given).run(until_caught_up=True)

    with record() as points:
        once()
    chosen = seeds.some(range(1, len(points) + 1), 8, "faults of a pipeline", mode)
    for number in chosen:
        with arm(Fault(at=number)):
            try:
                once()
            except FaultInjected:
                pass
        end_lease(lake)
        Pipeline(lake, given).run(until_caught_up=True)
    for kind in KINDS:
        assert rows(kind, tmp_path, lake) == doubled(0, end), kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_killed_process_neither_loses_nor_doubles_a_row(
    lake: quacklake.Lake, tmp_path: Path, kind: str, mode: str
) -> None:
    kinds = (kind,) if kind == "lake" else ("lake", kind)
    given = definition(tmp_path, kinds, mode, lease="1 second")
    add(lake, 0, 10)
    Pipeline(lake, given).run(until_caught_up=True)
    (tmp_path / "definition.json").write_text(json.dumps(given))
    points = [
        "pipeline.prepare.before",
        f"connector.{kind}.prepare.after",
        "pipeline.confirm.before",
        "transaction.commit*",
        "pipeline.confirm.after",
        f"connector.{kind}.commit.before",
        f"connector.{kind}.commit.after",
        "pipeline.finalize.after",
        "pipeline.finish.after",
    ]
    end = 10
    for point in seeds.some(points, 1, "kills of a pipeline", kind, mode):
        add(lake, end, end + 7)
        end += 7
        environment = os.environ | {"QUACKLAKE_FAULT": f"1:kill:{point}"}
        command = [sys.executable, "-m", "tests.pipelines.run_pipeline", str(tmp_path)]
        died = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert died.returncode in (0, -9), died.stderr
        Pipeline(lake, given).run(until_caught_up=True)
        for each in kinds:
            assert rows(each, tmp_path, lake) == doubled(0, end), (point, each)


def test_random_changes_batches_and_faults_leave_the_table_of_a_model(lake: quacklake.Lake, tmp_path: Path) -> None:
    chance = seeds.chance("a pipeline of changes")
    given = definition(
        tmp_path,
        source={"type": "lake", "table": "orders", "change_data_feed": True},
        query="SELECT id, v, _change_type, _commit_version FROM source",
        sinks=[{"type": "lake", "table": "copied", "mode": "changes", "key": "id"}],
        batch_rows=chance.choice([3, 7, 1000]),
    )
    model: dict[int, int] = {}
    for _ in range(6 if not seeds.LONG else 200):
        for _ in range(chance.randint(1, 4)):
            change(lake, model, chance)
        with arm(Fault(at=chance.randint(1, 60))):
            try:
                Pipeline(lake, given).run(until_caught_up=True)
            except FaultInjected:
                pass
        end_lease(lake)
    Pipeline(lake, given).run(until_caught_up=True)
    assert dict(lake.sql("SELECT id, v FROM copied").fetchall()) == model
    assert len(model) == lake.sql("SELECT count(*) FROM copied").fetchall()[0][0]


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"mode": "batch"}, [1, 2, 3]),
        ({"mode": "snapshot", "version": 2}, [1]),
        ({"mode": "incremental", "version": 2}, [2, 3]),
        ({"mode": "continuous"}, [1, 2, 3]),
    ],
    ids=lambda given: str(given.get("mode", "")) if isinstance(given, dict) else "",
)
def test_a_lake_table_is_read_as_its_mode_says(
    lake: quacklake.Lake, tmp_path: Path, options: dict[str, Any], seen: list[int]
) -> None:
    for number in (1, 2, 3):
        lake.sql("INSERT INTO orders VALUES (?, 0)", [number])
    first = lake.table("orders").history().column("snapshot_id").to_pylist()
    if "version" in options:
        options = {**options, "version": sorted(first)[options["version"] - 1]}
    source = {"type": "lake", "table": "orders", **options}
    given = definition(
        tmp_path, source=source, query="SELECT id FROM source", sinks=[{"type": "lake", "table": "seen"}]
    )
    Pipeline(lake, given).run(until_caught_up=True)
    assert [id_ for (id_,) in lake.sql("SELECT id FROM seen ORDER BY id").fetchall()] == seen


def test_a_source_table_that_was_replaced_or_lost_its_history_is_an_error(lake: quacklake.Lake, tmp_path: Path) -> None:
    add(lake, 0, 3)
    Pipeline(lake, definition(tmp_path, ("lake",))).run(until_caught_up=True)
    add(lake, 3, 6)
    add(lake, 6, 9)
    lake.expire_snapshots(keep_last=1, older_than="0s")
    with pytest.raises(SnapshotExpiredError):
        Pipeline(lake, definition(tmp_path, ("lake",))).run(until_caught_up=True)
    lake.sql("DROP TABLE orders; CREATE TABLE orders (id BIGINT, v BIGINT)")
    with pytest.raises(StreamMismatchError):
        Pipeline(lake, definition(tmp_path, ("lake",))).run(until_caught_up=True)
    assert rows("lake", tmp_path, lake) == doubled(0, 3)


def test_a_lake_sink_makes_partitions_and_adds_columns_where_it_may(lake: quacklake.Lake, tmp_path: Path) -> None:
    sinks = [{"type": "lake", "table": "copied", "partition_by": "id", "schema_evolution": True}]
    add(lake, 0, 3)
    Pipeline(lake, definition(tmp_path, sinks=sinks)).run(until_caught_up=True)
    lake.sql("ALTER TABLE orders ADD COLUMN note VARCHAR")
    lake.sql("INSERT INTO orders VALUES (3, 1, 'new')")
    again = definition(tmp_path, sinks=sinks, query="SELECT id, v * 2 AS v, note FROM source")
    Pipeline(lake, again).run(until_caught_up=True, accept=True)
    assert lake.table("copied").partitioned_by == ["id"]
    assert lake.sql("SELECT id, note FROM copied WHERE id > 1 ORDER BY id").fetchall() == [(2, None), (3, "new")]


def change(lake: quacklake.Lake, model: dict[int, int], chance: random.Random) -> None:
    key, value = chance.randint(0, 20), chance.randint(0, 99)
    if key not in model:
        lake.sql("INSERT INTO orders VALUES (?, ?)", [key, value])
        model[key] = value
    elif chance.random() < 0.5:
        lake.sql("UPDATE orders SET v = ? WHERE id = ?", [value, key])
        model[key] = value
    else:
        lake.sql("DELETE FROM orders WHERE id = ?", [key])
        del model[key]


def test_a_run_that_was_replaced_can_neither_confirm_nor_finish(lake: quacklake.Lake, tmp_path: Path) -> None:
    checkpoints = Checkpoints(lake, "p")
    old = checkpoints.claim("h")
    prepared = Manifest(0, "here", {"d": PreparedCommit(0)})
    run_change(lake, lambda change: confirm(checkpoints, change, old, prepared))
    new = checkpoints.claim("h")
    assert (new.last, new.position, new.incarnation) == (0, "here", old.incarnation)
    assert [each.checkpoint_id for each in new.confirmed] == [0]
    with pytest.raises(StreamFencedError):
        run_change(lake, lambda change: confirm(checkpoints, change, old, Manifest(1, "there")))
    with pytest.raises(StreamFencedError):
        checkpoints.finish(old, 0)
    checkpoints.finish(new, 0)
    assert checkpoints.claim("h").confirmed == ()


def test_two_processes_do_not_run_one_pipeline(lake: quacklake.Lake, tmp_path: Path) -> None:
    add(lake, 0, 5)
    given = definition(tmp_path, ("lake",), lease="1 minute")  # longer than a busy machine takes to come here
    impatient = definition(tmp_path, ("lake",), lease="1 second")  # it waits as long as its own lease would last
    runs = threading.Event()
    first = Pipeline(lake, given).start(on_batch=lambda report: runs.set())
    try:
        assert runs.wait(60)
        with connect(tmp_path) as other, pytest.raises(LeaseHeldError, match='runs the pipeline "p"'):
            Pipeline(other, impatient).run(until_caught_up=True)
    finally:
        first.stop()
    with connect(tmp_path) as other:
        Pipeline(other, given).run(until_caught_up=True)
    assert rows("lake", tmp_path, lake) == doubled(0, 5)


class Failing:
    """A sink that never shows anything."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def initialize(self, schema: pa.Schema) -> None: ...

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        return PreparedCommit(checkpoint_id, records_written=1)

    def finalize_commit(self, prepared: PreparedCommit) -> CommitInfo:
        raise ConnectorError("this sink is broken for good")

    def abort(self, prepared: PreparedCommit | None = None) -> None: ...

    def close(self) -> None: ...


def test_a_sink_that_fails_for_good_stops_the_pipeline_and_the_others_have_the_batch(
    lake: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = connector

    def with_failing(kind: str, role: str) -> Any:
        return Failing if kind == "failing" else found(kind, role)

    monkeypatch.setattr("quacklake.pipelines.sinks.connector", with_failing)
    assert isinstance(Failing({}), Sink)
    add(lake, 0, 10)
    sinks = [{"type": "failing"}, sink("delta", tmp_path), sink("lake", tmp_path)]
    pipeline = Pipeline(lake, definition(tmp_path, sinks=sinks))
    for _ in range(2):
        with pytest.raises(ConnectorError, match="broken for good"):
            pipeline.run(until_caught_up=True)
        add(lake, 10, 20)  # nothing goes on before the checkpoint is finished
        assert rows("delta", tmp_path, lake) == rows("lake", tmp_path, lake) == doubled(0, 10)
    assert [each["state"] for each in pipeline.status()] == ["confirmed"]


def test_a_broken_sink_holds_the_others_back_until_it_is_repaired(lake: quacklake.Lake, tmp_path: Path) -> None:
    given = definition(tmp_path, restart={"attempts": 1, "backoff": "1 ms"})
    add(lake, 0, 10)
    Pipeline(lake, given).run(until_caught_up=True)
    table, away = tmp_path / "delta" / "t", tmp_path / "away"

    def break_it(point: str) -> None:
        if point == "pipeline.confirm.after":
            table.rename(away)
            table.write_text("no table")

    add(lake, 10, 20)
    with _hooked(break_it), pytest.raises(ConnectorError):
        Pipeline(lake, given).run(until_caught_up=True)
    for first in (20, 30):
        add(lake, first, first + 10)
        with pytest.raises(QuacklakeError):
            Pipeline(lake, given).run(until_caught_up=True)
        for kind in ("lake", "iceberg"):
            assert rows(kind, tmp_path, lake) == doubled(0, 20), kind
    table.unlink()
    away.rename(table)
    Pipeline(lake, given).run(until_caught_up=True)
    for kind in KINDS:
        assert rows(kind, tmp_path, lake) == doubled(0, 40), kind


def test_a_pipeline_goes_on_after_a_commit_of_which_nobody_knows_whether_it_was_made(
    lake: quacklake.Lake, tmp_path: Path
) -> None:
    given = definition(tmp_path, restart={"attempts": 2, "backoff": "1 ms"})
    for number, point in enumerate(("pipeline.confirm.before", "pipeline.confirm.after")):
        add(lake, number * 5, number * 5 + 5)
        lost = Fault(pattern=point, error=lambda: CommitUnknown("the connection was lost"))
        with arm(lost):
            assert Pipeline(lake, given).run(until_caught_up=True).restarts == 1
        for kind in KINDS:
            assert rows(kind, tmp_path, lake) == doubled(0, number * 5 + 5), (kind, point)


def test_an_error_that_passes_is_tried_again(
    lake: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("quacklake"), "propagate", True)
    failures = [ConnectorUnavailableError("away"), ConnectorUnavailableError("still away")]

    def fail() -> None:
        if failures:
            raise failures.pop()

    add(lake, 0, 5)
    given = definition(tmp_path, ("lake", "delta"), restart={"attempts": 2, "backoff": "1 ms"})
    monkeypatch.setattr("quacklake.pipelines.local.reach", lambda point: fail())
    report = Pipeline(lake, given).run(until_caught_up=True)
    assert (report.restarts, report.rows) == (2, 5)
    # the handler of caplog may be there twice, when other libraries have set up logging
    told = [vars(record) for record in dict.fromkeys(caplog.records) if record.name == "quacklake.pipeline"]
    assert [(each["code"], each["pipeline"], each["attempt"]) for each in told] == [  # P53
        ("connector.unavailable", "p", 1),
        ("connector.unavailable", "p", 2),
    ]
    failures += [ConnectorUnavailableError("away")] * 3
    add(lake, 5, 6)
    with pytest.raises(ConnectorUnavailableError):
        Pipeline(lake, given).run(until_caught_up=True)
    failures.clear()
    Pipeline(lake, given).run(until_caught_up=True)
    assert rows("delta", tmp_path, lake) == rows("lake", tmp_path, lake) == doubled(0, 6)


def test_stop_ends_a_running_pipeline_after_its_batch(lake: quacklake.Lake, tmp_path: Path) -> None:
    given = definition(tmp_path, ("lake",))
    pipeline = Pipeline(lake, given)
    seen = threading.Event()
    pipeline.start(on_batch=lambda report: seen.set())
    add(lake, 0, 7)
    assert seen.wait(20)
    assert pipeline.stop().rows == 7
    assert not pipeline.is_active
    assert rows("lake", tmp_path, lake) == doubled(0, 7)


# -- changes of the pipeline -------------------------------------------------------------------------------------------


def test_a_changed_pipeline_is_refused_accepted_or_begun_anew(lake: quacklake.Lake, tmp_path: Path) -> None:
    add(lake, 0, 5)
    Pipeline(lake, definition(tmp_path, ("lake",))).run(until_caught_up=True)
    add(lake, 5, 8)
    changed = Pipeline(lake, definition(tmp_path, ("lake",), query="SELECT id, v * 3 AS v FROM source"))
    with pytest.raises(StreamMismatchError, match="has changed since its checkpoint 0"):
        changed.run(until_caught_up=True)
    assert changed.run(until_caught_up=True, accept=True).rows == 3
    other_limits = definition(tmp_path, ("lake",), query="SELECT id, v * 3 AS v FROM source", batch_rows=3)
    assert Pipeline(lake, other_limits).run(until_caught_up=True).rows == 0
    assert changed.run(until_caught_up=True, restart=True).rows == 8
    assert lake.sql("SELECT count(*) FROM copied").fetchall() == [(16,)]


def test_a_pipeline_that_begins_anew_adds_its_rows_to_foreign_tables_again(
    lake: quacklake.Lake, tmp_path: Path
) -> None:
    add(lake, 0, 5)
    pipeline = Pipeline(lake, definition(tmp_path))
    pipeline.run(until_caught_up=True)
    pipeline.run(until_caught_up=True, restart=True)
    for kind in KINDS:
        assert rows(kind, tmp_path, lake) == doubled(0, 5) + doubled(0, 5), kind


def test_only_the_last_checkpoints_are_kept(lake: quacklake.Lake, tmp_path: Path) -> None:
    pipeline = Pipeline(lake, definition(tmp_path, ("lake", "delta"), keep_checkpoints=2))
    for number in range(6):
        add(lake, number, number + 1)
        pipeline.run(until_caught_up=True)
    assert [each["checkpoint_id"] for each in pipeline.status()] == [4, 5]


# -- bad input ---------------------------------------------------------------------------------------------------------

GOOD = {"pipeline": "p", "source": {"type": "lake", "table": "orders"}, "sinks": [{"type": "lake", "table": "copied"}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sinkz": []}, "no option 'sinkz'"),
        ({"source": None}, "has no source"),
        ({"source": {"table": "orders"}}, "the source has no type"),
        ({"source": {"type": "lake", "table": "orders", "tabel": "x"}}, "no option 'tabel'"),
        ({"source": {"type": "delto", "location": "x"}}, "no connector of the type 'delto'"),
        ({"sinks": []}, "sinks is a list"),
        ({"sinks": [{"table": "x"}]}, "a sink has no type"),
        ({"sinks": [{"type": "lake", "table": "x"}, {"type": "lake", "table": "y"}]}, "two sinks are called 'lake'"),
        ({"sinks": [{"type": "lake", "table": "x", "mode": "upsert"}]}, "needs a key"),
        ({"sinks": [{"type": "lake", "table": "x", "mode": "overwrite"}]}, "overwrite"),
        ({"sinks": [{"type": "delta", "location": "x", "mode": "upsert"}]}, "needs a key"),
        ({"sinks": [{"type": "delta", "location": "x", "target_file_size": 5}]}, "5 of what"),
        ({"sinks": [{"type": "delta", "locaton": "x"}]}, "delta needs location"),
        ({"every": 5}, "every: 5 of what"),
        ({"every": "5"}, "every"),
        ({"engine": "duck"}, "engine cannot be 'duck'"),
        ({"batch_rows": 0}, "batch_rows is a whole number from 1 on"),
        ({"restart": {"attempts": -1}}, "attempts is a whole number from 0 on"),
        ({"source": {"type": "nats", "stream": "s", "schema": "a INT", "password": "hunter2"}}, "is a secret"),
    ],
)
def test_a_wrong_definition_is_an_error_that_shows_no_secret(
    lake: quacklake.Lake, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        Definitions(lake).apply({**GOOD, **change})
    assert "hunter2" not in f"{raised.value} {raised.value.hint}"
    assert Definitions(lake).list() == []
    assert lake.tables() == ["main.orders"]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT id, count(*) FROM source GROUP BY id", UnsupportedFeatureError),
        ("SELECT DISTINCT id FROM source", UnsupportedFeatureError),
        ("SELECT id FROM source LIMIT 1", UnsupportedFeatureError),
        ("SELECT id FROM source UNION SELECT 1", UnsupportedFeatureError),
        ("DROP TABLE orders", SqlError),
        ("SELECT FROM WHERE", SqlError),
        ("SELECT nothing FROM source", SqlError),
        ("SELECT id FROM nowhere", SqlError),
    ],
)
def test_a_query_that_batches_cannot_answer_is_refused(
    lake: quacklake.Lake, query: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Pipeline(lake, {**GOOD, "engine": "local", "query": query}).run(until_caught_up=True)
    assert lake.tables() == ["main.orders"]


@pytest.mark.parametrize("where", ["v <", "1; DROP TABLE orders", "v > 1) OR (1 = 1"])
def test_a_branch_is_a_condition_and_nothing_more(lake: quacklake.Lake, where: str) -> None:
    with pytest.raises(SqlError):
        Pipeline(lake, {**GOOD, "sinks": [{"type": "lake", "table": "copied", "where": where}]}).run()
    assert lake.tables() == ["main.orders"]


def test_rows_that_do_not_fit_a_sink_are_refused_before_anything_is_read(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE copied (id BIGINT, other VARCHAR)")
    add(lake, 0, 3)
    with pytest.raises(Exception, match="v"):
        Pipeline(lake, GOOD).run(until_caught_up=True)
    with pytest.raises(NotFoundError):
        Pipeline(lake, {**GOOD, "sinks": [{"type": "lake", "table": "gone", "create": False}]}).run()


def test_definitions_are_kept_replaced_and_dropped(lake: quacklake.Lake, tmp_path: Path) -> None:
    definitions = Definitions(lake)
    definitions.apply(GOOD)
    with pytest.raises(AlreadyExistsError):
        definitions.apply(GOOD, replace=False)
    definitions.apply({**GOOD, "batch_rows": 5})
    assert definitions.pipeline("P").definition.batch_rows == 5
    definitions.put("source", "s", {"type": "lake", "table": "orders"})
    definitions.put("sink", "t", {"type": "lake", "table": "used"})
    definitions.apply({"pipeline": "q", "source": "s", "sinks": ["t"]})
    add(lake, 0, 3)
    definitions.pipeline("q").run(until_caught_up=True)
    assert lake.sql("SELECT count(*) FROM used").fetchall() == [(3,)]
    definitions.drop("pipeline", "q")
    with pytest.raises(NotFoundError, match='no pipeline "q"'):
        definitions.pipeline("q")


def test_definitions_and_positions_travel_with_a_backup(lake: quacklake.Lake, tmp_path: Path) -> None:
    add(lake, 0, 5)
    Definitions(lake).apply(GOOD)
    Definitions(lake).pipeline("p").run(until_caught_up=True)
    lake.maintenance.backup(str(tmp_path / "backup"))
    quacklake.restore_backup(
        str(tmp_path / "backup"), f"sqlite:///{tmp_path}/copy.db", data_path=str(tmp_path / "copy")
    )
    with quacklake.connect(f"sqlite:///{tmp_path}/copy.db") as copy:
        pipeline = Definitions(copy).pipeline("p")
        assert pipeline.run(until_caught_up=True).rows == 0
        copy.table("orders").append(pa.table({"id": [9], "v": [9]}))
        assert pipeline.run(until_caught_up=True).rows == 1


def test_a_definition_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(
        """
source:
  type: nats
  stream: orders
  watermark: {column: ts, delay: 10 seconds}
query: SELECT * FROM source
sinks:
  raw: {type: lake, table: orders}
  big: {type: delta, location: /tmp/x, where: price > 100}
every: 2 seconds
restart: {attempts: 1}
"""
    )
    made = PipelineDefinition.load(path)
    assert (made.name, made.sinks[1].where, made.source.watermark) == ("orders", "price > 100", ("ts", "10 seconds"))
    assert PipelineDefinition.parse(json.loads(made.to_json())) == made
    path.write_text("- a list")
    with pytest.raises(ConfigError, match="no mapping"):
        PipelineDefinition.load(path)
    path.write_text("a: [")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        PipelineDefinition.load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        PipelineDefinition.load(tmp_path / "gone.yaml")
