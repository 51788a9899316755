"""A lake that is put back to how it was, again and again, in milliseconds: for thousands of short experiments.

It stays at one place, and so do two clients of it, whose statements are compiled and whose engine is started: what a new
client must not know, which is all that it has read, they are made to forget.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

import quacklake
from quacklake import Lake
from quacklake.core.catalog import parse_url
from quacklake.core.catalog.writing.files import TotalsCache
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.scan.remembered import Plans
from quacklake.core.transaction import TableCache
from services import DatabaseServer, MySQLServer, PostgresServer
from tests.catalog.stock import Rows
from tests.crash.homes import Home, look
from tests.crash.operations import prepare

__all__ = ["Stand"]

Prepare = Callable[[Lake], object]


@dataclass(frozen=True)
class _Image:
    """A lake as it was once: its files, what a user saw of it, and on a server the tables in a database of this name."""

    folder: Path
    rows: Rows
    tables: dict[str, str] = field(default_factory=dict)


class Stand:
    """The place, on one kind of database. ``put`` creates its lake again."""

    def __init__(self, database: str, folder: Path, server: DatabaseServer | None) -> None:
        self.database = database
        self._folder = folder
        self._server = server
        self._name = f"stand_{os.getpid()}_{database}"
        place = folder / "place"
        url = f"{database}:///{place / 'lake.db'}" if server is None else server.url_of(self._name)
        self.home = Home(url, place / "data")
        self._images: dict[frozenset[Prepare], _Image] = {}
        self._clients: list[Lake] = []
        self._admin: sa.Engine | None = None

    def put(self, *prepares: Prepare | None) -> Rows:
        """The lake of ``tests.crash.operations`` after further preparations; returns what a user sees of it."""
        wanted = {one: None for one in prepares if one is not None}
        key = frozenset(wanted)
        if key not in self._images:
            self._images[key] = self._make(list(wanted), len(self._images))
        image = self._images[key]
        self.release()
        shutil.rmtree(self.home.data)
        # no file of a lake is ever written to again, so a second name will do
        shutil.copytree(image.folder / "data", self.home.data, copy_function=os.link)
        if self._server is None:
            for file in self.home.data.parent.glob("lake.db*"):
                file.unlink()
            for file in image.folder.glob("lake.db*"):
                shutil.copy(file, self.home.data.parent)
        else:
            self._put_tables(image)
        return image.rows

    def client(self, number: int) -> Lake:
        """One of the two clients, as if it had just come."""
        while len(self._clients) <= number:
            self._clients.append(self.home.connect())
        known = self._clients[number]._context
        catalog = known.catalog
        catalog.prepare()
        catalog._cache.clear()
        catalog.totals = TotalsCache()
        parts = (catalog, known.store, known.engine, known.config, TableCache(catalog), known.writer, known.group)
        return Lake(LakeHandle(LakeContext(*parts, plans=Plans(known.config.plan_cache_bytes))))

    def release(self) -> None:
        """Let go of files, which others may open or replace then."""
        if self._server is None:
            for client in self._clients:
                client._context.catalog.give_back()

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if self._admin is not None:
            self._admin.dispose()
        if self._server is not None:
            for name in (self._name, *(f"{self._name}_image{number}" for number in range(len(self._images)))):
                self._server.drop_database(name)
        shutil.rmtree(self._folder)

    # -- images --------------------------------------------------------------------------------------------------------

    def _make(self, prepares: list[Prepare], number: int) -> _Image:
        """A lake made from nothing, and a copy of it."""
        self._clear()
        with quacklake.connect(self.home.url, data_path=self.home.data) as lake:
            prepare(lake)
            for work in prepares:
                work(lake)
            rows = look(lake).tables
        folder = self._folder / f"image{number}"
        shutil.copytree(self.home.data.parent, folder)
        tables = {} if self._server is None else self._save_tables(f"image{number}")
        return _Image(folder, rows, tables)

    def _clear(self) -> None:
        for client in self._clients:
            client.close()
        self._clients = []
        if self._server is None:
            shutil.rmtree(self.home.data.parent, ignore_errors=True)
        elif self._admin is None:
            self._server.create_database(self._name)
            url = parse_url(self.home.url).url
            many = {"client_flag": 1 << 16} if isinstance(self._server, MySQLServer) else {}
            self._admin = sa.create_engine(url, pool_size=1, max_overflow=0, connect_args=many)
        else:
            shutil.rmtree(self.home.data.parent, ignore_errors=True)
            names = ", ".join(self._tables())
            self._execute([f"DROP TABLE {names}{' CASCADE' if isinstance(self._server, PostgresServer) else ''}"])
        self.home.data.parent.mkdir(parents=True, exist_ok=True)

    def _save_tables(self, name: str) -> dict[str, str]:
        """Copies of all tables beside the lake; returns which is of which."""
        kind = "SCHEMA" if isinstance(self._server, PostgresServer) else "DATABASE"
        place = name if kind == "SCHEMA" else f"{self._name}_{name}"
        # by other names: the tables of a lake would be another lake with the same files
        saved = {table: f"{place}.saved_{table}" for table in self._tables()}
        self._execute(
            [
                f"CREATE {kind} {place}",
                *(f"CREATE TABLE {copy} AS SELECT * FROM {table}" for table, copy in saved.items()),
                *(self._like(_form(copy), table) for table, copy in saved.items()),
            ]
        )
        return saved

    def _put_tables(self, image: _Image) -> None:
        there = self._tables()
        work = [f"DROP TABLE {name}" for name in there if name not in image.tables]
        for name, copy in image.tables.items():
            work.append(f"DELETE FROM {name}" if name in there else self._like(name, _form(copy)))
            work.append(f"INSERT INTO {name} SELECT * FROM {copy}")
        self._execute(work)

    def _like(self, new: str, old: str) -> str:
        if isinstance(self._server, PostgresServer):
            return f"CREATE TABLE {new} (LIKE {old} INCLUDING ALL)"
        return f"CREATE TABLE {new} LIKE {old}"

    def _tables(self) -> set[str]:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        if isinstance(self._server, MySQLServer):
            query = "SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'"
        assert self._admin is not None
        with self._admin.connect() as connection:
            return {row[0] for row in connection.exec_driver_sql(query)}

    def _execute(self, statements: list[str]) -> None:
        """All at once, in one transaction where that is possible."""
        assert self._admin is not None
        connection = self._admin.raw_connection()
        try:
            cursor = connection.cursor()
            cursor.execute("; ".join(statements))
            while cursor.nextset():
                pass
            connection.commit()
        finally:
            connection.close()


def _form(copy: str) -> str:
    """An empty table with the indexes of the one that ``copy`` has the rows of."""
    return copy.replace(".saved_", ".form_")
