"""Telemetry counts work per catalog of a shared lake, for a bounded number of catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake import telemetry
from quacklake.core.maintenance.policy import Policy
from quacklake.errors import TenantLimitError


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Neither counts nor labels are left from or for other tests."""
    before = set(telemetry._labels)
    telemetry._labels.clear()
    telemetry.reset()
    yield
    telemetry.reset()
    telemetry._labels.clear()
    telemetry._labels.update(before)


def work(tenants: quacklake.Tenants, name: str, rows: int, **settings: int) -> None:
    with tenants.open(name, create=True, data_inlining_row_limit=5, **settings) as lake:
        lake.create_table("t", {"a": list(range(rows))})
        lake.table("t").append([{"a": 1}])
        assert len(lake.table("t").to_pylist()) == rows + 1


def test_commits_rows_bytes_and_failures_are_told_apart(tmp_path: Path) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as tenants:
        tenants.create_many(["acme", "beta"])
        tenants.limit("beta", tables=1)
        telemetry.reset()
        work(tenants, "acme", 30)
        work(tenants, "beta", 40)
        with tenants.open("beta") as lake, pytest.raises(TenantLimitError):
            lake.create_table("more", {"a": list(range(20))})
        tenants.maintain(Policy(flush_rows=1, orphans_every=None))
    found = telemetry.snapshot()
    acme, beta = (found.tenants[name].counters for name in ("acme", "beta"))
    assert set(found.tenants) == {"acme", "beta"}
    assert (acme["commit.rows"], beta["commit.rows"]) == (31, 41)
    assert (acme["engine.rows"], beta["engine.rows"]) == (31, 41)
    assert (acme.get("commit.failures", 0), beta["commit.failures"]) == (0, 1)
    for name in ("engine.files_written", "engine.bytes_written", "commit.rows", "engine.rows", "commit.failures"):
        assert acme.get(name, 0) + beta[name] == found.counters[name], name
    assert acme["engine.bytes_written"] > 0
    assert 0 < acme["catalog.commits"] < found.counters["catalog.commits"]
    assert found.tenants["acme"].timings["commit"].count == 3
    assert "storage.delete" not in acme


def test_calls_of_stores_are_told_apart(tmp_path: Path) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as tenants:
        for name in ("acme", "beta"):
            work(tenants, name, 30)
        tenants.drop("beta")
        telemetry.reset()
        assert tenants.purge().files == 1
    found = telemetry.snapshot()
    assert set(found.tenants) == {"beta"}
    assert found.tenants["beta"].counters["storage.delete"] == found.counters["storage.delete"]


def test_only_so_many_have_a_label_of_their_own(tmp_path: Path) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "data", telemetry_tenants=2) as tenants:
        for number, name in enumerate(("a", "b", "c", "d")):
            work(tenants, name, 10 + number)
        work(tenants, "none", 50, telemetry_tenants=0)
        with tenants.open("a") as lake:
            lake.table("t").append({"a": [1] * 20})
    found = telemetry.snapshot()
    rows = {label: figures.counters["commit.rows"] for label, figures in found.tenants.items()}
    assert rows == {"a": 31, "b": 12, telemetry.OTHER: 13 + 14}
    assert found.counters["commit.rows"] == 31 + 12 + 13 + 14 + 51
    telemetry.reset()
    assert telemetry.snapshot().tenants == {}


def test_a_plain_lake_is_no_tenant(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as lake:
        lake.create_table("t", {"a": list(range(30))})
    found = telemetry.snapshot()
    assert found.tenants == {}
    assert found.counters["commit.rows"] == 30
    with pytest.raises(TypeError):
        found.tenants["x"] = None  # type: ignore[index]
