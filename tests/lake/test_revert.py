"""Taking back one commit keeps the later ones: rows are merged three ways, and conflicts change nothing."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import InputError, MergeConflictError, NotFoundError, UnsupportedFeatureError
from tests.seeds import chance

Rows = dict[int, tuple[Any, ...]]
COLUMNS = ("id", "a", "b")


def read_state(lake: quacklake.Lake, version: int) -> Rows:
    """Return the rows of a table at a snapshot by their row ids; none if it does not exist there."""
    past = lake.at(version=version)
    if "t" not in past:
        return {}
    rows = past.table("t").scan(row_ids=True).to_arrow().to_pylist()
    return {row["rowid"]: tuple(row[name] for name in COLUMNS) for row in rows}


def merge(base: Rows, theirs: Rows, ours: Rows, policy: str) -> tuple[Rows, set[int]]:
    """Merge three states row by row, as plain Python does it; return the rows, and the ids of conflicts."""
    merged, conflicts = dict(ours), set()
    for id_ in base.keys() | theirs.keys():
        b, a, o = base.get(id_), theirs.get(id_), ours.get(id_)
        if a == b or o == a:
            continue
        new = a
        if o != b and policy != "theirs":
            apart = (
                policy == "columns"
                and a
                and b
                and o
                and all(x in (y, z) or z == y for x, y, z in zip(o, b, a, strict=True))
            )
            if not apart:
                conflicts.add(id_)
                continue
            assert a is not None and b is not None and o is not None
            new = tuple(z if x == y else x for x, y, z in zip(o, b, a, strict=True))
        if new is None:
            merged.pop(id_, None)
        else:
            merged[id_] = new
    return merged, conflicts


def change(rng: random.Random, lake: quacklake.Lake, first: int) -> None:
    table = lake.table("t")
    kind = rng.randrange(10)
    if kind < 3:
        table.append([{"id": first + n, "a": rng.choice([None, 1, 2]), "b": "new"} for n in range(rng.randrange(1, 4))])
    elif kind < 6:
        column, value = rng.choice([("a", rng.choice([None, 7, 8])), ("b", rng.choice("xyz"))])
        table.update({column: value}, f"id % 4 = {rng.randrange(4)}")
    elif kind == 6:
        table.delete(f"id % 5 = {rng.randrange(5)}")
    elif kind == 7:
        table.restore(to=rng.choice(lake.snapshots().column("snapshot_id").to_pylist()[2:]))
    elif kind == 8:
        table.flush_inlined_data()
    else:
        table.rewrite_data_files(delete_threshold=0.0)
        table.merge_adjacent_files()


@pytest.mark.parametrize("policy", ["refuse", "ours", "theirs", "columns"])
@pytest.mark.parametrize("number", range(12))
def test_random_histories_are_merged_as_their_rows_are(lake: quacklake.Lake, number: int, policy: Any) -> None:
    rng = chance("revert", number, policy)
    lake.create_table("t", {"id": "int", "a": "int", "b": "string"})
    lake.table("t").append([{"id": n, "a": n, "b": "old"} for n in range(8)])
    for step in range(10):
        change(rng, lake, 100 + 10 * step)
    for _ in range(4):
        newest = lake.current_snapshot()
        version = rng.randrange(2, newest + 1)
        base, theirs, ours = (read_state(lake, each) for each in (version, version - 1, newest))
        wanted, conflicts = merge(base, theirs, ours, policy)
        planned = lake.revert(version, on_conflict=policy, dry_run=True)
        assert lake.current_snapshot() == newest
        shown = {row["rowid"] for rows in planned.conflicts.values() for row in rows.to_pylist()}
        assert shown == conflicts
        if conflicts and policy in ("refuse", "columns"):
            with pytest.raises(MergeConflictError) as caught:
                lake.revert(version, on_conflict=policy)
            assert caught.value.conflicts["main.t"].num_rows == len(conflicts)
            assert lake.current_snapshot() == newest
            continue
        done = lake.revert(version, on_conflict=policy)
        assert done.tables == planned.tables
        assert (done.snapshot is None) == (lake.current_snapshot() == newest)
        assert read_state(lake, lake.current_snapshot()) == wanted
        assert not lake.verify(deep=True).findings


def test_a_bad_load_goes_and_later_ones_stay(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"id": 1, "a": 1}])
    table.append([{"id": 2, "a": -1}, {"id": 3, "a": -1}])
    table.append([{"id": 4, "a": 4}])
    report = lake.revert(2, author="ann")
    assert (report.version, report.snapshot, report.conflicts) == (2, 4, {})
    assert [(t.table, t.deleted) for t in report.tables] == [("main.t", 2)]
    assert sorted(row["id"] for row in table.to_pylist()) == [1, 4]
    commit = lake.snapshots().to_pylist()[-1]
    assert (commit["author"], commit["commit_message"], commit["operation"]) == ("ann", "Revert snapshot 2", "REVERT")
    assert lake.revert(4).snapshot == 5  # and back again
    assert sorted(row["id"] for row in table.to_pylist()) == [1, 2, 3, 4]
    assert table.scan(row_ids=True, where="id = 2").to_arrow().column("rowid").to_pylist() == [1]


def test_conflicts_show_base_ours_and_theirs(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"}])
    table.update({"a": 0})
    table.update({"a": 5}, "id = 1")
    table.update({"b": "z"}, "id = 2")
    with pytest.raises(
        MergeConflictError, match=r"rows that snapshot 2 changed were changed again since: 2 of main\.t"
    ) as caught:
        lake.revert(2)
    assert caught.value.code == "merge.conflict"
    rows = {row["rowid"]: row for row in caught.value.conflicts["main.t"].to_pylist()}
    assert rows[0] == {
        "rowid": 0,
        "base": {"id": 1, "a": 0, "b": "x"},
        "ours": {"id": 1, "a": 5, "b": "x"},
        "theirs": {"id": 1, "a": 1, "b": "x"},
    }
    assert set(rows) == {0, 1}
    with pytest.raises(MergeConflictError, match=r"1 of main\.t"):
        lake.revert(2, on_conflict="columns")
    lake.revert(2, on_conflict="theirs")
    assert sorted(row["a"] for row in table.to_pylist()) == [1, 2]
    assert sorted(row["b"] for row in table.to_pylist()) == ["x", "y"]


def test_different_columns_are_joined(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"id": 1, "a": 1, "b": "x"}])
    table.update({"a": 0})
    table.update({"b": "z"})
    assert lake.revert(2, on_conflict="columns").tables[0].updated == 1
    assert table.to_pylist() == [{"id": 1, "a": 1, "b": "z"}]


def test_rows_of_tables_with_keys_are_found_by_their_keys(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"id": n, "a": n} for n in range(5)], primary_key="id")
    table.delete("id < 2")
    table.overwrite([{"id": n, "a": n} for n in (2, 3, 4)])  # the same rows under new row ids
    assert [(t.inserted, t.deleted, t.updated) for t in lake.revert(2).tables] == [(2, 0, 0)]
    assert sorted((row["id"], row["a"]) for row in table.to_pylist()) == [(n, n) for n in range(5)]
    ids = table.scan(row_ids=True).to_arrow().column("rowid").to_pylist()
    assert len(set(ids)) == 5
    table.update({"a": 9}, "id = 2")
    table.overwrite([{"id": 2, "a": 10}])
    with pytest.raises(MergeConflictError):
        lake.revert(lake.current_snapshot() - 1)


def test_created_and_dropped_tables(lake: quacklake.Lake) -> None:
    lake.create_table("made", [{"x": 1}])
    lake.create_table("other", [{"x": 1}])
    lake.drop_table("other")
    assert [(t.table, t.kind, t.inserted) for t in lake.revert(3).tables] == [("main.other", "created", 1)]
    assert lake.table("other").to_pylist() == [{"x": 1}]
    assert [(t.table, t.kind) for t in lake.revert(1).tables] == [("main.made", "dropped")]
    assert lake.tables() == ["main.other"]
    lake.table("other").append([{"x": 2}])
    with pytest.raises(MergeConflictError):
        lake.revert(2)
    assert lake.tables() == ["main.other"]
    lake.revert(2, on_conflict="theirs")
    assert lake.tables() == []


def test_columns_that_came_or_got_other_names_since(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"id": "int32", "a": "int32"})
    table.append([{"id": 1, "a": 1}, {"id": 2, "a": 2}])
    table.delete("id = 1")
    table.update({"a": 0}, "id = 2")
    table.rename_column("a", "amount")
    table.alter_column("id", "int64")
    table.add_column("note", "string", default="-")
    table.update({"note": "mine"})
    with pytest.raises(UnsupportedFeatureError, match="altered table"):
        lake.revert(5)
    lake.revert(4)
    lake.revert(3)
    rows = sorted(table.to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["amount"]) for row in rows] == [(1, 1), (2, 2)]
    assert rows[1]["note"] == "mine"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda lake: lake.revert(99), NotFoundError, "No snapshot found at version 99"),
        (lambda lake: lake.revert(0), UnsupportedFeatureError, "snapshot 0 cannot be reverted"),
        (lambda lake: lake.revert(1, on_conflict="all"), InputError, "on_conflict cannot be"),
        (lambda lake: lake.revert(3), UnsupportedFeatureError, "created view"),
    ],
)
def test_what_cannot_be_reverted_is_refused(
    lake: quacklake.Lake, call: Any, error: type[Exception], message: str
) -> None:
    lake.create_table("t", [{"x": 1}]).append([{"x": 2}])
    lake.create_view("v", "SELECT * FROM t")
    newest = lake.current_snapshot()
    with pytest.raises(error, match=message):
        call(lake)
    assert lake.current_snapshot() == newest


def test_moved_rows_are_nothing_to_revert(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"x": 1}])
    table.append([{"x": 2}])
    table.flush_inlined_data()
    newest = lake.current_snapshot()
    report = lake.revert(newest)
    assert (report.snapshot, report.tables) == (None, ())
    assert lake.current_snapshot() == newest


def test_many_rows_are_reverted_in_arrow(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"x": range(200_000)}))
    table.append(pa.table({"x": range(200_000, 400_000)}))
    table.update({"x": quacklake.expr("-x")}, "x % 2 = 0")
    planned = lake.revert(2, dry_run=True)
    assert (planned.tables[0].deleted, planned.conflicts["main.t"].num_rows) == (100_000, 1000)
    assert lake.revert(2, on_conflict="theirs").tables[0].deleted == 200_000
    assert table.count() == 200_000


def test_another_commit_meanwhile_is_planned_again(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from quacklake.lake import revert

    table = lake.create_table("t", [{"x": 1}])
    table.append([{"x": 2}])
    original = revert._TableMerge.apply
    calls: list[int] = []

    def apply(self: Any) -> None:
        original(self)
        calls.append(1)
        if len(calls) == 1:
            lake.table("t").update({"x": 7}, "x = 2")

    monkeypatch.setattr(revert._TableMerge, "apply", apply)
    with pytest.raises(MergeConflictError):
        lake.revert(2)
    assert len(calls) == 2
    assert sorted(row["x"] for row in table.to_pylist()) == [1, 7]
