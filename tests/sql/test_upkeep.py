"""The maintenance functions pass their arguments to the methods that maintain a lake."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import quacklake
from quacklake.core.maintenance.lake_maintenance import LakeMaintenance
from quacklake.errors import SqlError
from tests.layout import folder

Run = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The calls of the methods that maintain a lake; the methods do nothing."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def method(name: str, answer: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
        def run(_: LakeMaintenance, **arguments: Any) -> Any:
            calls.append((name, arguments))
            return answer(arguments)

        return run

    def compacted(arguments: dict[str, Any]) -> Any:
        table = arguments.get("table", "main.t").replace('"', "")
        return [
            SimpleNamespace(table=table, snapshot=5, groups=((4, 1),), rows=7),
            SimpleNamespace(table="main.idle", snapshot=None, groups=(), rows=0),
        ]

    for name in ("flush_inlined_data", "merge_adjacent_files", "rewrite_data_files"):
        monkeypatch.setattr(LakeMaintenance, name, method(name, compacted), raising=False)
    expired = method("expire_snapshots", lambda given: SimpleNamespace(snapshots=tuple(given.get("versions", ()))))
    monkeypatch.setattr(LakeMaintenance, "expire_snapshots", expired, raising=False)
    for name in ("cleanup_old_files", "delete_orphaned_files"):
        removed = method(name, lambda given: given.pop("on_path", str)("main/t/x.parquet"))
        monkeypatch.setattr(LakeMaintenance, name, removed, raising=False)
    return calls


def test_snapshots_expire_by_age_and_by_number(run: Run, called: list[Any]) -> None:
    run("CREATE TABLE t (id INTEGER)")
    run("CALL ducklake_expire_snapshots('lake', older_than := INTERVAL '7 days')")
    rows = run("SELECT snapshot_id FROM ducklake_expire_snapshots('lake', versions => [1, 10000], dry_run => true)")
    assert rows == [(1,)]
    assert called == [
        ("expire_snapshots", {"older_than": dt.timedelta(days=7)}),
        ("expire_snapshots", {"versions": [1], "dry_run": True}),
    ]


def test_files_are_merged_and_rewritten(run: Run, session: quacklake.Session, called: list[Any]) -> None:
    run("CREATE TABLE t (id INTEGER)")
    schema = session.names.schema
    named = f'"{schema}"."t"'
    assert run(f"CALL ducklake_merge_adjacent_files('lake', '{schema}.t')") == [(schema, "t", 4, 1)]
    run(f"CALL ducklake_rewrite_data_files('lake', '{schema}.t', delete_threshold => 0.5)")
    run(f"CALL lake.merge_adjacent_files('t', schema => '{schema}', max_compacted_files => 3)")
    assert run("CALL lake.flush_inlined_data()") == [("main", "t", 7)]
    assert called == [
        ("merge_adjacent_files", {"table": named}),
        ("rewrite_data_files", {"table": named, "delete_threshold": 0.5}),
        ("merge_adjacent_files", {"table": named, "max_compacted_files": 3}),
        ("flush_inlined_data", {}),
    ]
    with pytest.raises(SqlError, match="non-null integer"):
        run("CALL lake.merge_adjacent_files(max_compacted_files => NULL)")


def test_removed_files_are_told_with_their_places(run: Run, called: list[Any]) -> None:
    rows = run("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert rows[0][0].endswith(f"{folder(Path('/data'))}/main/t/x.parquet")
    run("CALL lake.delete_orphaned_files(older_than => TIMESTAMPTZ '2024-01-01 00:00:00+00')")
    assert called[1] == ("delete_orphaned_files", {"older_than": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)})


def test_a_checkpoint_is_all_of_it(run: Run, called: list[Any]) -> None:
    run("CHECKPOINT lake")
    assert [name for name, _ in called] == [
        "flush_inlined_data",
        "expire_snapshots",
        "merge_adjacent_files",
        "rewrite_data_files",
        "cleanup_old_files",
        "delete_orphaned_files",
    ]


def test_upkeep_waits_for_the_end_of_a_transaction_that_has_changed_the_lake(run: Run, called: list[Any]) -> None:
    run("BEGIN; CREATE TABLE waiting (id INTEGER)")
    assert run("CALL lake.merge_adjacent_files()") == []
    assert called == []
    run("COMMIT")
    assert called == [("merge_adjacent_files", {})]
    run("BEGIN; CREATE TABLE never (id INTEGER)")
    run("CALL lake.merge_adjacent_files()")
    run("ROLLBACK; BEGIN; COMMIT")
    assert len(called) == 1


# -- a flush in a transaction ------------------------------------------------------------------------------------------

_ROWS = "SELECT rowid, snapshot_id, * FROM t"
_IN_FILES = "SELECT count(*) FROM t WHERE filename LIKE '%.parquet'"
_CHANGES = "SELECT changes::VARCHAR FROM lake.snapshots() ORDER BY snapshot_id DESC LIMIT 1"


@pytest.fixture
def inlined(run: Run) -> list[tuple[Any, ...]]:
    """A table with rows in the catalog, one of them gone: the rows that are left."""
    run("CREATE TABLE t (i INTEGER)")
    for number in range(4):
        run("INSERT INTO t VALUES (?)", [number])
    run("DELETE FROM t WHERE i = 2")
    assert run(_IN_FILES) == [(0,)]
    return sorted(run(_ROWS), key=lambda row: -row[2])


def test_a_flush_is_part_of_a_transaction_that_alters_the_table(
    run: Run, session: quacklake.Session, inlined: list[tuple[Any, ...]]
) -> None:
    schema = session.names.schema
    past = run("FROM lake.current_snapshot()")[0][0]
    run("BEGIN; ALTER TABLE t SET SORTED BY (i DESC); ALTER TABLE t ADD COLUMN j INTEGER DEFAULT 7")
    assert run(f"CALL lake.flush_inlined_data(schema_name => '{schema}')") == [(schema, "t", 4)]
    assert run(f"CALL lake.flush_inlined_data(schema_name => '{schema}')") == []
    wanted = [(*row, 7) for row in inlined]
    assert run(_ROWS) == wanted  # the order is that of the file
    run("COMMIT")
    assert (run(_ROWS), run(_IN_FILES)) == (wanted, [(3,)])
    assert "flushed_inlined" in run(_CHANGES)[0][0]
    assert run("FROM lake.current_snapshot()") == [(past + 1,)]
    assert run(f"SELECT i FROM t AT (VERSION => {past - 1}) ORDER BY i") == [(0,), (1,), (2,), (3,)]
    assert [row[0] for row in run(f"SELECT i FROM t AT (VERSION => {past}) ORDER BY i DESC")] == [3, 1, 0]


def test_a_flush_that_is_rolled_back_has_moved_nothing(run: Run, home: Path, inlined: list[tuple[Any, ...]]) -> None:
    files = set((home / "data").rglob("*.parquet"))
    run("BEGIN; ALTER TABLE t SET SORTED BY (i DESC); CALL lake.flush_inlined_data(); ROLLBACK")
    assert (sorted(run(_ROWS), key=lambda row: -row[2]), run(_IN_FILES)) == (inlined, [(0,)])
    assert set((home / "data").rglob("*.parquet")) == files


def test_a_flush_waits_when_rows_are_changed_after_it(
    run: Run, session: quacklake.Session, inlined: list[tuple[Any, ...]]
) -> None:
    schema = session.names.schema
    run(f"BEGIN; ALTER TABLE t SET SORTED BY (i DESC); CALL lake.flush_inlined_data(schema_name => '{schema}')")
    run("DELETE FROM t WHERE i = 0; INSERT INTO t VALUES (9)")
    assert run("SELECT i FROM t ORDER BY i") == [(1,), (3,), (9,)]
    run("COMMIT")
    assert run("SELECT i FROM t ORDER BY i") == [(1,), (3,), (9,)]
    assert run(_IN_FILES) == [(3,)]


def test_a_flush_writes_the_rows_of_a_new_table_into_a_file(run: Run, session: quacklake.Session) -> None:
    schema = session.names.schema
    run("BEGIN; CREATE TABLE t (i INTEGER); INSERT INTO t VALUES (1), (2)")
    assert run(f"CALL lake.flush_inlined_data(table_name => 't', schema_name => '{schema}')") == [(schema, "t", 2)]
    run("COMMIT")
    assert run(_IN_FILES) == [(2,)]
    assert "tables_inserted_into" in run(_CHANGES)[0][0]
