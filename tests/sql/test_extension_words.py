"""Errors have the words of DuckDB's own extension in them, so that programs that look for these find them."""

from __future__ import annotations

from pathlib import Path

import pytest

import quacklake
from quacklake.errors import (
    AlreadyExistsError,
    ConfigError,
    ConstraintError,
    InputError,
    NotFoundError,
    QuacklakeError,
    SqlError,
)
from tests.sql.conftest import Run

TABLE = "CREATE TABLE t (i INTEGER, s STRUCT(x INTEGER)); INSERT INTO t VALUES (1, {'x': 1})"
VIEW = f"{TABLE}; CREATE VIEW v AS SELECT i FROM t"

WORDS: list[tuple[str, str, type[QuacklakeError], str]] = [
    ("", "FROM nosuch.t", SqlError, "does not exist"),
    ("", "FROM lake.nosuch.t", NotFoundError, 'schema "nosuch" does not exist'),
    ("", "DROP TABLE nosuch", NotFoundError, "Table with name"),
    ("", "DROP SCHEMA nosuch", NotFoundError, "not found"),
    ("CREATE SCHEMA full_of; CREATE TABLE full_of.t (i INT)", "DROP SCHEMA full_of", InputError, "entries that depend"),
    ("CREATE SCHEMA far; CREATE TABLE far.tab (i INT)", "INSERT INTO lake.main.tab VALUES (1)", NotFoundError, "Did you mean"),
    (TABLE, "FROM t AT (VERSION => 0)", NotFoundError, "does not exist at version 0"),
    (TABLE, "FROM t AT (VERSION => 99999)", NotFoundError, "No snapshot found at version 99999"),
    (TABLE, "FROM t AT (TIMESTAMP => '1970-01-01')", NotFoundError, "No snapshot found at timestamp"),
    (TABLE, "ALTER TABLE t RENAME nosuch TO n", InputError, "column nosuch does not exist"),
    (TABLE, "COMMENT ON VIEW t IS 'x'", NotFoundError, "not a view"),
    (VIEW, "COMMENT ON TABLE v IS 'x'", NotFoundError, "not a table"),
    (VIEW, "ALTER TABLE v RENAME TO w", NotFoundError, "not a table"),
    (VIEW, "DROP TABLE v", SqlError, "trying to drop type Table"),
    (VIEW, "CREATE TABLE v (i INTEGER)", AlreadyExistsError, "already exists"),
    (VIEW, "CREATE VIEW t AS SELECT 1", AlreadyExistsError, "already exists"),
    (VIEW, "CREATE OR REPLACE TABLE v (i INTEGER)", AlreadyExistsError, "trying to replace with type Table"),
    ("CREATE MACRO m() AS 1", "CREATE MACRO m() AS 2", AlreadyExistsError, 'Macro Function with name "m" already exists'),
    (
        "CREATE MACRO tm() AS TABLE SELECT 1",
        "CREATE MACRO tm() AS TABLE SELECT 2",
        AlreadyExistsError,
        'Table Macro Function with name "tm" already exists',
    ),
    ("CREATE TABLE n (i INTEGER NOT NULL)", "INSERT INTO n VALUES (NULL)", ConstraintError, "NOT NULL constraint failed"),
    ("CREATE TABLE n AS SELECT NULL::INT AS i", "ALTER TABLE n ALTER i SET NOT NULL", ConstraintError, "has NULL values"),
    ("", "CREATE TABLE n (e ENUM('a'))", InputError, "unsupported type ENUM"),
    ("", "CREATE TABLE n (e INTEGER[3])", InputError, "unsupported type INTEGER[3]"),
    ("", "CREATE TABLE n (e STRUCT(x INTEGER[3]))", InputError, "unsupported type"),
    ("", "CREATE TABLE n (e UNION(a INTEGER))", InputError, "unsupported type"),
    ("", "CREATE TABLE n (i INT, j INT GENERATED ALWAYS AS (i + 1))", SqlError, "does not support"),
    ("", "CREATE TABLE n (row_id INT)", SqlError, "ducklake_set_option('data_inlining_row_limit', 0)"),
    (TABLE, "ALTER TABLE t SET SORTED BY (b || a, c)", InputError, "Unmatched columns were: b, a, c"),
    (TABLE, "ALTER TABLE t SET PARTITIONED BY (bucket(4, i, s))", InputError, "Expected bucket(bucket_count, column)"),
    (TABLE, "ALTER TABLE t SET PARTITIONED BY (bucket(4, 'i'))", InputError, "Expected bucket(bucket_count, column)"),
    (TABLE, "ALTER TABLE t SET PARTITIONED BY (bucket('a', i))", InputError, "Bucket count must be an integer"),
    ("", "CALL lake.set_option('nosuch', 1)", ConfigError, "Unsupported option nosuch"),
    ("", "CALL lake.set_option('parquet_compression', 'x')", ConfigError, 'Unsupported codec "x" for parquet'),
    ("", "CALL lake.set_option('parquet_version', 'z')", ConfigError, "Could not convert string 'z'"),
    ("", "CALL lake.set_option('parquet_version', 3)", ConfigError, "Only Parquet version 1 and 2 are supported"),
    ("", "CALL lake.set_option('auto_compact', 'z')", ConfigError, "Could not convert string 'z' to BOOL"),
    ("", "CALL lake.set_option('rewrite_delete_threshold', 2)", ConfigError, "must be between 0 and 1"),
    ("", "CALL lake.set_option('delete_older_than', 'z')", ConfigError, "is not a valid interval value."),
    ("", "CALL lake.rewrite_data_files(delete_threshold => 2)", InputError, "must be between 0 and 1"),
    ("", "CALL lake.merge_adjacent_files(max_compacted_files => 0)", InputError, "must be greater than zero."),
    ("", "CALL lake.merge_adjacent_files(max_compacted_files => -1)", InputError, "value -1 can't be cast"),
    ("", "CALL lake.merge_adjacent_files(max_compacted_files => NULL)", SqlError, "must be a non-null integer"),
    ("", "CALL lake.merge_adjacent_files(min_file_size => 2, max_file_size => 1)", InputError, "must be less than"),
    (
        "",
        "CALL lake.expire_snapshots(versions => [1], older_than => now())",
        InputError,
        "cannot specify both 'versions' and 'older_than'",
    ),
    ("", "ATTACH 'ducklake:x.db' AS lake", AlreadyExistsError, 'database with name "lake" already exists'),
    ("", "ATTACH 'ducklake:nosuch.db' AS n (READ_ONLY)", NotFoundError, "creating a new DuckLake is explicitly disabled"),
]  # fmt: skip


