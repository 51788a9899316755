"""``quacklake compact``, ``expire``, ``cleanup`` and ``tag``."""

from __future__ import annotations

from pathlib import Path

import pytest

import quacklake
from tests.cli.conftest import Run


def parquet_files(lake: Path) -> int:
    return sum(1 for _ in (lake / "data").rglob("*.parquet"))


def test_compaction_says_what_became_of_the_files(run: Run, lake: Path) -> None:
    answer = run("compact", "big.numbers")
    assert answer.code == 0
    assert "merge_adjacent_files big.numbers:" in answer.out or "flush_inlined_data big.numbers:" in answer.out
    again = run("compact", "big.numbers")
    assert again.out == "there was nothing to do\n"
    sorted_ = run("compact", "big.numbers", "--order-by", "half", "--output", "json").json
    assert [(row["operation"], row["files_after"]) for row in sorted_] == [("optimize", 1)]
    with quacklake.connect(f"sqlite:///{lake}/lake.db") as opened:
        assert opened.table("big.numbers").count() == 198


def test_all_tables_are_compacted_when_none_is_named(run: Run, lake: Path) -> None:
    rows = run("compact", "--output", "json").json
    assert {row["table"] for row in rows} == {"main.people", "big.numbers"}


def test_a_filter_chooses_the_files_of_a_table(run: Run, lake: Path) -> None:
    words = ("compact", "big.numbers", "--order-by", "half", "--output", "json", "--where")
    assert run(*words, "half < -1").json[0]["snapshot"] is None
    assert run(*words, "half >= 0").json[0]["files_after"] == 1
    assert "--where need a table" in run("compact", "--where", "half > 0").err
    assert run(*words, "nosuch > 0").code == 1


def test_snapshots_expire_files_are_removed_and_a_tag_stays(run: Run, lake: Path) -> None:
    assert run("tag", "first", "--version", "1").out == "snapshot 1 has the tag first\n"
    run("compact")
    planned = run("expire", "--keep-last", "1", "--dry-run", "--output", "json").json
    expired = run("expire", "--keep-last", "1", "--output", "json").json
    assert planned["snapshots"] == expired["snapshots"]
    assert 1 not in expired["snapshots"]
    assert run("show", "people", "--at", "first", "--output", "json").json == [
        {"id": 1, "name": "Ann"},
        {"id": 2, "name": "Bob"},
    ]
    before = parquet_files(lake)
    looked = run("cleanup", "--all", "--dry-run", "--output", "json").json
    assert parquet_files(lake) == before
    removed = run("cleanup", "--all", "--output", "json").json
    assert looked["paths"] == removed["paths"]
    assert parquet_files(lake) == before - len(removed["paths"]) < before


def test_orphans_are_listed_and_removed(run: Run, lake: Path) -> None:
    orphan = lake / "data/main/people/ducklake-0190e6a1-0000-7000-8000-000000000001.parquet"
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(b"half a file")
    assert run("cleanup", "--orphans").out.startswith("0 files")  # it may be of an open transaction
    assert orphan.name in run("cleanup", "--orphans", "--all", "--dry-run").out
    assert orphan.exists()
    assert run("cleanup", "--orphans", "--all").code == 0
    assert not orphan.exists()


def test_tags_are_listed_moved_and_taken_away(run: Run, lake: Path) -> None:
    run("tag", "v1", "--version", "2")
    assert run("tag", "v1").code == 1
    assert run("tag", "v1", "--version", "3", "--replace").code == 0
    assert [(row["tag"], row["snapshot_id"]) for row in run("tag", "--output", "json").json] == [("v1", 3)]
    assert run("rollback", "--to", "v1", "--dry-run").code == 0
    assert run("tag", "v1", "--delete").code == 0
    assert run("tag", "--output", "json").json == []


@pytest.mark.parametrize(
    "words",
    [
        ("compact", "nowhere"),
        ("compact", "--order-by", "n"),
        ("compact", "people", "--order-by", "id", "--zorder", "name"),
        ("compact", "--delete-threshold", "2"),
        ("expire", "--older-than", "yesterday-ish"),
        ("expire", "--versions", "99"),
        ("expire", "--keep-last", "-1"),
        ("cleanup", "--all", "--older-than", "1 day"),
        ("tag", "--delete"),
        ("tag", "x", "--delete", "--replace"),
        ("tag", "../x"),
        ("tag", "x", "--version", "99"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(run: Run, lake: Path, words: tuple[str, ...]) -> None:
    before = run("snapshots", "--output", "json").json
    answer = run(*words)
    assert (answer.code, answer.err.startswith("error: ")) == (1, True)
    assert run("snapshots", "--output", "json").json == before
