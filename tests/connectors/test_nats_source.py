"""NATS as a source: every message once, as a row or with the reason why it is none."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from quacklake.connectors import SourceCheckpoint, connector
from quacklake.connectors.nats import NatsSource
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.decoding import Decoder
from quacklake.connectors.nats.protocol import StoredMessages
from quacklake.errors import (
    ConfigError,
    InputError,
    LimitError,
    NotFoundError,
    SnapshotExpiredError,
    StreamMismatchError,
)
from services import NatsServer
from tests.seeds import SEED


@pytest.fixture
def nats(nats_server: NatsServer) -> Iterator[NatsConnection]:
    with NatsConnection(nats_server.url) as connection:
        yield connection


@pytest.fixture
def stream(nats: NatsConnection) -> str:
    name = f"s{secrets.token_hex(6)}"
    make(nats, name)
    return name


def make(nats: NatsConnection, name: str) -> None:
    nats.jetstream(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})


def fill(nats: NatsConnection, stream: str, first: int, end: int) -> None:
    nats.publish([(f"{stream}.{n % 3}", b'{"id": %d}' % n, None) for n in range(first, end)])


def new_source(server: NatsServer, stream: str, **options: Any) -> NatsSource:
    given = {"type": "nats", "servers": server.url, "stream": stream, "schema": "id BIGINT", "poll_interval": "1 ms"}
    made: NatsSource = connector("nats", "source")(given | options)
    return made


def drain(source: NatsSource) -> list[int]:
    found: list[int] = []
    while (batch := source.poll_next()) is not None:
        found += batch.column("id").to_pylist()
    return found


def messages(bodies: list[bytes]) -> StoredMessages:
    count = len(bodies)
    times = [1_700_000_000_000_000_000 + 1000 * n for n in range(count)]
    return StoredMessages.of([b"s.x"] * count, list(range(1, count + 1)), times, [b""] * count, bodies)


# decoding


def test_json_is_a_row_or_has_a_reason() -> None:
    decoder = Decoder("json", "id BIGINT, v VARCHAR, t TIMESTAMPTZ, l INTEGER[], s STRUCT(x INTEGER), d DECIMAL(10, 2)")
    good = [
        b'{"id":1,"v":"a","t":"2024-01-01T00:00:00Z","l":[1,2],"s":{"x":1},"d":1.25}',
        b'{"id":2}',
        b'{"id":null,"extra":1}',
        b"{}",
    ]
    bad = [b"nojson", b"[1]", b"5", b'{"id":"q"}', b"\xff", b"", b'{"id":3,"l":["z"]}', b'{"id":1}{"id":2}']
    decoded = decoder.decode(messages([*good, *bad]))
    assert decoded.rows.column("id").to_pylist() == [1, 2, None, None]
    assert decoded.rows.column("_sequence").to_pylist() == [1, 2, 3, 4]
    first = decoded.rows.slice(0, 1).to_pylist()[0]
    assert (first["l"], first["s"], str(first["d"])) == ([1, 2], {"x": 1}, "1.25")
    assert first["t"] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert decoded.rejected.column("_data").to_pylist() == bad
    reasons = decoded.rejected.column("_reason").to_pylist()
    assert reasons[3] == 'id is not of type BIGINT: "q"'
    assert all(reasons)


def test_csv_is_a_row_or_has_a_reason() -> None:
    decoder = Decoder("csv", "id BIGINT, v VARCHAR, x DOUBLE")
    good = [b"1,a,1.5", b'2,"x, ""y""",', b"4,,2\r\n"]
    bad = [b"3,b", b"q,b,1", b"", b'5,"",1\n6,b,1', b'7,"unclosed,1', b"8,z,3,4"]
    decoded = decoder.decode(messages([*bad[:3], *good, *bad[3:]]))
    values = decoded.rows.select(["id", "v", "x"]).to_pylist()
    assert [tuple(row.values()) for row in values] == [(1, "a", 1.5), (2, 'x, "y"', None), (4, None, 2.0)]
    assert decoded.rejected.column("_data").to_pylist() == bad


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_number_with_a_fraction_is_no_integer(form: str) -> None:
    bad, good = ["1.5", "true", "-0.1", "0.25"], ["1", "-9223372036854775808", "2.0", "1e3", "9223372036854775807"]
    bodies = [f'{{"id":{text},"x":1.5}}' if form == "json" else f"{text},1.5" for text in [*bad, *good]]
    decoded = Decoder(form, "id BIGINT, x DOUBLE").decode(messages([body.encode() for body in bodies]))
    assert decoded.rows.column("id").to_pylist() == [1, -(2**63), 2, 1000, 2**63 - 1]
    assert decoded.rejected.column("_reason").to_pylist() == [f"id is not of type BIGINT: {text}" for text in bad]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_times_keep_their_offset_and_days_are_days(form: str) -> None:
    texts = ["2024-01-01T10:00:00+02:00", "2024-01-01T10:00:00Z", "2024-01-01 10:00:00", "2024-01-01"]
    bodies = [f'{{"t": "{text}"}}' if form == "json" else text for text in texts]
    moments = Decoder(form, "t TIMESTAMP").decode(messages([body.encode() for body in bodies]))
    assert [moment.hour for moment in moments.rows.column("t").to_pylist()] == [8, 10, 10, 0]
    days = Decoder(form, "t DATE").decode(messages([body.encode() for body in bodies]))
    assert days.rows.column("t").to_pylist() == [dt.date(2024, 1, 1)]
    assert days.rejected.num_rows == 3
    assert "t is not of type DATE" in days.rejected.column("_reason")[0].as_py()


