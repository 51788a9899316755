from __future__ import annotations

import sqlite3
from pathlib import Path

import quacklake
from tests.cli.conftest import Run
from tests.golden.lakes import LAKES


def test_migrate_brings_an_old_lake_to_the_present_format(run: Run, tmp_path: Path) -> None:
    golden = next(lake for lake in LAKES if lake.name == "v0.3-sqlite")
    copy = golden.copy(tmp_path)
    with sqlite3.connect(copy.catalog_file) as connection:
        connection.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", (copy.data_path,))
    connection.close()
    assert run("migrate", "--lake", copy.url, "--output", "json").json == {"from": "0.3", "to": "1.0", "migrated": True}
    assert "format version 1.0 already" in run("migrate", "--lake", copy.url).out
    with quacklake.connect(copy.url) as lake:
        assert lake.table("main.numbers").delete("id = 1") == 1


def test_migrate_refuses_what_is_no_lake(run: Run, tmp_path: Path) -> None:
    answer = run("migrate", "--lake", f"sqlite:///{tmp_path / 'none.db'}")
    assert answer.code == 1
    assert "there is no lake" in answer.err
