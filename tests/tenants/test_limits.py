"""A catalog cannot exceed its limits, no matter who has it open; the error says so and nothing is changed."""

from __future__ import annotations

import datetime as dt
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import quacklake
from quacklake import telemetry
from quacklake.cli import main
from quacklake.core.format.objects import NO_LIMITS, Limits
from quacklake.errors import InputError, NotFoundError, TenantBusyError, TenantLimitError
from services import PostgresServer

MANY = {"a": list(range(100))}
"""Rows that become a file."""
DATABASES = ["sqlite", "postgres", *(pytest.param(name, marks=pytest.mark.daily(0)) for name in ("duckdb", "mysql"))]


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Tenants]:
    home = tmp_path_factory.mktemp("limits")
    with quacklake.tenants(f"sqlite:///{home}/l.db", home / "data") as found:
        yield found


@pytest.fixture
def name(tenants: quacklake.Tenants) -> str:
    """A catalog of the test's own."""
    return tenants.create(f"t{uuid.uuid4().hex[:8]}").name


def files(lake: quacklake.Lake) -> int:
    return sum(path.is_file() for path in Path(lake.data_path).rglob("*"))


def refused(work: Callable[[], Any], limit: str) -> TenantLimitError:
    with pytest.raises(TenantLimitError) as error:
        work()
    assert (error.value.limit, error.value.transient) == (limit, limit in ("commits_per_second", "concurrent_scans"))
    assert error.value.code == ("limit.tenant_busy" if error.value.transient else "limit.tenant")
    assert error.value.hint
    return error.value


