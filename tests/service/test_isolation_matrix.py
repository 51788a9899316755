"""Every door of the service, tried by everybody: who gets in, and that nothing hidden comes out in any way."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi import APIRouter, FastAPI
from pyarrow import flight

import quacklake
from quacklake import Lake
from quacklake.service.access_gate import AccessGate
from quacklake.service.app import create_app
from quacklake.service.flight import FlightService, FlightSettings
from quacklake.service.iceberg import iceberg_router
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from quacklake_ekko.table import TABLE
from tests.access.secrets import MARKS, fill
from tests.service.flight.calls import EVERY, WRITES, Calls
from tests.service.flight.conftest import options
from tests.service.isolation import ADMIN, HTTP, ICEBERG, PARTS, RESTRICTED, STRANGERS, TABLES, Entry
from tests.service.serving import OpenLakes, client

EVERYBODY = (*STRANGERS, "rea", "wil", "root", "ann")
_TENANT = "xenon"
"""In the name of everything that the other tenant has."""
_HIDDEN_NAMES = re.compile(r"\b(vault|deep|well|totals|salary|of_vault|inbox|target|keyed|visits)\b")
"""Names that the restricted reader must not learn."""


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {vars(record)}")


@dataclass
class Doors:
    """Two lakes behind HTTP, Iceberg and Flight, a token for everybody, and what was logged."""

    app: FastAPI
    lakes: dict[str, Lake]
    home: Path
    url: str
    flights: flight.FlightClient
    tokens: dict[str, str | None]
    log: _Lines
    asked: set[str] = field(default_factory=set)

    def secrets(self, user: str) -> list[str]:
        """Return what must not be in an answer to a user."""
        others = [token for name, token in self.tokens.items() if token is not None and name != user]
        hidden = [] if user == ADMIN else list(MARKS)
        return [_TENANT, str(self.home), *others, *hidden, "quacklake_tokens", "argon2", "Traceback"]

    def check(self, user: str, told: str, asked: str, *, paths: bool = False) -> None:
        """Fail if something is told that must not be."""
        for secret in self.secrets(user):
            assert secret not in told or secret in asked or (paths and secret == str(self.home)), (asked, secret, told)
        if user in (RESTRICTED, *STRANGERS):
            found = _HIDDEN_NAMES.search(told)
            assert found is None or found[0] in asked, (asked, told)


def _tables(lake: Lake) -> None:
    lake.sql("CREATE TABLE inbox (id BIGINT, region VARCHAR)")
    lake.sql("CREATE TABLE target (i BIGINT)")
    lake.sql("INSERT INTO target VALUES (41), (42)")
    lake.create_table("keyed", {"a": int, "b": str}, primary_key=["b", "a"])
    lake.sql("CREATE TABLE visits (seen TIMESTAMP, n BIGINT)")
    lake.create_schema("blockchain")
    texts = ["network", "subnet", "tx_hash", "from_address", "to_address", "value", "block_hash", "gas_price"]
    numbers = ["gas_limit", "nonce", "block_number", "tx_index"]
    columns = {**dict.fromkeys(texts, "VARCHAR"), **dict.fromkeys(numbers, "BIGINT")}
    lake.create_table(TABLE, {**columns, "input_data": "BLOB", "block_time": "TIMESTAMPTZ", "success": "BOOLEAN"})
    for network, hash_ in (("avalanche", "0xshown"), ("CANARY net", "0xCANARY")):
        lake.sql(f"INSERT INTO {TABLE} (network, tx_hash, success) VALUES (?, ?, true)", [network, hash_])
    lake.access.create_policy("shown", TABLE, "network = 'avalanche'")


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    home: Path = tmp_path_factory.mktemp("doors")
    (home / _TENANT).mkdir()
    other = home / _TENANT
    lakes = {
        "a": fill(home),
        "b": quacklake.connect(f"sqlite:///{other}/lake.db", data_path=other / "data"),
    }
    _tables(lakes["a"])
    lakes["b"].sql(f"CREATE TABLE {_TENANT} AS SELECT '{_TENANT}' AS {_TENANT}")
    for name in ("root", _TENANT):
        lakes["b"].access.create_user(name, ["admin"])
    access = lakes["a"].access
    access.create_user("off", ["admin"])
    tokens: dict[str, str | None] = {name: access.tokens.create(name) for name in ("rea", "wil", "root", "ann")}
    tokens |= {
        "anonymous": None,
        "expired": access.tokens.create("root", expires_in=0.001),
        "revoked": access.tokens.create("root"),
        "disabled": access.tokens.create("off"),
        "other tenant": lakes["b"].access.tokens.create("root"),
    }
    access.tokens.revoke(str(tokens["revoked"]))
    access.disable_user("off")

    gate, settings, log = AccessGate.of_tenants(OpenLakes(lakes)), ServiceSettings(port=0, poll_seconds=0.05), _Lines()
    router = APIRouter(prefix="/iceberg")
    router.include_router(iceberg_router(gate))
    app = create_app(gate, settings, more=[router])
    loggers = [logging.getLogger(name) for name in ("quacklake", "uvicorn")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(log)
        logger.setLevel(logging.DEBUG)
    service = FlightService(gate, FlightSettings(port=0)).serve()
    try:
        with BackgroundService(app, settings) as url, flight.connect(service.location) as flights:
            yield Doors(app, lakes, home, url, flights, tokens, log)
            assert service.shutdown()
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(log)
            logger.setLevel(level)


def _routes(app: FastAPI) -> set[str]:
    """Return every route of an application, also those that its description leaves out."""
    found: set[str] = set()
    for route in app.routes:
        contexts = getattr(route, "effective_route_contexts", None)
        for each in [route] if contexts is None else contexts():
            assert each.path and each.methods, f"{each} is a route of another kind"
            found |= {f"{method} {each.path.replace(':part}', '}')}" for method in each.methods}
    return found


def test_every_route_is_in_the_matrix(doors: Doors) -> None:
    routes = _routes(doors.app)
    iceberg = {route for route in routes if route.endswith(" /iceberg/v1/{rest:path}")}
    assert len(iceberg) == 6 and len(routes) > 35
    assert routes - iceberg - set(HTTP) == set()


def _told(answer: httpx.Response, text: str | None = None) -> str:
    return f"{answer.text if text is None else text} {dict(answer.headers)}"


def _listen(http: httpx.Client, path: str, query: dict[str, Any]) -> tuple[httpx.Response, str]:
    """Return the beginning of a stream."""
    with http.stream("GET", path, params=query) as stream:
        lines = []
        for line in stream.iter_lines():
            lines.append(line)
            if stream.status_code != 200 or sum(each.startswith("data:") for each in lines) == 12:
                break
        return stream, "\n".join(lines)


def _places(template: str) -> str:
    parts = {**PARTS, "table": TABLES.get(template, PARTS["table"])}
    return re.sub(r"{(\w+)(?::\w+)?}", lambda found: parts[found[1]], template)


def _ask(doors: Doors, http: httpx.Client, user: str, template: str, entry: Entry) -> None:
    method, path = _places(template).split(" ", 1)
    query = {**(entry.query or {}), "lake": "a"}
    text = None
    if path.endswith("/events"):
        answer, text = _listen(http, path, query)
    else:
        answer = http.request(method, path, params=query, json=entry.body)
        text = answer.text
    assert answer.status_code == entry.status(user), (template, user, text)
    # the description of the interface and the page of the dashboard are the same for every lake
    told = _told(answer, "" if path.endswith(("/openapi.json", "/ui/")) else text)
    doors.check(user, told, f"{path} {query} {entry.body}")


@pytest.mark.daily(0.3)
@pytest.mark.parametrize("user", EVERYBODY)
def test_every_route_answers_each_principal_as_the_matrix_says(doors: Doors, user: str) -> None:
    routes = _routes(doors.app)
    before = doors.lakes["a"].current_snapshot()
    with client(doors.url, doors.tokens[user]) as http:
        for template, entry in HTTP.items():
            if template in routes:
                _ask(doors, http, user, template, entry)
    if user not in ("wil", "root"):
        assert doors.lakes["a"].current_snapshot() == before, "somebody without rights has changed something"


_ASIDE = ("/events", "/openapi.json", "/consumers/{name}/changes")
"""Routes without tags that need more than one request."""
_TAGGED = [template for template in HTTP if template.startswith("GET /api/v1/") and not template.endswith(_ASIDE)]


@pytest.fixture(scope="module")
def tags(doors: Doors) -> dict[str, str]:
    """The tags that an administrator got, by route, of the HTTP API and of the Iceberg catalog."""
    found = {}
    with client(doors.url, doors.tokens[ADMIN]) as http:
        for template in _TAGGED:
            query = {**(HTTP[template].query or {}), "lake": "a"}
            answer = http.get(_places(template).removeprefix("GET "), params=query)
            if "etag" in answer.headers:
                found[template] = answer.headers["etag"]
        answer = http.get("/iceberg/v1/a/namespaces/main/tables/people")
        found["GET a/namespaces/main/tables/people"] = answer.headers["etag"]
    assert len(found) >= 16 and len(set(found.values())) == len(found), "each route has a tag of its own"
    return found


@pytest.mark.daily(0.3)
@pytest.mark.parametrize("user", [user for user in EVERYBODY if user != ADMIN])
def test_a_tag_opens_no_route(doors: Doors, tags: dict[str, str], user: str) -> None:
    every = ", ".join(["*", *tags.values()])
    with client(doors.url, doors.tokens[user]) as http:
        for template in _TAGGED:
            entry, path = HTTP[template], _places(template).removeprefix("GET ")
            query = {**(entry.query or {}), "lake": "a"}
            headers = {"If-None-Match": every}
            answer = http.get(path, params=query, headers=headers)
            if answer.status_code == 200 and "etag" in answer.headers:  # with its own too: what it may see can change
                headers = {"If-None-Match": answer.headers["etag"]}
                answer = http.get(path, params=query, headers=headers)
            assert answer.status_code == entry.status(user), (template, user, answer.text)
            doors.check(user, _told(answer), f"{path} {query}")
        for call in ("GET a/namespaces/main/tables/people", "GET a/namespaces/main/tables/vault"):
            for tag in tags.values():
                answer = http.get(f"/iceberg/v1/{call.removeprefix('GET ')}", headers={"If-None-Match": tag})
                assert answer.status_code == ICEBERG[call].status(user), (call, user, answer.text)


@pytest.mark.daily(0.3)
@pytest.mark.parametrize("user", EVERYBODY)
def test_the_iceberg_catalog_answers_each_principal_as_the_matrix_says(doors: Doors, user: str) -> None:
    before = doors.lakes["a"].current_snapshot()
    with client(f"{doors.url}/iceberg/v1", doors.tokens[user]) as http:
        for call, entry in ICEBERG.items():
            method, path = call.split(" ", 1)
            form = {"data": entry.body} if path.startswith("oauth") else {"json": entry.body}
            answer = http.request(method, path, params=entry.query, **form)
            assert answer.status_code == entry.status(user), (call, user, answer.text)
            doors.check(user, _told(answer), f"{path} {entry.query}", paths=entry.paths and answer.status_code == 200)
    assert doors.lakes["a"].current_snapshot() == before


def test_the_configuration_for_iceberg_clients_has_no_settings_of_the_lake(doors: Doors) -> None:
    for user in ("rea", "root"):
        with client(f"{doors.url}/iceberg/v1", doors.tokens[user]) as http:
            config = http.get("config", params={"warehouse": "a"}).json()
            assert config["defaults"] == {} and config["overrides"] == {"prefix": "a"}
            loaded = http.get("a/namespaces/main/tables/inbox").json()
            assert loaded["config"] == {}
            assert not loaded.get("storage-credentials")
            known = {"quacklake.readers", "name-mapping.default", "write.format.default"}
            names = {name.split(".", 1)[0] for name in set(loaded["metadata"]["properties"]) - known}
            assert not names & {"s3", "gcs", "adls", "client", "token", "credential"}


@pytest.mark.daily(0.3)
@pytest.mark.parametrize("user", EVERYBODY)
def test_every_flight_call_answers_each_principal(doors: Doors, user: str) -> None:
    before = doors.lakes["a"].current_snapshot()
    calls = Calls(doors.flights, options(doors.tokens[user], database="a"))
    for name, call in EVERY.items():
        told, refused = "", None
        try:
            told = _plain(call(calls))
        except Exception as error:
            told, refused = f"{error!r} {error}", error
        doors.check(user, told, f"{name} FROM target keyed")
        if user in STRANGERS:
            assert "[unauthenticated]" in told, (name, told)
        elif user in ("rea", "ann") and name in WRITES:
            assert "[not_permitted]" in told or (user == "ann" and "[not_found]" in told), (name, told)
        elif user in ("rea", "wil", "root") and name != "do_exchange":
            assert refused is None, (name, told)
    if user not in ("wil", "root"):
        assert doors.lakes["a"].current_snapshot() == before


def _plain(value: Any) -> str:
    if isinstance(value, pa.Table):
        return str(value.to_pylist())
    if isinstance(value, list):
        return " ".join(_plain(each) for each in value)
    if isinstance(value, flight.FlightInfo):
        return f"{value.descriptor} {value.schema}"
    if isinstance(value, flight.SchemaResult):
        return str(value.schema)
    return str(value)


def test_a_token_is_good_for_its_own_lake_only(doors: Doors) -> None:
    with client(doors.url, doors.tokens["other tenant"]) as http:
        assert http.get("/api/v1/tables", params={"lake": "b"}).status_code == 200
        seen = [
            http.get("/api/v1/tables", params={"lake": name})
            for name in ("a", "c", "", "../a", "a/root", "A", "b/../a")
        ]
        assert {answer.status_code for answer in seen} == {401}
        assert len({re.sub(r'"request_id": "\w+"', "", answer.text) for answer in seen}) == 1, "all lakes look alike"


def test_neither_the_log_nor_the_figures_tell_secrets(doors: Doors) -> None:
    with client(doors.url, doors.tokens["root"]) as http:
        figures = http.get("/metrics", params={"lake": "a"}).text
        for sql in ("SELECT error(note) FROM people", "SELECT CAST(note AS INTEGER) FROM people", "FROM nothing"):
            http.post("/api/v1/sql", params={"lake": "a"}, json={"sql": sql})
    lines = "\n".join(doors.log.lines)
    assert len(doors.log.lines) > 20
    for token in filter(None, doors.tokens.values()):
        assert token not in lines and token[-20:] not in lines and token not in figures
    for mark in MARKS:
        assert mark not in lines and mark not in figures
    labels = set(re.findall(r'(\w+)="', figures))
    assert labels <= {"method", "route", "status", "le", "view"}, "labels are of a fixed set"
    others = re.sub(r'view="main\.totals"', "", figures)  # administrators may know the names of views
    assert not _HIDDEN_NAMES.search(others) and _TENANT not in figures
