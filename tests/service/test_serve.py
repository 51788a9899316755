"""``quacklake serve`` as a user runs it: the demo, the address, and its end under load."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import quacklake
from tests.service.serving import client


@contextmanager
def running(
    *options: str, command: str = "serve", **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run the command until the end of a block; yield the process, the URL and the token."""
    words = [sys.executable, "-m", "quacklake.cli", command, "--port", "0", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUACKLAKE_")}
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**environment, **variables}
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert process.stdout.readline() == f"Iceberg catalog: {url}/iceberg\n"
        given = "--tokens" in options or "--users" in options
        told = iter(process.stdout.readline, "")
        token = "" if given else next(line.split()[-1] for line in told if line.startswith("Token: "))
        yield process, url, token
    finally:
        process.terminate()
        process.wait(30)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def test_the_demo_starts_with_sample_data_a_url_and_a_token() -> None:
    with running(command="serve-demo") as (process, url, token):
        assert url.startswith("http://127.0.0.1:") and token.startswith("ql_")
        with client(url, token) as own:
            assert {"main.orders", "main.products"} <= {*own.get("/api/v1/tables").json()["tables"]}
            sql = "SELECT sum(o.quantity * p.price) > 0 AS sold FROM orders o JOIN products p ON o.product = p.id"
            assert own.post("/api/v1/sql", json={"sql": sql}).json()["rows"] == [{"sold": True}]
            before = own.post("/api/v1/sql", json={"sql": "SELECT stock FROM products WHERE id = 1", "version": 1})
            assert before.json()["rows"] == [{"stock": 400}]
            assert own.get("/metrics").status_code == 200
        with client(url, None) as nobody:
            assert nobody.get("/api/v1/tables").status_code == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_every_setting_comes_from_an_option_a_variable_or_the_file(tmp_path: Path) -> None:
    config = tmp_path / "own.toml"
    config.write_text(f'url = "sqlite:///{tmp_path}/lake.db"\n[service]\nmax_rows = 3\nweb = false\nmax_body = 2000\n')
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True) as lake:
        lake.sql("CREATE TABLE a (i INT); CREATE TABLE b (i INT); CREATE TABLE c (i INT)")
    options = ["--config", str(config), "--max-body", "1kB", "--set", "max_page_rows=2"]
    with running(*options, QUACKLAKE_SERVICE_PREFIX="/deep") as (_, url, token), client(url, token) as own:
        assert url.endswith("/deep")
        asked = own.post("/api/v1/sql", json={"sql": "SELECT * FROM range(4)"})
        assert "3 rows" in asked.text
        assert own.post("/api/v1/sql", json={"sql": "-" * 1001}).status_code == 413
        assert own.get("/ui/").status_code == 404
        assert len(own.get("/api/v1/snapshots", params={"limit": 3}).json()["snapshots"]) == 2


