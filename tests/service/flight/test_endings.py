"""Clients and servers that end in the middle of a call: nothing is lost, doubled, or left running."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import quacklake
from quacklake.service.flight import queries
from quacklake.service.flight.messages import MESSAGES
from quacklake.service.flight.streams import Stream
from tests.service.flight.calls import Calls, described
from tests.service.flight.conftest import READER, WRITER, Served, command, options, path, serve

SCHEMA = pa.schema([("i", pa.int64())])
ENDLESS = "SELECT count(*) FROM range(100000000000) a WHERE hash(a.range) = 1"
LONG = "SELECT range AS i, range * 2 AS j, range * 3 AS k FROM range(4000000)"


def eventually(check: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not (held := check()) and time.monotonic() < end:
        threading.Event().wait(0.01)
    return held


@contextlib.contextmanager
def process(module: str, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a module of the tests until the block ends; yield it with the first line that it prints."""
    line = [sys.executable, "-m", f"tests.service.flight.{module}", *arguments]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=os.environ | environment) as found:
        assert found.stdout is not None
        try:
            yield found, found.stdout.readline().strip()
        finally:
            found.kill()


def put(location: str, values: list[int], key: str | None = None) -> dict[str, Any]:
    headers = [(b"authorization", f"Bearer {WRITER}".encode())]
    if key is not None:
        headers.append((b"x-quacklake-idempotency-key", key.encode()))
    with flight.connect(location) as client:
        writer, reader = client.do_put(path("main", "t"), SCHEMA, options=flight.FlightCallOptions(headers=headers))
        with writer:
            writer.write_batch(pa.record_batch([pa.array(values, pa.int64())], SCHEMA))
            writer.done_writing()
            answer = reader.read()
    return dict(json.loads(answer.to_pybytes()))


def idle(served: Served) -> bool:
    return served.service.handlers.slots.taken == 0 and served.service.handlers.watch.running == 0


def test_an_upload_of_a_client_that_was_killed_leaves_nothing(served: Served) -> None:
    served.lake.create_table("killed", SCHEMA)
    before = served.lake.current_snapshot()
    with process("client", served.service.location, WRITER, "append", "killed") as (client, ready):
        assert ready == "ready" and eventually(lambda: served.service.handlers.slots.taken == 1)
        client.kill()
        client.wait()
    assert eventually(lambda: idle(served))
    assert served.lake.table("killed").count() == 0 and served.lake.current_snapshot() == before


def test_a_query_of_a_client_that_was_killed_ends(served: Served) -> None:
    asked = json.dumps({"sql": LONG})
    with process("client", served.service.location, READER, "read", asked) as (client, ready):
        assert ready == "ready" and eventually(lambda: served.service.handlers.slots.taken == 1)
        client.kill()
        client.wait()
    assert eventually(lambda: idle(served))


def test_a_statement_ends_when_its_client_does_not_wait(served: Served) -> None:
    call = flight.FlightCallOptions(timeout=0.3, headers=[(b"authorization", f"Bearer {READER}".encode())])
    with served.client() as client, pytest.raises(flight.FlightTimedOutError):
        client.get_flight_info(command(ENDLESS), options=call)
    assert eventually(lambda: idle(served))


