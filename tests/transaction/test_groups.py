"""Appends of several threads that wait for their commit share a snapshot."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from quacklake.core import faults
from quacklake.core.transaction import commit, groups
from quacklake.core.transaction.groups import CommitGroup, PendingCommit
from quacklake.errors import CommitUnknown, SchemaMismatchError
from tests import seeds
from tests.transaction.waiting import Appends, together, until, waiting


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as found:
        found.create_table("t", {"id": "BIGINT", "word": "VARCHAR"})
        found.table("t").append([{"id": -1, "word": "first"}])
        yield found


def rows(*ids: int) -> list[dict[str, object]]:
    return [{"id": id_, "word": f"word {id_}"} for id_ in ids]


def ids(lake: Lake, table: str = "t") -> list[int]:
    return sorted(lake.table(table).to_arrow().column("id").to_pylist())


def test_appends_that_wait_become_one_snapshot_and_each_hears_of_its_own_rows(lake: Lake) -> None:
    before = lake.current_snapshot()
    t = lake.table("t")
    found = together(lake, [lambda: t.append(rows(1)), lambda: t.append(rows(2, 3)), lambda: t.append(rows(4, 5, 6))])
    assert found == [1, 2, 3]
    assert lake.current_snapshot() == before + 1
    assert ids(lake) == [-1, 1, 2, 3, 4, 5, 6]
    changed = lake.table("t").changes(before + 1).to_arrow()
    assert sorted(changed.column("id").to_pylist()) == [1, 2, 3, 4, 5, 6]
    assert lake.verify(deep=True).findings == ()


def test_a_group_adds_to_several_tables_and_mixes_files_with_inlined_rows(lake: Lake) -> None:
    lake.create_table("u", {"id": "BIGINT"}, partition_by=["id"])
    before = lake.current_snapshot()
    many = pa.table({"id": range(100, 400), "word": ["many"] * 300})
    found = together(
        lake,
        [
            lambda: lake.table("t").append(many),
            lambda: lake.table("t").append(rows(1)),
            lambda: lake.table("u").append(pa.table({"id": [1] * 200 + [2] * 200})),
            lambda: lake.table("t").append(many),
            lambda: lake.table("u").append([{"id": 3}]),
        ],
    )
    assert found == [300, 1, 400, 300, 1]
    assert lake.current_snapshot() == before + 1
    assert ids(lake) == sorted([-1, 1, *range(100, 400), *range(100, 400)])
    assert ids(lake, "u") == [1] * 200 + [2] * 200 + [3]
    row_ids = lake.sql("SELECT count(DISTINCT rowid), max(rowid) FROM t").fetchall()
    assert row_ids == [(602, 601)]
    assert lake.verify(deep=True).findings == ()


def test_no_more_than_the_setting_says_share_a_snapshot(lake: Lake) -> None:
    for most, snapshots in ((2, 3), (1, 5)):
        with quacklake.connect(lake.url, commit_group=most) as other:
            other.table("t").append(rows(0))  # from then on it knows the catalog
            before = other.current_snapshot()
            together(other, [lambda: other.table("t").append(rows(7))] * 5)
            assert other.current_snapshot() == before + snapshots


def test_appends_of_two_authors_do_not_share_a_snapshot(lake: Lake) -> None:
    before = lake.current_snapshot()
    ann, bob = lake.signed(author="ann"), lake.signed(author="bob")
    works: Appends = [lambda: ann.table("t").append(rows(1)), lambda: bob.table("t").append(rows(2))] * 2
    assert together(lake, works) == [1] * 4
    made = [each["author"] for each in lake.snapshots().to_pylist() if each["snapshot_id"] > before]
    assert sorted(map(str, made)) == ["ann", "bob"]


def test_changes_that_read_do_not_join(lake: Lake) -> None:
    before = lake.current_snapshot()
    t = lake.table("t")
    works: Appends = [
        lambda: t.append(rows(1)),
        lambda: t.append(rows(2)),
        lambda: t.update({"word": "new"}, "id = -1"),
    ]
    assert together(lake, works) == [1, 1, 1]
    assert lake.current_snapshot() == before + 2
    assert t.to_pylist(["word"], "id = -1") == [{"word": "new"}]


def test_a_table_that_is_altered_meanwhile_is_planned_again_by_each(lake: Lake) -> None:
    t = lake.table("t")
    with waiting(lake, [lambda: t.append(rows(1)), lambda: t.append(rows(2))]) as futures:
        with quacklake.connect(lake.url) as other:
            other.table("t").add_column("more", "INTEGER", default=7)
    assert [future.result() for future in futures] == [1, 1]
    assert sorted(t.to_arrow().column("id").to_pylist()) == [-1, 1, 2]
    whole = [{"id": 4, "word": "four", "more": 4}]
    with waiting(lake, [lambda: t.append(rows(3)), lambda: t.append(whole)]) as futures:
        with quacklake.connect(lake.url) as other:
            other.table("t").add_column("last", "INTEGER")
    for future in futures:
        with pytest.raises(SchemaMismatchError, match="last"):
            future.result()
    assert ids(lake) == [-1, 1, 2]
    assert lake.verify(deep=True).findings == ()


@pytest.mark.parametrize("point", ["catalog.commit.before", "catalog.commit.after"])
def test_a_failure_that_nobody_foresaw_ends_one_append_and_each_row_is_there_once_or_never(
    lake: Lake, point: str
) -> None:
    t = lake.table("t")
    with faults.arm(faults.Fault(pattern=point)):
        with waiting(lake, [lambda number=number: t.append(rows(number)) for number in range(1, 5)]) as futures:
            pass
        errors = [future.exception() for future in futures]
    failed = [number for number, error in enumerate(errors, 1) if error is not None]
    assert len(failed) == 1
    found = ids(lake)
    assert found == sorted(set(found)), "nothing is doubled"
    told = {number for number in range(1, 5) if number not in failed}
    assert told <= set(found)
    assert point.endswith("after") == (failed[0] in found)
    assert lake.verify(deep=True).findings == ()


class Interrupted(threading.Event):
    """An event for which a thread waits when Ctrl-C comes."""

    def wait(self, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt


def test_a_thread_that_is_interrupted_while_it_waits_leaves_the_group(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = lake._context.group
    before = lake.current_snapshot()
    with group.turn(None) as first:  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr(groups, "PendingCommit", lambda changes: PendingCommit(changes, woken=Interrupted()))
            with pytest.raises(KeyboardInterrupt):
                lake.table("t").append(rows(1))
        assert group._waiting == [first]
    assert (group._leader, group._waiting) == (None, [])
    assert lake.table("t").append(rows(2)) == 1
    assert (lake.current_snapshot(), ids(lake)) == (before + 1, [-1, 2])


def test_a_thread_that_is_interrupted_while_it_leaves_lets_the_next_one_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    group = CommitGroup(10)
    leave = CommitGroup._leave
    interrupts = iter([KeyboardInterrupt])

    def interrupted(self: CommitGroup, place: PendingCommit) -> None:
        leave(self, place)
        for error in interrupts:
            raise error

    monkeypatch.setattr(CommitGroup, "_leave", interrupted)
    led = []
    with ThreadPoolExecutor(2) as pool:

        def lead() -> None:
            with group.turn(None) as place:  # type: ignore[arg-type]
                led.append(place)

        with pytest.raises(KeyboardInterrupt), group.turn(None):  # type: ignore[arg-type]
            futures = [pool.submit(lead) for _ in range(2)]
            until(lambda: len(group._waiting) == 3)
        for future in futures:
            future.result(30)
    assert len(led) == 2
    assert (group._leader, group._waiting) == (None, [])


@pytest.mark.parametrize("where", ["taken", "committed"])
def test_those_whom_an_interrupted_leader_did_not_tell_find_their_rows_or_commit_them(
    lake: Lake, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come after others were taken along and before the leader knows whom, or while it tells them."""
    interrupts, take, settle = [KeyboardInterrupt], CommitGroup.take, commit._Lead._settle

    def taken(self: CommitGroup, first: PendingCommit) -> list[PendingCommit]:
        found = take(self, first)
        if where == "taken" and interrupts:
            raise interrupts.pop()
        return found

    def settled(self: commit._Lead, *how: object) -> None:
        if where == "committed":
            interrupts.clear()
            raise KeyboardInterrupt
        settle(self, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(CommitGroup, "take", taken)
    monkeypatch.setattr(commit._Lead, "_settle", settled)
    t = lake.table("t")
    with waiting(lake, [lambda number=number: t.append(rows(number)) for number in range(1, 4)]) as futures:
        pass
    errors = [future.exception(30) for future in futures]
    assert [type(error) for error in errors] == [KeyboardInterrupt, type(None), type(None)]
    assert ids(lake) == ([-1, 2, 3] if where == "taken" else [-1, 1, 2, 3])
    assert not interrupts


def test_who_is_settled_goes_on_before_the_one_that_led_has_left() -> None:
    """Else a thread that comes back first could lead the next commit, and those that are settled wait for it, too."""
    group = CommitGroup(10)
    with ThreadPoolExecutor(1) as pool:

        def follow() -> PendingCommit:
            with group.turn(None) as place:  # type: ignore[arg-type]
                return place

        with group.turn(None) as first:  # type: ignore[arg-type]
            future = pool.submit(follow)
            until(lambda: len(group._waiting) == 2)
            second = group._waiting[1]
            group._waiting.remove(second)  # as a commit takes it along
            second.settle(None, None)
            assert future.result(30) is second
            assert group._leader is first
    assert (group._leader, group._waiting) == (None, [])


def test_nobody_waits_for_a_database_that_somebody_else_could_not_reach(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the first fails before it gathers; the others do not try one after the other."""
    at_once = threading.Barrier(3)
    real = commit._attempt

    def attempt(*args: object, **options: object) -> object:
        if "gather" in options:
            raise CommitUnknown("the connection was lost")
        at_once.wait(30)  # all of them, or this breaks
        return real(*args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(commit, "_attempt", attempt)
        with waiting(
            lake, [lambda number=number: lake.table("t").append(rows(number)) for number in range(4)]
        ) as futures:
            pass
        errors = [future.exception() for future in futures]
    assert sorted(type(error).__name__ for error in errors) == ["CommitUnknown", "NoneType", "NoneType", "NoneType"]
    assert len(ids(lake)) == 4


@pytest.mark.parametrize("number", range(3))
def test_random_appends_of_threads_are_all_there_once(lake: Lake, number: int) -> None:
    """Each thread adds numbers of its own to random tables in random sizes; the model is a list."""
    chance = random.Random(f"{seeds.SEED} {number}")
    lake.create_table("u", {"id": "BIGINT", "word": "VARCHAR"})
    limit = chance.choice((0, 5, 10))
    lake.options.set("data_inlining_row_limit", limit)
    plans = [
        [(chance.choice("tu"), chance.randint(0, 12)) for _ in range(chance.randint(1, 6))]
        for _ in range(chance.randint(2, 6))
    ]
    model: dict[str, list[int]] = {"t": [-1], "u": []}
    fresh = iter(range(10_000))
    works = [[(name, [next(fresh) for _ in range(size)]) for name, size in plan] for plan in plans]
    for work in works:
        for name, given in work:
            model[name] += given

    def run(work: list[tuple[str, list[int]]]) -> None:
        for name, given in work:
            assert lake.table(name).append(
                pa.table({"id": pa.array(given, pa.int64()), "word": pa.array([name] * len(given), pa.string())})
            ) == len(given)

    with ThreadPoolExecutor(len(works)) as pool:
        list(pool.map(run, works))
    assert {name: ids(lake, name) for name in model} == {name: sorted(given) for name, given in model.items()}
    assert lake.verify(deep=True).findings == ()
