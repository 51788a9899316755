"""``lake.run``: the changes of a function, as one snapshot, again after a conflict."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import CommitConflict, NotPermittedError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as opened:
        opened.create_table("t", [{"id": 1, "n": 0}])
        yield opened


def test_changes_of_several_tables_are_one_signed_snapshot(lake: quacklake.Lake) -> None:
    kept: list[quacklake.LakeTransaction] = []

    def work(tx: quacklake.LakeTransaction) -> int:
        kept.append(tx)
        tx.create_table("u", [{"id": 7}])
        return tx.table("t").update({"n": 1}, "id = 1")

    before = lake.current_snapshot()
    assert lake.run(work, message="both", author="ann", extra="{}") == 1
    (info,) = lake.snapshots(1).to_pylist()
    assert info["snapshot_id"] == before + 1 == lake.current_snapshot()
    assert (info["author"], info["commit_message"], info["commit_extra_info"]) == ("ann", "both", "{}")
    assert kept[0].snapshot is not None and kept[0].snapshot.id == before + 1


def test_work_that_was_overtaken_runs_again_on_the_newest_snapshot(lake: quacklake.Lake) -> None:
    seen: list[int] = []

    def work(tx: quacklake.LakeTransaction) -> None:
        (row,) = tx.table("t").to_pylist()
        seen.append(row["n"])
        if len(seen) < 3:  # another writer is faster
            lake.table("t").update({"n": row["n"] + 10})
        tx.table("t").update({"n": row["n"] + 1})

    lake.run(work)
    assert seen == [0, 10, 20]
    assert lake.table("t").to_pylist() == [{"id": 1, "n": 21}]


def test_no_change_of_many_threads_is_lost(lake: quacklake.Lake) -> None:
    def work(tx: quacklake.LakeTransaction) -> int:
        (row,) = tx.table("t").to_pylist()
        tx.table("t").update({"n": row["n"] + 1})
        return int(row["n"])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: lake.run(work), range(20)))
    assert sorted(found) == list(range(20))
    assert lake.table("t").to_pylist() == [{"id": 1, "n": 20}]


def test_an_error_of_the_work_changes_nothing(lake: quacklake.Lake) -> None:
    before = lake.current_snapshot()

    def work(tx: quacklake.LakeTransaction) -> None:
        tx.table("t").append([{"id": 2, "n": 2}])
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        lake.run(work)
    assert lake.current_snapshot() == before and lake.table("t").count() == 1


def test_work_that_changes_nothing_makes_no_snapshot(lake: quacklake.Lake) -> None:
    before = lake.current_snapshot()
    assert lake.run(lambda tx: (tx.table("t").count(), tx))[1].snapshot is not None
    assert lake.current_snapshot() == before


def test_work_that_loses_every_race_raises_and_changes_nothing(lake: quacklake.Lake) -> None:
    tries: list[int] = []

    def work(tx: quacklake.LakeTransaction) -> None:
        tries.append(tx.table("t").append([{"id": 2, "n": 2}]))
        raise CommitConflict("overtaken")

    with quacklake.connect(lake.url, ducklake_max_retry_count=2, ducklake_retry_wait_ms=1) as stubborn:
        with pytest.raises(CommitConflict, match="overtaken"):
            stubborn.run(work)
    assert len(tries) == 3 and lake.table("t").count() == 1


def test_a_principal_runs_only_what_is_granted(lake: quacklake.Lake) -> None:
    lake.access.create_user("ann")
    lake.access.grant("select", to="ann", table="t")
    ann = lake.as_principal("ann")
    assert ann.run(lambda tx: tx.table("t").count()) == 1
    with pytest.raises(NotPermittedError):
        ann.run(lambda tx: tx.table("t").append([{"id": 2, "n": 2}]))
    with pytest.raises(NotPermittedError):
        ann.run(lambda tx: tx.create_view("v", "SELECT 1"))
    assert lake.table("t").count() == 1
