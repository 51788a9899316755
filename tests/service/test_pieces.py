"""Large Arrow answers: sent in pieces that are worth a turn of a thread, and computed a little ahead of their reader."""

from __future__ import annotations

import http.client
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pytest

from quacklake.core.duckdb_versions import arrow_table, connect
from quacklake.core.sql.safety import Safety
from quacklake.core.sql.sessions import session
from quacklake.service import encoding
from quacklake.service.app import create_app
from quacklake.service.encoding import ARROW, Buffers, Rows, encoded
from quacklake.service.identity import Role, TokenGate
from quacklake.service.serving import BackgroundService
from tests.seeds import SEED
from tests.service.serving import Served, sample_lake


def _batches(dice: random.Random, count: int) -> list[pa.RecordBatch]:
    """Return batches with values, texts and a dictionary that grows."""
    kinds = [f"kind {number}" for number in range(50)]
    found = []
    for _ in range(count):
        rows = dice.randrange(0, 1_000)
        kind = pa.array([dice.choice(kinds) for _ in range(rows)]).dictionary_encode()
        found.append(
            pa.RecordBatch.from_pydict(
                {
                    "id": pa.array([dice.randrange(1 << 40) for _ in range(rows)], pa.int64()),
                    "text": pa.array(["x" * dice.randrange(600) for _ in range(rows)], pa.string()),
                    "kind": kind.cast(pa.dictionary(pa.int32(), pa.string())),
                }
            )
        )
    return found


def test_pieces_of_a_stream_are_large_and_together_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_PATIENCE", 1_000.0)
    dice = random.Random(SEED)
    batches = _batches(dice, 40)
    pieces = list(encoded(Rows(batches[0].schema, batches), ARROW))
    found = pa.ipc.open_stream(b"".join(map(bytes, pieces))).read_all()
    assert found.to_pydict() == pa.Table.from_batches(batches).to_pydict()
    assert 2 < len(pieces) < 20
    assert all(len(piece) >= encoding._PIECE for piece in pieces[:-1])


def test_rows_that_come_slowly_are_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_PATIENCE", 0.0)
    given = 0

    def slowly() -> Iterator[pa.RecordBatch]:
        nonlocal given
        for number in range(5):
            given += 1
            yield pa.RecordBatch.from_pydict({"n": [number]})

    pieces = encoded(Rows(pa.schema([("n", pa.int64())]), slowly()), ARROW)
    for number in range(1, 6):
        assert next(pieces)
        assert given == number


def test_the_buffers_of_large_batches_are_sent_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_PATIENCE", 1_000.0)
    batch = pa.RecordBatch.from_pydict({"n": pa.array(range(1 << 18), pa.int64())})
    first, *_ = encoded(Rows(batch.schema, [batch]), ARROW)
    assert isinstance(first, Buffers)
    addresses = {part.address for part in first.parts if isinstance(part, pa.Buffer)}
    assert batch.column(0).buffers()[1].address in addresses
    assert len(first) == len(bytes(first))


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_large_answer_is_whole_on_either_loop_whether_or_not_it_is_chunked(tmp_path: Path, loop: str) -> None:
    """Requests that come at once on one connection are answered one after the other, each with its own chunks."""
    sql = "SELECT i, hash(i) AS h, 'text ' || i AS t FROM range(100000) r(i)"
    known = arrow_table(connect(), sql)
    body = json.dumps({"sql": sql}).encode()
    token = "a-reader"
    head = f"POST /api/v1/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nAccept: {ARROW}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with sample_lake(tmp_path) as lake:
        app = create_app(TokenGate(lake, {token: Role.READER}))
        service = BackgroundService(app)
        service._server.config.loop = loop
        with service as url, socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=30) as client:
            client.sendall(request * 3)
            for _ in range(3):
                answer = http.client.HTTPResponse(client, method="POST")
                answer.begin()
                assert answer.getheader("transfer-encoding") == "chunked"
                assert pa.ipc.open_stream(answer.read()).read_all().equals(known)


def test_a_large_answer_is_the_table(service: Served) -> None:
    sql = "SELECT i, hash(i) AS h, 'text ' || i AS t FROM range(200000) r(i)"
    answer = service.reader.post("/api/v1/sql", json={"sql": sql}, headers={"Accept": ARROW, "Accept-Encoding": ""})
    found = pa.ipc.open_stream(answer.content).read_all()
    assert found.equals(arrow_table(connect(), sql))


@pytest.mark.parametrize(("memory", "ahead"), [("1GB", "16.0 MiB"), ("64MB", "1.9 MiB"), (None, "16.0 MiB")])
def test_a_safe_session_computes_ahead_within_its_memory_and_nothing_else_can_be_set(
    tmp_path: Path, memory: str | None, ahead: str
) -> None:
    asked = "SELECT current_setting('streaming_buffer_size')"
    with sample_lake(tmp_path) as lake, session(safety=Safety(max_memory=memory)) as first:
        first.attach(lake, "lake")
        assert first.sql("SELECT count(*) FROM lake.t").fetchall() == [(90,)]
        for each in (first, first.cursor()):  # one from before its settings were locked, one from after
            assert each.connection.execute(asked).fetchall() == [(ahead,)]
            with pytest.raises(duckdb.InvalidInputException, match="locked"):
                each.connection.execute("SET memory_limit = '8GB'")
