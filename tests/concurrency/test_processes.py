"""Many processes on one lake: nothing lost, nothing twice, no snapshot that shows half of a commit."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from tests.catalog.stock import Stock
from tests.concurrency.work import batch, open_lake, prepare
from tests.crash.forks import Child, Forks
from tests.crash.homes import Home, check_rows

pytestmark = [pytest.mark.concurrency, pytest.mark.daily(0.35), pytest.mark.timeout(900)]

WORK = "tests.concurrency.work"
SHARED = [
    "sqlite",
    "postgres",
    "mysql",
]
NewLake = Callable[[str], str]


def finish(children: Iterable[Child]) -> list[object]:
    ended = [child.wait() for child in children]
    for one in ended:
        assert one.code == 0, one.errors
    return [one.value for one in ended]


def noted(log: Path) -> int:
    """Return the number of commits that a writer knows to be done."""
    return len(log.read_text().splitlines()) if log.exists() else 0


def check_history(rows: pa.Table) -> dict[int, int]:
    """Each writer's commits, whole, in order and without a gap; returns how many each has."""
    found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for writer, seq, part in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        found[writer][seq].append(part)
    for writer, sequences in found.items():
        assert sorted(sequences) == list(range(len(sequences))), f"writer {writer} has a gap"
        for seq, parts in sequences.items():
            assert sorted(parts) == batch(writer, seq).column("part").to_pylist(), f"writer {writer}, commit {seq}"
    return {writer: len(sequences) for writer, sequences in found.items()}


def check_catalog(url: str) -> None:
    """The ids that the database gave out: no snapshot missing, no file or row with another's id."""
    home = Home(url, Path())
    home.check_ids()
    with home.database() as connection:
        snapshots = connection.execute(sa.text("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1")).scalars().all()
        assert snapshots == list(range(len(snapshots)))
        ends: dict[int, int] = defaultdict(int)
        for table, start, count in connection.execute(
            sa.text("SELECT table_id, row_id_start, record_count FROM ducklake_data_file ORDER BY 1, 2")
        ):
            assert start >= ends[table]
            ends[table] = start + count


