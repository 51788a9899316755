"""One command, one transaction: whole or nothing, logged, in turn, and recovered after a crash."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import AlreadyExistsError, CommitConflict, NotFoundError, UnsupportedFeatureError
from quacklake.pond import Pond
from quacklake.pond.deltas import deltas
from quacklake.pond.series import append_series
from quacklake.pond.verifying import verify
from tests.pond.conftest import Home, readings
from tests.seeds import SEED

pytestmark = pytest.mark.daily(0.25)


def work(fs: Any) -> None:
    """A bit of everything."""
    fs.make_directory("/a/b", parents=True)
    fs.write_file("/a/small", b"small")
    fs.write_file("/a/large", b"L" * 100_000)
    append_series(fs, "/a/s.series", readings(3))
    fs.make_link("/l", "a")


def test_transaction_sequencing() -> None:
    with Pond.memory() as pond:
        pond.run(["one"], lambda fs: fs.make_directory("/a"))
        with pytest.raises(AlreadyExistsError):
            pond.run(["two"], lambda fs: fs.make_directory("/a"))
        pond.run(["three"], lambda fs: fs.make_directory("/b"))
        log = [(each.txn_seq, each.state, each.command) for each in pond.control.transactions()]
        assert log == [
            (1, "completed", "pond init"),
            (2, "completed", "one"),
            (3, "failed", "two"),
            (4, "completed", "three"),
        ]
        assert [each.txn_seq for each in pond.commits()] == [1, 2, 4]
        assert [each.snapshot_id for each in pond.commits()] == [1, 2, 4]  # that of the failure is a commit, too


def test_everything_in_a_block_is_one_snapshot_or_nothing() -> None:
    with Pond.memory() as pond:
        before = pond.lake.current_snapshot()
        with pytest.raises(RuntimeError), pond.transaction(["fail"]) as fs:
            work(fs)
            raise RuntimeError("no")
        assert (pond.lake.current_snapshot(), len(pond.fs().tree)) == (before + 1, 1)
        assert pond.lake.tables("pond_data") == []
        pond.run(["work"], work)
        assert pond.lake.current_snapshot() == before + 2
        failed = pond.control.transactions()[1]
        assert (failed.state, failed.error, failed.snapshot_id) == ("failed", "RuntimeError: no", None)
        assert failed.duration_ms is not None


def test_a_command_that_changes_nothing_makes_no_snapshot() -> None:
    with Pond.memory() as pond:
        before = pond.lake.current_snapshot()
        pond.run(["nothing"], lambda fs: fs.exists("/x"))
        assert pond.lake.current_snapshot() == before
        assert [each.command for each in pond.control.transactions()] == ["pond init"]


def test_a_transaction_sees_its_own_changes_and_nobody_else_does() -> None:
    with Pond.memory() as pond:
        with pond.transaction(["look"]) as fs:
            work(fs)
            assert fs.read("/l/small") == b"small"
            assert fs.read("/a/large") == b"L" * 100_000
            assert not pond.fs().exists("/a")
        assert pond.fs().exists("/a")


def test_two_transactions_of_one_state_cannot_both_commit(tmp_path: Path) -> None:
    with Pond.create(tmp_path / "P") as one, Pond.open(tmp_path / "P") as two:
        with pytest.raises(CommitConflict):
            with one.transaction(["slow"]) as slow:
                slow.make_directory("/same")
                two.run(["quick"], lambda fs: fs.make_directory("/same"))
        assert [each.state for each in one.control.transactions()] == ["completed", "completed", "failed"]
        with pytest.raises(AlreadyExistsError):
            one.run(["again"], lambda fs: fs.make_directory("/same"))


def test_commands_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    Pond.create(tmp_path / "P").close()
    failures: list[BaseException] = []

    def commands(number: int) -> None:
        try:
            with Pond.open(tmp_path / "P") as pond:
                for step in range(3):
                    pond.run(["parallel"], lambda fs, s=step: fs.make_directory(f"/d{number}_{s}"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=commands, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    with Pond.open(tmp_path / "P", read_only=True) as pond:
        assert len(pond.fs().tree) == 10
        sequences = [each.txn_seq for each in pond.commits()]
        assert sequences == sorted(set(sequences)) and len(sequences) == 10
        assert [each.state for each in pond.control.transactions()] == ["completed"] * 10  # a conflict is no failure


def test_a_failure_at_any_point_leaves_all_or_nothing() -> None:
    """Sampled by the seed of the run: every point that the command passes is one where it may fail."""
    with Pond.memory() as pond:
        with faults.record() as points:
            pond.run(["work"], work)
        assert {"pond.save", "pond.log", "pond.commit", "pond.committed"} <= set(points)
        chosen = [n for n in range(1, len(points) + 1) if points[n - 1].startswith("pond.") or (n + SEED) % 41 == 0]
    for number in chosen:
        with Pond.memory() as pond:
            with faults.arm(Fault(at=number)), pytest.raises(FaultInjected):
                pond.run(["work"], work)
            whole = len(pond.fs().tree)
            assert whole in (1, 7), points[number - 1]
            told = [(each.state, each.command) for each in pond.control.transactions()][1:]
            assert told == [("completed" if whole == 7 else "failed", "work")], points[number - 1]
            if whole == 1:
                pond.run(["again"], work)
            assert pond.fs().read("/l/large") == b"L" * 100_000


def test_a_command_and_its_record_are_one_commit(tmp_path: Path) -> None:
    """Each says the same of the other: the record names the snapshot, and the change is in that snapshot (P51, P52)."""
    with Pond.create(tmp_path / "P") as pond:
        pond.run(["pond", "mkdir", "/a"], lambda fs: fs.make_directory("/a"))
        pond.run(["pond", "rm", "/a"], lambda fs: fs.remove("/a"))
        found = pond.control.transactions()
        assert [each.snapshot_id for each in found] == [1, 2, 3]
        assert [pond.fs(at=each.snapshot_id).exists("/a") for each in found] == [False, True, False]
        before = pond.lake.at(version=2).table("pond.txns").to_arrow().column("txn_id").to_pylist()
        assert before == [each.txn_id for each in found[:2]]
        pond.lake.table("pond.txns").flush_inlined_data()
        assert pond.control.transactions() == found
        pond.lake.expire_snapshots(keep_last=1)
        assert pond.control.transactions() == found
    assert [each.name for each in (tmp_path / "P").iterdir()] == ["data"]
    assert [each.name for each in (tmp_path / "P").rglob("*.db")] == ["lake.db"]


def test_an_error_after_the_commit_is_not_taken_for_a_failure() -> None:
    with Pond.memory() as pond:
        with faults.arm(Fault(pattern="pond.committed")), pytest.raises(FaultInjected):
            pond.run(["pond", "mkdir", "/a"], lambda fs: fs.make_directory("/a"))
        assert pond.fs().exists("/a")
        assert [each.state for each in pond.control.transactions()] == ["completed", "completed"]
        assert pond.recover().was_needed is False
        assert verify(pond).problems == ()


def test_a_failure_does_not_disturb_a_command_that_runs(tmp_path: Path) -> None:
    """It takes no turn: otherwise a collector that fails again and again would keep others from the pond."""
    with Pond.create(tmp_path / "P") as one, Pond.open(tmp_path / "P") as two:
        with one.transaction(["slow"]) as slow:
            slow.make_directory("/same")
            with pytest.raises(NotFoundError):
                two.run(["fails"], lambda fs: fs.get("/nothing"))
        one.run(["next"], lambda fs: fs.make_directory("/next"))
        found = {each.command: (each.txn_seq, each.state) for each in one.control.transactions()}
        assert found["slow"] == (2, "completed")
        assert found["fails"][1] == "failed"
        assert found["next"] == (3, "completed")


HOSTILE = (
    "'; DROP TABLE pond.txns; --",
    'a"b',
    "\\",
    "zero\0byte",
    "\udcff\ud800",
    "\u202e✓ 鴨",
    "line\nbreak",
    "{}",
    "",
    "x" * 100_000,
)


def test_hostile_words_are_in_the_log_as_they_are(home: Home) -> None:
    """Only what no database can hold is escaped; nothing is lost, and nothing runs."""
    pond = home.pond
    pond.run(HOSTILE, lambda fs: fs.make_directory(f"{home.path}/d"))
    with pytest.raises(RuntimeError):
        pond.run(HOSTILE, lambda fs: fail("".join(HOSTILE)))
    completed, failed = pond.control.transactions(2)
    assert (completed.state, failed.state) == ("completed", "failed")
    expected = [word.replace("\0", "\\x00").replace("\udcff\ud800", "\\udcff\\ud800") for word in HOSTILE]
    assert list(completed.args) == list(failed.args) == expected
    assert failed.error == "RuntimeError: " + "".join(expected)
    messages = {row["snapshot_id"]: row["commit_message"] for row in pond.lake.snapshots(5).to_pylist()}
    assert messages[completed.snapshot_id] == completed.command


def fail(message: str) -> None:
    raise RuntimeError(message)


def test_settings_are_part_of_the_tree(home: Home) -> None:
    pond = home.pond
    before = pond.lake.current_snapshot()
    pond.run(["set"], lambda fs: fs.change_setting("timezone", "Europe/Berlin"))
    assert (pond.control.settings(), pond.fs().settings) == ({"timezone": "Europe/Berlin"},) * 2
    assert pond.fs(at=before).settings == {}
    pond.run(["set"], lambda fs: fs.change_setting("timezone", None))
    assert (pond.control.settings(), pond.fs().settings) == ({}, {})
    assert verify(pond).problems == ()


def test_a_pond_with_its_log_in_a_second_lake_is_refused_and_can_be_mounted(tmp_path: Path) -> None:
    """Older versions made such ponds: they had no table of commands in the lake of the data."""
    with Pond.create(tmp_path / "old") as pond:
        pond.run(["fill"], lambda fs: fs.write_file("/f", b"kept"))
        pond.lake.drop_table("pond.txns")
    with pytest.raises(UnsupportedFeatureError, match="older version") as caught:
        Pond.open(tmp_path / "old")
    assert "mount it in a new pond" in str(caught.value.hint)
    with Pond.create(tmp_path / "new") as pond:
        pond.run(["mount"], lambda fs: fs.make_node("/old", "mount", {"pond": str(tmp_path / "old")}))
        assert pond.fs().read("/old/f") == b"kept"


def test_a_delta_has_only_what_its_transaction_changed() -> None:
    with Pond.memory() as pond:
        pond.run(["work"], work)
        pond.run(["append"], lambda fs: append_series(fs, "/a/s.series", readings(2, 10)))
        pond.run(["move"], lambda fs: fs.move("/a/small", "/a/b"))
        pond.run(["remove"], lambda fs: fs.remove("/l"))
        found = [sorted((entry.change, entry.node.name) for entry in delta.entries()) for delta in deltas(pond)]
        assert found[1] == [("added", name) for name in ("a", "b", "l", "large", "s.series", "small")]
        assert found[2:] == [[("added", "s.series")], [("changed", "small")], [("removed", "l")]]
        assert [len(each.partitions) for each in deltas(pond, limit=2)] == [1, 1]


def test_expired_snapshots_are_left_out_of_deltas() -> None:
    with Pond.memory() as pond:
        for name in "abc":
            pond.run([name], lambda fs, n=name: fs.make_directory(f"/{n}"))
        pond.lake.expire_snapshots(keep_last=2)
        assert [each.commit.command for each in deltas(pond)][-1] == "c"
        assert pond.fs().exists("/a")


def test_a_lake_without_a_tree_is_no_pond(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="Run 'pond init' first"):
        Pond.open(tmp_path / "nothing")
    Pond.create(tmp_path / "P").close()
    with pytest.raises(AlreadyExistsError, match="Pond already exists"):
        Pond.create(tmp_path / "P")


def test_maintenance_of_the_lake_keeps_the_pond() -> None:
    """Large files are nobody's orphans."""
    with Pond.memory() as pond:
        pond.run(["work"], work)
        pond.lake.table("pond.nodes").flush_inlined_data()
        pond.lake.delete_orphaned_files(cleanup_all=True)
        assert pond.fs().read("/a/large") == b"L" * 100_000
        assert pond.fs().read("/a/small") == b"small"
        assert verify(pond, deep=True).problems == ()


