"""Dead letters are listed, published again once, and become rows when the pipeline can read them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.core.faults import Fault, FaultInjected, arm, record
from quacklake.errors import ConfigError, InputError, NotFoundError
from quacklake.pipelines import Pipeline
from quacklake.pipelines.dead_letters import DeadLetters
from quacklake.pipelines.definition import PipelineDefinition
from quacklake.pipelines.origins import Origin
from services import NatsServer
from tests.pipelines.tables import connect, end_lease


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with connect(tmp_path) as opened:
        yield opened


@pytest.fixture
def nats(nats_server: NatsServer) -> Iterator[NatsConnection]:
    with NatsConnection(nats_server.url) as connection:
        yield connection


@pytest.fixture
def stream(nats: NatsConnection) -> str:
    name = f"s{secrets.token_hex(6)}"
    nats.jetstream(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})
    return name


def definition(server: NatsServer, stream: str, **options: Any) -> PipelineDefinition:
    return PipelineDefinition.parse(
        {
            "pipeline": "orders",
            "source": {"type": "nats", "servers": server.url, "stream": stream, "schema": options.pop("schema", "id BIGINT")},
            "sinks": [{"type": "lake", "table": "orders"}],
            "dead_letters": "letters",
            "every": "10 ms",
            "lease": "5 minutes",
            **options,
        }
    )  # fmt: skip


def messages(nats: NatsConnection, stream: str) -> list[tuple[str, bytes]]:
    found = []
    for part in nats.read_range(stream, 1, 1 << 40):
        found += list(zip(part.subjects.to_pylist(), part.data.to_pylist(), strict=True))
    return [(bytes(subject).decode(), bytes(data)) for subject, data in found]


BAD = [b"no row", b"", "h\u00e4lf".encode("latin-1"), b'{"id": "x"}']


@pytest.fixture
def letters(lake: quacklake.Lake, nats: NatsConnection, nats_server: NatsServer, stream: str) -> DeadLetters:
    """Four bad messages among two good ones."""
    bodies = [b'{"id": 1}', *BAD, b'{"id": 2}']
    nats.publish([(f"{stream}.a.b", body, None) for body in bodies])
    made = definition(nats_server, stream)
    Pipeline(lake, made).run(until_caught_up=True)
    return DeadLetters(lake, made)


def test_letters_have_their_sequence_reason_and_body_in_pages(letters: DeadLetters) -> None:
    page = letters.page(-1, 3, 4)
    assert [(each.sequence, each.data, each.size) for each in page] == [
        (2, b"no r", 6), (3, b"", 0), (4, BAD[2][:4], 4),
    ]  # fmt: skip
    assert all(each.reason and each.subject.endswith(".a.b") for each in page)
    assert [each.data for each in letters.page(page[-1].row, 3, 100)] == [BAD[3]]
    assert (letters.count(), letters.pending()) == (4, 0)


def test_replayed_letters_are_published_once_and_become_rows_under_a_schema_that_fits(
    letters: DeadLetters, lake: quacklake.Lake, nats: NatsConnection, nats_server: NatsServer, stream: str
) -> None:
    rows = [each.row for each in letters.page(-1, 10, 10)]
    assert letters.replay(rows[:1]) == 1 and letters.replay(rows[1:]) == 3
    assert [body for _, body in messages(nats, stream)][6:] == BAD
    assert {subject for subject, _ in messages(nats, stream)} == {f"{stream}.a.b"}
    assert letters.count() == 0
    with pytest.raises(NotFoundError, match="no dead letter"):
        letters.replay(rows)
    assert len(messages(nats, stream)) == 10, "what was replayed once is not published again"
    fitting = definition(nats_server, stream, schema="id VARCHAR")
    lake.sql("CREATE TABLE other (id VARCHAR, _subject VARCHAR, _sequence BIGINT, _time TIMESTAMPTZ, _headers BLOB)")
    fitting = PipelineDefinition.parse({**fitting.to_mapping(), "sinks": [{"type": "lake", "table": "other"}]})
    Pipeline(lake, fitting).run(until_caught_up=True, accept=True)
    assert lake.sql("SELECT id, _sequence FROM other").fetchall() == [("x", 10)], "only one of them was JSON"
    assert sorted(each.sequence for each in DeadLetters(lake, fitting).page(-1, 10, 9)) == [7, 8, 9]


def test_a_replay_that_is_cut_off_anywhere_publishes_each_letter_once(
    letters: DeadLetters, lake: quacklake.Lake, nats: NatsConnection, stream: str
) -> None:
    rows = [each.row for each in letters.page(-1, 10, 10)]
    with record() as reached:
        letters.replay(rows[:1])
    points = [name for name in dict.fromkeys(reached) if name.startswith(("pipeline.", "connector.nats."))]
    assert {"pipeline.confirm.after", "connector.nats.commit.after"} <= set(points)
    nats.publish([(f"{stream}.a.b", b"bad %d" % place, None) for place in range(len(points))])
    made = letters._definition
    end_lease(lake, "orders")
    Pipeline(lake, made).run(until_caught_up=True)
    for place, point in enumerate(points):
        body = b"bad %d" % place
        [letter] = [each for each in letters.page(-1, 100, 100) if each.data == body]
        with arm(Fault(pattern=point)), pytest.raises(FaultInjected):
            letters.replay([letter.row])
        before = letters.pending()
        left = [each.row for each in letters.page(-1, 100, 100) if each.data == body]
        assert (before == 1 and not left) or before == 0, point
        letters.replay(left)
        assert letters.pending() == 0
        assert [each for _, each in messages(nats, stream)].count(body) == 2, point


def test_nothing_is_replayed_that_is_not_there_or_too_much_or_of_another_source(
    letters: DeadLetters, lake: quacklake.Lake, nats: NatsConnection, stream: str, tmp_path: Path
) -> None:
    rows = [each.row for each in letters.page(-1, 10, 10)]
    with pytest.raises(NotFoundError, match="999"):
        letters.replay([rows[0], 999])
    assert (len(messages(nats, stream)), letters.count()) == (6, 4)
    with pytest.raises(InputError, match="at once"):
        letters.replay(range(10_001))
    assert letters.replay([]) == 0
    other = PipelineDefinition.parse(
        {"pipeline": "x", "source": {"type": "lake", "table": "orders"}, "sinks": [{"type": "lake", "table": "y"}]}
    )
    assert DeadLetters(lake, other).page(-1, 1, 1) == [] and DeadLetters(lake, other).count() == 0
    with pytest.raises(ConfigError, match="no source of messages"):
        DeadLetters(lake, other).replay([1])


# -- the origin of commits ---------------------------------------------------------------------------------------------


def test_each_commit_says_which_batch_and_which_messages_it_is_of(
    lake: quacklake.Lake, nats: NatsConnection, nats_server: NatsServer, stream: str
) -> None:
    made = definition(nats_server, stream)
    for first in (0, 5, 12):
        nats.publish([(f"{stream}.a", b'{"id": %d}' % n, None) for n in range(first, first + 5)])
        Pipeline(lake, made).run(until_caught_up=True)
    rows = lake.sql("SELECT rowid, snapshot_id, _sequence FROM orders").fetchall()
    signed = {each["snapshot_id"]: each for each in lake.snapshots().to_pylist()}
    assert len(rows) == 15
    for _, snapshot, sequence in rows:
        origin = Origin.of_extra(signed[snapshot]["commit_extra_info"])
        assert origin is not None and origin.first is not None and origin.last is not None
        assert (origin.pipeline, origin.stream, origin.column) == ("orders", stream, "_sequence")
        assert origin.first <= sequence <= origin.last and origin.last - origin.first == 4
        assert signed[snapshot]["author"] == "pipeline orders"
        assert origin.created == nats.jetstream(f"STREAM.INFO.{stream}")["created"]


@pytest.mark.parametrize(
    "extra",
    [None, "", "x", "[]", "7", '{"quacklake_pipeline": 3}', '{"quacklake_pipeline": {"pipeline": "p"}}',
     '{"quacklake_pipeline": {"pipeline": 1, "checkpoint": 1}}', '{"quacklake_pipeline": {"pipeline": "p", "checkpoint": 1, "first": "1"}}',
     '{"quacklake_pipeline": {"pipeline": "p", "checkpoint": 1, "evil": 1}}', "[" * 5000],
)  # fmt: skip
def test_an_extra_text_of_others_is_no_origin(extra: str | None) -> None:
    assert Origin.of_extra(extra) is None
    kept = Origin("p", 3, "s", "then", 1, 9, "_sequence")
    assert Origin.of_extra(kept.to_extra()) == kept
    assert json.loads(Origin("p", 3).to_extra()) == {"quacklake_pipeline": {"pipeline": "p", "checkpoint": 3}}


def test_the_lag_is_in_messages_and_in_seconds(
    lake: quacklake.Lake, nats: NatsConnection, nats_server: NatsServer, stream: str
) -> None:
    pipeline = Pipeline(lake, definition(nats_server, stream))
    nats.publish([(f"{stream}.a", b'{"id": 1}', None)])
    assert pipeline.lag() is None, "it has not begun"
    pipeline.run(until_caught_up=True)
    caught_up = pipeline.lag()
    assert caught_up is not None and (caught_up.count, caught_up.seconds) == (0, 0.0)
    nats.publish([(f"{stream}.a", b'{"id": 2}', None)] * 3)
    lag = pipeline.lag()
    assert lag is not None and lag.count == 3 and lag.seconds is not None and 0 <= lag.seconds < 60
