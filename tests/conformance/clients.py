"""The two clients of one lake: Quacklake, and DuckDB with its ducklake extension, the reference implementation."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import sqlalchemy as sa

import quacklake
from quacklake.core.engines.duckdb.connections import load_httpfs
from tests.duckdbs import import_extension
from tests.layout import plain_only

__all__ = ["LONG", "LakeSite", "plain_duckdb", "reference_duckdb"]

LONG = os.environ.get("QUACKLAKE_TEST_PROFILE") == "long"
"""True in the long profile, which tests every combination and many more random ones."""


_EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner")
_lock = threading.Lock()
_instances: list[duckdb.DuckDBPyConnection] = []


def plain_duckdb() -> duckdb.DuckDBPyConnection:
    """A database in memory without any extension, in UTC."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET timezone = 'UTC'")
    return connection


def reference_duckdb() -> duckdb.DuckDBPyConnection:
    """A connection of the process's DuckDB with the reference implementation loaded, in UTC."""
    with _lock:
        if not _instances:
            for name in _EXTENSIONS:
                import_extension(name)
            connection = duckdb.connect(config={"threads": 1})
            for name in _EXTENSIONS:
                connection.execute(f"LOAD {name}")
            _instances.append(connection)
        cursor = _instances[0].cursor()
    cursor.execute("SET timezone = 'UTC'")
    return cursor


@dataclass
class LakeSite:
    """One lake that both clients open.

    A catalog in a file belongs to one of them at a time: opening one closes the other. A DuckDB file allows no more, and
    two SQLite libraries in one process (Python's and that of the extension) do not see each other's locks.
    ``kind`` is the database of the catalog, ``inlining`` the row limit that both clients are opened with,
    ``foreign_paths`` are folders that files may be added from.
    """

    kind: str
    folder: Path
    inlining: int
    server_url: str | None = None
    encrypted: bool = False
    foreign_paths: Sequence[Path] = ()
    _attached: ClassVar[LakeSite | None] = None
    _lake: quacklake.Lake | None = field(default=None, repr=False)
    _stock: duckdb.DuckDBPyConnection | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The catalog as Quacklake names it."""
        return self.server_url or f"{self.kind}:///{self.catalog_file}"

    @property
    def in_a_file(self) -> bool:
        return self.kind in ("sqlite", "duckdb")

    @property
    def catalog_file(self) -> Path:
        return self.folder / f"catalog.{self.kind}"

    @property
    def data_path(self) -> Path:
        return self.folder / "data"

    @property
    def attach_target(self) -> str:
        """The catalog as the reference implementation names it; a test that asks is skipped where it cannot open one."""
        plain_only("stock DuckDB cannot open a catalog of a shared lake")
        if self.kind == "duckdb":
            return f"ducklake:{self.catalog_file}"
        if self.kind == "sqlite":
            return f"ducklake:sqlite:{self.catalog_file}"
        url = sa.make_url(self.url)
        return f"ducklake:postgres:host={url.host} port={url.port} user={url.username} dbname={url.database}"

    # -- Quacklake -----------------------------------------------------------------------------------------------------

    def lake(self) -> quacklake.Lake:
        """The lake as Quacklake holds it."""
        if self.in_a_file:
            self.close_stock()
        if self._lake is None:
            self._lake = self.another_lake()
        return self._lake

    def another_lake(self, **settings: Any) -> quacklake.Lake:
        """A second opening of the lake by Quacklake, which the caller closes."""
        options: dict[str, Any] = {"data_inlining_row_limit": self.inlining, "ducklake_retry_wait_ms": 5, **settings}
        if self.encrypted:
            options["encrypted"] = True
        if self.foreign_paths:
            options.setdefault("foreign_paths", list(self.foreign_paths))
        return quacklake.connect(self.url, data_path=self.data_path, duckdb_threads=1, **options)

    def close_lake(self) -> None:
        if self._lake is not None:
            self._lake.close()
            self._lake = None

    # -- the reference implementation ----------------------------------------------------------------------------------

    def stock(self) -> duckdb.DuckDBPyConnection:
        """A connection that has the lake attached as ``l`` and uses it."""
        if self.in_a_file:
            self.close_lake()
        if self._stock is None:
            options = f"DATA_PATH '{self.data_path}', DATA_INLINING_ROW_LIMIT {self.inlining}"
            self._stock = self._attach("l", options + (", ENCRYPTED" if self.encrypted else ""))
            if self.encrypted:
                load_httpfs(self._stock)  # it writes no encrypted files without it
        return self._stock

    def second_stock(self) -> duckdb.DuckDBPyConnection:
        """Another connection to the attached lake, with its own transactions."""
        cursor = self.stock().cursor()
        cursor.execute("SET timezone = 'UTC'; USE l")
        return cursor

    @contextmanager
    def stock_at(self, version: int) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that has the lake attached as it was at a snapshot."""
        self.close_stock()
        if self.in_a_file:
            self.close_lake()
        connection = self._attach("l", f"SNAPSHOT_VERSION {version:d}")
        try:
            yield connection
        finally:
            _detach(connection)

    def _attach(self, name: str, options: str) -> duckdb.DuckDBPyConnection:
        other = LakeSite._attached
        if other is not None and other is not self:
            other.close_stock()  # all lakes are attached under the same name
        LakeSite._attached = self
        connection = reference_duckdb()
        try:
            connection.execute(f"DETACH DATABASE IF EXISTS {name}")  # a test that failed may have left one
            connection.execute(f"ATTACH '{self.attach_target}' AS {name} ({options})")
        except BaseException:
            connection.close()
            raise
        connection.execute(f"USE {name}")
        return connection

    def close_stock(self) -> None:
        if self._stock is not None:
            connection, self._stock = self._stock, None
            _detach(connection)

    def metadata(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query over the catalog's own tables, read by the reference implementation; ``{m}`` is their schema."""
        return self.stock().execute(query.format(m="__ducklake_metadata_l"), list(parameters)).fetchall()

    def close(self) -> None:
        self.close_lake()
        self.close_stock()


def _detach(connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.execute("USE memory")
        connection.execute("DETACH l")
    finally:
        connection.close()
