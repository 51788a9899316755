"""``quacklake restore``, ``undrop`` and ``rollback``."""

from __future__ import annotations

from pathlib import Path

import pytest

import quacklake
from tests.cli.conftest import Run


@pytest.fixture
def url(tmp_path: Path) -> str:
    """1: two rows; 2: one less; 3: dropped."""
    url = f"sqlite:///{tmp_path}/undo.db"
    with quacklake.connect(url, data_path=tmp_path / "files") as lake:
        lake.create_table("t", [{"id": 1}, {"id": 2}]).delete("id = 1")
        lake.drop_table("t")
    return url


def test_what_was_dropped_deleted_and_changed_comes_back(run: Run, url: str) -> None:
    undropped = run("undrop", "t", "--lake", url, "--output", "json")
    assert (undropped.code, undropped.json["undropped"], undropped.json["snapshot"]) == (0, ["main.t"], 4)
    planned = run("restore", "t", "--to", "1", "--dry-run", "--lake", url, "--output", "json").json
    restored = run("restore", "t", "--to", "1", "--lake", url, "--output", "json").json
    assert planned["restored"] == restored["restored"]
    assert (planned["snapshot"], restored["snapshot"], restored["restored"][0]["inserted"]) == (None, 5, 1)
    rolled = run("rollback", "--to", "0", "--yes", "--lake", url)
    assert rolled.out == "restored snapshot 0 in snapshot 6\n  main.t: dropped\n"
    again = run("rollback", "--to", "0", "--yes", "--lake", url)
    assert again.out == "everything is as in snapshot 0 already: nothing was changed\n"


def test_a_rollback_has_to_be_confirmed(run: Run, url: str) -> None:
    answer = run("rollback", "--to", "1", "--lake", url)
    assert (answer.code, "--yes" in answer.err) == (1, True)
    looked = run("rollback", "--to", "2", "--dry-run", "--lake", url)
    assert looked.out == "a return to snapshot 2 would make these changes:\n  main.t: undropped\n"
    assert run("undrop", "t", "--as", "other", "--lake", url).code == 0
    assert "No snapshot found at version 9" in run("restore", "other", "--to", "9", "--lake", url).err


def test_a_bisection_names_the_commit_and_its_rows(run: Run, url: str) -> None:
    with quacklake.connect(url) as lake:
        lake.create_table("prices", [{"price": 1.0}])
        lake.signed("the bad load", "ann").table("prices").append([{"price": -2.0}])
        lake.table("prices").append([{"price": 3.0}])
    told = run("bisect", "SELECT count(*) = 0 FROM prices WHERE price < 0", "--lake", url)
    assert told.code == 0
    assert told.out.startswith("snapshot 5 is the first bad one, and 4 the last good one\n")
    assert all(word in told.out for word in (" UTC by ann: ", "the bad load", "-2.0"))
    found = run("bisect", "SELECT * FROM prices WHERE price < 0", "--good", "2", "--lake", url, "--output", "json").json
    assert (found["bad"], found["commit"]["author"], found["rows"]) == (5, "ann", [{"price": -2.0}])
    refused = run("bisect", "SELECT * FROM prices WHERE price < 0", "--bad", "4", "--lake", url)
    assert (refused.code, refused.err.splitlines()[0]) == (1, "error: the check does not fail at snapshot 4")


def test_a_difference_is_shown_by_table_and_by_row(run: Run, url: str) -> None:
    with quacklake.connect(url) as lake:
        lake.create_table("kept", [{"id": 1, "name": "a"}]).update({"name": "b"})
    told = run("diff", "1", "--lake", url)
    assert told.code == 0
    assert all(word in told.out for word in ("main.t", "dropped", "main.kept", "created"))
    assert run("diff", "3", "3", "--lake", url).out == "nothing differs between the snapshots 3 and 3\n"
    rows = run("diff", "4", "5", "--table", "kept", "--lake", url, "--output", "json").json
    assert [(row["change_type"], row["name"]) for row in rows] == [("update_preimage", "a"), ("update_postimage", "b")]
    assert run("diff", "3", "3", "--lake", url, "--output", "json").json == []
    refused = run("diff", "77", "--lake", url)
    assert (refused.code, "No snapshot found at version 77" in refused.err) == (1, True)
    refused = run("diff", "1", "--table", "nothing", "--lake", url)
    assert (refused.code, 'no table "main.nothing" in either state' in refused.err) == (1, True)


def test_one_commit_is_taken_back(run: Run, url: str) -> None:
    with quacklake.connect(url) as lake:
        table = lake.create_table("orders", [{"id": 1, "price": 5}])
        table.append([{"id": 2, "price": -1}])
        table.update({"price": 6}, "id = 1")
        table.update({"price": 7}, "id = 1")
    planned = run("revert", "5", "--dry-run", "--lake", url).out
    assert planned.startswith("a revert of snapshot 5 would make these changes:\n  main.orders: 0 rows back, 1 removed")
    done = run("revert", "5", "--yes", "--message", "bad load", "--lake", url, "--output", "json").json
    assert (done["snapshot"], done["tables"][0]["deleted"], done["conflicts"]) == (8, 1, {})
    refused = run("revert", "6", "--yes", "--lake", url)
    assert (refused.code, refused.err) == (
        1,
        "error: rows that snapshot 6 changed were changed again since: 1 of main.orders\n"
        "  hint: --dry-run shows them; --on-conflict decides\n",
    )
    shown = run("revert", "6", "--dry-run", "--lake", url, "--output", "json").json
    assert shown["conflicts"]["main.orders"][0]["ours"] == {"id": 1, "price": 7}
    assert "main.orders: 1 conflict" in run("revert", "6", "--dry-run", "--lake", url).out
    kept = run("revert", "6", "--yes", "--on-conflict", "ours", "--lake", url)
    assert kept.out.startswith("all rows of snapshot 6 were changed again since: nothing was changed\n")
    assert run("revert", "6", "--yes", "--on-conflict", "theirs", "--lake", url).code == 0
    assert "nothing is left of snapshot 6" in run("revert", "6", "--yes", "--lake", url).out
    assert "on_conflict cannot be" in run("revert", "6", "--yes", "--on-conflict", "mine", "--lake", url).err
