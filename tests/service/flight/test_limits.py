"""The limits of a Flight server, its certificates, and settings that make no sense."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as dbapi
import pyarrow as pa
import pytest
from pyarrow import flight

import quacklake
from quacklake.errors import ConfigError, InputError, NotPermittedError
from quacklake.service.flight import FlightService, FlightSettings
from quacklake.service.flight.callers import SessionOptions
from quacklake.service.flight.tickets import Sealer
from quacklake.service.flight.transactions import KeptRows, OpenTransaction
from quacklake.service.identity import Role, TokenGate
from quacklake.service.settings import ServiceSettings
from tests.service.certificates import self_signed
from tests.service.flight.calls import PARAMETERS, ROWS, Calls, described
from tests.service.flight.conftest import OTHER, READER, SECRET, TOKENS, WRITER, Served, command, options, path, serve


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that allows little."""
    found = serve(
        tmp_path_factory.mktemp("tight"),
        max_rows=1000,
        max_bytes="100KB",
        timeout=1.5,
        max_streams=2,
        max_all_streams=3,
        held_seconds=60.0,
        max_put_bytes="10KB",
        max_message="8KB",
        max_parameter_rows=5,
        max_listed=2,
        max_transactions=2,
        max_sessions=2,
        max_principals=1,
    )
    with found.lake:
        found.lake.sql("CREATE TABLE big AS SELECT range AS i FROM range(2000)")
        found.lake.sql("CREATE TABLE wide AS SELECT repeat('x', 1000) AS t FROM range(500)")
        found.lake.sql("CREATE TABLE small (i BIGINT)")
        yield found
        assert found.service.shutdown()


@pytest.mark.parametrize("table", ["big", "wide"])
def test_a_result_ends_at_its_limit(tight: Served, table: str) -> None:
    for descriptor in (path(table), command(f"FROM {table}")):
        with pytest.raises(pa.ArrowInvalid, match=r"limit\.result"):
            tight.read(descriptor)
    assert tight.sql(f"SELECT count(*) AS n FROM {table}").num_rows == 1


def test_a_statement_ends_after_its_time(tight: Served) -> None:
    with pytest.raises(flight.FlightTimedOutError, match=r"limit\.timeout"):
        tight.sql("SELECT count(*) FROM range(100000000000) a WHERE hash(a.range) = 1")


def test_a_principal_has_so_many_results_at_a_time(tight: Served) -> None:
    handlers = tight.service.handlers
    mine = [handlers.slots.take("somebody") for _ in range(2)]
    with pytest.raises(Exception, match="too many results"):
        handlers.slots.take("somebody")
    other = handlers.slots.take("somebody else")
    with pytest.raises(flight.FlightUnavailableError, match=r"limit\.tenant_busy"):
        tight.sql("SELECT 1", OTHER)
    for release in (*mine, other, other):  # to give back twice counts once
        release()
    assert handlers.slots.taken == 0
    assert tight.sql("SELECT 1 AS i", OTHER).num_rows == 1


def test_an_append_and_its_parameters_end_at_their_limits(tight: Served) -> None:
    with tight.client() as client:
        calls = Calls(client, options(WRITER))
        with pytest.raises(pa.ArrowInvalid, match=r"limit\.result"):
            calls.put(path("small"), pa.table({"i": pa.array(range(5000), pa.int64())}))
        handle = calls.prepare("INSERT INTO small VALUES (?)")
        update = described("CommandPreparedStatementUpdate", prepared_statement_handle=handle)
        with pytest.raises(pa.ArrowInvalid, match="parameters"):
            calls.put(update, pa.concat_tables([PARAMETERS] * 6))
        assert calls.count(calls.put(update, pa.concat_tables([PARAMETERS] * 5))) == 5
        for long in (lambda: calls.prepare("SELECT 1 --" + "x" * 20_000), lambda: calls.rows(command("x" * 20_000))):
            with pytest.raises(pa.ArrowInvalid):
                long()
        with pytest.raises(pa.ArrowInvalid, match="more than 2 tables"):
            list(client.list_flights(options=calls.options))
        with pytest.raises(pa.ArrowInvalid, match="more than 2 tables"):
            calls.rows(described("CommandGetTables"))
        assert calls.rows(described("CommandGetTables", table_name_filter_pattern="b%")).num_rows == 1
    assert tight.lake.table("small").count() == 5


