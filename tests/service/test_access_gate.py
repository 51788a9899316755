"""The gate for the users of a lake, and of the tenants of a shared lake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake import Lake
from quacklake.errors import LimitError, NotFoundError, NotPermittedError, UnauthenticatedError
from quacklake.service.access_gate import AccessGate
from quacklake.service.identity import Gate, Role


def _filled(lake: Lake) -> dict[str, str]:
    lake.sql("CREATE TABLE t AS SELECT i AS id, i % 2 AS half FROM range(10) r(i)")
    for name in ("reader", "writer", "admin"):
        lake.access.create_user(f"a-{name}", [name])
    lake.access.create_policy("p", "t", "half = 0")
    return {name: lake.access.tokens.create(f"a-{name}") for name in ("reader", "writer", "admin")}


@pytest.fixture
def entered(tmp_path: Path) -> Iterator[tuple[Gate, Lake, dict[str, str]]]:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data")
    gate = AccessGate(lake)
    yield gate, lake, _filled(lake)
    gate.close()


def test_each_token_gives_its_user_its_role_and_its_view(entered: tuple[Gate, Lake, dict[str, str]]) -> None:
    gate, _, tokens = entered
    for name, token in tokens.items():
        identity = gate.enter(token)
        assert identity.principal == f"a-{name}" and identity.role is Role[name.upper()]
        assert identity.lake.table("t").count() == (10 if name == "admin" else 5)
    gate.enter(tokens["writer"]).require(Role.WRITER)
    with pytest.raises(NotPermittedError):
        gate.enter(tokens["reader"], "lake").require(Role.WRITER)


def test_wrong_tokens_and_other_lakes_are_refused(entered: tuple[Gate, Lake, dict[str, str]]) -> None:
    gate, _, tokens = entered
    for token in (None, "", "qk_", tokens["admin"][:-1], "x" * 10_000):
        for lake in (None, "lake", "other"):
            with pytest.raises(UnauthenticatedError):
                gate.enter(token, lake)
    with pytest.raises(NotFoundError):
        gate.enter(tokens["admin"], "other")


def test_a_role_that_is_taken_away_is_gone_at_the_next_request(entered: tuple[Gate, Lake, dict[str, str]]) -> None:
    gate, lake, tokens = entered
    assert gate.enter(tokens["admin"]).role is Role.ADMIN
    lake.access.remove_member("admin", "a-admin")
    identity = gate.enter(tokens["admin"])
    assert identity.role is Role.READER and identity.lake.tables() == []


def test_a_token_of_one_tenant_opens_no_other(tmp_path: Path) -> None:
    url, data = f"sqlite:///{tmp_path}/lakes.db", str(tmp_path / "data")
    tokens = {}
    for name in ("acme", "beta"):
        with quacklake.connect(url, data, catalog=name, create=True) as lake:
            tokens[name] = _filled(lake)["reader"]
    shared = quacklake.tenants(url)
    gate = AccessGate.of_tenants(shared)
    assert gate.enter(tokens["acme"], "acme").lake.catalog == "acme"
    for token, name in (
        (tokens["acme"], "beta"),
        (tokens["beta"], "acme"),
        (tokens["acme"], "nope"),
        (tokens["acme"], None),
    ):
        with pytest.raises(UnauthenticatedError):
            gate.enter(token, name)
    gate.close()
    shared.close()


def test_a_gate_has_few_tenants_open_and_closes_those_that_nobody_enters(tmp_path: Path) -> None:
    url, data = f"sqlite:///{tmp_path}/lakes.db", str(tmp_path / "data")
    tokens = {}
    for name in ("acme", "beta", "coda"):
        with quacklake.connect(url, data, catalog=name, create=True) as lake:
            tokens[name] = _filled(lake)["reader"]

    shared = quacklake.tenants(url)
    busy = AccessGate.of_tenants(shared, most=2)
    for name in ("acme", "beta"):
        busy.enter(tokens[name], name)
    with pytest.raises(LimitError):
        busy.enter(tokens["coda"], "coda")
    assert busy.enter(tokens["acme"], "acme").lake.catalog == "acme"
    busy.close()
    calm = AccessGate.of_tenants(shared, most=2, idle_seconds=0)
    for name in ("acme", "beta", "coda", "acme"):
        assert calm.enter(tokens[name], name).lake.catalog == name
    calm.close()
    shared.close()
