from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.cli.conftest import Run


def test_verify_says_that_a_whole_lake_is_whole(run: Run, lake: Path) -> None:
    answer = run("verify", "--deep")
    assert answer.code == 0
    assert answer.out.startswith("no damage found: 2 files")
    assert run("verify", "--output", "json").json == []


def test_verify_tells_what_is_wrong_and_mends_it_when_told_to(run: Run, lake: Path) -> None:
    with sqlite3.connect(lake / "lake.db") as connection:
        connection.execute("UPDATE ducklake_table_stats SET next_row_id = 1")
    connection.close()
    answer = run("verify", "--output", "json")
    assert answer.code == 1
    assert {row["code"] for row in answer.json} == {"V006"}
    shown = run("verify", "--repair")
    assert shown.code == 1
    assert "can be repaired" in shown.out
    mended = run("verify", "--repair", "--yes")
    assert mended.code == 0
    assert "repaired in snapshot" in mended.out
    assert run("verify").code == 0


def test_verify_ends_with_an_error_when_something_cannot_be_mended(run: Run, lake: Path) -> None:
    next((lake / "data").rglob("*.parquet")).unlink()
    assert run("verify").code == 1
    answer = run("verify", "--repair", "--yes")
    assert answer.code == 1
    assert "V070" in answer.out
    assert run("verify", "--yes").code == 1