def test_a_slow_reader_is_sent_a_few_batches(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0
    handlers = served.service.handlers
    before = handlers.rows

    def counted(*arguments: Any) -> Stream:
        stream = before(*arguments)

        def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            nonlocal sent
            for batch in batches:
                sent += batch.num_rows
                yield batch

        stream.batches = count(stream.batches)
        return stream

    monkeypatch.setattr(handlers, "rows", counted)
    with served.client() as client:
        info = client.get_flight_info(command(LONG), options=options(READER))
        reader = client.do_get(info.endpoints[0].ticket, options=options(READER))
        read = reader.read_chunk().data.num_rows
        last = -1
        while sent != last:  # until the server waits for room
            last = sent
            threading.Event().wait(0.2)
        assert read <= sent < 1_500_000  # 36 MB, most of them in buffers of the system
        assert reader.read_all().num_rows + read == sent == 4_000_000
    assert eventually(lambda: idle(served))


def test_a_result_that_nobody_reads_makes_room(served: Served) -> None:
    with served.client() as client:
        for _ in range(served.service.settings.max_streams + 3):
            info = client.get_flight_info(command(LONG), options=options(READER))
        assert served.service.handlers.slots.taken <= served.service.settings.max_streams
        table = client.do_get(info.endpoints[0].ticket, options=options(READER)).read_all()
    assert table.num_rows == 4_000_000
    served.service.handlers.held.tidy(everything=True)
    assert eventually(lambda: idle(served))


def test_a_query_is_cancelled_before_and_while_it_is_read(served: Served) -> None:
    with served.client() as client:
        calls = Calls(client, options(READER))
        for is_read in (False, True):
            info = client.get_flight_info(command(LONG), options=calls.options)
            asked = MESSAGES["FlightInfo"](endpoint=[{"ticket": {"ticket": info.endpoints[0].ticket.ticket}}])
            reader = client.do_get(info.endpoints[0].ticket, options=calls.options) if is_read else None
            if reader is not None:
                reader.read_chunk()
            assert calls.plain("CancelFlightInfo", info=asked).status == 1
            if reader is not None:
                with pytest.raises(flight.FlightServerError, match=r"\[cancelled\]"):
                    reader.read_all()
            assert eventually(lambda: idle(served))
            assert calls.packed("CancelQuery", info=asked.SerializeToString()).result == 3


@pytest.fixture(scope="module")
def prompt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose prepared queries answer at once, or run when their rows are fetched."""
    found = serve(tmp_path_factory.mktemp("prompt"), prompt_seconds=0.05, grace_seconds=5.0)
    with found.lake:
        yield found
        assert found.service.shutdown()


def test_a_prepared_query_can_be_cancelled_before_its_first_row(prompt: Served) -> None:
    failures: list[str] = []
    with prompt.client() as client:
        calls = Calls(client, options(READER))
        handle = calls.prepare(ENDLESS)
        info = client.get_flight_info(
            described("CommandPreparedStatementQuery", prepared_statement_handle=handle), options=calls.options
        )
        assert info.schema.names == ["count_star()"]
        ticket = info.endpoints[0].ticket

        def read() -> None:
            try:
                client.do_get(ticket, options=calls.options).read_all()
            except flight.FlightServerError as error:
                failures.append(str(error))

        reader = threading.Thread(target=read)
        reader.start()
        asked = MESSAGES["FlightInfo"](endpoint=[{"ticket": {"ticket": ticket.ticket}}])
        assert eventually(lambda: calls.plain("CancelFlightInfo", info=asked).status == 1)
        reader.join()
        assert "[cancelled]" in failures[0]
        assert eventually(lambda: idle(prompt))


def test_a_query_that_is_cancelled_before_it_begins_ends(prompt: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[str] = []
    begun, cancelled = threading.Event(), threading.Event()
    real = queries._view

    def wait_for_the_cancellation(*arguments: Any) -> Any:
        begun.set()
        assert cancelled.wait(30)
        return real(*arguments)

    with prompt.client() as client:
        calls = Calls(client, options(READER))
        info = client.get_flight_info(
            described("CommandPreparedStatementQuery", prepared_statement_handle=calls.prepare(ENDLESS)),
            options=calls.options,
        )
        ticket = info.endpoints[0].ticket
        monkeypatch.setattr(queries, "_view", wait_for_the_cancellation)

        def read() -> None:
            try:
                client.do_get(ticket, options=calls.options).read_all()
            except flight.FlightError as error:
                failures.append(str(error))

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(30)
        asked = MESSAGES["FlightInfo"](endpoint=[{"ticket": {"ticket": ticket.ticket}}])
        assert calls.plain("CancelFlightInfo", info=asked).status == 1
        cancelled.set()
        reader.join()
        assert "[cancelled]" in failures[0]
        assert eventually(lambda: idle(prompt))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS a, 2 AS a, count(*) AS a_b FROM range(30000000) WHERE hash(range) = ?",
        "SELECT count(*), max(range) + ? AS a FROM range(30000000)",
        "WITH x AS (SELECT range AS i FROM range(30000000)) SELECT sum(i) FILTER (WHERE i < ?) FROM x",
    ],
)
def test_a_slow_prepared_query_has_the_rows_and_columns_of_any_other(prompt: Served, sql: str) -> None:
    expected = prompt.sql(sql, parameters=[7])
    with prompt.client() as client:
        calls = Calls(client, options(READER))
        prepared = described("CommandPreparedStatementQuery", prepared_statement_handle=calls.prepare(sql))
        bound = MESSAGES["DoPutPreparedStatementResult"].FromString(calls.put(prepared, pa.table({"0": [7]})))
        descriptor = described(
            "CommandPreparedStatementQuery", prepared_statement_handle=bound.prepared_statement_handle
        )
        info = client.get_flight_info(descriptor, options=calls.options)
        table = calls.ticket(info.endpoints[0].ticket)
    assert info.schema == expected.schema
    assert table == expected


def test_a_slow_change_runs_once(prompt: Served) -> None:
    prompt.lake.sql("CREATE TABLE slow (n BIGINT)")
    with prompt.client() as client:
        calls = Calls(client, options(WRITER))
        handle = calls.prepare(
            "INSERT INTO slow SELECT count(*) FROM range(30000000) WHERE hash(range) <> 1 RETURNING n"
        )
        rows = calls.rows(described("CommandPreparedStatementQuery", prepared_statement_handle=handle))
    assert rows.to_pylist() == [{"n": 30_000_000}]
    assert prompt.lake.sql("FROM slow").fetchall() == [(30_000_000,)]


@pytest.mark.crash
@pytest.mark.daily(0.35)
@pytest.mark.parametrize(("moment", "kept"), [("before", 0), ("after", 3)])
def test_a_server_that_was_killed_at_its_commit_has_the_rows_once(tmp_path: Path, moment: str, kept: int) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "files") as lake:
        lake.create_table("t", SCHEMA)
    # the first commit is that of the table that keeps keys, the second is that of the rows with their key
    fault = f"2:kill:catalog.commit.{moment}"
    with process("server", url, QUACKLAKE_FAULT=fault) as (server, location):
        with pytest.raises((flight.FlightError, OSError)):
            put(location, [1, 2, 3], "the key")
        assert server.wait(60) == -signal.SIGKILL
    again = serve(tmp_path)
    try:
        assert again.lake.table("t").count() == kept
        first = put(again.service.location, [1, 2, 3], "the key")
        assert first["rows"] == 3 and first["repeated"] is (kept > 0)
        assert put(again.service.location, [1, 2, 3], "the key") == {**first, "repeated": True}
        assert again.lake.table("t").to_arrow()["i"].to_pylist() == [1, 2, 3]
        assert again.lake.verify(deep=True).ok
    finally:
        again.service.shutdown()
        again.lake.close()


@pytest.mark.crash
@pytest.mark.daily(0.35)
def test_a_shutdown_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "files") as lake:
        lake.create_table("t", SCHEMA)
    acknowledged: set[int] = set()
    failed: set[int] = set()
    some = threading.Event()
    with process("server", url) as (server, location):

        def work(first: int) -> None:
            for number in range(first, 100_000, 4):
                try:
                    put(location, [number], str(number))
                except (flight.FlightError, OSError, pa.ArrowException):
                    failed.add(number)
                    return
                acknowledged.add(number)
                if len(acknowledged) >= 12:
                    some.set()

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        assert some.wait(60)
        server.terminate()
        for thread in threads:
            thread.join()
        assert server.wait(60) == 0
    again = serve(tmp_path)
    try:
        found = again.lake.table("t").to_arrow()["i"].to_pylist()
        assert sorted(found) == sorted(set(found)) and acknowledged <= set(found) <= acknowledged | failed
        for number in failed:
            put(again.service.location, [number], str(number))
        assert sorted(again.lake.table("t").to_arrow()["i"].to_pylist()) == sorted(acknowledged | failed)
    finally:
        again.service.shutdown()
        again.lake.close()


def test_a_shutdown_waits_for_nobody_forever(tmp_path: Path) -> None:
    found = serve(tmp_path, grace_seconds=0.3)
    with found.lake, found.client() as client:
        info = client.get_flight_info(command(LONG), options=options(READER))
        reader = client.do_get(info.endpoints[0].ticket, options=options(READER))
        reader.read_chunk()
        found.service.shutdown()
        with pytest.raises(flight.FlightUnavailableError, match="shuts down"):
            reader.read_all()
        assert found.service.wait(0)
    with pytest.raises((flight.FlightUnavailableError, OSError)):
        put(found.service.location, [1])
