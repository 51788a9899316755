"""Databases in memory that closed lakes leave to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import quacklake
from quacklake.core.duckdb_versions import connect
from quacklake.core.engines.duckdb import engine
from quacklake.core.engines.duckdb.idle import IdleDatabases
from quacklake.errors import ClosedError, StorageError
from quacklake.lake.lake import Lake
from services.s3 import S3Server

CONFIG = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
CONTENTS = (
    "SELECT database_name, schema_name, table_name FROM duckdb_tables() WHERE NOT internal",
    "SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal",
    "SELECT DISTINCT database_name, function_name FROM duckdb_functions() WHERE NOT internal",
    "SELECT database_name FROM duckdb_databases() WHERE NOT internal",
    "SELECT name FROM duckdb_secrets()",
    "SELECT name FROM duckdb_variables()",
    "SELECT name, value FROM duckdb_settings() WHERE name NOT IN ('TimeZone', 'Calendar')",
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test begin without idle databases."""
    own = IdleDatabases()
    monkeypatch.setattr(engine, "idle", own)
    yield
    own.close()


def lake_at(path: Path, **settings: Any) -> Lake:
    return quacklake.connect(f"sqlite:///{path}.db", data_path=path, **settings)


def root_of(lake: Lake) -> duckdb.DuckDBPyConnection | None:
    with lake.handle.context.engine.connection():  # the first use opens it
        return lake.handle.context.engine._root


def contents(connection: duckdb.DuckDBPyConnection) -> list[list[tuple[Any, ...]]]:
    return [sorted(connection.execute(query).fetchall(), key=repr) for query in CONTENTS]


def test_the_next_lake_gets_the_database_of_a_closed_one_and_finds_nothing_in_it(tmp_path: Path) -> None:
    with lake_at(tmp_path / "a") as first:
        t = first.create_table("t", [{"id": number, "name": "secret"} for number in range(50)])
        t.append([{"id": 50, "name": "inlined"}])
        assert t.delete("id % 7 = 0") == 8
        assert t.update({"name": "new"}, where="id = 1") == 1
        assert len(t.to_pylist(where="name = 'secret'")) == 41
        assert list(t.changes(0).to_pylist())
        root = root_of(first)
    with lake_at(tmp_path / "b") as second:
        assert root is not None
        assert root_of(second) is root
        with connect(config=CONFIG) as fresh:
            assert contents(root) == contents(fresh)
            assert contents(root.cursor()) == contents(fresh.cursor())
        assert second.create_table("t", [{"id": 1}]).to_pylist() == [{"id": 1}]
        with pytest.raises(ClosedError):
            t.to_pylist()


def test_lakes_that_are_open_together_have_databases_of_their_own(tmp_path: Path) -> None:
    with lake_at(tmp_path / "a") as one, lake_at(tmp_path / "b") as other:
        assert root_of(one) is not root_of(other)


def test_a_database_with_other_settings_is_not_taken(tmp_path: Path) -> None:
    with lake_at(tmp_path / "a", duckdb_threads=1) as one:
        root = root_of(one)
    with lake_at(tmp_path / "b") as other:
        assert root_of(other) is not root
        with lake_at(tmp_path / "a", duckdb_threads=1) as again:
            assert root_of(again) is root


def test_a_read_that_runs_keeps_the_database_of_its_lake_from_others(tmp_path: Path) -> None:
    with lake_at(tmp_path / "a") as one:
        one.create_table("t", [{"id": number} for number in range(20)])
        root, reader = root_of(one), one.table("t").scan().to_reader()
    with lake_at(tmp_path / "b") as other:
        assert root_of(other) is not root
        with pytest.raises(StorageError, match="closed"):
            reader.read_all()


def test_a_read_that_ended_or_was_given_up_does_not(tmp_path: Path) -> None:
    with lake_at(tmp_path / "a") as one:
        one.create_table("t", [{"id": number} for number in range(20)])
        root = root_of(one)
        assert one.table("t").scan().to_reader().read_all().num_rows == 20
        early = one.table("t").scan().to_reader()
        early.read_next_batch()
        early.close()
        del early
    with lake_at(tmp_path / "b") as other:
        assert root_of(other) is root


def test_only_so_many_databases_wait_and_the_oldest_is_closed() -> None:
    waiting = IdleDatabases(2)
    databases = [connect(config=CONFIG) for _ in range(4)]
    for database in databases:
        waiting.leave(CONFIG, database)
    for closed in databases[:2]:
        with pytest.raises(duckdb.ConnectionException):
            closed.execute("SELECT 1")
    assert [waiting.take(CONFIG) for _ in range(3)] == [databases[2], databases[3], None]
    waiting.leave(CONFIG, databases[2])
    waiting.close()
    assert waiting.take(CONFIG) is None


def test_the_database_of_an_encrypted_lake_is_closed_with_it(tmp_path: Path) -> None:
    with lake_at(tmp_path / "a", encrypted=True) as one:
        one.create_table("t", [{"id": number} for number in range(20)])
        root = root_of(one)
    assert root is not None
    with pytest.raises(duckdb.ConnectionException):
        root.execute("SELECT 1")


def test_the_database_that_has_the_keys_of_a_bucket_is_closed_with_its_lake(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{s3_bucket}/data") as lake:
        assert lake.create_table("t", [{"id": 1}]).count() == 1
        root = root_of(lake)
    assert root is not None
    with pytest.raises(duckdb.ConnectionException):
        root.execute("SELECT 1")