@pytest.mark.parametrize("database", SHARED)
def test_eight_writers_lose_nothing_and_double_nothing_at_any_snapshot(
    database: str, new_lake: NewLake, forks: Forks, stock_if_plain: Stock | None, commits: int, tmp_path: Path
) -> None:
    url = new_lake(database)
    with open_lake(url) as lake:
        prepare(lake, writers=8)
        first = lake.current_snapshot()
    stop = tmp_path / "stop"
    readers = [forks.start(f"{WORK}:read_pairs", url=url, stop=str(stop))]
    writers = [
        forks.start(f"{WORK}:append_history", url=url, writer=n, count=commits, log=str(tmp_path / f"{n}.log"))
        for n in range(8)
    ]
    finish(writers)
    stop.touch()
    [seen] = finish(readers)
    assert len(set(seen)) > 3  # type: ignore[arg-type]
    check_catalog(url)
    with open_lake(url) as lake:
        assert lake.current_snapshot() == first + 8 * commits + 8 * (commits // 4)
        assert check_history(lake.table("history").to_arrow()) == dict.fromkeys(range(8), commits)
        assert check_history(lake.table("mirror").to_arrow()) == dict.fromkeys(range(8), commits)
        updated = commits - commits % 4 - 1
        assert lake.table("latest").to_arrow().column("seq").to_pylist() == [updated] * 8
        for table in ("history", "mirror", "latest"):
            check_rows(lake, table)
        done: dict[int, int] = {}
        for snapshot in range(first, lake.current_snapshot() + 1, max(1, commits // 5)):
            view = lake.at(version=snapshot)
            now = check_history(view.table("history").to_arrow())
            assert now == check_history(view.table("mirror").to_arrow())
            assert all(now.get(writer, 0) >= count for writer, count in done.items())
            done = now
        expected = sorted(
            map(tuple, zip(*lake.table("history").to_arrow().to_pydict().values(), strict=True)), key=repr
        )
    if stock_if_plain is not None and database != "mysql":
        assert stock_if_plain.rows(url)["main.history"] == expected


@pytest.mark.parametrize("database", SHARED)
def test_writers_that_are_killed_lose_only_what_nobody_was_told_of(
    database: str, new_lake: NewLake, forks: Forks, commits: int, tmp_path: Path
) -> None:
    url = new_lake(database)
    with open_lake(url) as lake:
        prepare(lake, writers=6)
    logs = [tmp_path / f"{n}.log" for n in range(6)]
    writers = [
        forks.start(f"{WORK}:append_history", url=url, writer=n, count=commits if n % 2 else 100_000, log=str(logs[n]))
        for n in range(6)
    ]
    for n in (0, 2, 4):
        while noted(logs[n]) < 3 + n:
            time.sleep(0.005)
        writers[n].kill()
    finish(writers[n] for n in (1, 3, 5))
    for n in (0, 2, 4):
        assert writers[n].wait().code == -9
    check_catalog(url)
    with open_lake(url) as lake:
        found = check_history(lake.table("history").to_arrow())
        assert check_history(lake.table("mirror").to_arrow()) == found
        for n in range(6):
            # a commit may be done whose writer died before it could note it
            assert found.get(n, 0) - noted(logs[n]) in ((0, 1) if n % 2 == 0 else (0,))
        lake.table("history").append(batch(6, 0))
        check_rows(lake, "history")


@pytest.mark.parametrize("database", SHARED)
def test_increments_of_one_row_by_several_processes_all_count(database: str, new_lake: NewLake, forks: Forks) -> None:
    url = new_lake(database)
    with open_lake(url) as lake:
        lake.create_table("counter", [{"id": 0, "n": 0}, {"id": 1, "n": 0}])
    finish([forks.start(f"{WORK}:increment", url=url, times=6) for _ in range(4)])
    with open_lake(url) as lake:
        assert sorted(lake.table("counter").to_pylist(), key=repr) == [{"id": 0, "n": 24}, {"id": 1, "n": 0}]
    check_catalog(url)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("database", SHARED[:2])
def test_the_same_keys_merged_by_several_processes_stay_unique(
    database: str, new_lake: NewLake, forks: Forks, large: bool
) -> None:
    url = new_lake(database)
    keys = list(range(40 if large else 4))
    with open_lake(url) as lake:
        lake.create_table("things", {"id": pa.int64(), "writer": pa.int64(), "n": pa.int64()})
    finish([forks.start(f"{WORK}:upsert", url=url, writer=n, keys=keys, times=3) for n in range(4)])
    with open_lake(url) as lake:
        rows = lake.table("things").to_pylist()
    assert sorted(row["id"] for row in rows) == keys
    # the last merge is whole
    assert len({row["writer"] for row in rows}) == 1
    assert {row["n"] for row in rows} == {2}
    check_catalog(url)


@pytest.mark.parametrize("database", SHARED)
def test_a_table_that_everybody_makes_is_made_once(database: str, new_lake: NewLake, forks: Forks) -> None:
    url = new_lake(database)
    made = finish([forks.start(f"{WORK}:create_same", url=url, writer=n) for n in range(5)])
    assert sorted(made) == [False] * 4 + [True]  # type: ignore[type-var]
    with open_lake(url) as lake:
        assert lake.table("wanted").to_pylist() == [{"writer": made.index(True)}]
        assert lake.snapshots().num_rows == 2


@pytest.mark.parametrize("database", SHARED)
def test_a_lake_that_everybody_makes_is_made_once(
    database: str, new_url: NewLake, forks: Forks, tmp_path: Path
) -> None:
    url = new_url(database)
    start = time.time() + 0.5
    data = str(tmp_path / "data")
    paths = finish([forks.start(f"{WORK}:make", url=url, data_path=data, start=start) for _ in range(5)])
    assert len(set(paths)) == 1
    with open_lake(url) as lake:
        lake.create_table("t", [{"x": 1}])
        assert lake.snapshots().num_rows == 2
    check_catalog(url)


@pytest.mark.postgres
def test_stock_duckdb_and_quacklake_write_the_same_lake_without_losing_anything(
    new_lake: NewLake, forks: Forks, stock: Stock, commits: int, tmp_path: Path
) -> None:
    url = new_lake("postgres")
    with open_lake(url) as lake:
        prepare(lake, writers=4)
    calls = ("append_history", "append_history", "stock_history", "stock_history")
    finish(
        forks.start(f"{WORK}:{call}", url=url, writer=n, count=commits, log=str(tmp_path / f"{n}.log"))
        for n, call in enumerate(calls)
    )
    check_catalog(url)
    with open_lake(url) as lake:
        rows = {name: lake.table(name).to_arrow() for name in ("history", "mirror")}
        for table in ("history", "mirror"):
            assert check_history(rows[table]) == dict.fromkeys(range(4), commits)
            check_rows(lake, table)
    theirs = stock.rows(url)
    for table, found in rows.items():
        assert theirs[f"main.{table}"] == sorted(zip(*found.to_pydict().values(), strict=True), key=repr)