def test_a_service_that_cannot_start_says_so_in_lines_of_a_json_log() -> None:
    """P53: nothing else is on standard error."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "quacklake.cli", "serve-demo", "--log-format", "json"]
        ended = subprocess.run(
            [*command, "--port", str(taken.getsockname()[1])], capture_output=True, text=True, timeout=120
        )
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (ended.returncode, lines[-1]["level"], lines[-1]["code"]) == (1, "error", "config")
    assert "in use" in lines[-1]["message"]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_demo_that_ends_as_soon_as_it_is_told_of_leaves_nothing(
    tmp_path: Path, ending: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running(command="serve-demo") as (process, _, __):
        process.send_signal(ending)
        assert process.wait(30) == 0
    assert [*tmp_path.iterdir()] == []


def test_the_address_and_the_token_are_told_before_anything_that_takes_long_is_loaded() -> None:
    loaded = "import quacklake_demo.serving, quacklake.service.listening, sys;" + (
        "print(*{'duckdb', 'fastapi', 'numpy', 'pyarrow', 'sqlalchemy', 'uvicorn'} & {*sys.modules})"
    )
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_a_package_that_is_missing_is_told_before_the_service_listens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from quacklake.cli import main

    monkeypatch.setitem(sys.modules, "fastavro", None)
    assert main(["serve-demo", "--port", "0"]) == 1
    told = capsys.readouterr()
    assert "the service needs the package fastavro" in told.err and "Token" not in told.out


def test_nothing_that_takes_long_is_loaded_before_the_service_listens() -> None:
    loaded = "import quacklake.service.app, quacklake.service.iceberg, quacklake_demo.shop, sys;" + (
        "print(*{'pandas', 'sqlglot', 'polars', 'pyspark', 'quacklake.pipelines', 'quacklake.pond'} & {*sys.modules})"
    )
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_users_of_the_lake_come_in_by_http_iceberg_and_flight(tmp_path: Path) -> None:
    flight = pytest.importorskip("pyarrow.flight")
    lake = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(lake, tmp_path / "data") as own:
        own.sql("CREATE TABLE t AS SELECT i AS id, i % 2 AS half FROM range(10) r(i)")
        own.sql("CREATE TABLE whole AS SELECT 1 AS x")
        own.access.create_user("ann", ["reader"])
        own.access.create_policy("even", "t", "half = 0")
        token = own.access.tokens.create("ann")
    with running("--lake", lake, "--users", "--flight", "0") as (process, url, _), client(url, token) as ann:
        assert process.stdout is not None
        place = process.stdout.readline().split()[-1]
        answer = ann.post("/api/v1/sql", json={"sql": "SELECT count(*) AS n FROM t"})
        assert answer.json()["rows"] == [{"n": 5}]
        tables = ann.get("/iceberg/v1/namespaces/main/tables").json()["identifiers"]
        assert [table["name"] for table in tables] == ["whole"]
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
        with flight.connect(place) as caller:
            info = caller.get_flight_info(flight.FlightDescriptor.for_path("main", "t"), options)
            rows = [caller.do_get(endpoint.ticket, options).read_all() for endpoint in info.endpoints]
            assert sum(part.num_rows for part in rows) == 5
            with pytest.raises(flight.FlightUnauthenticatedError):
                caller.get_flight_info(flight.FlightDescriptor.for_path("main", "t"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--host", "0.0.0.0", "--anonymous", "reader"],
        ["--tls-key", "x"],
        ["--tokens", "/nowhere"],
        ["--tenants"],
        ["--users", "--anonymous", "reader"],
        ["--oidc-claim", "mail", "--users"],
        ["--operators", "/nowhere"],
        ["--set", "max_rows"],
        ["--set", "max_rwos=1"],
        ["--set", "users=true", "--anonymous", "reader"],
    ],
)
def test_a_service_that_would_be_open_or_half_set_up_does_not_start(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from quacklake.cli import main

    assert main(["serve-demo", *options]) == 1
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_no_acknowledged_append_is_lost_or_doubled_when_the_service_ends_under_load(
    tmp_path: Path, ending: signal.Signals
) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    lake = quacklake.connect(url, tmp_path / "data", create=True)
    lake.create_table("t", {"id": "BIGINT"})
    tokens = tmp_path / "tokens"
    tokens.write_text("writer w-token\n")
    acknowledged: set[int] = set()
    unknown: set[int] = set()

    def send(address: str, numbers: range) -> None:
        with client(address, "w-token") as own:
            for number in numbers:
                try:
                    answer = own.post(
                        "/api/v1/tables/t/rows", json=[{"id": number}], headers={"Idempotency-Key": f"{number}"}
                    )
                except httpx.HTTPError:
                    unknown.add(number)
                    return
                (acknowledged if answer.status_code == 201 else unknown).add(number)
                if answer.status_code != 201:
                    return

    with running("--lake", url, "--tokens", str(tokens)) as (process, address, _):
        threads = [
            threading.Thread(target=send, args=(address, range(base, base + 1000))) for base in range(0, 8000, 1000)
        ]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 40:
            time.sleep(0.01)
        process.send_signal(ending)
        for thread in threads:
            thread.join()
        assert process.wait(30) == (0 if ending == signal.SIGTERM else -ending)
    stored = [row["id"] for row in lake.table("t").to_pylist()]
    assert len(stored) == len(set(stored)), "nothing is doubled"
    assert acknowledged <= set(stored), "nothing acknowledged is lost"
    assert set(stored) <= acknowledged | unknown
    # whoever got no answer asks again, and everything is there once
    with running("--lake", url, "--tokens", str(tokens)) as (_, address, __), client(address, "w-token") as own:
        for number in unknown:
            key = {"Idempotency-Key": f"{number}"}
            assert own.post("/api/v1/tables/t/rows", json=[{"id": number}], headers=key).status_code == 201
    again = [row["id"] for row in lake.table("t").to_pylist()]
    assert sorted(again) == sorted(acknowledged | unknown)
    lake.close()
