"""Find removals of files that the metadata still names, by asking the metadata itself before each removal.

The oracle uses no code of the library, so that it finds files that the library wrongly considers free. While it watches,
it remembers every lake that is opened, plain or shared, and compares each removal of files with all rows of all catalogs
in their databases, and with the backups in the same place. It reads SQLite and PostgreSQL, but not DuckDB, whose file
belongs to the process that has it open. ``drop_oracle`` checks what is dropped from the metadata itself.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from quacklake.core.catalog import CatalogUrl
from quacklake.core.catalog.catalog import Catalog
from quacklake.core.storage import Store
from tests.drop_oracle import DropOracle, listening

__all__ = ["Oracle", "watching"]

_FILES = """
SELECT f.path, f.path_is_relative, t.path, t.path_is_relative, s.path, s.path_is_relative, {root}
FROM {schema}ducklake_{kind} f
JOIN {schema}ducklake_table t ON t.table_id = f.table_id {table}
JOIN {schema}ducklake_schema s ON s.schema_id = t.schema_id {owner}
{fact}
{where}
"""
#: Whoever may write a catalog of a shared lake may write its metadata, but not in which folder its files are.
_REGISTERED = """
CASE WHEN g.folder LIKE '/%' OR g.folder LIKE '%://%' THEN g.folder ELSE rtrim(h.data_path, '/') || '/' || g.folder || '/' END
"""
_BOUND = {
    "table": "AND t.catalog_id = f.catalog_id",
    "owner": "AND s.catalog_id = f.catalog_id",
    "root": _REGISTERED,
    # what was dropped and lent to nobody is free
    "fact": "JOIN {schema}ducklake_catalog g ON g.catalog_id = f.catalog_id AND g.dropped_ms IS NULL",
    "where": "CROSS JOIN {schema}quacklake_shared h",
}
_PLAIN = {
    "table": "",
    "owner": "",
    "root": "m.value",
    "fact": "JOIN {schema}ducklake_metadata m ON m.key = 'data_path' AND m.scope IS NULL",
    "where": "",
}


class Oracle:
    """Knows the databases of all lakes that were opened while it watched, and what was removed although it is named."""

    def __init__(self) -> None:
        self.lakes: set[tuple[CatalogUrl, str | None]] = set()
        self.mistakes: list[str] = []
        self.asked = 0
        self.drops = DropOracle(self.mistakes)

    def check(self, root: str, paths: Iterable[str]) -> None:
        """Raise ``AssertionError`` when anybody names one of some files below ``root``."""
        wanted = {_real(root + path): root + path for path in paths}
        if not wanted:
            return
        self.asked += 1
        for url, schema in self.lakes:
            for who, file in _named(url, schema):
                if _real(file) in wanted:
                    self.mistakes.append(f"{file} is removed, and {who} names it")
        for path in _backed_up(Path(root)):
            if _real(path) in wanted:
                self.mistakes.append(f"{path} is removed, and a backup has it")
        assert not self.mistakes, "; ".join(self.mistakes)


@contextmanager
def watching() -> Iterator[Oracle]:
    """Ask before every removal of files, and every DROP, inside the block; a mistake is an error there, and at the end of the block."""
    oracle = Oracle()
    with pytest.MonkeyPatch.context() as patch:
        opened, delete = Catalog.__init__, Store.delete

        def remember(self: Catalog, url: CatalogUrl, *, metadata_schema: str | None = None, **options: Any) -> None:
            oracle.lakes.add((url, metadata_schema or url.metadata_schema))
            opened(self, url, metadata_schema=metadata_schema, **options)

        def ask(self: Store, paths: Iterable[str]) -> int:
            asked = list(paths)
            oracle.check(self.root, asked)
            return delete(self, asked)

        patch.setattr(Catalog, "__init__", remember)
        patch.setattr(Store, "delete", ask)
        with listening(oracle.drops):
            yield oracle
    assert not oracle.mistakes, "; ".join(oracle.mistakes)


def _real(path: str) -> str:
    plain = path.removeprefix("file://")
    return os.path.realpath(plain) if plain.startswith("/") else plain


def _named(url: CatalogUrl, schema: str | None) -> Iterator[tuple[str, str]]:
    """Every file that a row names, and who it is."""
    prefix = "" if schema is None else f'"{schema}".'
    with _connect(url) as run:
        if run is None:
            return
        shared = _asked(run, f"SELECT 1 FROM {prefix}ducklake_catalog LIMIT 1") is not None
        for kind in ("data_file", "delete_file"):
            words = {name: text.format(schema=prefix) for name, text in (_BOUND if shared else _PLAIN).items()}
            for row in _asked(run, _FILES.format(schema=prefix, kind=kind, **words)) or ():
                yield f"a {kind} of {url}", _joined(*row)


def _joined(path: str, inside: Any, table: str, table_inside: Any, schema: str, schema_inside: Any, root: str) -> str:
    found = path
    for folder, is_relative in ((table, inside), (schema, table_inside), (root, schema_inside)):
        if str(is_relative).lower() not in ("1", "true", "t"):
            return found
        found = f"{folder}{found}" if not folder or folder.endswith("/") else f"{folder}/{found}"
    return found if found.startswith("/") or "://" in found else os.path.abspath(found)  # noqa: PTH100


@contextmanager
def _connect(url: CatalogUrl) -> Iterator[Any]:
    """Something that runs a statement, or None for a database that cannot be looked into."""
    if url.database == "sqlite" and url.path is not None and url.path.exists():
        with closing(sqlite3.connect(f"file:{url.path}?mode=ro", uri=True, timeout=5)) as connection:
            yield connection.execute
    elif url.database == "postgres":
        words = {"host": url.url.host, "port": url.url.port, "user": url.url.username, "dbname": url.url.database}
        options: Any = {key: value for key, value in words.items() if value} | {"password": url.url.password}
        try:
            server = psycopg.connect(**options, autocommit=True, connect_timeout=5)
        except psycopg.OperationalError:
            yield None  # the database was dropped
            return
        with closing(server):
            yield server.execute
    else:
        yield None


def _asked(run: Any, statement: str) -> list[Any] | None:
    """Return the rows, or None if the table does not exist."""
    try:
        return list(run(statement).fetchall())
    except (sqlite3.OperationalError, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        if isinstance(error, sqlite3.OperationalError) and "no such table" not in str(error):
            raise
        return None


def _backed_up(root: Path) -> Iterator[str]:
    """The files in a place of backups that a whole one of them names."""
    for manifest in root.glob("backups/*/manifest.json"):
        for name in ("ducklake_data_file", "ducklake_delete_file"):
            image = manifest.parent / f"{name}.arrow"
            with pa.OSFile(str(image)) as source, pa.ipc.open_stream(source) as reader:
                names = {path.rpartition("/")[2] for path in reader.read_all().column("path").to_pylist()}
            yield from (str(path) for path in (root / "data").rglob("*") if path.name in names)