MANY = 200_000
LONG = "x" * 20_000


def _packed() -> Iterator[pa.Array]:
    """Yield arrays of a few bytes that stand for 4 GB."""
    few = pa.DictionaryArray.from_arrays(pa.array([0] * MANY, pa.int8()), pa.array([LONG]))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([MANY], pa.int32()), pa.array([LONG]))
    [_, view, text] = pa.array([LONG], pa.string_view()).buffers()
    yield from (few, runs)
    yield pa.Array.from_buffers(pa.string_view(), MANY, [None, pa.py_buffer(view.to_pybytes() * MANY), text])
    yield pa.ListArray.from_arrays(pa.array(range(MANY + 1), pa.int32()), few)
    yield pa.StructArray.from_arrays([runs], ["x"])
    yield pa.StructArray.from_arrays([pa.FixedSizeListArray.from_arrays(few, 2)], ["x"])
    yield pa.nulls(MANY * 10_000)


def test_rows_that_stand_for_far_more_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    served = serve(tmp_path)
    with served.lake:
        served.lake.sql("CREATE TABLE t (a VARCHAR)")
        before, pool = served.lake.current_snapshot(), pa.default_memory_pool()
        for array in _packed():
            held = pool.max_memory()
            with pytest.raises(pa.ArrowInvalid, match=r"limit\.result"):
                served.put("t", [pa.record_batch({"a": array})])
            assert pool.max_memory() < held + (64 << 20), array.type
        assert served.lake.current_snapshot() == before
        few = pa.array(["a", "b", LONG]).dictionary_encode()
        assert served.put("t", [pa.record_batch({"a": few})])["rows"] == 3
        assert served.service.shutdown()


def test_a_server_beside_one_over_http_has_its_limits(tmp_path: Path) -> None:
    limits = ServiceSettings(max_body=50_000, max_unpacked=200_000, statement_seconds=4.0)
    like = FlightSettings.like(limits, secret=SECRET)
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data")
    lake.sql("CREATE TABLE t (a VARCHAR)")
    with FlightService(TokenGate(lake, TOKENS), like) as service:
        served = Served(lake, service, tmp_path)
        for wrong in ([["x" * 60_000]], [["x" * 20_000]] * 3, [[LONG] * 2] * 2):
            with pytest.raises(pa.ArrowInvalid, match=r"limit\.result"):
                served.put("t", [pa.record_batch({"a": rows}) for rows in wrong])
        shared = pa.record_batch({"a": pa.array([LONG] * 11).dictionary_encode()})
        with pytest.raises(pa.ArrowInvalid, match=r"limit\.result"):
            served.put("t", [shared])
        assert served.put("t", [shared.slice(0, 9)])["rows"] == 9, "only what it is unpacked counts much"
        with pytest.raises(flight.FlightTimedOutError, match=r"limit\.timeout"):
            served.sql("SELECT count(*) FROM range(100000000000) a WHERE hash(a.range) = 1")
    lake.close()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("claim", [1 << 33, 1 << 40, 1 << 62, -5, 0, 7])
def test_a_compressed_buffer_that_lies_about_its_size_is_refused(tight: Served, codec: str, claim: int) -> None:
    grpc = pytest.importorskip("grpc", reason="a client that sends what no client of Arrow does")
    text = "hello " * 5000

    def messages() -> Iterator[bytes]:
        sink, head = pa.BufferOutputStream(), _field(1, bytes(path("small").serialize()))
        with pa.ipc.new_stream(
            sink, pa.schema({"t": pa.string()}), options=pa.ipc.IpcWriteOptions(compression=codec)
        ) as writer:
            writer.write_batch(pa.record_batch({"t": [text] * 3}))
        for message in pa.ipc.MessageReader.open_stream(sink.getvalue()):
            body, size = (
                message.body.to_pybytes() if message.body is not None else b"",
                struct.pack("<q", 3 * len(text)),
            )
            if message.type == "record batch":
                start = body.rindex(size)
                body = body[:start] + struct.pack("<q", claim) + body[start + len(size) :]
            yield head + _field(2, message.metadata.to_pybytes()) + _field(1000, body)
            head = b""

    before = tight.lake.current_snapshot()
    with grpc.insecure_channel(f"127.0.0.1:{tight.service.port}") as channel:
        put = channel.stream_stream("/arrow.flight.protocol.FlightService/DoPut")
        with pytest.raises(grpc.RpcError) as raised:
            list(put(messages(), metadata=[("authorization", f"Bearer {WRITER}")], timeout=60))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert tight.lake.current_snapshot() == before and tight.sql("SELECT 1 AS i").num_rows == 1


