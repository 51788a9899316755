"""Writes of the extension API: one commit, again after a conflict, once for a key, and nothing left behind."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.errors import (
    CancelledError,
    CommitConflict,
    CommitUnknown,
    ConstraintError,
    InputError,
    InternalError,
    QuacklakeError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from quacklake.extend import files, reads, writes
from tests import seeds

OPTIONS = {"data_inlining_row_limit": 3, "duckdb_threads": 1, "ducklake_retry_wait_ms": 1}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", **OPTIONS) as opened:
        opened.sql("CREATE TABLE t (id INTEGER NOT NULL, name VARCHAR, x DOUBLE)")
        opened.sql("INSERT INTO t SELECT i, 'n' || i, i / 4 FROM range(50) r(i)")
        yield opened


def stored(tmp_path: Path) -> set[Path]:
    return set((tmp_path / "data").rglob("*.parquet"))


def rows_of(count: int, first: int = 100) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": list(numbers), "name": [f"n{i}" for i in numbers], "x": [i / 4 for i in numbers]})


def put(staging: files.Staging, rows: pa.Table) -> None:
    for partition, part in staging.split(staging.fit(rows)):
        with staging.open(partition) as sink:
            pq.write_table(part, sink)


def test_staged_files_have_statistics_and_are_pruned_by_them(lake: quacklake.Lake) -> None:
    with files.stage(lake, "t") as staging:
        put(staging, rows_of(20))
        put(staging, rows_of(20, 1000))
        outcome = writes.run(lake, lambda change: change.append(staging), message="loaded", author="ann")
    assert (outcome.value, outcome.snapshot, outcome.repeated) == (40, lake.current_snapshot(), False)
    assert lake.table("t").to_arrow(where="id >= 1000").num_rows == 20
    assert len(reads.plan_read(lake, "t", "id >= 1000").files) == 1
    assert len(reads.plan_read(lake, "t", "x > 2000").files) == 2, "nothing is known of NaN in files of others"
    assert lake.snapshots(1).to_pylist()[0]["commit_message"] == "loaded"
    assert not lake.verify(deep=True).findings


def test_rows_go_to_the_files_of_their_partitions(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE p (id INTEGER, day TIMESTAMP, kind VARCHAR)")
    lake.sql("ALTER TABLE p SET PARTITIONED BY (month(day), kind, bucket(4, id))")
    source = "SELECT i AS id, TIMESTAMP '2026-01-01' + INTERVAL (i) DAY AS day, ['a''b', NULL, ''][i % 3 + 1] AS kind"
    rows = lake.sql(f"{source} FROM range(90) r(i)").to_arrow()
    with files.stage(lake, "p") as staging:
        assert staging.partition_keys == ("month(day)", "kind", "bucket(4, id)")
        put(staging, rows)
        assert writes.run(lake, lambda change: change.append(staging)).value == 90
    lake.table("p").append(rows)  # the lake's own files are laid out alike
    ours, theirs = ({file.parent for file in some} for some in (stored(tmp_path), stored(tmp_path)))
    assert ours == theirs
    assert lake.table("p").count("kind = 'a''b' AND id = 3") == 2
    assert not lake.verify(deep=True).findings


def test_files_that_do_not_fit_are_refused_and_removed(lake: quacklake.Lake, tmp_path: Path) -> None:
    before = stored(tmp_path)
    with files.stage(lake, "t") as staging:
        with pytest.raises(InputError, match="no column with the id"), staging.open() as sink:
            pq.write_table(rows_of(3), sink)
        with pytest.raises(SchemaMismatchError):
            staging.fit(rows_of(3).append_column("more", [["x"] * 3]))
        with pytest.raises(ConstraintError):
            staging.fit(pa.table({"id": pa.array([None], pa.int32()), "name": ["x"], "x": [1.0]}))
        lax = pa.schema([field.with_nullable(True) for field in staging.arrow_schema])
        with pytest.raises(ConstraintError), staging.open() as sink:
            pq.write_table(pa.table([[None], ["x"], [1.0]], schema=lax), sink)
        with pytest.raises(InputError, match="partition values"), staging.open(("x",)) as sink:
            pass
        with pytest.raises(ZeroDivisionError), staging.open() as sink:
            1 / 0  # noqa: B018
        assert staging.files == []
        put(staging, rows_of(3))
        lake.table("t").add_column("later", "DATE")
        with pytest.raises(SchemaMismatchError, match="has changed"):
            writes.run(lake, lambda change: change.append(staging))
    assert stored(tmp_path) == before


def test_tables_that_other_engines_cannot_write_are_refused(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE spans (s INTERVAL)")
    with pytest.raises(UnsupportedFeatureError, match="interval"):
        files.stage(lake, "spans")
    with quacklake.connect(f"sqlite:///{tmp_path}/e.db", data_path=tmp_path / "e", encrypted=True) as secret:
        secret.sql("CREATE TABLE t (id INTEGER)")
        with pytest.raises(UnsupportedFeatureError, match="encrypted"):
            files.stage(secret, "t")


@pytest.mark.parametrize("place", ["before", "work", "nothing"])
def test_what_was_not_committed_is_removed(lake: quacklake.Lake, tmp_path: Path, place: str) -> None:
    before = stored(tmp_path)

    def work(change: writes.Change) -> None:
        change.append(staging)
        raise ZeroDivisionError

    staging = files.stage(lake, "t")
    try:
        with staging:
            put(staging, rows_of(9))
            if place == "before":
                raise ZeroDivisionError
            if place == "work":
                writes.run(lake, work)
    except ZeroDivisionError:
        assert place != "nothing"
    assert stored(tmp_path) == before
    with pytest.raises(InputError, match="removed"):
        writes.run(lake, lambda change: change.append(staging))


def test_files_stay_when_nobody_knows_what_became_of_the_commit(lake: quacklake.Lake, tmp_path: Path) -> None:
    before = stored(tmp_path)

    def lose(*_: object, **__: object) -> None:
        raise CommitUnknown("the answer was lost")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CommitUnknown), files.stage(lake, "t") as staging:
        put(staging, rows_of(9))
        patch.setattr(lake, "run", lambda work, *_: (lake.handle.run(lambda tx: work(lake._open(tx))), lose()))
        writes.run(lake, lambda change: change.append(staging))
    assert len(stored(tmp_path) - before) == 1
    assert lake.table("t").count() == 59


def test_files_whose_rows_were_all_deleted_in_the_same_commit_go(lake: quacklake.Lake, tmp_path: Path) -> None:
    before = stored(tmp_path)

    def work(change: writes.Change) -> int:
        change.append(staging)
        return change.transaction.table("t").delete("id >= 100")

    with files.stage(lake, "t") as staging:
        put(staging, rows_of(9))
        assert writes.run(lake, work).value == 9
    assert stored(tmp_path) == before
    assert lake.table("t").count() == 50


def test_work_runs_again_when_another_commit_touches_what_it_has_planned(lake: quacklake.Lake) -> None:
    seen: list[int] = []

    def double(change: writes.Change) -> None:
        plan = change.plan("t", "id >= 49")
        ids = [id_ for part in plan.pieces for id_ in reads.read_part(plan, part, ["id"]).read_all()[0].to_pylist()]
        seen.append(len([id_ for id_ in ids if id_ >= 49]))
        if len(seen) == 1:  # another client, between the plan and the commit
            lake.table("t").append({"id": [200], "name": ["other"], "x": [None]})
        change.append(staging)

    with files.stage(lake, "t") as staging:
        put(staging, rows_of(5))
        writes.run(lake, double)
    assert seen == [1, 2]
    assert lake.table("t").count() == 56


def test_work_that_loses_every_time_leaves_nothing(lake: quacklake.Lake, tmp_path: Path) -> None:
    before = stored(tmp_path)

    def work(change: writes.Change) -> None:
        change.plan("t")
        lake.table("t").append({"id": [200], "name": ["other"], "x": [None]})
        change.append(staging)

    url, few = f"sqlite:///{tmp_path}/lake.db", {"ducklake_max_retry_count": 2}  # the next time it would get a turn
    with quacklake.connect(url, data_path=tmp_path / "data", **OPTIONS, **few) as hasty:
        with pytest.raises(CommitConflict), files.stage(hasty, "t") as staging:
            put(staging, rows_of(5))
            writes.run(hasty, work)
    assert stored(tmp_path) == before
    assert lake.table("t").count("id BETWEEN 100 AND 150") == 0


def test_deletes_by_position_meet_deletes_of_others(lake: quacklake.Lake, tmp_path: Path) -> None:
    """Threads delete one position each of the same file; every one is deleted once."""

    def delete(position: int) -> None:
        def work(change: writes.Change) -> int:
            plan = change.plan("t", f"id = {position}")
            return change.delete(plan, pa.table([[plan.files[0].id] * 2, [None] * 2, [position] * 2], reads.PLACES))

        assert writes.run(lake, work).value == 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(delete, range(0, 40, 2)))
    assert lake.table("t").to_arrow().column("id").to_pylist() == [*range(1, 40, 2), *range(40, 50)]
    assert not lake.verify(deep=True).findings


def test_work_is_done_once_for_a_key(lake: quacklake.Lake) -> None:
    ran: list[str] = []

    def work(change: writes.Change) -> str:
        ran.append("ran")
        change.transaction.table("t").append({"id": [200], "name": ["x"], "x": [None]})
        if len(ran) == 1:  # the same request, sent twice
            assert not writes.run(lake, work, key="k").repeated
        return "done"

    assert writes.run(lake, work, key="k") == writes.Outcome(None, lake.current_snapshot(), repeated=True)
    assert writes.run(lake, work, key="k").repeated and ran == ["ran", "ran"]
    assert not writes.run(lake, lambda _: None, key="another").repeated
    assert lake.table("t").count("id = 200") == 1


_KILLED = """
import os, signal, sys
import pyarrow.parquet as pq, pyarrow as pa
import quacklake
from quacklake.extend import files, writes
lake = quacklake.connect(sys.argv[1], data_path=sys.argv[2])
with files.stage(lake, "t") as staging:
    with staging.open() as sink:
        pq.write_table(pa.table([[1], ["x"], [1.0]], schema=staging.arrow_schema), sink)
    writes.run(lake, lambda change: (change.append(staging), os.kill(os.getpid(), signal.SIGKILL)))