@pytest.mark.parametrize("database", DATABASES)
def test_each_limit_holds_for_those_who_have_the_catalog_open(
    database: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    with (
        quacklake.tenants(new_url(database), tmp_path / "data") as tenants,
        tenants.open("acme", create=True, limit_wait_ms=0) as lake,
    ):
        t = lake.create_table("t", MANY)
        size = tenants.stats("acme")[0].bytes
        version, before = lake.current_snapshot(), files(lake)
        for limit, number, work in (
            ("tables", 1, lambda: lake.create_table("u", MANY)),
            ("bytes", size + 1, lambda: t.append(MANY)),
            ("snapshots", 2, lambda: t.append([{"a": 1}])),
            ("commits_per_second", 0.001, lambda: t.append(MANY)),
        ):
            assert getattr(tenants.limit("acme", **{limit: number}), limit) == number  # type: ignore[arg-type]
            refused(work, limit)
            assert tenants.limit("acme", reset=True) == NO_LIMITS
        assert (lake.current_snapshot(), t.count(), lake.tables()) == (version, 100, ["main.t"])
        lake.delete_orphaned_files(cleanup_all=True)
        assert files(lake) == before
        tenants.limit("acme", tables=1, bytes=2 * size, snapshots=3, commits_per_second=10_000)
        t.append(MANY)  # as much as may be
        assert not lake.verify().errors


def test_a_scan_waits_for_another_or_is_refused(tenants: quacklake.Tenants, name: str) -> None:
    other = tenants.create(f"{name}-other").name
    for each in (name, other):
        with tenants.open(each) as lake:
            lake.create_table("t", MANY)
            lake.create_table("u", MANY)
    tenants.limit(name, concurrent_scans=1)
    with (
        tenants.open(name, limit_wait_ms=0) as lake,
        tenants.open(name, limit_wait_ms=0) as again,
        tenants.open(name, limit_wait_ms=60_000) as patient,
        tenants.open(other) as free,
    ):
        lake.create_view("v", "SELECT a FROM t")
        reader = lake.scan("t").to_reader(batch_rows=10)
        reader.read_next_batch()
        for work in (
            lake.table("t").to_arrow,
            lambda: lake.table("t").count("a > 3"),
            lambda: again.at(version=1).table("t").to_arrow(),
            lambda: again.sql("SELECT * FROM t"),
            lake.view("v").to_arrow,
            lake.table("t").changes(1, 2).to_arrow,
        ):
            refused(work, "concurrent_scans")
        assert free.table("t").to_arrow().num_rows == 100
        assert lake.table("t").count() == 100  # no row is read for that
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(patient.table("t").to_arrow)
            reader.read_all()
            assert waiting.result().num_rows == 100
        joined = again.sql("SELECT count(*) FROM t JOIN u USING (a)")  # of two tables, and still one
        assert joined.fetchall() == [(100,)]
        left = lake.scan("t").to_reader(batch_rows=10)
        left.read_next_batch()
        del left  # nobody can read it any more
        assert again.table("t").to_arrow().num_rows == 100
        assert [row["a"] for row in lake.table("t").to_pylist(where="a = 3")] == [3]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_writers_at_the_same_time_never_have_more_than_may_be(
    database: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    url = new_url(database)
    with quacklake.tenants(url, tmp_path / "data") as tenants:
        tenants.create("acme")
        tenants.limit("acme", tables=3, snapshots=5)
        start = threading.Barrier(6)

        def create(number: int) -> str | None:
            with quacklake.connect(url, catalog="acme") as lake:
                start.wait()
                try:
                    lake.create_table(f"t{number}", [{"a": 1}])
                except TenantLimitError as error:
                    return error.limit
                return None

        with ThreadPoolExecutor(6) as pool:
            found = sorted(pool.map(create, range(6)), key=str)
        assert found == [None] * 3 + ["tables"] * 3
        assert tenants.stats("acme")[0].tables == 3


def test_a_commit_waits_until_there_is_room(tenants: quacklake.Tenants, name: str) -> None:
    tenants.limit(name, commits_per_second=4)
    with tenants.open(name, limit_wait_ms=60_000) as lake:
        t = lake.create_table("t", [{"a": 0}])
        for number in range(1, 6):
            t.append([{"a": number}])
        times = lake.snapshots().column("snapshot_time").to_pylist()[1:]
    assert all(later - sooner >= dt.timedelta(seconds=1) for sooner, later in zip(times, times[4:], strict=False))
    tenants.limit(name, commits_per_second=0.001)
    with tenants.open(name, limit_wait_ms=50) as lake:
        error = refused(lambda: lake.table("t").append([{"a": 9}]), "commits_per_second")
    assert isinstance(error, TenantBusyError) and 0 < error.after <= 1000


def test_a_clock_that_went_wrong_keeps_nobody_out(
    tenants: quacklake.Tenants, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants.limit(name, commits_per_second=0.5)
    with tenants.open(name, limit_wait_ms=0) as lake:
        with monkeypatch.context() as patch:
            future = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
            patch.setattr("quacklake.core.transaction.attempt._now", lambda latest: future)
            t = lake.create_table("t", [{"a": 0}])
        t.append([{"a": 1}])
        assert t.count() == 2


def test_what_makes_a_catalog_smaller_is_possible_at_its_limits(tenants: quacklake.Tenants, name: str) -> None:
    with tenants.open(name, limit_wait_ms=0) as lake:
        t = lake.create_table("t", MANY)
        for number in range(3):
            t.append(MANY)
            t.append([{"a": number}])
        stats = tenants.stats(name)[0]
        tenants.limit(name, bytes=stats.bytes, snapshots=stats.snapshots, commits_per_second=0.001)
        refused(lambda: t.append(MANY), "commits_per_second")
        assert t.flush_inlined_data().rows == 3
        assert t.merge_adjacent_files().files_after == 1
        assert tenants.stats(name)[0].snapshots > stats.snapshots
        tenants.limit(name, commits_per_second=None)
        refused(lambda: t.delete("a < 50"), "snapshots")
        lake.expire_snapshots(keep_last=1)
        assert lake.cleanup_old_files(cleanup_all=True).files > 0
        t.delete("a < 50")
        assert t.rewrite_data_files(delete_threshold=0).files_after == 1
        assert tenants.stats(name)[0].bytes < stats.bytes
        lake.maintenance.checkpoint()
        assert not lake.verify(deep=True).errors


def test_what_is_deleted_makes_room_for_other_rows(tenants: quacklake.Tenants, name: str) -> None:
    with tenants.open(name) as lake:
        t = lake.create_table("t", MANY)
        tenants.limit(name, bytes=tenants.stats(name)[0].bytes, tables=1)
        refused(lambda: t.append(MANY), "bytes")
        t.delete()
        t.append(MANY)
        refused(lambda: t.overwrite({"a": list(range(100_000))}), "bytes")
        t.overwrite(MANY)
        lake.drop_table("t")
        u = lake.create_table("u", MANY)
        refused(lambda: u.append(MANY), "bytes")
        refused(lambda: lake.undrop("t"), "tables")
        with lake.transaction() as tx:
            tx.drop_table("u")
            tx.create_table("w", MANY)
        assert lake.tables() == ["main.w"]


def test_small_rows_do_not_slip_past_the_limit_of_bytes(tenants: quacklake.Tenants, name: str) -> None:
    with tenants.open(name) as lake:
        t = lake.create_table("t", [{"a": 1}])
        tenants.limit(name, bytes=1)
        t.append([{"a": 2}])  # no file yet
        t.flush_inlined_data()
        refused(lambda: t.append([{"a": 3}]), "bytes")
        t.delete("a = 1")
        assert t.count() == 1


def test_a_limit_costs_a_statement_and_none_costs_nothing(tenants: quacklake.Tenants, name: str) -> None:
    def statements() -> int:
        before = telemetry.snapshot().counters.get("catalog.statements", 0)
        t.append(MANY)
        return telemetry.snapshot().counters["catalog.statements"] - before

    with tenants.open(name) as lake:
        t = lake.create_table("t", MANY)
        for number in range(3):
            lake.create_table(f"t{number}", MANY)
        statements()
        without = statements()
        tenants.limit(name, tables=1, concurrent_scans=1)  # nothing that an append could exceed
        assert statements() == without
        tenants.limit(name, bytes=10**9, snapshots=10**6, commits_per_second=10**6)
        assert statements() == without + 1


def test_defaults_hold_where_nothing_else_is_said(tmp_path: Path) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as tenants:
        tenants.create_many(["acme", "beta"])
        assert tenants.limits() == tenants.limits("acme") == NO_LIMITS
        assert tenants.limit(tables=2, snapshots=9) == Limits(tables=2, snapshots=9)
        assert tenants.limit("acme", tables=None, bytes=5) == Limits(bytes=5, snapshots=9)
        assert tenants.limits("beta") == Limits(tables=2, snapshots=9)
        with tenants.open("acme") as lake:
            assert lake.limits() == tenants.limits("acme")
        tenants.rename("acme", "omega")
        assert tenants.limits("omega") == Limits(bytes=5, snapshots=9)
        assert tenants.limit("omega", reset=True) == Limits(tables=2, snapshots=9)
        assert tenants.limit(reset=True) == NO_LIMITS
        tenants.fork("omega", "heir")
        with pytest.raises(NotFoundError):
            tenants.limit("nobody", tables=1)
        with pytest.raises(NotFoundError):
            tenants.limits("nobody")


@pytest.mark.parametrize(
    "given",
    [
        {"tables": -1},
        {"tables": 1.5},
        {"tables": "3"},
        {"tables": True},
        {"snapshots": 0},
        {"concurrent_scans": 0},
        {"commits_per_second": 0},
        {"commits_per_second": float("nan")},
        {"commits_per_second": float("inf")},
        {"bytes": 2**63},
        {"rows": 1},
    ],
    ids=str,
)
def test_a_limit_that_cannot_be_kept_is_refused(tenants: quacklake.Tenants, name: str, given: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        tenants.limit(name, **given)
    assert tenants.limits(name) == NO_LIMITS


def test_a_plain_lake_has_no_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUACKLAKE_CATALOG", raising=False)
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as lake:
        assert lake.limits() == NO_LIMITS


def test_the_command_line_sets_and_tells_limits(
    tenants: quacklake.Tenants, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = f"--lake={tenants.url}"
    assert main(["tenant", "limit", name, "--tables", "1", "--bytes", "2MB", "--commits-per-second", "9", lake]) == 0
    assert tenants.limits(name) == Limits(commits_per_second=9, bytes=2_000_000, tables=1)
    assert main(["tenant", "limit", name, "--tables", "none", "--snapshots", "7", lake]) == 0
    capsys.readouterr()
    assert main(["tenant", "limits", name, lake, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "commits_per_second": 9,
        "concurrent_scans": None,
        "bytes": 2_000_000,
        "tables": None,
        "snapshots": 7,
    }
    assert main(["tenant", "limit", name, "--tables", "-4", lake]) == 2
    assert main(["tenant", "limit", name, "--reset", "--tables", "0", lake]) == 0
    assert tenants.limits(name) == Limits(tables=0)
    capsys.readouterr()
    assert main(["sql", "CREATE TABLE t AS SELECT 1 AS a", lake, "--catalog", name, "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().err)["code"] == "limit.tenant"


def test_a_role_knows_its_limits_and_cannot_change_them(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    role = postgres_server.create_role("acme")
    mine = postgres_url.replace("://quacklake@", f"://{role}@")
    with quacklake.tenants(postgres_url, tmp_path / "data") as tenants:
        tenants.create_many(["acme", "beta"])
        tenants.grant("acme", role)
        tenants.limit("acme", tables=1)
        tenants.limit("beta", tables=77)
        tenants.limit(snapshots=9)
        with quacklake.connect(mine, catalog="acme") as lake:
            assert lake.limits() == Limits(tables=1, snapshots=9)
            lake.create_table("t", MANY)
            refused(lambda: lake.create_table("u", MANY), "tables")
        with psycopg.connect(mine) as connection:
            assert connection.execute("SELECT limits FROM ducklake_catalog").fetchall() == [('{"tables": 1}',)]
            connection.rollback()
            for statement in (
                "UPDATE ducklake_catalog SET limits = NULL",
                "UPDATE quacklake_shared SET limits = NULL",
                "SELECT maintained_id FROM quacklake_shared",
                "DELETE FROM ducklake_catalog",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
                connection.rollback()
        with quacklake.tenants(mine) as other, pytest.raises(quacklake.errors.ReadOnlyError):
            other.limit("acme", tables=None)
        assert tenants.limits("acme") == Limits(tables=1, snapshots=9)
