"""The statements that were promised, word for word."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector, S3FileSystem

import quacklake
from quacklake.errors import InputError, NotFoundError, QuacklakeError
from services.s3 import S3Server
from tests.layout import NAMED

Run = Callable[..., list[tuple[Any, ...]]]
Version = Callable[[], int]


@pytest.fixture
def transactions(run: Run) -> str:
    run("CREATE TABLE transactions (tx_hash VARCHAR, block_number INTEGER)")
    run("INSERT INTO transactions VALUES ('a', 1), ('b', 2)")
    return "transactions"


# -- lakes and their options -------------------------------------------------------------------------------------------


def test_a_lake_is_attached_with_its_options(tmp_path: Path) -> None:
    with quacklake.session() as session:
        session.sql(f"""
            ATTACH 'ducklake:{tmp_path}/meta.db' AS a (
                {NAMED}DATA_PATH '{tmp_path}/data/', METADATA_SCHEMA 'kept', DATA_INLINING_ROW_LIMIT 3,
                CREATE_IF_NOT_EXISTS true, MIGRATE_IF_REQUIRED true, ENCRYPTED false
            )
        """)
        session.sql("CREATE TABLE a.t (i INTEGER); INSERT INTO a.t VALUES (1), (2)")
        assert not list((tmp_path / "data").rglob("*.parquet"))
        session.sql("INSERT INTO a.t SELECT * FROM range(4)")
        assert len(list((tmp_path / "data").rglob("*.parquet"))) == 1
        session.sql("DETACH a")
        options = f"{NAMED}METADATA_SCHEMA 'kept', DATA_PATH '{tmp_path}/data/'"
        session.sql(f"ATTACH 'ducklake:{tmp_path}/meta.db' AS old ({options}, SNAPSHOT_VERSION 2)")
        assert session.sql("SELECT count(*) FROM old.t").fetchall() == [(2,)]
        with pytest.raises(QuacklakeError, match="read-only"):
            session.sql("INSERT INTO old.t VALUES (3)")
        session.sql("DETACH old")
        now = dt.datetime.now(dt.UTC).isoformat()
        session.sql(f"ATTACH 'ducklake:{tmp_path}/meta.db' AS earlier ({options}, SNAPSHOT_TIME '{now}')")
        assert session.sql("SELECT count(*) FROM earlier.t").fetchall() == [(6,)]


def test_a_lake_that_is_not_there_is_made_only_where_that_is_allowed(tmp_path: Path) -> None:
    with quacklake.session() as session, pytest.raises(NotFoundError) as error:
        session.sql(f"ATTACH 'ducklake:sqlite:{tmp_path}/none.db' AS none (CREATE_IF_NOT_EXISTS false)")
    assert error.value.message == (
        f'Existing DuckLake at metadata catalog "sqlite:///{tmp_path}/none.db" does not exist'
        " - and creating a new DuckLake is explicitly disabled"
    )
    assert not (tmp_path / "none.db").exists()


def test_the_extension_is_here_already(run: Run) -> None:
    assert run("INSTALL ducklake; LOAD ducklake; SELECT 1;") == [(1,)]


def test_the_catalog_is_a_plain_database(shared: quacklake.Session, home: Path) -> None:
    assert shared.attachments.lakes
    with sqlite3.connect(home / "lake.db") as catalog:
        names = {name for (name,) in catalog.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    catalog.close()
    assert {
        "ducklake_metadata",
        "ducklake_snapshot",
        "ducklake_schema",
        "ducklake_table",
        "ducklake_data_file",
    } <= names


# -- tables and rows ---------------------------------------------------------------------------------------------------


def test_rows_are_written_read_and_changed(run: Run, session: quacklake.Session) -> None:
    schema = session.names.schema
    run(f"CREATE TABLE {schema}.t (id INTEGER NOT NULL, name VARCHAR DEFAULT 'x')")
    run(f"INSERT INTO {schema}.t VALUES (1, 'a'), (2, DEFAULT)")
    run(f"INSERT INTO {schema}.t SELECT id + 2, name FROM {schema}.t")
    assert run(f"SELECT id, name FROM lake.{schema}.t ORDER BY id") == [(1, "a"), (2, "x"), (3, "a"), (4, "x")]
    run(f"UPDATE {schema}.t SET name = 'u' WHERE id = 1")
    run(f"DELETE FROM {schema}.t WHERE id = 2")
    assert run(f"SELECT id, name FROM {schema}.t ORDER BY id") == [(1, "u"), (3, "a"), (4, "x")]
    run(f"TRUNCATE TABLE {schema}.t")
    assert run(f"SELECT count(*) FROM {schema}.t") == [(0,)]


def test_columns_change_in_the_promised_words(run: Run, transactions: str) -> None:
    run("ALTER TABLE transactions ADD COLUMN transaction_type VARCHAR DEFAULT 'transfer'")
    run("ALTER TABLE transactions RENAME tx_hash TO transaction_hash")
    run("ALTER TABLE transactions ALTER block_number SET TYPE BIGINT")
    rows = run("SELECT transaction_hash, block_number, transaction_type FROM transactions ORDER BY ALL")
    assert rows == [("a", 1, "transfer"), ("b", 2, "transfer")]
    run("ALTER TABLE transactions RENAME COLUMN transaction_hash TO h")
    run("ALTER TABLE transactions ADD COLUMN small TINYINT")
    run("ALTER TABLE transactions ALTER COLUMN small SET DATA TYPE SMALLINT")
    with pytest.raises(InputError, match="only widening"):
        run("ALTER TABLE transactions ALTER COLUMN small SET DATA TYPE TINYINT")
    run("ALTER TABLE transactions DROP COLUMN transaction_type")
    assert [row[0] for row in run("DESCRIBE transactions")] == ["h", "block_number", "small"]


def test_a_dropped_table_leaves_its_files_until_they_expire(run: Run, home: Path, version: Version) -> None:
    run("CREATE TABLE gone AS SELECT * FROM range(1000)")
    files = {path for path in (home / "data").rglob("*.parquet") if "gone" in path.parts}
    assert files
    run("DROP TABLE IF EXISTS gone; DROP TABLE IF EXISTS gone")
    assert all(path.exists() for path in files)
    run("CREATE TABLE later (i INTEGER)")
    run("CALL ducklake_expire_snapshots('lake', versions => ?)", [list(range(1, version()))])
    run("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert not any(path.exists() for path in files)


@pytest.mark.parametrize(
    "clause",
    [
        "AT (VERSION => {v})",
        "AT SNAPSHOT {v}",
        "VERSION AS OF {v}",
        "FOR VERSION AS OF {v}",
        "AT (VERSION => 'release')",
        "VERSION AS OF 'release'",
        "AT (TIMESTAMP => '{t}')",
        "AT TIMESTAMP '{t}'",
        "TIMESTAMP AS OF '{t}'",
        "FOR SYSTEM_TIME AS OF '{t}'",
    ],
)
def test_the_past_is_read_in_any_words(
    run: Run, session: quacklake.Session, transactions: str, version: Version, clause: str
) -> None:
    past = version()
    lake = session.attachments.find("lake").lake
    assert lake is not None
    quacklake.Lake(lake).tag("release", replace=True)
    time = run("SELECT max(snapshot_time) FROM lake.snapshots()")[0][0]
    run("DELETE FROM transactions WHERE tx_hash = 'a'")
    assert run(f"SELECT count(*) FROM transactions {clause.format(v=past, t=time)}") == [(2,)]
    assert run("SELECT count(*) FROM transactions") == [(1,)]


@pytest.fixture(scope="module")
def old_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Session]:
    """A lake with transactions since 2023: one in its snapshot 2, another in each up to snapshot 6."""
    home = tmp_path_factory.mktemp("old")
    with quacklake.session() as session:
        session.sql(f"ATTACH 'ducklake:sqlite:{home}/lake.db' AS lake ({NAMED}DATA_PATH '{home}/data'); USE lake")
        session.sql("CREATE TABLE transactions (tx_hash VARCHAR, block_number INTEGER)")
        for number in range(5):
            session.sql("INSERT INTO transactions VALUES (?, ?)", [f"h{number}", number])
        with sqlite3.connect(home / "lake.db") as catalog:
            for version, time in enumerate(
                ("2023-12-30 00:00", "2023-12-31 00:00", "2023-12-31 12:00", "2024-01-01 11:00")
            ):
                catalog.execute(
                    "UPDATE ducklake_snapshot SET snapshot_time = ? WHERE snapshot_id = ?", [f"{time}:00+00", version]
                )
        catalog.close()
        yield session


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("SELECT count(*) FROM transactions AT SNAPSHOT 5", 4),
        ("SELECT count(*) FROM transactions AT (VERSION => 5)", 4),
        ("SELECT count(*) FROM transactions AT TIMESTAMP '2024-01-01'", 1),
        ("SELECT count(*) FROM transactions AT (TIMESTAMP => '2024-01-01 12:00:00+00')", 2),
        ("SELECT count(*) FROM lake.main.transactions", 5),
    ],
)
def test_the_past_is_read_by_the_very_statement(old_lake: quacklake.Session, statement: str, rows: int) -> None:
    assert old_lake.sql(statement).fetchall() == [(rows,)]


def test_the_objects_of_a_bucket_are_the_files_of_the_lake(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{s3_bucket}/data") as lake:
        lake.sql("CREATE TABLE transactions AS SELECT * FROM range(1000)")
        store = S3FileSystem(
            access_key=s3_server.access_key,
            secret_key=s3_server.secret_key,
            scheme="http",
            endpoint_override=s3_server.host,
        )
        bucket = s3_bucket.removeprefix("s3://")
        listed = [entry.path for entry in store.get_file_info(FileSelector(bucket, recursive=True)) if entry.is_file]
        files = lake.sql("SELECT data_file FROM ducklake_list_files('lake', 'transactions')").fetchall()
        assert [(f"s3://{path}",) for path in listed] == files


# -- functions and settings --------------------------------------------------------------------------------------------


def test_snapshots_are_listed(run: Run, transactions: str, version: Version) -> None:
    rows = run("SELECT * FROM ducklake_snapshots('lake')")
    assert rows[-1][0] == version()


def test_old_snapshots_expire_by_age(run: Run, transactions: str) -> None:
    assert run("CALL ducklake_expire_snapshots('lake', older_than := INTERVAL '7 days')") == []
    assert run("SELECT count(*) FROM transactions") == [(2,)]


def test_files_of_one_table_are_merged_and_rewritten(run: Run, session: quacklake.Session) -> None:
    schema = session.names.schema
    run("CREATE TABLE t (i INTEGER); CALL lake.set_option('data_inlining_row_limit', 0, schema => ?)", [schema])
    run("INSERT INTO t FROM range(100); INSERT INTO t FROM range(100, 200)")
    assert run(f"CALL ducklake_merge_adjacent_files('lake','{schema}.t')") == [(schema, "t", 2, 1)]
    run("DELETE FROM t WHERE i >= 5")
    assert run(f"CALL ducklake_rewrite_data_files('lake','{schema}.t')") == [(schema, "t", 1, 1)]
    assert run("SELECT count(*), max(i) FROM t") == [(5, 4)]


@pytest.mark.parametrize(
    ("setting", "value", "bytes_"),
    [
        ("ducklake_target_file_size", "512MB", 512_000_000),
        ("ducklake_parquet_row_group_size_bytes", "128MB", 128_000_000),
    ],
)
def test_sizes_are_settings(run: Run, setting: str, value: str, bytes_: int) -> None:
    run(f"SET {setting}='{value}'")
    assert run(f"SELECT current_setting('{setting}')") == [(bytes_,)]
    run(f"RESET {setting}")


def test_what_is_set_for_the_session_outlives_a_reset_of_all(run: Run) -> None:
    run("SET SESSION ducklake_max_retry_count = 2; RESET ducklake_max_retry_count")
    assert run("SELECT current_setting('ducklake_max_retry_count')") == [(2,)]
    run("RESET SESSION ducklake_max_retry_count")
    assert run("SELECT current_setting('ducklake_max_retry_count')") == [(10,)]


def test_options_of_a_table_are_set_and_reset(run: Run, session: quacklake.Session, transactions: str) -> None:
    run("ALTER TABLE transactions SET (parquet_compression = 'zstd', data_inlining_row_limit = 7)")
    run("ALTER TABLE transactions RESET (data_inlining_row_limit)")
    mine = f"{session.names.schema}.transactions"
    found = run("SELECT option_name, value FROM lake.options() WHERE scope_entry = ?", [mine])
    assert found == [("parquet_compression", "zstd")]