"""


def test_a_killed_process_leaves_orphans_that_clean_up_removes(lake: quacklake.Lake, tmp_path: Path) -> None:
    before = stored(tmp_path)
    command = [sys.executable, "-c", _KILLED, f"sqlite:///{tmp_path}/lake.db", str(tmp_path / "data")]
    assert subprocess.run(command, timeout=120, check=False).returncode == -signal.SIGKILL
    assert len(stored(tmp_path) - before) == 1
    assert lake.table("t").count() == 50
    lake.delete_orphaned_files(older_than="0s")
    assert stored(tmp_path) == before


# -- commits of many callers -------------------------------------------------------------------------------------------


class Committed:
    """Members that a group commits, and the answers. ``held`` keeps the first commit until it is ``free``."""

    def __init__(self, *, bad: Sequence[int] = (), error: type[Exception] = InputError, **options: Any) -> None:
        self.bad, self.error = set(bad), error
        self.groups: list[list[int]] = []
        self.tries = 0
        self.answers: list[tuple[int, QuacklakeError | None]] = []
        self.held, self.free = threading.Event(), threading.Event()
        self.group = writes.GroupCommit(self.commit, self.answer, **options)

    def commit(self, members: Sequence[int]) -> None:
        if not self.held.is_set():
            self.held.set()
            assert self.free.wait(30)
        self.tries += 1
        if self.bad & set(members):
            raise self.error("a bad member")
        self.groups.append(list(members))

    def answer(self, answers: Sequence[tuple[int, QuacklakeError | None]]) -> None:
        committed = {member for group in self.groups for member in group}
        assert all(member in committed for member, error in answers if error is None), "answered before the commit"
        self.answers += answers

    def give(self, *members: int) -> list[tuple[int, str | None]]:
        """Let the first member be alone in a group, and the others wait for the next; return the answers."""
        assert self.group.put(members[0])
        assert self.held.wait(30)
        assert all(self.group.put(member) for member in members[1:])
        self.free.set()
        self.group.close()
        return [(member, None if error is None else error.code) for member, error in self.answers]


def test_callers_that_come_during_a_commit_share_the_next() -> None:
    committed = Committed()
    assert committed.give(*range(9)) == [(member, None) for member in range(9)]
    assert committed.groups == [[0], list(range(1, 9))]


def test_a_group_has_limits() -> None:
    committed = Committed(most=3)
    committed.give(*range(8))
    assert committed.groups == [[0], [1, 2, 3], [4, 5, 6], [7]]
    committed = Committed(size=lambda member: member, most_size=10)
    committed.give(1, 4, 4, 4, 20, 1)
    assert committed.groups == [[1], [4, 4, 4], [20], [1]]


def test_a_bad_member_fails_alone_after_few_tries() -> None:
    committed = Committed(bad=[40])
    assert committed.give(*range(65)) == [(member, "input" if member == 40 else None) for member in range(65)]
    assert committed.tries <= 2 * 7 + 2


@pytest.mark.parametrize("error", [CommitConflict, CommitUnknown, ZeroDivisionError])
def test_an_error_that_is_of_no_member_fails_a_group_once(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    committed = Committed(bad=[2], error=error)
    code = InternalError.code if error is ZeroDivisionError else error.code  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING, "quacklake.commits"):
        assert committed.give(0, 1, 2, 3) == [(0, None), (1, code), (2, code), (3, code)]
    assert committed.tries == 2
    assert [record.message.startswith("rows could not be committed") for record in caplog.records] == [True]


def test_a_group_that_is_full_or_has_ended_takes_nothing() -> None:
    committed = Committed(most_waiting=2)
    assert committed.group.put(0)
    assert committed.held.wait(30)
    assert [committed.group.put(member) for member in (1, 2, 3)] == [True, True, False]
    assert committed.group.waiting == 2
    committed.group.end()
    with pytest.raises(CancelledError):
        committed.group.put(4)
    assert committed.group.works
    committed.free.set()
    committed.group.wait()
    assert not committed.group.works
    assert committed.groups == [[0], [1, 2]]


@pytest.mark.parametrize("number", range(20))
def test_groups_of_random_callers_are_committed_once_and_in_order(number: int) -> None:
    """Whatever is good is committed exactly once, each caller's in order, and what is bad never."""
    chance = seeds.chance("groups", str(number))
    bad = {member for member in range(400) if chance.random() < chance.choice((0.0, 0.02, 0.3))}
    committed = Committed(bad=sorted(bad), most=chance.randrange(1, 90), delay=chance.choice((0.0, 0.002)))
    committed.free.set()
    callers = [range(start, start + 100) for start in range(0, 400, 100)]

    def give(members: range) -> None:
        assert all(committed.group.put(member) for member in members)

    threads = [threading.Thread(target=give, args=(each,)) for each in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    committed.group.close()
    done = [member for group in committed.groups for member in group]
    assert sorted(done) == sorted(set(range(400)) - bad)
    for caller in callers:
        assert [member for member in done if member in caller] == [member for member in caller if member not in bad]
    assert sorted(member for member, error in committed.answers if error is not None) == sorted(bad)
    assert sorted(member for member, _ in committed.answers) == list(range(400))
