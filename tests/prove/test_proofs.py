"""The proofs in short: a few of what ``make prove`` does by the thousand, with the seed of the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quacklake.core.catalog.databases.sqlite_connection import is_supported
from services import S3Server
from tests.catalog.stock import Stock
from tests.crash.forks import Forks
from tests.layout import plain_only
from tests.prove.__main__ import main
from tests.prove.copies import interleave
from tests.prove.kills import KILLS, round_of_kills
from tests.prove.lists import KINDS, round_of_lists
from tests.prove.mixed import Here, round_of_histories
from tests.prove.outages import OUTAGES, round_of_outages
from tests.prove.pairs import meet, meetings
from tests.prove.places import SERVERS, Places
from tests.prove.publishes import round_of_publishes
from tests.prove.stands import Stand
from tests.prove.stores import storm
from tests.seeds import LONG, SEED, chance, some

pytestmark = [pytest.mark.concurrency, pytest.mark.timeout(1800)]

SHARED = [
    "sqlite",
    "postgres",
    "mysql",
]
ALL = ["duckdb", *SHARED]


@pytest.mark.daily(0.5)
@pytest.mark.crash
@pytest.mark.parametrize("database", ALL)
def test_nothing_acknowledged_is_lost_when_workers_are_killed_at_random(
    places: Places, forks: Forks, stock: Stock, database: str
) -> None:
    kills = KILLS if LONG else {"sqlite": 10, "postgres": 6}.get(database, 4)
    tally = round_of_kills(places, forks, stock, database, kills, f"{SEED}")
    assert tally.kills >= kills
    # the first to die may have done nothing yet
    assert tally.acknowledged + tally.unknown_done > 0 or not LONG


@pytest.mark.daily(0.5)
@pytest.mark.parametrize("stand", ALL, indirect=True)
def test_operations_that_meet_at_any_point_are_as_if_one_came_after_the_other(stand: Stand, stock: Stock) -> None:
    count = None if LONG else {"sqlite": 12, "postgres": 6}.get(stand.database, 4)
    for number, meeting in enumerate(meetings(stand, count, chance("pairs", stand.database))):
        meet(stand, meeting, stock if number % 10 == 0 else None, deep=number % 10 == 0)


@pytest.mark.daily(0.7)
@pytest.mark.parametrize("database", SHARED)
def test_histories_of_lists_have_no_anomalies(places: Places, forks: Forks, database: str) -> None:
    for kind in KINDS if database == "sqlite" else some(KINDS, 1, "lists", database):
        tally = round_of_lists(places, forks, database, kind, 400 if LONG else 40, f"{SEED}", kills=20 if LONG else 3)
        assert tally.transactions >= 40


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_ours_and_stock_read_the_rows_of_every_snapshot_alike(places: Places, stock: Stock, database: str) -> None:
    here = Here() if database == "postgres" else None
    try:
        count = 50 if LONG else 2 if database == "sqlite" else 1
        tally = round_of_histories(places, here or stock, database, count, f"{SEED}.{database}")
    finally:
        if here is not None:
            here.close()
    assert tally.histories == count
    assert tally.reads > 0


@pytest.mark.crash
@pytest.mark.parametrize("remote", [False, pytest.param(True, marks=pytest.mark.s3)], ids=["local", "s3"])
def test_operations_on_a_bad_store_are_done_right_or_change_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, remote: bool
) -> None:
    server: S3Server | None = request.getfixturevalue("s3_server") if remote else None
    count = 200 if LONG else 4 if remote else 8
    assert storm(tmp_path / "lakes", server, count, f"{SEED}").operations == count


@pytest.mark.daily(0.5)
@pytest.mark.crash
@pytest.mark.parametrize("database", ALL)
def test_operations_that_are_struck_leave_no_lock_no_half_and_no_damage(
    request: pytest.FixtureRequest, tmp_path: Path, forks: Forks, database: str
) -> None:
    server = request.getfixturevalue(f"{database}_server") if database in SERVERS else None
    count = OUTAGES if LONG else 5 if database in SERVERS else 6 if database == "sqlite" else 3
    tally = round_of_outages(tmp_path / "lakes", forks, database, server, count, f"{SEED}", small_disk=LONG)
    assert tally.outages == count


@pytest.mark.skipif(not is_supported(), reason="this system has no locks of open file descriptions")
def test_two_copies_of_sqlite_in_one_process_lose_nothing(tmp_path: Path) -> None:
    plain_only("stock DuckDB cannot open a catalog of a shared lake")
    count = 200 if LONG else 3
    assert interleave(tmp_path, count, f"{SEED}").interleavings == count


@pytest.mark.crash
@pytest.mark.usefixtures("nats_server")
def test_rows_for_a_stream_are_published_once_while_writers_and_server_are_killed(tmp_path: Path) -> None:
    count = 50 if LONG else 1
    assert round_of_publishes(tmp_path / "publishes", count, f"{SEED}").publishes == count


def test_the_command_says_what_it_has_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = tmp_path / "told.json"
    words = "--kills 0 --pairs 1 --transactions 0 --storms 1 --mixed 0 --statements 3 --copies 0 --soak 0"
    words += f" --databases sqlite --seed {SEED} --json {told}"
    assert main([*words.split(), "--folder", str(tmp_path / "lakes")]) == 0
    assert f"seed {SEED}: 0 anomalies" in capsys.readouterr().out
    outcomes = {one["proof"]: one for one in json.loads(told.read_text())["outcomes"]}
    assert outcomes["pairs"]["done"]["meetings"] == outcomes["storms"]["done"]["operations"] == 1
    assert outcomes["statements"]["databases"] == {"sqlite": 3}


def test_the_command_keeps_the_lake_that_shows_an_anomaly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.prove.stores.check_rows", _fail)
    words = "--kills 0 --pairs 0 --transactions 0 --storms 1 --mixed 0 --statements 0 --copies 0 --soak 0"
    words += f" --databases sqlite --seed {SEED}"
    assert main([*words.split(), "--folder", str(tmp_path / "lakes")]) == 1
    said = capsys.readouterr().out
    assert "planted" in said and f"seed '{SEED}'" in said
    assert list((tmp_path / "lakes").rglob("lake.db"))


def _fail(lake: object, table: str) -> None:
    raise AssertionError("planted")
