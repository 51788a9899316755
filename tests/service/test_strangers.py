"""Requests without a right token at every door: one answer for all names, and nothing is left behind."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from fastapi import APIRouter, FastAPI
from pyarrow import flight

import quacklake
from quacklake.lake.tenants import Tenants
from quacklake.service.access_gate import AccessGate
from quacklake.service.app import create_app
from quacklake.service.flight import FlightService, FlightSettings
from quacklake.service.iceberg import iceberg_router
from quacklake.service.metrics import Requests
from quacklake.service.operators import Operator
from quacklake.service.routes.backups import _place
from quacklake.service.runners import _key
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from quacklake.service.state import Service
from tests import seeds
from tests.service.flight.calls import EVERY, Calls, ingestion
from tests.service.flight.conftest import options
from tests.service.isolation import HTTP, ICEBERG
from tests.service.test_isolation_matrix import _places, _routes

OPERATOR = "operator-secret"
NOBODY = f"qk_{'0' * 16}_{'A' * 43}"
#: Catalogs that are open, closed, dropped and unknown, names written otherwise, and texts that are no names.
NAMES = (
    *("acme", "ACME", "aCmE", "beta", "Beta", "gone", "nope", "NOPE", "lake", "config", "con", "x" * 63),
    *("acme ", " acme", "acme.", "acme\u200b", "ａcme", "acm\u0435", "\u212aing", "a/cme", "../acme", "acme%00", "'--"),
)
_OPERATED = {"POST": {"name": "other"}, "GET": None, "DELETE": None}


@dataclass
class Doors:
    """A service for the catalogs of a shared lake, with all of its doors."""

    tenants: Tenants
    gate: AccessGate
    app: FastAPI
    http: httpx.Client
    flights: flight.FlightClient
    flight_service: FlightService
    tokens: dict[str, str]
    strangers: dict[str, str | None]
    answers: dict[object, object] = field(default_factory=dict)

    def state(self) -> dict[str, Any]:
        """Return what the service keeps between requests."""
        gate, service, flights = self.gate._doors, self.app.state.service, self.flight_service.handlers
        lakes = gate._lakes.items()  # type: ignore[union-attr]
        return {
            "lakes": {id_: (each.name, each.used, each.checked, list(each.principals)) for id_, each in lakes},
            "names": dict(gate._ids),  # type: ignore[union-attr]
            "tokens": {id_: list(each.lake.access.tokens._known) for id_, each in lakes},
            "shares": dict(service._buckets),
            "asking": [*service._entrance._waiting, *service._entrance._asked],
            "sessions": list(service.sessions._pools),
            "statements": list(service.statements._running),
            "jobs": list(service.jobs._jobs),
            "listeners": (service.events.listeners, list(service.events._watches)),
            "groups": list(service.appends._groups) if hasattr(service.appends, "_groups") else None,
            "slots": dict(flights.slots._taken),
            "flight sessions": list(flights.queries.sessions._roots),
            "transactions": list(flights.transactions._open),
            "results": list(flights.held._kept),
            "options": {owner: list(kept) for owner, kept in flights.options._kept.items()},
        }

    def _asked(self, method: str, path: str, token: str | None, **more: Any) -> object:
        headers = {"X-Request-Id": "one-of-all"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        answer = self.http.request(method, path, headers=headers, **more)
        told = {name: value for name, value in answer.headers.items() if name != "date"}
        return answer.status_code, told, answer.text

    def ask(self, route: str, token: str | None, name: str) -> object:
        """Return all that a stranger is told by a route about a lake."""
        kind, template = route.split(": ", 1)
        if kind == "flight":
            if not name.isascii():  # no header of Flight
                name = quote(name)
            try:
                EVERY[template](Calls(self.flights, options(token, database=name)))
            except Exception as error:
                # what the client of Arrow adds to the status of a stream depends on when it looks at it
                return type(error), str(error).partition(". Detail:")[0]
            return "let in"
        method, path = template.split(" ", 1)
        if kind == "iceberg":
            entry, part = ICEBERG[template], quote(name, safe="")
            path = part + path[1:] if path.startswith("a/") else path
            query = {key: name if key == "warehouse" else value for key, value in (entry.query or {}).items()}
            body = {"data": entry.body} if path.startswith("oauth") else {"json": entry.body}
            return self._asked(method, f"/iceberg/v1/{path}", token, params=query, **body)
        if template not in HTTP:  # of the operator
            path = path.replace("{name}", quote(name, safe=""))
            return self._asked(method, path, token, json=_OPERATED[method])
        entry = HTTP[template]
        path = _places(template).split(" ", 1)[1]
        return self._asked(method, path, token, params={**(entry.query or {}), "lake": name}, json=entry.body)

    def check(self, route: str, stranger: str, name: str) -> None:
        """Let a stranger ask: it is told what it is told of any other name, and leaves nothing behind."""
        before = self.state()
        told = self.ask(route, self.strangers[stranger], name)
        assert self.state() == before, (route, stranger, name)
        assert self.answers.setdefault((route, stranger), told) == told, (route, stranger, name)
        assert told != "let in", (route, stranger, name)


def _every_route(app: FastAPI) -> list[str]:
    """Return every route of HTTP, every request of the Iceberg catalog, and every call of Flight."""
    own = sorted(route for route in _routes(app) if not route.endswith("/iceberg/v1/{rest:path}"))
    return (
        [f"http: {each}" for each in own] + [f"iceberg: {each}" for each in ICEBERG] + [f"flight: {e}" for e in EVERY]
    )


def _open(stack: ExitStack, folder: Path, **limits: Any) -> Doors:
    shared = quacklake.tenants(f"sqlite:///{folder}/lakes.db", data_path=folder / "data", create=True)
    stack.callback(shared.close)
    tokens = {}
    for name in ("acme", "beta", "gone", "third"):
        shared.create(name)
        with shared.open(name) as lake:
            tokens[name] = lake.access.create_user_with_token("root", ["admin"])
            lake.create_table("target", {"i": "BIGINT"})
            if name == "acme":
                strangers = {
                    "nobody": None,
                    "malformed": "secret",
                    "unknown": NOBODY,
                    "almost": tokens[name][:-2] + ("xx" if not tokens[name].endswith("xx") else "yy"),
                    "expired": lake.access.tokens.create("root", expires_in=0.001),
                    "revoked": lake.access.tokens.create("root"),
                    "disabled": lake.access.create_user_with_token("off", ["admin"]),
                }
                lake.access.tokens.revoke(str(strangers["revoked"]))
                lake.access.disable_user("off")
    shared.drop("gone")
    strangers |= {"other tenant": tokens["third"], "dropped tenant": tokens["gone"]}
    gate, settings = AccessGate.of_tenants(shared, **limits), ServiceSettings(port=0, rate=1e6, burst=10**6)
    router = APIRouter(prefix="/iceberg")
    router.include_router(iceberg_router(gate))
    app = create_app(gate, settings, more=[router], operator=Operator(shared, [OPERATOR]))
    service = stack.enter_context(FlightService(gate, FlightSettings()))
    url = stack.enter_context(BackgroundService(app, settings))
    http = stack.enter_context(httpx.Client(base_url=url, timeout=60))
    flights = stack.enter_context(flight.connect(service.location))
    return Doors(shared, gate, app, http, flights, service, tokens, strangers)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.mark.parametrize("most", [64, 1])
def test_strangers_are_told_the_same_of_every_name_and_leave_nothing(
    stack: ExitStack, tmp_path: Path, most: int
) -> None:
    doors = _open(stack, tmp_path, most=most)
    assert _read(doors, "acme", "acme").status_code == 200  # one is open, and with most=1 there is no more room
    routes = _every_route(doors.app)
    assert len(routes) > 120
    always = [route for route in routes if route.startswith("http: POST /api/v1/tables/{table}/rows")]
    for route in seeds.some(routes, 14, "routes of strangers", most, always=always):
        for stranger in seeds.some(doors.strangers, 3, "strangers", route, most):
            others = seeds.chance("names", route, stranger, most).sample(NAMES, 3)
            for name in dict.fromkeys(("acme", "beta", "nope", *others)):
                if not route.startswith(("http: GET /health", "http: GET /api/v1/openapi", "http: HEAD /api/v1")):
                    doors.check(route, stranger, name)
    assert _read(doors, "acme", "ACME").status_code == 200
    answer = _read(doors, "beta", "beta")
    if most == 1:
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
        assert answer.json()["code"] == "limit.lakes" and answer.json()["transient"] is True
        iceberg = doors.http.get(
            "/iceberg/v1/config",
            params={"warehouse": "beta"},
            headers={"Authorization": f"Bearer {doors.tokens['beta']}"},
        )
        assert iceberg.status_code == 503 and int(iceberg.headers["retry-after"]) >= 1
    else:
        assert answer.status_code == 200
    figures = doors.app.state.service.requests.text().decode()
    assert not any(f'"{name}"' in figures for name in NAMES), "no figure has what a stranger has sent"


def _read(doors: Doors, tenant: str, name: str) -> httpx.Response:
    return doors.http.post(
        "/api/v1/sql",
        params={"lake": name},
        json={"sql": "SELECT count(*) AS n FROM target"},
        headers={"Authorization": f"Bearer {doors.tokens[tenant]}"},
    )


def test_many_requests_without_a_right_token_lock_nobody_out(stack: ExitStack, tmp_path: Path) -> None:
    doors = _open(stack, tmp_path, most=2)
    rng = seeds.chance("capitals")
    for _ in range(300):
        name = "".join(rng.choice((letter, letter.upper())) for letter in rng.choice(("acme", "beta", "third")))
        token = NOBODY if name.lower() == "third" else rng.choice((NOBODY, doors.tokens["third"]))
        answer = doors.http.get("/api/v1/lake", params={"lake": name}, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401
    assert doors.gate._doors._lakes == {}  # type: ignore[union-attr]
    for tenant in ("acme", "beta"):
        for name in (tenant, tenant.upper(), tenant.title()):
            assert _read(doors, tenant, name).status_code == 200
    assert len(doors.gate._doors._lakes) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("query", ["?lake=acme", "?lake=acme&more=1"])
def test_the_body_of_a_stranger_is_not_waited_for(stack: ExitStack, tmp_path: Path, query: str) -> None:
    doors = _open(stack, tmp_path)
    connection = HTTPConnection(doors.http.base_url.host, doors.http.base_url.port, timeout=30)
    connection.putrequest("POST", f"/api/v1/tables/target/rows{query}")
    for name, value in (("Authorization", f"Bearer {NOBODY}"), ("Content-Length", "50000000")):
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 401
    connection.close()


# -- the same lake by other names --------------------------------------------------------------------------------------


@dataclass
class _Tenant:
    """A tenant as its users expect it: its name now, its rows, and the keys that were used."""

    token: str
    name: str
    rows: int = 0
    keys: set[str] = field(default_factory=set)


def _spelled(name: str, rng: random.Random) -> str:
    return "".join(rng.choice((letter.lower(), letter.upper())) for letter in name)


def _append(doors: Doors, tenant: _Tenant, rng: random.Random) -> None:
    """Append a row under one of a few keys, by HTTP or Flight: each key counts once, whatever the lake is called."""
    key, name, by_flight = f"key-{rng.randrange(6)}", _spelled(tenant.name, rng), rng.random() < 0.4
    if by_flight:
        given = options(tenant.token, database=name, x_quacklake_idempotency_key=key)
        rows = pa.table({"i": pa.array([1], pa.int64())})
        writer, reader = doors.flights.do_put(flight.FlightDescriptor.for_path("target"), rows.schema, options=given)
        with writer:
            writer.write_table(rows)
            writer.done_writing()
            repeated = json.loads(reader.read().to_pybytes())["repeated"]
    else:
        answer = doors.http.post(
            "/api/v1/tables/target/rows",
            params={"lake": name},
            json=[{"i": 1}],
            headers={"Authorization": f"Bearer {tenant.token}", "Idempotency-Key": key},
        )
        assert answer.status_code == 201, answer.text
        repeated = answer.json()["repeated"]
    assert repeated == (key in tenant.keys), (tenant, key, name)
    tenant.rows += not repeated
    tenant.keys.add(key)


def _count(doors: Doors, tenant: _Tenant, rng: random.Random) -> None:
    answer = doors.http.post(
        "/api/v1/sql",
        params={"lake": _spelled(tenant.name, rng)},
        json={"sql": "SELECT count(*) AS n FROM target"},
        headers={"Authorization": f"Bearer {tenant.token}"},
    )
    assert answer.json()["rows"] == [{"n": tenant.rows}], (tenant, answer.text)


def _rename(doors: Doors, tenant: _Tenant, others: list[_Tenant], rng: random.Random) -> None:
    """Give a tenant another name, which another tenant may have had before."""
    name = rng.choice(("acme", "beta", "harbour", "Onyx", "amber"))
    if name.lower() in (each.name.lower() for each in others):
        return
    answer = doors.http.post(
        f"/api/v1/tenants/{_spelled(tenant.name, rng)}/rename",
        json={"name": name},
        headers={"Authorization": f"Bearer {OPERATOR}"},
    )
    assert answer.status_code == 200, answer.text
    tenant.name = name


@pytest.mark.parametrize("number", range(3))
def test_a_lake_is_the_same_under_all_of_its_names(stack: ExitStack, tmp_path: Path, number: int) -> None:
    rng = seeds.chance("names of tenants", number)
    doors = _open(stack, tmp_path, most=rng.choice((1, 2, 64)), idle_seconds=0)
    tenants = [_Tenant(doors.tokens[name], name) for name in ("acme", "beta")]
    routes = _every_route(doors.app)
    for _ in range(3_000 if seeds.LONG else 60):
        tenant = rng.choice(tenants)
        step = rng.random()
        if step < 0.35:
            _append(doors, tenant, rng)
        elif step < 0.5:
            _count(doors, tenant, rng)
        elif step < 0.6:
            _rename(doors, tenant, tenants, rng)
        else:
            name = _spelled(rng.choice((*(each.name for each in tenants), "nope", "gone")), rng)
            route = rng.choice([each for each in routes if "/health" not in each and "/openapi" not in each])
            doors.check(route, rng.choice(list(doors.strangers)), name)
    for tenant in tenants:
        _count(doors, tenant, rng)
        assert set(doors.gate._doors._ids) <= {each.name.lower() for each in tenants}  # type: ignore[union-attr]


def test_consumers_and_transactions_stay_with_a_lake_that_gets_another_name(stack: ExitStack, tmp_path: Path) -> None:
    doors = _open(stack, tmp_path)

    def claim(tenant: str, name: str) -> httpx.Response:
        return doors.http.post(
            "/api/v1/consumers/c/claim",
            params={"lake": name},
            json={"table": "target", "since": 1},
            headers={"Authorization": f"Bearer {doors.tokens[tenant]}"},
        )

    assert claim("acme", "acme").status_code == 200
    assert claim("acme", "ACME").json()["code"] == "lease_held"
    calls = Calls(doors.flights, options(doors.tokens["acme"], database="Acme"))
    begun = calls.begin()
    doors.tenants.rename("acme", "harbour")
    doors.tenants.rename("beta", "acme")
    doors.gate.forget("acme")
    doors.gate.forget("beta")
    assert claim("acme", "harbour").json()["code"] == "lease_held"
    assert claim("beta", "acme").status_code == 200  # another lake, though its name is the one of before
    others = Calls(doors.flights, options(doors.tokens["beta"], database="acme"))
    with pytest.raises(KeyError, match="no such transaction"):
        others.packed("EndTransaction", transaction_id=begun, action=1)
    same = Calls(doors.flights, options(doors.tokens["acme"], database="HARBOUR"))
    same.packed("EndTransaction", transaction_id=begun, action=1)


def test_backups_and_pipelines_stay_with_a_lake_that_gets_another_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lakes.db"
    with quacklake.tenants(url, data_path=tmp_path / "data", create=True) as shared:
        shared.create_many(["acme", "beta"])
        settings = ServiceSettings(backups=str(tmp_path / "place"))
        service = Service(AccessGate.of_tenants(shared), settings, Requests())
        with shared.open("acme") as lake:
            before = _place(service, lake), _key(lake, "p")
        shared.rename("acme", "harbour")
        shared.rename("beta", "acme")
        with shared.open("harbour") as same, shared.open("acme") as other:
            assert (_place(service, same), _key(same, "p")) == before
            assert _place(service, other) != before[0] and _key(other, "p") != before[1]
        service.close()


# -- hidden names ------------------------------------------------------------------------------------------------------


def test_ingestion_tells_nothing_of_hidden_names(tmp_path: Path) -> None:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data")
    lake.sql("CREATE TABLE inbox (i BIGINT)")
    lake.sql("CREATE TABLE vault (i BIGINT)")
    lake.sql("CREATE VIEW totals AS FROM vault")
    lake.create_schema("deep")
    lake.sql("CREATE TABLE deep.well (i BIGINT)")
    token = lake.access.create_user_with_token("ann")
    lake.sql("GRANT SELECT, INSERT ON inbox TO ann")
    rows = pa.table({"i": pa.array([1], pa.int64())})
    with FlightService(AccessGate(lake), FlightSettings()) as service, flight.connect(service.location) as flights:
        calls = Calls(flights, options(token))
        told: dict[object, set[str]] = {}
        for missing, existing in itertools.product((1, 2), (1, 2, 3)):
            for schema, names in (("main", ("vault", "totals", "nothing", "VAULT")), ("deep", ("well", "nothing"))):
                for name in names:
                    text = "let in"
                    try:
                        calls.put(ingestion(name, missing, existing, schema=schema), rows)
                    except (pa.ArrowException, KeyError) as error:
                        text = str(error).replace(name, "?").replace('\n  hint: did you mean "main.inbox"?', "")
                    told.setdefault((missing, existing, schema), set()).add(text)
        assert {kind: texts for kind, texts in told.items() if len(texts) > 1} == {}
        assert "[not_permitted]" in told[1, 1, "main"].pop()
        assert calls.count(calls.put(ingestion("inbox"), rows)) == 1
    lake.close()