def test_values_inside_nested_columns_are_neither_rounded_nor_shifted() -> None:
    columns = 'n STRUCT(i BIGINT, "at" TIMESTAMP), l INTEGER[]'
    body = '{{"n": {{"i": {}, "at": "2024-01-01T10:00:00+02:00"}}, "l": [{}]}}'
    bodies = [body.format(*pair).encode() for pair in [(7, 1), (1.5, 1), (7, 2.5), ("9007199254740993", "1e2")]]
    decoded = Decoder("json", columns).decode(messages(bodies))
    at = dt.datetime(2024, 1, 1, 8)
    expected = [{"n": {"i": 7, "at": at}, "l": [1]}, {"n": {"i": 9007199254740993, "at": at}, "l": [100]}]
    assert decoded.rows.select(["n", "l"]).to_pylist() == expected
    assert decoded.rejected.num_rows == 2


def test_arrow_streams_have_many_rows_and_raw_ones_none_to_refuse() -> None:
    rows = pa.table({"id": [1, 2], "other": ["a", "b"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    body = sink.getvalue().to_pybytes()
    decoded = Decoder("arrow", "id BIGINT").decode(messages([body, b"junk", body[:40], b"", body]))
    assert decoded.rows.column("id").to_pylist() == [1, 2, 1, 2]
    assert decoded.rows.column("_sequence").to_pylist() == [1, 1, 5, 5]
    assert decoded.rejected.num_rows == 3
    raw = Decoder("raw").decode(messages([b"a", b"\xff"]))
    assert raw.rows.column("_data").to_pylist() == [b"a", b"\xff"]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_any_bodies_are_read_as_python_reads_them(form: str) -> None:
    """Random bodies, some cut or changed: the same rows as Python's own parser gives, in the same order."""
    dice = random.Random(SEED)
    decoder = Decoder(form, "id BIGINT, v VARCHAR")

    def body() -> bytes:
        row = {"id": dice.randint(-9, 9), "v": dice.choice(["a", 'q"x', "é", "a,b", "line\nbreak", ""])}
        if form == "json":
            text = json.dumps({key: value for key, value in row.items() if dice.random() < 0.9})
        else:
            sink = io.StringIO()
            csv.writer(sink).writerow(row.values())
            text = sink.getvalue()
        data = text.encode()
        return data[: dice.randint(0, len(data))] if dice.random() < 0.3 else data

    def expected(data: bytes) -> tuple[Any, ...] | None:
        try:
            if form == "json":
                row = json.loads(data)
                if not isinstance(row, dict) or not isinstance(row.get("id", 0), int):
                    return None
                return row.get("id"), row.get("v")
            lines = list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
            if len(lines) != 1 or len(lines[0]) != 2:
                return None
            return int(lines[0][0]) if lines[0][0] else None, lines[0][1] or None
        except (ValueError, csv.Error):
            return None

    bodies = [body() for _ in range(3000)]
    decoded = decoder.decode(messages(bodies))
    rows = [tuple(row.values()) for row in decoded.rows.select(["id", "v"]).to_pylist()]
    wanted = [found for data in bodies if (found := expected(data)) is not None]
    assert rows == wanted
    assert decoded.rejected.num_rows == len(bodies) - len(wanted)


@pytest.mark.parametrize(
    "columns", ["", "id", "id BIGINT); DROP TABLE x; --", "_time BIGINT", "m MAP(VARCHAR, INTEGER)", "id NOTYPE"]
)
def test_a_schema_that_is_none_is_refused(columns: str) -> None:
    with pytest.raises(ConfigError):
        Decoder("json", columns).decode(messages([b"{}"]))


# the source


def test_messages_come_once_with_where_they_are_from(
    nats: NatsConnection, nats_server: NatsServer, stream: str
) -> None:
    fill(nats, stream, 0, 2500)
    source = new_source(nats_server, stream, max_messages=400)
    source.start()
    batch = source.poll_next()
    assert batch is not None
    assert batch.num_rows == 400
    assert batch.column("_sequence").to_pylist() == list(range(1, 401))
    assert batch.column("_subject")[4].as_py() == f"{stream}.1"
    assert drain(source) == list(range(400, 2500))
    fill(nats, stream, 2500, 2510)
    assert drain(source) == list(range(2500, 2510))
    some = new_source(nats_server, stream, subject=f"{stream}.1, {stream}.2", mode="batch")
    some.start()
    assert drain(some) == [n for n in range(2510) if n % 3]
    source.close()


def test_a_source_that_ends_anywhere_goes_on_behind_its_checkpoint(
    nats: NatsConnection, nats_server: NatsServer, stream: str
) -> None:
    dice = random.Random(SEED)
    seen: Counter[int] = Counter()
    rejected = 0
    checkpoint, last, bad = None, 0, 0
    for _ in range(12):
        count = dice.randint(0, 60)
        fill(nats, stream, last, last + count)
        last += count
        for _ in range(dice.randint(0, 3)):
            nats.publish([(f"{stream}.x", b"no row", None)])
            bad += 1
        source = new_source(nats_server, stream, max_messages=dice.randint(1, 25))
        source.start(checkpoint)
        for _ in range(dice.randint(0, 6)):
            batch = source.poll_next()
            if batch is not None:
                seen.update(batch.column("id").to_pylist())
        rejected += source.take_rejected().num_rows
        checkpoint = SourceCheckpoint.from_json(source.current_checkpoint().to_json())
        source.close()
    source = new_source(nats_server, stream)
    source.start(checkpoint)
    seen.update(drain(source))
    rejected += source.take_rejected().num_rows
    assert seen == Counter(range(last))
    assert rejected == bad


def test_a_start_may_be_a_sequence_a_time_or_the_end(
    nats: NatsConnection, nats_server: NatsServer, stream: str
) -> None:
    fill(nats, stream, 0, 10)
    time.sleep(0.02)
    then = dt.datetime.now(dt.UTC)
    time.sleep(0.02)
    fill(nats, stream, 10, 15)
    for start, expected in (("earliest", 0), ("4", 3), (then.isoformat(), 10), ("latest", 15), ("2000-01-01", 0)):
        source = new_source(nats_server, stream, mode="batch", start=start)
        source.start()
        assert drain(source) == list(range(expected, 15)), start
    with pytest.raises(ConfigError, match="start"):
        new_source(nats_server, stream, start="soon").start()


def test_messages_that_were_removed_are_an_error_or_skipped(
    nats: NatsConnection, nats_server: NatsServer, stream: str
) -> None:
    fill(nats, stream, 0, 10)
    source = new_source(nats_server, stream, max_messages=4)
    source.start()
    source.poll_next()
    kept = source.current_checkpoint()
    nats.jetstream(f"STREAM.PURGE.{stream}", {"seq": 8})
    with pytest.raises(SnapshotExpiredError, match="5 to 7"):
        new_source(nats_server, stream).start(kept)
    skipping = new_source(nats_server, stream, on_expired="skip")
    skipping.start(kept)
    assert drain(skipping) == [7, 8, 9]


def test_a_stream_that_was_made_anew_is_an_error(nats: NatsConnection, nats_server: NatsServer, stream: str) -> None:
    fill(nats, stream, 0, 10)
    source = new_source(nats_server, stream)
    source.start()
    assert len(drain(source)) == 10
    nats.jetstream(f"STREAM.DELETE.{stream}")
    make(nats, stream)
    fill(nats, stream, 0, 20)
    with pytest.raises(StreamMismatchError, match="recreated"):
        new_source(nats_server, stream).start(source.current_checkpoint())
    with pytest.raises(StreamMismatchError, match="recreated"):
        source.poll_next()


def test_bad_messages_that_nobody_takes_are_not_kept_for_ever(
    nats: NatsConnection, nats_server: NatsServer, stream: str
) -> None:
    nats.publish([(f"{stream}.a", b"no row", None) for _ in range(30)])
    source = new_source(nats_server, stream, max_messages=10, max_rejected=15)
    source.start()
    with pytest.raises(LimitError, match="take"):
        drain(source)
    assert source.take_rejected().num_rows == 20
    assert drain(source) == []
    assert source.take_rejected().num_rows == 10


def test_a_bad_message_stops_a_source_that_says_so(nats: NatsConnection, nats_server: NatsServer, stream: str) -> None:
    nats.publish([(f"{stream}.a", b'{"id": 1}', None), (f"{stream}.a", b"no row", None)])
    source = new_source(nats_server, stream, on_bad="fail")
    source.start()
    with pytest.raises(InputError, match="message 2"):
        source.poll_next()
    assert source.current_checkpoint().offsets["sequence"] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"strem": "x"},
        {"format": "xml"},
        {"mode": "snapshot"},
        {"max_bytes": "5"},
        {"servers": "http://x"},
        {"schema": ""},
    ],
)
def test_bad_options_are_refused(nats_server: NatsServer, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        new_source(nats_server, "any", **options).start()


def test_a_stream_that_is_not_there_is_an_error(nats_server: NatsServer) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        new_source(nats_server, "nothing").start()