def test_damage_of_the_tree_is_found() -> None:
    with Pond.memory() as pond:
        pond.run(["work"], work)
        pond.lake.table("pond.nodes").delete("name = 'b'")
        pond.lake.drop_table('pond_data."/a/s.series"')
        pond.lake.create_table('pond_data."/stray"', [{"a": 1}])
        pond.lake.table("pond.nodes").update({"content": b"other"}, "name = 'small'")
        found = {(each.path, each.what) for each in verify(pond).problems}
        assert found == {
            ("/a/s.series", "its table is missing in the lake"),
            ("/stray", "a table of the lake that is not in the tree"),
            ("/a/small", "its content has changed"),
        }


def test_no_row_is_lost_while_a_series_is_widened(tmp_path: Path) -> None:
    """Writers of the pond take turns; rows that another program appends to the table are all kept, too."""
    name = 'pond_data."/s.series"'
    with Pond.create(tmp_path / "P") as pond:
        pond.run(["begin"], lambda fs: append_series(fs, "/s.series", [level(0, 0)]))
        start, failures = threading.Barrier(3), list[BaseException]()

        def write(numbers: list[float], first: int, *, foreign: bool = False) -> None:
            try:
                with Pond.open(tmp_path / "P") as own:
                    start.wait(60)
                    for place, number in enumerate(numbers, first):
                        if foreign:
                            own.lake.table(name).append([level(place, number)])
                        else:
                            put = [level(place, number)]
                            own.run(["add"], lambda fs, put=put: append_series(fs, "/s.series", put))
            except BaseException as error:
                failures.append(error)

        works = [
            threading.Thread(target=write, args=([1, 2, 3, 4], 100)),
            threading.Thread(target=write, args=([0.5, 1.5, 2.5], 200)),
            threading.Thread(target=write, args=([5, 6, 7, 8], 300), kwargs={"foreign": True}),
        ]
        for each in works:
            each.start()
        for each in works:
            each.join()
        assert failures == []
        table = pond.lake.table(name).to_arrow()
        assert str(table.schema.field("v").type) == "double"
        assert sorted(table.column("v").to_pylist()) == [0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8]
        assert pond.lake.verify(deep=True).ok


def level(place: int, number: float) -> dict[str, Any]:
    return {"timestamp": readings(1, place)[0]["timestamp"], "v": number}
