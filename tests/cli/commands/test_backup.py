from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run


def test_a_lake_is_backed_up_listed_and_restored(run: Run, lake: Path) -> None:
    made = run("backup", "saved", "--output", "json").json
    assert (made["snapshot"], made["files"], made["copied"], made["skipped"]) == (7, 2, 2, [])
    assert "2 files, 0 of them new" in run("backup", "saved").out
    listed = run("backups", "saved", "--output", "json").json
    assert [row["snapshot"] for row in listed] == [7, 7]
    answer = run(
        "restore-backup", "saved", "--lake", "sqlite:///again.db", "--data-path", "again", "--backup", made["id"]
    )
    assert answer.code == 0
    assert "restored snapshot 7 with 2 tables" in answer.out
    shown = run("show", "people", "--lake", "sqlite:///again.db", "--output", "json").json
    assert [row["name"] for row in shown] == ["Ann", "Bea", "Cid"]


def test_a_restore_into_a_lake_is_refused(run: Run, lake: Path) -> None:
    run("backup", "saved")
    answer = run("restore-backup", "saved", "--lake", f"sqlite:///{lake}/lake.db", "--data-path", "again")
    assert answer.code == 1
    assert "there is a lake" in answer.err
    assert "no data path" in run("restore-backup", "saved", "--lake", "sqlite:///again.db").err


def test_old_backups_are_removed(run: Run, lake: Path) -> None:
    first, second = (run("backup", "saved", "--output", "json").json["id"] for _ in range(2))
    plan = run("prune-backups", "saved", "--keep-last", "1", "--dry-run", "--output", "json").json
    assert (plan["backups"], plan["kept"], plan["dry_run"]) == ([first], [second], True)
    assert "1 backup and 0 files (0 bytes) removed, 1 kept" in run("prune-backups", "saved", "--keep-last", "1").out
    assert [info["id"] for info in run("backups", "saved", "--output", "json").json] == [second]
    assert "keep_last" in run("prune-backups", "saved").err
