"""DuckDB's SQLite extension in the same process must not make our commits invisible, in WAL mode either."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake.errors import CommitUnknown
from tests.duckdbs import import_extension
from tests.layout import LAYOUT


def _count_elsewhere(url: str) -> tuple[int, int]:
    code = f"import quacklake; l = quacklake.connect({url!r}); print(l.current_snapshot(), l.table('t').count())"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    snapshot, rows = output.split()
    return int(snapshot), int(rows)


def _use_duckdb(path: Path, *, write: bool) -> None:
    for name in ("ducklake", "sqlite_scanner"):
        import_extension(name)
    with duckdb.connect() as connection:
        connection.execute("LOAD ducklake; LOAD sqlite_scanner")
        if LAYOUT == "shared":  # of which it knows the database alone
            connection.execute(f"ATTACH '{path}' AS l (TYPE sqlite)")
            connection.execute("SELECT count(*) FROM l.ducklake_snapshot").fetchall()
            if write:
                connection.execute("UPDATE l.quacklake_shared SET layout = layout")
            return
        connection.execute(f"ATTACH 'ducklake:sqlite:{path}' AS l")
        connection.execute("SELECT count(*) FROM l.t").fetchall()
        if write:
            connection.execute("INSERT INTO l.t VALUES (100)")


def test_commits_after_duckdb_has_closed_the_same_file_are_seen_by_other_processes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", sqlite_journal="wal") as lake:
        table = lake.create_table("t", [{"id": 1}])
        for write in (False, True, True):
            table.append([{"id": 2}])
            _use_duckdb(tmp_path / "lake.db", write=write)
            table.append([{"id": 3}])
            table.append([{"id": 4}])
            assert _count_elsewhere(url) == (lake.current_snapshot(), table.count())
        assert table.count() == 1 + 3 * 3 + (0 if LAYOUT == "shared" else 2)


def test_a_log_that_is_replaced_during_a_commit_is_a_lost_answer_and_the_commit_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", sqlite_journal="wal") as lake:
        table = lake.create_table("t", [{"id": 1}])
        database = lake._context.catalog.backend
        asked: list[bool] = []

        def replaced_once(connection: object) -> bool:
            asked.append(True)
            return len(asked) > 1

        monkeypatch.setattr(database, "committed", replaced_once)
        table.append([{"id": 2}])
        assert len(asked) >= 2
        assert sorted(row["id"] for row in table.to_pylist()) == [1, 2]


def test_a_connection_that_was_given_up_leaves_the_new_log_alone(tmp_path: Path) -> None:
    from quacklake.core.catalog.databases.sqlite import GuardedConnection

    path = tmp_path / "x.db"
    connection = GuardedConnection(str(path))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (a)")
    log = Path(f"{path}-wal")
    connection.log_path, connection.given_up = str(log), True
    before = log.stat().st_ino
    connection.close()
    assert log.stat().st_ino == before


def test_a_commit_whose_answer_never_comes_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", ducklake_retry_wait_ms=1) as lake:
        table = lake.create_table("t", [{"id": 1}])
        monkeypatch.setattr(lake._context.catalog.backend, "committed", lambda connection: False)
        with pytest.raises(CommitUnknown):
            table.append([{"id": 2}])
