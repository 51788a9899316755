"""NATS as a sink: rows are published once, no matter who finalizes them and how often."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from quacklake.connectors import PreparedCommit, Sink, connector
from quacklake.connectors.nats import NatsSink
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.core.faults import Fault, FaultInjected, arm
from quacklake.errors import (
    ConfigError,
    ConnectorError,
    CorruptFileError,
    InputError,
    NotFoundError,
    SchemaMismatchError,
    SnapshotExpiredError,
    StreamMismatchError,
)
from services import NatsServer, S3Server
from tests.connectors.nats_sinks import SCHEMA, ids, make_stream, new_sink, new_stream, rows, staged


@pytest.fixture
def nats(nats_server: NatsServer) -> Iterator[NatsConnection]:
    with NatsConnection(nats_server.url) as connection:
        yield connection


@pytest.fixture
def stream(nats: NatsConnection) -> str:
    return new_stream(nats)


@pytest.fixture
def sink(nats_server: NatsServer, stream: str, tmp_path: Path) -> NatsSink:
    made = new_sink(nats_server.url, stream, tmp_path)
    made.initialize(SCHEMA)
    return made


def prepare(sink: NatsSink, first: int, end: int, checkpoint: int = 0) -> PreparedCommit:
    sink.write_batch(rows(first, end))
    return sink.prepare_commit(checkpoint)


def publish_part(sink: NatsSink, prepared: PreparedCommit, blocks: int = 3) -> None:
    """Die while the messages are on their way."""
    point = Fault(at=blocks, pattern="connector.nats.publish.sent")
    with arm(point), pytest.raises(FaultInjected):
        sink.finalize_commit(prepared)
    sink.close()


def wait_for(nats: NatsConnection, stream: str, count: int) -> None:
    """Wait until messages that were on their way have arrived."""
    deadline = time.monotonic() + 10
    while nats.jetstream(f"STREAM.INFO.{stream}")["state"]["last_seq"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_rows_are_published_by_finalize_and_not_before(
    nats: NatsConnection, stream: str, sink: NatsSink, tmp_path: Path
) -> None:
    assert isinstance(sink, Sink)
    for first in range(0, 40, 10):
        sink.write_batch(rows(first, first + 10))
    prepared = sink.prepare_commit(0)
    [file] = staged(tmp_path)
    assert (prepared.records_written, prepared.bytes_written) == (40, file.stat().st_size)
    assert [each.path for each in prepared.data_files] == [str(file.relative_to(tmp_path))]
    assert prepared.state["created"] == nats.jetstream(f"STREAM.INFO.{stream}")["created"]
    assert (prepared.state["sequence"], ids(nats, stream)) == (0, [])
    info = sink.finalize_commit(prepared)
    assert (info.checkpoint_id, info.version) == (0, 40)
    assert (ids(nats, stream), staged(tmp_path)) == (list(range(40)), [])
    [part] = nats.read_range(stream, 1, 41)
    assert part.subjects.to_pylist()[:3] == [f"{stream}.r{n}".encode() for n in range(3)]
    assert part.data[4].as_py() == b'{"id":4,"region":"r1"}'
    assert b"\r\nNats-Msg-Id: quacklake:0:4\r\n" in part.headers[4].as_py()
    assert b"\r\nQuacklake-Row: quacklake:0:4\r\n" in part.headers[4].as_py()


def test_a_repeat_publishes_nothing_whoever_asks(
    nats: NatsConnection, nats_server: NatsServer, stream: str, sink: NatsSink, tmp_path: Path
) -> None:
    kept = []
    for number in range(3):
        kept.append(prepare(sink, number * 10, number * 10 + 10, number))
        sink.finalize_commit(kept[-1])
    for prepared in kept:
        again = new_sink(nats_server.url, stream, tmp_path)
        assert again.finalize_commit(PreparedCommit.from_json(prepared.to_json())).version == 30
        again.abort(prepared)
    other = new_sink(nats_server.url, stream, tmp_path, writer_id="../other")
    other.initialize(SCHEMA)
    other.finalize_commit(prepare(other, 30, 35))  # another writer counts for itself
    assert ids(nats, stream) == list(range(35))


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_only_the_rest_is_published_long_after_the_window_of_duplicates(
    nats: NatsConnection, nats_server: NatsServer, tmp_path: Path, blocks: int
) -> None:
    stream = new_stream(nats, duplicate_window=100_000_000)
    sink = new_sink(nats_server.url, stream, tmp_path)
    sink.initialize(SCHEMA)
    nats.publish([(f"{stream}.other", b'{"id": -1}', None)])
    prepared = prepare(sink, 0, 60)
    publish_part(sink, prepared, blocks)
    nats.publish([(f"{stream}.other", b'{"id": -1}', None)])
    time.sleep(0.25)  # the server forgets ids after 0.1 s
    again = new_sink(nats_server.url, stream, tmp_path, max_in_flight=1000)
    version = again.finalize_commit(prepared).version
    assert [n for n in ids(nats, stream) if n >= 0] == list(range(60))
    assert new_sink(nats_server.url, stream, tmp_path).finalize_commit(prepared).version == version == 62
    assert staged(tmp_path) == []


def test_all_published_and_the_note_of_it_lost_publishes_nothing(
    nats: NatsConnection, nats_server: NatsServer, tmp_path: Path
) -> None:
    stream = new_stream(nats, duplicate_window=100_000_000)
    sink = new_sink(nats_server.url, stream, tmp_path)
    sink.initialize(SCHEMA)
    prepared = prepare(sink, 0, 30)
    with arm(Fault(pattern="connector.nats.publish.after")), pytest.raises(FaultInjected):
        sink.finalize_commit(prepared)
    time.sleep(0.25)
    assert new_sink(nats_server.url, stream, tmp_path).finalize_commit(prepared).version == 30
    assert ids(nats, stream) == list(range(30))


def test_two_processes_that_finalize_at_once_publish_each_row_once(
    nats: NatsConnection, nats_server: NatsServer, stream: str, sink: NatsSink, tmp_path: Path
) -> None:
    prepared = prepare(sink, 0, 3000)
    sinks = [new_sink(nats_server.url, stream, tmp_path, max_in_flight=50) for _ in range(3)]
    failures: list[Exception] = []

    def finalize(each: NatsSink) -> None:
        try:
            each.finalize_commit(prepared)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=finalize, args=(each,)) for each in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(ids(nats, stream)) == list(range(3000))


def test_a_stream_that_was_made_anew_is_an_error(
    nats: NatsConnection, nats_server: NatsServer, stream: str, sink: NatsSink, tmp_path: Path
) -> None:
    prepared = prepare(sink, 0, 10)
    nats.jetstream(f"STREAM.DELETE.{stream}")
    with pytest.raises(NotFoundError):
        new_sink(nats_server.url, stream, tmp_path).finalize_commit(prepared)
    make_stream(nats, stream)
    with pytest.raises(StreamMismatchError, match="recreated"):
        sink.finalize_commit(prepared)
    assert (ids(nats, stream), len(staged(tmp_path))) == ([], 1)
    sink.abort(prepared)
    assert staged(tmp_path) == []
    sink.finalize_commit(prepare(sink, 0, 5))
    assert ids(nats, stream) == list(range(5))


def test_removed_messages_that_may_have_been_ours_are_an_error_or_published(
    nats: NatsConnection, nats_server: NatsServer, tmp_path: Path
) -> None:
    stream = new_stream(nats, duplicate_window=100_000_000)
    sink = new_sink(nats_server.url, stream, tmp_path, max_in_flight=1)
    sink.initialize(SCHEMA)
    prepared = prepare(sink, 0, 60)
    publish_part(sink, prepared, 21)
    wait_for(nats, stream, 21)
    nats.jetstream(f"STREAM.PURGE.{stream}")
    again = new_sink(nats_server.url, stream, tmp_path)
    with pytest.raises(SnapshotExpiredError, match="removed"):
        again.finalize_commit(prepared)
    time.sleep(0.2)
    new_sink(nats_server.url, stream, tmp_path, on_expired="publish").finalize_commit(prepared)
    assert ids(nats, stream) == list(range(60))
    again.initialize(SCHEMA)
    second = prepare(again, 60, 70, 1)
    nats.publish([(f"{stream}.other", b'{"id": -1}', None)])
    nats.jetstream(f"STREAM.PURGE.{stream}")
    again.finalize_commit(second)  # nobody has begun with this one
    assert ids(nats, stream) == list(range(60, 70))


def test_a_message_that_is_seen_vouches_for_those_a_window_before_it(
    nats: NatsConnection, nats_server: NatsServer, tmp_path: Path
) -> None:
    stream = new_stream(nats, duplicate_window=100_000_000)
    sink = new_sink(nats_server.url, stream, tmp_path, max_in_flight=1)
    sink.initialize(SCHEMA)
    prepared = prepare(sink, 0, 60)
    publish_part(sink, prepared, 30)
    wait_for(nats, stream, 30)
    nats.jetstream(f"STREAM.PURGE.{stream}", {"seq": 23})
    time.sleep(0.2)
    new_sink(nats_server.url, stream, tmp_path).finalize_commit(prepared)
    assert ids(nats, stream) == list(range(22, 60))


def test_a_column_may_give_the_ids(nats: NatsConnection, nats_server: NatsServer, tmp_path: Path) -> None:
    stream = new_stream(nats, duplicate_window=100_000_000)
    options = {"dedup.id.column": "id"}
    sink = new_sink(nats_server.url, stream, tmp_path, **options)
    sink.initialize(SCHEMA)
    sink.write_batch(rows(0, 20))
    sink.write_batch(rows(5, 25))
    prepared = sink.prepare_commit(0)
    nats.publish([(f"{stream}.x", b'{"id": 1}', {"Nats-Msg-Id": "1"})])
    time.sleep(0.2)
    publish_part(sink, prepared)
    time.sleep(0.25)
    new_sink(nats_server.url, stream, tmp_path, **options).finalize_commit(prepared)
    assert sorted(ids(nats, stream)) == list(range(25))


def test_refused_messages_are_published_when_the_stream_has_room_again(
    nats: NatsConnection, nats_server: NatsServer, tmp_path: Path
) -> None:
    stream = new_stream(nats, max_msgs_per_subject=8, discard="new", discard_new_per_subject=True)
    sink = new_sink(nats_server.url, stream, tmp_path)
    sink.initialize(SCHEMA)
    prepared = prepare(sink, 0, 40)
    with pytest.raises(ConnectorError, match="did not store"):
        sink.finalize_commit(prepared)
    config = nats.jetstream(f"STREAM.INFO.{stream}")["config"]
    nats.jetstream(f"STREAM.UPDATE.{stream}", {**config, "max_msgs_per_subject": -1, "discard_new_per_subject": False})
    sink.finalize_commit(prepared)
    assert sorted(ids(nats, stream)) == list(range(40))


def test_a_subject_that_no_stream_or_another_one_stores_is_an_error(
    nats: NatsConnection, nats_server: NatsServer, tmp_path: Path
) -> None:
    stream = new_stream(nats)
    other = new_stream(nats)
    config = nats.jetstream(f"STREAM.INFO.{stream}")["config"]
    nats.jetstream(f"STREAM.UPDATE.{stream}", {**config, "subjects": [f"{stream}.r0", f"{stream}.r1"]})
    sink = new_sink(nats_server.url, stream, tmp_path, max_retries=2)
    sink.initialize(SCHEMA)
    prepared = prepare(sink, 0, 9)
    with pytest.raises(InputError, match="no stream"):
        sink.finalize_commit(prepared)
    nats.jetstream(f"STREAM.UPDATE.{stream}", config)
    sink.finalize_commit(prepared)
    assert sorted(ids(nats, stream)) == list(range(9))
    astray = new_sink(nats_server.url, stream, tmp_path, subject=f"{other}.x", writer_id="astray")
    astray.initialize(SCHEMA)
    with pytest.raises(ConnectorError, match="stream"):
        astray.finalize_commit(prepare(astray, 0, 3))
    assert ids(nats, other) == []


def test_what_was_prepared_before_a_crash_is_aborted_by_a_new_sink(
    nats: NatsConnection, nats_server: NatsServer, stream: str, sink: NatsSink, tmp_path: Path
) -> None:
    prepared = prepare(sink, 0, 10)
    sink.write_batch(rows(10, 20))
    sink.close()
    sink.close()
    again = new_sink(nats_server.url, stream, tmp_path)
    again.abort(None)
    again.abort(prepared)
    again.abort(prepared)
    assert (staged(tmp_path), ids(nats, stream)) == ([], [])
    with pytest.raises(CorruptFileError):
        again.finalize_commit(prepared)
    again.initialize(SCHEMA)
    again.finalize_commit(prepare(again, 0, 5))
    assert ids(nats, stream) == list(range(5))


def test_an_abort_keeps_what_is_published_in_part(
    nats: NatsConnection, nats_server: NatsServer, stream: str, sink: NatsSink, tmp_path: Path
) -> None:
    prepared = prepare(sink, 0, 60)
    publish_part(sink, prepared)
    again = new_sink(nats_server.url, stream, tmp_path)
    again.abort(prepared)
    again.finalize_commit(prepared)
    assert ids(nats, stream) == list(range(60))


def test_a_checkpoint_without_rows_is_remembered(nats: NatsConnection, stream: str, sink: NatsSink) -> None:
    empty = sink.prepare_commit(5)
    assert (empty.records_written, empty.data_files) == (0, ())
    sink.finalize_commit(empty)
    sink.finalize_commit(prepare(sink, 0, 3, 5))
    assert ids(nats, stream) == []
    sink.finalize_commit(prepare(sink, 0, 3, 6))
    assert ids(nats, stream) == [0, 1, 2]


def test_a_writer_id_that_another_uses_is_an_error_and_loses_no_row(
    nats: NatsConnection, nats_server: NatsServer, stream: str, sink: NatsSink, tmp_path: Path
) -> None:
    sink.finalize_commit(prepare(sink, 0, 5))
    other = new_sink(nats_server.url, stream, tmp_path / "elsewhere")
    other.initialize(SCHEMA)
    with pytest.raises(ConnectorError, match="writer_id"):
        other.finalize_commit(prepare(other, 100, 105))
    assert len(staged(tmp_path)) == 1


@pytest.mark.parametrize("form", ["json", "csv", "arrow", "raw"])
def test_a_source_reads_what_a_sink_wrote(
    nats: NatsConnection, nats_server: NatsServer, stream: str, tmp_path: Path, form: str
) -> None:
    sink = new_sink(nats_server.url, stream, tmp_path, format=form, subject=f"{stream}.all", target_file_size="1kB")
    given = rows(0, 2500)
    if form == "raw":
        given = pa.record_batch({"_data": [f"{n}" for n in range(2500)]})
    sink.initialize(given.schema)
    for start in range(0, 2500, 500):
        sink.write_batch(given.slice(start, 500))
    prepared = sink.prepare_commit(0)
    assert prepared.records_written == sum(file.records for file in prepared.data_files) == 2500
    assert len(prepared.data_files) > 1
    sink.finalize_commit(prepared)
    declared = {} if form == "raw" else {"schema": "id BIGINT, region VARCHAR"}
    place = {"servers": nats_server.url, "stream": stream, "mode": "batch", "format": form}
    source = connector("nats", "source")({**place, **declared})
    source.start()
    found: list[Any] = []
    while (batch := source.poll_next()) is not None:
        found += batch.select(given.schema.names).to_pylist()
    expected = given.to_pylist()
    assert found == ([{"_data": row["_data"].encode()} for row in expected] if form == "raw" else expected)


def test_stages_of_other_processes_write_the_files(
    nats: NatsConnection, stream: str, sink: NatsSink, tmp_path: Path
) -> None:
    for first in (0, 10):
        stage = pickle.loads(cloudpickle.dumps(sink.stage.empty()))
        stage.add(rows(first, first + 10))
        sink.stage.files.extend(stage.take())
    sink.finalize_commit(sink.prepare_commit(0))
    assert ids(nats, stream) == list(range(20))


def test_staged_files_may_lie_in_an_object_store(
    nats: NatsConnection, nats_server: NatsServer, stream: str, s3_server: S3Server
) -> None:
    options = {
        "staging": f"{s3_server.create_bucket(stream)}/staging",
        "aws_endpoint": f"http://{s3_server.host}",
        "aws_access_key_id": s3_server.access_key,
        "aws_secret_access_key": s3_server.secret_key,
        "storage.aws_region": s3_server.region,
    }
    sink = new_sink(nats_server.url, stream, Path(), **options)
    sink.initialize(SCHEMA)
    stage = sink.stage
    prepared = prepare(sink, 0, 20)
    publish_part(sink, prepared, 1)
    new_sink(nats_server.url, stream, Path(), **options).finalize_commit(prepared)
    assert ids(nats, stream) == list(range(20))
    assert [entry.path for entry in sink._store.list()] == [f"{stream}/quacklake/published.json"]
    assert s3_server.secret_key not in repr(pickle.loads(cloudpickle.dumps(stage.empty())))


@pytest.mark.parametrize(
    "options",
    [
        {"strem": "x"},
        {"stream": "a.b"},
        {"subject": ""},
        {"subject": "a,b"},
        {"subject": "orders.*"},
        {"format": "xml"},
        {"writer_id": "a\r\nX: y"},
        {"writer_id": ""},
        {"max_in_flight": "0"},
        {"on_expired": "skip"},
        {"staging": "ftp://x/y"},
        {"aws_regio": "eu"},
        {"azure_storage_account_name": "x"},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        new_sink("nats://127.0.0.1:1", "any", tmp_path, **options)


def test_a_sink_needs_a_place_for_staged_files() -> None:
    with pytest.raises(ConfigError, match="staging"):
        connector("nats", "sink")({"stream": "any", "subject": "any"})


def test_what_cannot_be_written_is_said_before_anything_is(
    nats: NatsConnection, nats_server: NatsServer, stream: str, sink: NatsSink, tmp_path: Path
) -> None:
    with pytest.raises(SchemaMismatchError, match="region"):
        new_sink(nats_server.url, stream, tmp_path).initialize(pa.schema([("id", pa.int64())]))
    with pytest.raises(NotFoundError, match="nothing"):
        new_sink(nats_server.url, "nothing", tmp_path).initialize(SCHEMA)
    with pytest.raises(ConnectorError, match="initialize"):
        new_sink(nats_server.url, stream, tmp_path).write_batch(rows(0, 1))
    with pytest.raises(InputError, match="not prepared"):
        sink.finalize_commit(PreparedCommit(0))
    queue = new_stream(nats, retention="workqueue")
    with pytest.raises(ConfigError, match="workqueue"):
        new_sink(nats_server.url, queue, tmp_path).initialize(SCHEMA)
    small = new_stream(nats, max_msg_size=2000)
    limited = new_sink(nats_server.url, small, tmp_path, subject=f"{small}.a")
    limited.initialize(SCHEMA)
    limited.write_batch(pa.record_batch([[1], ["x" * 2000]], schema=SCHEMA))
    with pytest.raises(InputError, match="larger"):
        limited.prepare_commit(0)
    sink.write_batch(pa.record_batch([[1], ["a.b"]], schema=SCHEMA))
    for _ in range(2):  # the rows are not forgotten until an abort
        with pytest.raises(InputError, match="subject"):
            sink.prepare_commit(0)
    sink.abort()
    assert sink.prepare_commit(0).records_written == 0
    with pytest.raises(ConfigError, match="takes messages of 100 bytes"):
        new_sink(nats_server.url, new_stream(nats, max_msg_size=100), tmp_path).initialize(SCHEMA)
    assert (staged(tmp_path), ids(nats, stream)) == ([], [])