@pytest.mark.parametrize(("setup", "statement", "kind", "words"), WORDS)
def test_an_error_has_the_words_of_the_extension(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setup: str, statement: str, kind: type, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if setup:
        run(setup)
    with pytest.raises(kind) as caught:
        run(statement)
    assert words in str(caught.value)


def test_a_view_has_no_change_feed(run: Run, session: quacklake.Session) -> None:
    run(VIEW)
    schema = session.names.schema
    with pytest.raises(SqlError, match=r'"v" is a View, not a table\. Data change feed functions only support tables'):
        run(f"FROM ducklake_table_changes('lake', '{schema}', 'v', 0, 1)")


def test_a_lost_race_is_a_transaction_conflict(run: Run, session: quacklake.Session) -> None:
    with session.cursor() as other:
        run("BEGIN; CREATE TABLE t (i INTEGER)")
        other.sql("CREATE TABLE t (i INTEGER)")
        with pytest.raises(quacklake.errors.CommitConflict, match=r"Transaction conflict - .*has created it"):
            run("COMMIT")


def test_the_identity_is_a_partition_key(run: Run) -> None:
    run("CREATE TABLE t (k INTEGER, n INTEGER) PARTITIONED BY (identity(k))")
    run("CALL lake.set_option('data_inlining_row_limit', 0); INSERT INTO t VALUES (1, 1), (2, 2)")
    assert run("SELECT k, n FROM t WHERE k = 2") == [(2, 2)]
    with pytest.raises(InputError, match='column "nosuch" does not exist'):
        run("ALTER TABLE t SET PARTITIONED BY (identity(nosuch))")