def _field(number: int, data: bytes) -> bytes:
    """Return bytes as a field of a message of Protocol Buffers."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def test_parameters_count_as_what_they_stand_for(tight: Served) -> None:
    with tight.client() as client:
        calls = Calls(client, options(WRITER))
        handle = calls.prepare("INSERT INTO small VALUES (length(?))")
        update = described("CommandPreparedStatementUpdate", prepared_statement_handle=handle)
        shared = pa.array(["x" * 3_000] * 4).dictionary_encode()
        with pytest.raises(pa.ArrowInvalid, match="parameters"):
            calls.put(update, pa.table({"0": shared}))


def test_a_principal_takes_no_sessions_from_others() -> None:
    options_ = SessionOptions(4)
    mine = options_.put("me", None, {"schema": "mine"})
    for _ in range(10):
        options_.put("somebody", None, {"schema": "other"})
    assert options_.get("me", mine) == {"schema": "mine"} and options_.get("somebody", mine) == {}
    assert not options_.close("somebody", mine) and options_.close("me", mine)


def test_a_transaction_that_nobody_uses_is_rolled_back(tight: Served) -> None:
    with tight.client() as client:
        calls = Calls(client, options(WRITER))
        before = tight.lake.table("small").count()
        id_ = calls.begin()
        insert = described("CommandStatementUpdate", query="INSERT INTO small VALUES (1)", transaction_id=id_)
        calls.put(insert, ROWS)
        transactions = tight.service.handlers.transactions
        transactions.tidy()
        assert id_ in transactions._open
        transactions._open[id_].used = float("-inf")
        transactions.tidy()
        with pytest.raises(pa.ArrowKeyError, match="no such transaction"):
            calls.put(insert, ROWS)
        with pytest.raises(pa.ArrowKeyError, match="no such transaction"):
            calls.packed("EndTransaction", transaction_id=id_, action=1)
        calls.packed("EndTransaction", transaction_id=id_, action=2)
        assert tight.lake.table("small").count() == before


def test_a_principal_has_so_many_transactions(tight: Served) -> None:
    with tight.client() as client:
        calls = Calls(client, options(WRITER))
        ids = [calls.begin() for _ in range(4)]  # those that nothing was run in make room
        used = ids[-2:]
        for id_ in used:
            calls.rows(described("CommandStatementQuery", query="SELECT 1", transaction_id=id_))
        with pytest.raises(flight.FlightUnavailableError, match="open transactions"):
            calls.begin()
        for id_ in used:
            calls.packed("EndTransaction", transaction_id=id_, action=2)
        calls.packed("EndTransaction", transaction_id=calls.begin(), action=1)


def test_rows_of_a_transaction_are_kept_up_to_a_limit() -> None:
    batch = pa.record_batch({"i": pa.array(range(100), pa.int64())})
    transaction = OpenTransaction("me", "lake")
    for most, count in ((10, 1), (800, 2), (2400, 3)):
        rows = KeptRows(transaction, iter([batch] * 3))
        rows.keep(most)
        assert [next(rows).num_rows for _ in range(count)] == [100] * count
        with pytest.raises(StopIteration if count == 3 else InputError):
            next(rows)


def test_rows_that_become_large_or_point_elsewhere_are_refused(tight: Served) -> None:
    before = tight.lake.current_snapshot()
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int16()), pa.array(["a" * 5_000]))
    with pytest.raises(pa.ArrowInvalid, match="limit"):
        tight.put("wide", [pa.record_batch({"t": texts})])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"t": pa.string()})) as writer:
        writer.write_batch(pa.record_batch({"t": ["abcd", "efgh"]}))
    offsets, body = struct.pack("<iii", 0, 4, 8), sink.getvalue().to_pybytes()
    assert body.count(offsets) == 1
    broken = pa.ipc.open_stream(body.replace(offsets, struct.pack("<iii", 0, 4, 1 << 30))).read_next_batch()
    with pytest.raises(pa.ArrowException):
        tight.put("wide", [broken])
    assert tight.lake.current_snapshot() == before


def test_old_keys_of_appends_are_forgotten(tight: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from quacklake.service import idempotency

    monkeypatch.setattr(idempotency, "_FORGET_SECONDS", 0.0)
    old, new = ({"x_quacklake_idempotency_key": key} for key in ("old", "new"))
    assert tight.put("small", ROWS.to_batches(), **old)["repeated"] is False
    assert tight.put("small", ROWS.to_batches(), **old)["repeated"] is True
    with monkeypatch.context() as later:
        later.setattr(idempotency.time, "time", lambda: 4e9)
        tight.put("small", ROWS.to_batches(), **new)
    assert tight.put("small", ROWS.to_batches(), **new)["repeated"] is True
    assert tight.put("small", ROWS.to_batches(), **old)["repeated"] is False
    assert tight.lake.streams.list().num_rows == 0, "they are no streams of users"


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "0.0.0.0"},
        {"host": "example.org"},
        {"certificate": Path("x")},
        {"key": Path("x")},
        {"secret": b"short"},
        {"port": -1},
        {"max_bytes": "many"},
        {"endpoint_bytes": "many"},
        {"endpoint_bytes": 0},
        {"timeout": -1},
        {"max_streams": -1},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        FlightSettings(**wrong)
    assert "secret" not in repr(FlightSettings())


def test_a_port_that_is_taken_is_told(tight: Served) -> None:
    gate = TokenGate(tight.lake, {READER: Role.READER})
    with pytest.raises(ConfigError, match="cannot listen"):
        FlightService(gate, FlightSettings(port=tight.service.port)).serve()


def test_a_seal_is_for_its_principal_its_kind_and_its_time() -> None:
    now = 1000.0
    sealer = Sealer(b"s" * 32, 60, 1000, now=lambda: now)
    sealed = sealer.seal("query", "me", sql="SELECT 1", rows=b"\x00\xff", more=None)
    opened = sealer.open(sealed, "me", "query", "other")
    assert opened["sql"] == "SELECT 1" and opened["rows"] == b"\x00\xff" and opened["more"] is None
    with pytest.raises(NotPermittedError):
        sealer.open(sealed, "you", "query")
    with pytest.raises(InputError, match="not expected"):
        sealer.open(sealed, "me", "other")
    for at in range(len(sealed)):
        with pytest.raises(InputError, match="not made by this server"):
            sealer.open(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :], "me", "query")
    now = 1061.0
    with pytest.raises(InputError, match="expired"):
        sealer.open(sealed, "me", "query")
    with pytest.raises(InputError, match="more than 1000 bytes"):
        sealer.seal("query", "me", sql="x" * 1000)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this machine, signed by itself, and its key."""
    return self_signed(tmp_path_factory.mktemp("tls"))


