"""The NATS client, on real servers."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.credentials import NatsAddress, NatsCredentials
from quacklake.errors import ConfigError, ConnectorError, ConnectorUnavailableError, InputError
from services import NatsServer


@pytest.fixture
def nats(nats_server: NatsServer) -> Iterator[NatsConnection]:
    with NatsConnection(nats_server.url) as connection:
        yield connection


def new_stream(nats: NatsConnection, **config: Any) -> str:
    name = f"s{secrets.token_hex(6)}"
    nats.jetstream(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})
    return name


def fill(nats: NatsConnection, stream: str, count: int, *, first: int = 0) -> None:
    assert nats.publish([(f"{stream}.{n % 3}", b"%d" % n, None) for n in range(first, first + count)]) == count


def read(nats: NatsConnection, stream: str, first: int, end: int, *subjects: str, **limits: int) -> list[int]:
    return [n for part in nats.read_range(stream, first, end, subjects, **limits) for n in part.sequences.tolist()]


def test_a_range_has_every_message_between_its_ends_in_order(nats: NatsConnection) -> None:
    stream = new_stream(nats)
    fill(nats, stream, 5000)
    assert read(nats, stream, 1, 5001, batch=700) == list(range(1, 5001))
    assert read(nats, stream, 1234, 1300) == list(range(1234, 1300))
    assert read(nats, stream, 4990, 9999) == list(range(4990, 5001))
    assert read(nats, stream, 7, 7) == []
    [part] = nats.read_range(stream, 3, 5)
    assert (part.data.to_pylist(), part.subjects.to_pylist()) == (
        [b"2", b"3"],
        [f"{stream}.2".encode(), f"{stream}.0".encode()],
    )
    assert part.times.tolist() == sorted(part.times.tolist())


def test_gaps_purges_and_other_subjects_are_left_out(nats: NatsConnection) -> None:
    stream = new_stream(nats)
    fill(nats, stream, 300)
    nats.jetstream(f"STREAM.PURGE.{stream}", {"seq": 50})
    for sequence in (60, 61, 299, 300):
        nats.jetstream(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
    left = [n for n in range(50, 301) if n not in (60, 61, 299, 300)]
    assert read(nats, stream, 1, 301) == left
    assert read(nats, stream, 60, 62) == []
    assert read(nats, stream, 290, 301, batch=3) == list(range(290, 299))
    assert read(nats, stream, 1, 301, f"{stream}.1", f"{stream}.2") == [n for n in left if n % 3 != 1]
    assert read(nats, stream, 1, 301, f"{stream}.none") == []


def test_a_batch_is_bounded_in_bytes_and_a_larger_message_comes_alone(nats: NatsConnection) -> None:
    stream = new_stream(nats)
    sizes = [100, 100, 5000, 100, 100]
    nats.publish([(f"{stream}.x", b"x" * size, None) for size in sizes])
    parts = list(nats.read_range(stream, 1, 6, batch_bytes=1000))
    assert [len(data) for part in parts for data in part.data.to_pylist()] == sizes
    assert len(parts) > 1
    with (
        NatsConnection(f"127.0.0.1:{nats.info['port']}", max_message_bytes=4000) as small,
        pytest.raises(ConnectorError, match="the limit of 4000 bytes"),
    ):
        read(small, stream, 1, 6, batch_bytes=1000)


def test_a_message_with_an_id_is_stored_once(nats: NatsConnection) -> None:
    stream = new_stream(nats)
    messages = [(f"{stream}.a", b"%d" % n, {"Nats-Msg-Id": str(n)}) for n in range(100)]
    assert nats.publish(messages, window=7) == 100
    assert nats.publish([*messages[50:], (f"{stream}.a", b"new", {"Nats-Msg-Id": "new"})]) == 1
    assert read(nats, stream, 1, 1000) == list(range(1, 102))
    [part] = nats.read_range(stream, 101, 102)
    assert b"Nats-Msg-Id: new\r\n" in part.headers[0].as_py()


def test_a_range_goes_on_when_the_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server:
        nats = NatsConnection(server.url, timeout=5, attempts=8)
        stream = new_stream(nats)
        fill(nats, stream, 20_000)
        seen: list[int] = []
        for part in nats.read_range(stream, 1, 20_001, batch=1500):
            seen += part.sequences.tolist()
            if len(seen) in (3000, 9000):
                _kill_and_restart(server)
        assert seen == list(range(1, 20_001))
        nats.close()


def _kill_and_restart(server: NatsServer) -> None:
    """End the server as a power cut would, and start it again on the same port after a while."""
    process = server._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    def start() -> None:
        with (server.directory / "again.log").open("wb") as log:
            server._process = subprocess.Popen(server.command(), cwd=server.directory, stdout=log, stderr=log)

    threading.Timer(0.3, start).start()


@pytest.mark.parametrize(
    ("settings", "right", "wrong"),
    [
        ({"authorization": {"user": "ann", "password": "s3cret"}}, {"user": "ann", "password": "s3cret"}, {"user": "ann", "password": "no-s3cret"}),
        ({"authorization": {"token": "t0ken"}}, {"token": "t0ken"}, {}),
        ({"authorization": {"token": "t0ken"}}, {"token": "t0ken"}, {"token": "no-t0ken"}),
        ({}, {}, {"nkey_seed": "SUnos33d"}),
    ],
    ids=["user", "token", "wrong token", "nkey"],
)  # fmt: skip
def test_credentials_are_asked_for_and_never_shown(
    settings: dict[str, Any], right: dict[str, str], wrong: dict[str, str]
) -> None:
    with NatsServer(settings=settings) as server:
        with NatsConnection(server.url, NatsCredentials(**right)) as nats:
            new_stream(nats)
        with NatsConnection(server.url, NatsCredentials(**wrong)) as nats, pytest.raises(ConfigError) as caught:
            new_stream(nats)
    secret = [*right.values(), *wrong.values()]
    assert [
        text for text in secret if text != "ann" and text in str(caught.value) + repr(NatsCredentials(**right))
    ] == []


def test_a_url_may_give_a_user_or_a_token() -> None:
    for login, settings in (("ann:s%403cret", {"user": "ann", "password": "s@3cret"}), ("t0ken", {"token": "t0ken"})):
        with NatsServer(settings={"authorization": settings}) as server:
            url = server.url.replace("//", f"//{login}@")
            with NatsConnection(url) as nats:
                new_stream(nats)
            assert login not in repr(NatsAddress.parse(url))
            with NatsConnection(url.replace(login, f"x{login}")) as nats, pytest.raises(ConfigError) as caught:
                new_stream(nats)
            assert login not in str(caught.value)


def test_an_nkey_signs_the_nonce_of_the_server() -> None:
    nkeys = pytest.importorskip("nkeys")
    pair = nkeys.from_seed(b"SUAEIV3COV7ADQZS52WTYHUJQRV7WKJGU7EGDF3RMSEXJCQHP4Z6IZBBKI")
    settings = {"authorization": {"users": [{"nkey": pair.public_key.decode()}]}}
    with NatsServer(settings=settings) as server:
        with NatsConnection(server.url, NatsCredentials(nkey_seed=pair.seed.decode())) as nats:
            new_stream(nats)
        with NatsConnection(server.url) as nats, pytest.raises(ConfigError, match="credentials"):
            new_stream(nats)


def new_certificate(folder: Path) -> tuple[Path, Path]:
    folder.mkdir()
    key, cert = folder / "key.pem", folder / "cert.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-nodes", "-keyout", key, "-out", cert, "-days", "2"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", *files, *names]
    try:
        subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no openssl to make a certificate with")
    return key, cert


def test_tls_is_used_and_the_certificate_is_looked_at(tmp_path: Path) -> None:
    key, cert = new_certificate(tmp_path / "right")
    _, other = new_certificate(tmp_path / "wrong")
    with NatsServer(settings={"tls": {"cert_file": str(cert), "key_file": str(key)}}) as server:
        with NatsConnection(server.url, NatsCredentials(ca_file=str(cert))) as nats:
            stream = new_stream(nats)
            fill(nats, stream, 3000)
            assert read(nats, stream, 1, 3001) == list(range(1, 3001))
        for trusted in (None, str(other)):
            stranger = NatsConnection(server.url, NatsCredentials(ca_file=trusted))
            with pytest.raises(ConfigError, match=r"certificate of the NATS server 127\.0\.0\.1 is not trusted"):
                new_stream(stranger)
        with pytest.raises(ConfigError, match="TLS files"):
            new_stream(NatsConnection(server.url, NatsCredentials(ca_file=str(tmp_path / "none.pem"))))


def test_what_is_wrong_is_said_in_a_sentence(nats: NatsConnection) -> None:
    stream = new_stream(nats)
    with pytest.raises(ConnectorError, match="stream not found") as caught:
        read(nats, "nothing", 1, 2)
    assert caught.value.number == 10059
    with pytest.raises(InputError, match="no stream"):
        nats.publish([("nobody.listens", b"x", None)])
    with pytest.raises(InputError, match="header"):
        nats.publish([(f"{stream}.a", b"x", {"Nats-Msg-Id": "1\r\nPUB evil 0"})])
    with pytest.raises(InputError, match="subject"):
        nats.publish([("a b", b"x", None)])
    assert read(nats, stream, 1, 10) == []
    for address in ("", "http://127.0.0.1", "nats://", "nats://host:port"):
        with pytest.raises(ConfigError):
            NatsConnection(address)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"nats://ann:s3cret@127.0.0.1:{unused.getsockname()[1]}"
        with NatsConnection(address, attempts=2) as gone, pytest.raises(ConnectorUnavailableError) as unreachable:
            gone.jetstream("INFO")
    assert "s3cret" not in str(unreachable.value)


@pytest.mark.parametrize("speech", [b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 200_000, b"INFO {}\r\n-ERR 'no'\r\n", b""])
def test_a_server_that_speaks_something_else_is_given_up(speech: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            for _ in range(2):
                client = listener.accept()[0]
                client.sendall(speech)
                client.close()

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with NatsConnection(address, attempts=2, timeout=5) as nats, pytest.raises(ConnectorUnavailableError):
            nats.jetstream("INFO", json.loads("{}"))
        thread.join(5)
