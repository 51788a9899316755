"""The functions of a lake, its metadata tables, listings and settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import ConfigError, NotFoundError, QuacklakeError, SqlError
from tests.layout import folder

Run = Callable[..., list[tuple[Any, ...]]]


def test_snapshots_are_listed_both_ways(run: Run) -> None:
    run("CREATE TABLE t (id INTEGER)")
    mine = run("SELECT * FROM ducklake_snapshots('lake') ORDER BY snapshot_id DESC LIMIT 1")
    assert mine == run("SELECT * FROM lake.snapshots() ORDER BY snapshot_id DESC LIMIT 1")
    assert dict(mine[0][3])["tables_created"][0].endswith(".t")


def test_snapshots_are_signed(run: Run) -> None:
    run("BEGIN; CREATE TABLE t (id INTEGER); CALL lake.set_commit_message('me', 'because', extra_info => '{}'); COMMIT")
    query = "SELECT author, commit_message, commit_extra_info FROM lake.snapshots() ORDER BY snapshot_id DESC LIMIT 1"
    assert run(query) == [("me", "because", "{}")]
    assert run("FROM lake.last_committed_snapshot()") == run("FROM lake.current_snapshot()")


def test_files_and_tables_are_listed(run: Run, session: quacklake.Session, home: Path) -> None:
    run("CREATE TABLE t AS SELECT * FROM range(100); DELETE FROM t WHERE range < 50")
    schema = session.names.schema
    rows = run(f"SELECT data_file, delete_file FROM ducklake_list_files('lake', 't', schema => '{schema}')")
    assert len(rows) == 1
    assert Path(rows[0][0]).is_relative_to(home)
    assert rows[0][1] is not None
    info = run("SELECT file_count, delete_file_count FROM lake.table_info() WHERE table_name = 't' ORDER BY table_id")
    assert info[-1] == (1, 1)


def test_changes_are_told(run: Run, session: quacklake.Session, version: Callable[[], int]) -> None:
    run("CREATE TABLE t AS SELECT 1 AS id; UPDATE t SET id = 2; DELETE FROM t")
    last, schema = version(), session.names.schema
    query = f"FROM ducklake_table_changes('lake', '{schema}', 't', {last - 2}, {last})"
    found = run(f"SELECT change_type, id {query} ORDER BY ALL")
    assert found == [("delete", 2), ("insert", 1), ("update_postimage", 2), ("update_preimage", 1)]
    assert run(f"SELECT id FROM lake.{schema}.table_insertions('t', {last - 2}, now()) ORDER BY 1") == [(1,), (2,)]
    assert run(f"SELECT id FROM lake.{schema}.table_deletions('t', {last}, {last})") == [(2,)]


def test_options_are_set_for_the_lake_and_for_a_table(run: Run, session: quacklake.Session) -> None:
    run("CREATE TABLE t (id INTEGER); CALL lake.set_option('parquet_compression', 'zstd')")
    run(
        f"CALL ducklake_set_option('lake', 'parquet_compression', 'gzip', schema => '{session.names.schema}', table_name => 't')"
    )
    found = run("SELECT value, scope FROM lake.options() WHERE option_name = 'parquet_compression' ORDER BY 2")
    assert found == [("zstd", "GLOBAL"), ("gzip", "TABLE")]
    with pytest.raises(ConfigError):
        run("CALL lake.set_option('nope', 1)")


def test_settings_hold_for_the_session(run: Run) -> None:
    run("SET ducklake_target_file_size = '512MB'; SET ducklake_parquet_row_group_size_bytes = '128MB'")
    run("SET ducklake_max_retry_count = 3")
    assert run("SELECT current_setting('ducklake_max_retry_count')") == [(3,)]
    run("RESET ducklake_target_file_size; RESET ducklake_parquet_row_group_size_bytes; RESET ducklake_max_retry_count")
    assert run("SELECT current_setting('ducklake_max_retry_count')") == [(10,)]
    for text in ("SET ducklake_nope = 1", "SET ducklake_target_file_size = 'much'"):
        with pytest.raises(ConfigError):
            run(text)


def test_small_inserts_stay_in_the_catalog(run: Run, home: Path) -> None:
    files = set(home.rglob("*.parquet"))
    run("CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (1), (2)")
    assert set(home.rglob("*.parquet")) == files
    name = run(
        "SELECT table_name FROM __ducklake_metadata_lake.ducklake_inlined_data_tables ORDER BY table_id DESC LIMIT 1"
    )
    assert run(f"SELECT count(*) FROM __ducklake_metadata_lake.{name[0][0]}") == [(2,)]


def test_metadata_tables_are_tables(run: Run, version: Callable[[], int]) -> None:
    assert run("SELECT max(snapshot_id) FROM __ducklake_metadata_lake.main.ducklake_snapshot") == [(version(),)]
    with pytest.raises(NotFoundError):
        run("FROM __ducklake_metadata_lake.ducklake_nothing")


def test_listings_have_the_lakes(run: Run, session: quacklake.Session) -> None:
    schema = session.names.schema
    run("CREATE TABLE t (id INTEGER, name VARCHAR); CREATE VIEW v AS FROM t; CREATE TEMP TABLE tt (i INTEGER)")
    assert run("SHOW TABLES") == [("t",), ("v",)]
    assert run(
        "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = ? ORDER BY 1", [schema]
    ) == [("t", "BASE TABLE"), ("v", "VIEW")]
    query = "SELECT column_name FROM duckdb_columns() WHERE table_name = 't' AND schema_name = ? ORDER BY column_index"
    assert run(query, [schema]) == [("id",), ("name",)]
    assert run("SELECT type FROM duckdb_databases() WHERE database_name = 'lake'") == [("ducklake",)]
    run("BEGIN; CREATE TABLE mine (i INTEGER)")
    assert run("SHOW TABLES") == [("mine",), ("t",), ("v",)]
    run("ROLLBACK; DROP TABLE temp.tt")
    assert run("SUMMARIZE t")[0][0] == "id"


def test_files_from_elsewhere_are_added(run: Run, session: quacklake.Session, home: Path) -> None:
    run("CREATE TABLE t (id BIGINT)")
    path = folder(home / "data") / session.names.schema / "added.parquet"
    path.parent.mkdir(parents=True)
    run(f"COPY (SELECT range AS id FROM range(30)) TO '{path}' (FORMAT parquet)")
    run(f"CALL ducklake_add_data_files('lake', 't', '{path}', schema => '{session.names.schema}')")
    assert run("SELECT count(*) FROM t") == [(30,)]


def test_wrong_calls_say_what_is_wrong(run: Run) -> None:
    with pytest.raises(NotFoundError, match="did you mean"):
        run("FROM ducklake_snapshots('lak')")
    with pytest.raises(SqlError, match="did you mean"):
        run("FROM lake.snapshot()")
    with pytest.raises(SqlError, match="nope"):
        run("CALL lake.set_option('parquet_compression', 'zstd', nope => 1)")
    with pytest.raises(QuacklakeError):
        run("FROM ducklake_table_changes('lake', 'main', 'nope', 0, 1)")


def test_row_groups_are_limited_in_bytes_and_rows_keep_their_order(run: Run, session: quacklake.Session) -> None:
    schema = session.names.schema
    run("SET ducklake_parquet_row_group_size_bytes = '10KB'; CREATE TABLE t AS SELECT * FROM range(50000) r(rowid)")
    run("CREATE TABLE s (i INTEGER); ALTER TABLE s SET SORTED BY (i DESC); INSERT INTO s SELECT * FROM range(50000)")
    run("SET preserve_insertion_order = false; CREATE TABLE u AS SELECT * FROM range(50000)")
    run("SET preserve_insertion_order = true; CREATE TABLE p (i INTEGER, k INTEGER)")
    run("ALTER TABLE p SET PARTITIONED BY (k); INSERT INTO p SELECT i, i % 2 FROM range(50000) r(i)")
    run("CALL ducklake_rewrite_data_files('lake'); RESET ducklake_parquet_row_group_size_bytes")
    run("CREATE TABLE w AS SELECT * FROM range(50000)")
    files = {
        name: run(f"SELECT data_file FROM ducklake_list_files('lake', '{name}', schema => '{schema}')")[0][0]
        for name in "tsupw"
    }
    groups = {name: run("SELECT max(row_group_id) FROM parquet_metadata(?)", [files[name]])[0][0] for name in files}
    assert groups["w"] == 0
    assert all(groups[name] > 0 for name in "tsup")
    for name, order in (("t", ">"), ("s", "<")):
        rows = "SELECT #1 AS i, lag(#1) OVER (ORDER BY file_row_number) AS before FROM read_parquet(?, file_row_number = true)"
        assert run(f"SELECT count(*) FROM ({rows}) WHERE before {order} i", [files[name]]) == [(0,)]
