"""Operators manage the tenants of a shared lake over HTTP, and see none of their rows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import quacklake
from quacklake.lake.tenants import Tenants
from quacklake.pipelines.definitions import Definitions
from quacklake.service.access_gate import AccessGate
from quacklake.service.app import create_app
from quacklake.service.operators import Operator
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from tests import seeds
from tests.service.serving import client
from tests.service.test_serve import running

TOKEN = "operator-secret"


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[Tenants]:
    with quacklake.tenants(f"sqlite:///{tmp_path}/lakes.db", data_path=tmp_path / "data", create=True) as found:
        yield found


@pytest.fixture
def url(tenants: Tenants) -> Iterator[str]:
    gate = AccessGate.of_tenants(tenants)
    settings = ServiceSettings(port=0)
    with BackgroundService(create_app(gate, settings, operator=Operator(tenants, [TOKEN])), settings) as address:
        yield address


@pytest.fixture
def operator(url: str) -> Iterator[httpx.Client]:
    with client(url, TOKEN) as own:
        yield own


def made(operator: httpx.Client, name: str, user: str = "ann") -> str:
    """Create a tenant with an administrator, and return its token."""
    assert operator.post("/api/v1/tenants", json={"name": name}).status_code == 201
    answer = operator.post(f"/api/v1/tenants/{name}/administrators", json={"name": user})
    assert answer.status_code == 201 and answer.headers["cache-control"] == "no-store"
    return str(answer.json()["token"])


def test_a_tenant_is_created_used_limited_renamed_and_dropped(operator: httpx.Client, url: str) -> None:
    token = made(operator, "acme")
    with client(url, token) as own:
        new = own.post("/api/v1/sql?lake=acme", json={"sql": "SELECT 1 AS x"})
        assert new.json()["rows"] == [{"x": 1}]
        lake = own.get("/api/v1/lake?lake=acme").json()
        assert (lake["catalog"], lake["role"]) == ("acme", "admin")
        told = operator.get("/api/v1/tenants/acme").json()
        assert (told["tables"], told["rows"]) == (0, 0) and set(told["limits"].values()) == {None}
        limits = operator.post("/api/v1/tenants/acme/limits", json={"tables": 3, "bytes": 10_000}).json()["limits"]
        assert (limits["tables"], limits["bytes"], limits["snapshots"]) == (3, 10_000, None)
        limits = operator.post("/api/v1/tenants/acme/limits", json={"tables": None}).json()["limits"]
        assert (limits["tables"], limits["bytes"]) == (None, 10_000), "what is left out stays"
        assert operator.post("/api/v1/tenants/acme/rename", json={"name": "ajax"}).json()["name"] == "ajax"
        assert own.get("/api/v1/lake?lake=acme").status_code == 401, "nobody has that name now"
        assert own.get("/api/v1/lake?lake=ajax").json()["catalog"] == "ajax"
        other = made(operator, "acme", "bob")
        assert own.get("/api/v1/lake?lake=acme").status_code == 401, "the name has another tenant now"
        with client(url, other) as bob:
            assert bob.get("/api/v1/lake?lake=acme").json()["catalog"] == "acme"
        assert operator.delete("/api/v1/tenants/ajax").status_code == 204
        assert own.get("/api/v1/lake?lake=ajax").status_code == 401
    assert [each["name"] for each in operator.get("/api/v1/tenants").json()["tenants"]] == ["acme"]
    assert operator.get("/api/v1/tenants/ajax").status_code == 404


def test_tenants_come_in_pages_with_their_sizes(operator: httpx.Client, tenants: Tenants) -> None:
    chance = random.Random(seeds.SEED)
    names = sorted({f"t{chance.randrange(1000):03}" for _ in range(17)})
    tenants.create_many(names)
    sizes = {}
    for name in names[::5]:
        sizes[name] = chance.randrange(1, 9)
        with tenants.open(name) as lake:
            lake.sql(f"CREATE TABLE t AS SELECT range AS x FROM range({sizes[name]})")
    found, cursor = [], None
    while True:
        given = {"limit": 4, "prefix": "t", **({} if cursor is None else {"cursor": cursor})}
        page = operator.get("/api/v1/tenants", params=given).json()
        assert len(page["tenants"]) <= 4
        found += page["tenants"]
        cursor = page["next"]
        if cursor is None:
            break
    assert [each["name"] for each in found] == names
    assert {each["name"]: each["rows"] for each in found if each["rows"]} == sizes
    assert operator.get("/api/v1/tenants", params={"prefix": "none"}).json() == {"tenants": [], "next": None}


def test_operators_and_users_of_tenants_are_strangers_to_each_other(operator: httpx.Client, url: str) -> None:
    token = made(operator, "acme")
    routes = [
        ("GET", "/api/v1/tenants", None),
        ("POST", "/api/v1/tenants", {"name": "more"}),
        ("GET", "/api/v1/tenants/acme", None),
        ("POST", "/api/v1/tenants/acme/rename", {"name": "mine"}),
        ("POST", "/api/v1/tenants/acme/limits", {"tables": 1}),
        ("POST", "/api/v1/tenants/acme/administrators", {"name": "eve"}),
        ("DELETE", "/api/v1/tenants/acme", None),
    ]
    for given in (None, token, "wrong", TOKEN + "x", TOKEN[:-1]):
        with client(url, given) as other:
            for method, path, body in routes:
                for query in ("", "?lake=acme"):
                    answer = other.request(method, path + query, json=body)
                    assert answer.status_code == 401, (given, method, path)
                    assert "acme" not in answer.text
    for path in ("/api/v1/lake", "/api/v1/lake?lake=acme", "/api/v1/tables?lake=acme", "/iceberg/v1/config"):
        assert operator.get(path).status_code in (401, 404), path
    assert operator.post("/api/v1/sql?lake=acme", json={"sql": "SELECT 1"}).status_code == 401
    assert operator.get("/api/v1/tenants?lake=acme").status_code == 400, "an operator has no lake"
    assert [each["name"] for each in operator.get("/api/v1/tenants").json()["tenants"]] == ["acme"]


def test_bad_input_is_refused_and_changes_nothing(operator: httpx.Client) -> None:
    made(operator, "acme")
    for name in ("", "a" * 64, "../up", "a/b", "ac me", "acme"):
        answer = operator.post("/api/v1/tenants", json={"name": name})
        assert 400 <= answer.status_code < 500, name
    for limits in ({"tables": 0}, {"tables": -1}, {"bytes": 10**30}, {"tables": "x"}, {"other": 1}):
        assert operator.post("/api/v1/tenants/acme/limits", json=limits).status_code in (400, 422)
    for body in ({"name": "ann"}, {"name": ""}, {"name": "eve", "expires_in": "soon"}):
        answer = operator.post("/api/v1/tenants/acme/administrators", json=body)
        assert 400 <= answer.status_code < 500, body
    assert operator.post("/api/v1/tenants/acme/administrators", json={"name": "eve"}).status_code == 201, (
        "not half made"
    )
    for path in ("/api/v1/tenants/nope", "/api/v1/tenants/..%2Fup"):
        assert operator.get(path).status_code in (400, 404)
    assert operator.delete("/api/v1/tenants/nope").status_code == 404
    assert operator.get("/api/v1/tenants", params={"cursor": "junk"}).status_code == 400
    assert len(operator.get("/api/v1/tenants").json()["tenants"]) == 1


@pytest.mark.daily(0.35)
def test_the_command_serves_all_tenants_and_prints_a_token_for_their_operator(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lakes.db"
    with quacklake.tenants(url, data_path=tmp_path / "data", create=True):
        pass
    with running("--lake", url, "--tenants") as (_, address, token), client(address, token) as operator:
        own = made(operator, "acme")
        with client(address, own) as ann:
            assert ann.get("/api/v1/lake?lake=acme").json()["catalog"] == "acme"


def test_a_token_shows_in_no_answer_or_description(operator: httpx.Client) -> None:
    token = made(operator, "acme")
    texts = [operator.get(path).text for path in ("/api/v1/tenants", "/api/v1/tenants/acme", "/api/v1/openapi.json")]
    assert not any(token in text or TOKEN in text for text in texts)
    assert "list_tenants" in json.dumps(json.loads(texts[-1]))


def test_a_pipeline_of_a_tenant_never_runs_with_the_rights_of_the_service(
    operator: httpx.Client, url: str, tenants: Tenants, tmp_path: Path
) -> None:
    token = made(operator, "acme")
    tenants.create("beta")
    with tenants.open("beta", data_inlining_row_limit=0) as lake:
        lake.create_table("secrets", [{"x": "of beta"}])
    with tenants.open("acme") as lake:
        lake.create_table("t", [{"x": "mine"}])
        Definitions(lake).apply(
            {
                "pipeline": "thief",
                "source": {"type": "lake", "table": "t"},
                "query": f"SELECT b.x FROM source, read_parquet('{tmp_path}/data/beta/**/*.parquet') b",
                "sinks": [{"name": "loot", "type": "lake", "table": "loot"}],
            }
        )
    with client(url, token) as own:
        for path in ("start", "dead-letters/replay"):
            answer = own.post(f"/api/v1/pipelines/thief/{path}?lake=acme", json={} if "replay" in path else None)
            assert (answer.status_code, answer.json()["code"]) == (403, "not_permitted"), answer.text
        described = own.get("/api/v1/pipelines/thief?lake=acme").json()
        assert (described["name"], described["lag"], described["run"]) == ("thief", None, None)
        assert [each["name"] for each in own.get("/api/v1/pipelines?lake=acme").json()["pipelines"]] == ["thief"]
    with tenants.open("acme") as lake:
        assert lake.tables() == ["main.t"]
