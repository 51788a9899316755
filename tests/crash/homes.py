"""Lakes to be crashed: a template on each kind of catalog, copies of it, and all that can be seen of one."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import quacklake
from quacklake import Lake
from quacklake.core.catalog import parse_url
from services import DatabaseServer, MySQLServer, PostgresServer
from tests.catalog.stock import Rows
from tests.layout import folder, moved

_KEPT = 6
"""More copies than any test uses at a time."""

__all__ = ["Home", "State", "Workshop", "check_rows", "look"]


@dataclass(frozen=True)
class State:
    """A lake as a user sees it: the rows of every table, ``view …`` without rows for each view, a count of snapshots."""

    tables: Rows
    snapshots: int

    @property
    def stock(self) -> Rows:
        """The tables alone, as stock DuckDB shows them."""
        return {name: rows for name, rows in self.tables.items() if not name.startswith("view ")}


@dataclass(frozen=True)
class Home:
    """The place of one lake."""

    url: str
    data: Path

    def connect(self) -> Lake:
        """Open the lake with one thread and no patience for retries."""
        return quacklake.connect(self.url, duckdb_threads=1, ducklake_retry_wait_ms=1)

    @contextmanager
    def database(self) -> Iterator[sa.Connection]:
        """The metadata database, past the library."""
        with _engine(self.url).connect() as connection:
            yield connection

    def metadata(self) -> dict[str, list[str]]:
        """Every row of every metadata table that has any: equal means that nothing has changed."""
        with self.database() as connection:
            found = {
                name: sorted(map(repr, connection.exec_driver_sql(f"SELECT {columns} FROM {name}").all()))
                for name, columns in self._tables(connection).items()
            }
        return {name: rows for name, rows in found.items() if rows}

    def _tables(self, connection: sa.Connection) -> dict[str, str]:
        names = [
            name for name in sa.inspect(connection).get_table_names() if "ducklake_" in name or "quacklake_" in name
        ]
        if connection.dialect.name != "duckdb":
            return dict.fromkeys(names, "*")
        # duckdb's Python client needs another package for zoned times
        return dict.fromkeys(names, "CAST(COLUMNS(*) AS VARCHAR)")

    def referenced(self) -> set[str]:
        """The files that any snapshot needs, below the data path."""
        with self.database() as connection:
            return _referenced(connection)

    def scheduled(self) -> set[str]:
        """The files that wait for their removal, below the data path."""
        with self.database() as connection:
            return self._scheduled(connection)

    def _scheduled(self, connection: sa.Connection) -> set[str]:
        found = connection.execute(sa.text("SELECT path FROM ducklake_files_scheduled_for_deletion"))
        return {row[0].removeprefix(f"{folder(self.data)}/") for row in found}

    def files(self) -> set[str]:
        """The files that are there, below the data path."""
        root = folder(self.data)
        return {str(path.relative_to(root)) for path in self.data.rglob("*") if path.is_file()}

    def check_files(self, *, left: Collection[str] | None = None) -> set[str]:
        """Nothing that a snapshot needs is missing; nothing is there that nothing names, except what was ``left``.

        Returns the files that nothing names.
        """
        with self.database() as connection:
            return self._check_files(connection, left)

    def _check_files(self, connection: sa.Connection, left: Collection[str] | None) -> set[str]:
        referenced, there = _referenced(connection), self.files()
        assert referenced <= there, f"files are missing: {sorted(referenced - there)}"
        orphans = there - referenced - self._scheduled(connection)
        new = set() if left is None else orphans - set(left)
        assert not new, f"files were left behind: {sorted(new)}"
        return orphans

    def check_ids(self) -> None:
        """The ids that the database gave out: no snapshot missing, no file or row with another's id."""
        with self.database() as connection:
            _check_ids(connection)

    def check(self, *, left: Collection[str] | None = None) -> None:
        """Files and ids."""
        with self.database() as connection:
            self._check_files(connection, left)
            _check_ids(connection)


def _referenced(connection: sa.Connection) -> set[str]:
    found: set[str] = set()
    for kind in ("data", "delete"):
        rows = connection.execute(
            sa.text(
                "SELECT DISTINCT s.path, t.path, f.path FROM ducklake_schema s, ducklake_table t,"
                f" ducklake_{kind}_file f WHERE s.schema_id = t.schema_id AND t.table_id = f.table_id"
            )
        )
        found |= {"".join(row) for row in rows}
    return found


@lru_cache(maxsize=1)
def _engine(url: str) -> sa.Engine:
    return sa.create_engine(parse_url(url).url, poolclass=sa.NullPool)


