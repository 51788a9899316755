"""Errors of databases that cannot be reached or opened, on every kind of database, with real servers and files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.catalog.databases.connection_errors import startup_state
from quacklake.errors import CatalogError, QuacklakeError

HOLDERS = {
    "sqlite": "import sqlite3; c = sqlite3.connect(path, isolation_level=None); c.execute('BEGIN IMMEDIATE')",
    "duckdb": "import duckdb; c = duckdb.connect(path)",
}


def _error(url: str | sa.URL, **settings: object) -> QuacklakeError:
    text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    with pytest.raises(CatalogError) as raised:
        quacklake.connect(text, **{"create": False, **settings})  # type: ignore[arg-type]
    assert raised.value.hint
    return raised.value


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(
    params=[
        "postgres",
        "mysql",
    ]
)
def server_url(request: pytest.FixtureRequest) -> sa.URL:
    return sa.make_url(request.getfixturevalue(f"{request.param}_url"))


def test_a_server_that_does_not_run_is_told(server_url: sa.URL) -> None:
    port = _free_port()
    error = _error(server_url.set(port=port, password="geheim"))
    assert f"nothing listens on port {port} of 127.0.0.1 (connection refused)" in error.message
    assert error.transient
    assert f"{server_url.drivername}://{server_url.username}:***@127.0.0.1:{port}/" in error.message
    assert "geheim" not in str(error)


def test_a_host_that_is_not_known_is_told(server_url: sa.URL) -> None:
    assert "the host no-such-host.invalid is not known" in _error(server_url.set(host="no-such-host.invalid")).message


def test_a_database_that_is_not_there_is_told(server_url: sa.URL) -> None:
    error = _error(server_url.set(database="nowhere"))
    assert 'the server has no database "nowhere"' in error.message
    assert not error.transient


def test_a_user_that_is_not_let_in_is_told(server_url: sa.URL) -> None:
    error = _error(server_url.set(username="nobody", password="geheim"))
    assert 'does not let the user "nobody" in with this password' in error.message
    assert "geheim" not in str(error)
    assert not error.transient


@contextmanager
def _role_with_password(url: sa.URL) -> Iterator[sa.URL]:
    """A role that needs its password: PostgreSQL asks for it where the authentication file says so."""
    name = f"r_{uuid.uuid4().hex[:8]}"
    admin = url.render_as_string(hide_password=False)
    with psycopg.connect(admin, autocommit=True) as connection:
        row = connection.execute("SHOW hba_file").fetchone()
        assert row is not None
        file = Path(row[0])
        before = file.read_text()
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'right'")
        file.write_text(f"host all {name} 127.0.0.1/32 scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        try:
            _await_refusal(url.set(username=name, password="wrong"))
            yield url.set(username=name, password="right")
        finally:
            file.write_text(before)
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(f"DROP ROLE {name}")


def _await_refusal(url: sa.URL) -> None:
    """Wait until the server has read its authentication file again."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            psycopg.connect(url.render_as_string(hide_password=False)).close()
        except psycopg.OperationalError:
            return
        time.sleep(0.01)
    raise TimeoutError


@pytest.mark.postgres
def test_a_wrong_password_and_a_missing_database_are_told_apart_where_a_password_is_asked_for(
    postgres_url: str,
) -> None:
    with _role_with_password(sa.make_url(postgres_url)) as url:
        assert startup_state(url, 3) == ""  # it asks for the password first, whatever the database
        assert "with this password" in _error(url.set(password="wrong")).message
        assert "without a password" in _error(url._replace(password=None)).message
        assert 'no database "nowhere"' in _error(url.set(database="nowhere")).message


@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_what_is_wrong_with_a_file_is_told(database: str, tmp_path: Path) -> None:
    (tmp_path / "junk.db").write_bytes(b"certainly no database " * 100)
    cases = {
        "missing/lake.db": f"there is no folder {tmp_path}/missing",
        "junk.db": "junk.db is not a ",
        ".": f"{tmp_path} is a folder, not a database file",
    }
    for name, message in cases.items():
        error = _error(f"{database}:///{tmp_path}/{name}", create=None, data_path=tmp_path / "data")
        assert message in error.message
        assert not error.transient


def test_a_file_of_the_other_kind_is_told(tmp_path: Path) -> None:
    quacklake.connect(f"duckdb:///{tmp_path}/lake.db", data_path=tmp_path / "data").close()
    error = _error(f"sqlite:///{tmp_path}/lake.db")
    assert error.hint is not None
    assert f"it is a DuckDB database, duckdb:///{tmp_path}/lake.db" in error.hint


@contextmanager
def _holding(database: str, path: Path) -> Iterator[int]:
    """Another process with a lock on a file."""
    code = f"import sys; path = sys.argv[1]; {HOLDERS[database]}; print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_a_locked_file_is_told_with_who_has_it(database: str, tmp_path: Path) -> None:
    path = tmp_path / "lake.db"
    url = f"{database}:///{path}"
    quacklake.connect(url, data_path=tmp_path / "data").close()
    with _holding(database, path) as pid, pytest.raises(CatalogError) as raised:
        with quacklake.connect(url, busy_timeout_ms=50, ducklake_max_retry_count=0) as lake:
            lake.create_schema("s")
    assert f"{path} is locked by " in raised.value.message
    assert raised.value.transient
    if database == "duckdb":  # locks of SQLite are in its shared memory file
        assert f"(PID {pid})" in raised.value.message


@pytest.mark.skipif(os.getuid() == 0, reason="root may read anything")
@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_a_file_without_permission_is_told(database: str, tmp_path: Path) -> None:
    path = tmp_path / "lake.db"
    quacklake.connect(f"{database}:///{path}", data_path=tmp_path / "data").close()
    path.chmod(0)
    assert "cannot be read (permission denied)" in _error(f"{database}:///{path}").message