def test_tls_is_spoken_with_clients_that_trust_the_certificate(tight: Served, certificate: tuple[Path, Path]) -> None:
    gate = TokenGate(tight.lake, {READER: Role.READER})
    settings = FlightSettings(host="localhost", certificate=certificate[0], key=certificate[1])
    trusted = certificate[0].read_bytes()
    with FlightService(gate, settings) as service:
        assert service.location.startswith("grpc+tls://localhost:")
        with flight.connect(service.location, tls_root_certs=trusted) as client:
            assert Calls(client, options(READER)).rows(command("SELECT 1 AS i")).to_pylist() == [{"i": 1}]
        kwargs = {
            "adbc.flight.sql.authorization_header": f"Bearer {READER}",
            "adbc.flight.sql.client_option.tls_root_certs": trusted.decode(),
        }
        with dbapi.connect(service.location, db_kwargs=kwargs, autocommit=True) as connection:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                assert cursor.fetchall() == [(1,)]
        with flight.connect(service.location) as client, pytest.raises(flight.FlightUnavailableError):
            list(client.list_actions(options=options(READER)))
    missing = FlightSettings(certificate=certificate[0].with_name("no.pem"), key=certificate[1])
    with pytest.raises(ConfigError, match="cannot be read"):
        FlightService(gate, missing).serve()