def _check_ids(connection: sa.Connection) -> None:
    def column(query: str) -> list[int]:
        return [row[0] for row in connection.execute(sa.text(query))]

    snapshots = column("SELECT snapshot_id FROM ducklake_snapshot ORDER BY snapshot_id")
    assert len(snapshots) == len(set(snapshots))
    assert column("SELECT snapshot_id FROM ducklake_snapshot_changes ORDER BY snapshot_id") == snapshots
    files = column("SELECT data_file_id FROM ducklake_data_file")
    files += column("SELECT delete_file_id FROM ducklake_delete_file")
    assert len(files) == len(set(files)), "two files have one id"
    [next_file] = column("SELECT next_file_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1")
    assert max(files, default=-1) < next_file
    tables = column("SELECT table_id FROM ducklake_table_stats")
    assert len(tables) == len(set(tables))
    inlined = column("SELECT table_name FROM ducklake_inlined_data_tables")
    assert len(inlined) == len(set(inlined))
    for table, start, count, next_row in connection.execute(
        sa.text(
            "SELECT f.table_id, f.row_id_start, f.record_count, s.next_row_id FROM ducklake_data_file f"
            " JOIN ducklake_table_stats s ON f.table_id = s.table_id"
        )
    ):
        assert start is None or start + count <= next_row, f"rows of table {table} have ids that were not given out"


def check_rows(lake: Any, table: str) -> None:
    """No two rows have one row id."""
    ids = lake.table(table).scan(["rowid"]).to_arrow().column("rowid").to_pylist()
    assert len(ids) == len(set(ids)), f"two rows of {table} have one row id"


def look(lake: Lake) -> State:
    """The state of a lake as the library shows it."""
    tables: Rows = {}
    for name in lake.tables():
        rows = lake.table(name).to_arrow()
        columns: list[list[Any]] = [column.to_pylist() for column in rows.columns]
        tables[name] = sorted(zip(*columns, strict=True), key=repr)
    tables |= {f"view {name}": [] for name in lake.views()}
    return State(tables, lake.snapshots().num_rows)


class Workshop:
    """Makes a template lake once and copies it as often as needed."""

    def __init__(self, database: str, folder: Path, server: DatabaseServer | None) -> None:
        self.database = database
        self._folder = folder
        self._server = server
        self._names: list[str] = []
        self.template = self._place()

    def _place(self) -> Home:
        name = f"t_{uuid.uuid4().hex}"
        self._names.append(name)
        folder = self._folder / name
        folder.mkdir()
        if self._server is None:
            return Home(f"{self.database}:///{folder / 'lake.db'}", folder / "data")
        return Home(self._server.url_of(name), folder / "data")

    def create(self) -> Lake:
        """A new lake in the place of the template."""
        if self._server is not None:
            self._server.create_database(self._names[0])
        return quacklake.connect(self.template.url, data_path=self.template.data)

    def copy(self) -> Home:
        """A copy of the template that knows its own data path. Only the newest copies are kept."""
        if len(self._names) > _KEPT:
            self._remove(self._names.pop(1))
        home = self._place()
        if isinstance(self._server, PostgresServer):
            with self._server._connect() as connection:
                connection.execute(f'CREATE DATABASE "{self._names[-1]}" TEMPLATE "{self._names[0]}"')
        elif isinstance(self._server, MySQLServer):
            self._copy_mysql()
        else:
            source = parse_url(self.template.url).path
            assert source is not None
            for file in source.parent.glob("lake.db*"):
                shutil.copy(file, home.data.parent)
        shutil.copytree(self.template.data, home.data)
        with home.database() as connection:
            for statement in moved(f"{home.data}/"):
                connection.exec_driver_sql(statement)
            connection.commit()
        return home

    def _copy_mysql(self) -> None:
        assert isinstance(self._server, MySQLServer)
        source, copy = self._names[0], self._names[-1]
        self._server.create_database(copy)
        with self.template.database() as connection:
            for name in sa.inspect(connection).get_table_names():
                connection.execute(sa.text(f"CREATE TABLE `{copy}`.`{name}` LIKE `{source}`.`{name}`"))
                connection.execute(sa.text(f"INSERT INTO `{copy}`.`{name}` SELECT * FROM `{source}`.`{name}`"))
            connection.commit()

    def _remove(self, name: str) -> None:
        if self._server is not None:
            self._server.drop_database(name)
        shutil.rmtree(self._folder / name)

    def close(self) -> None:
        """Remove every copy and the template."""
        for name in self._names:
            self._remove(name)
