"""The lakes that the tests of the format's rules share: one of each client in every database, of the same history.

Both histories make the same snapshots, so that the two lakes can be compared row by row: their catalogs, and what each
client reads in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa

from quacklake.core.catalog.databases.urls import parse_url
from quacklake.core.catalog.tables import SPEC

from ..clients import LONG, LakeSite, plain_duckdb
from ..history import TableState, our_state, stock_state
from ..steps import Stock
from .topics import Topic

__all__ = ["Book", "Books", "Library"]

Topics = Callable[[LakeSite], Mapping[str, Topic]]
States = dict[tuple[str, int], TableState]


@dataclass
class Book:
    """A lake, who wrote it, and its catalog as tables in memory, which are asked by ``rows``."""

    site: LakeSite
    writer: str
    topics: Mapping[str, Topic]
    versions: dict[str, list[int]] = field(default_factory=dict)
    catalog: duckdb.DuckDBPyConnection = field(default_factory=plain_duckdb)
    _seen: dict[str, dict[str, States]] = field(default_factory=dict)

    def play(self) -> None:
        """Write the lake."""
        self._newest()
        for name, topic in self.topics.items():
            self.versions[name] = []
            for step in topic.steps:
                if self.writer == "ours" and not isinstance(step, Stock):
                    step.run(self.site.lake())
                else:
                    for statement in step.sql():
                        self.site.stock().execute(statement)
                version = self._newest()
                if version not in self.versions[name]:
                    self.versions[name].append(version)
        self._copy_catalog()

    def _newest(self) -> int:
        if self.writer == "ours":
            return self.site.lake().current_snapshot()
        ((version,),) = self.site.metadata("SELECT max(snapshot_id) FROM {m}.ducklake_snapshot")
        return int(version)

    def _copy_catalog(self) -> None:
        for name, rows in (_mysql_tables(self.site) if self.site.kind == "mysql" else _tables(self.site)).items():
            self.catalog.register("incoming", rows)
            self.catalog.execute(f'CREATE TABLE "{name}" AS FROM incoming')
            self.catalog.unregister("incoming")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of a query over the catalog."""
        return self.catalog.execute(query).fetchall()

    def table_id(self, name: str) -> int:
        """The id of a table."""
        ((found,),) = self.rows(f"SELECT DISTINCT table_id FROM ducklake_table WHERE table_name = '{name}'")
        return int(found)

    def files(self, table: str, kind: str = "data") -> list[tuple[Path, dict[str, Any]]]:
        """The data files or delete files of a table, each with its row in the catalog, the oldest first."""
        query = (
            f"SELECT f.*, s.path || t.path AS folder FROM ducklake_{kind}_file f"
            f" JOIN (SELECT DISTINCT table_id, schema_id, path FROM ducklake_table) t USING (table_id)"
            f" JOIN ducklake_schema s USING (schema_id) WHERE f.table_id = {self.table_id(table)} ORDER BY {kind}_file_id"
        )
        rows = self.catalog.execute(query).to_arrow_table().to_pylist()
        return [(Path(self.site.data_path, row["folder"], row["path"]), row) for row in rows]

    def seen(self, reader: str, topic: str) -> States:
        """(table, snapshot) -> what a client reads, at the snapshots of the topic.

        All topics are read the first time, because it takes long to change the client that has a lake open.
        """
        if reader not in self._seen:
            read = self._ours if reader == "ours" else self._stocks
            self._seen[reader] = {name: read(each, self.sample(name)) for name, each in self.topics.items()}
        return self._seen[reader][topic]

    def sample(self, topic: str) -> Sequence[int]:
        """The snapshots of a topic that are read: all when there is time, else three."""
        versions = self.versions[topic]
        return versions if LONG or len(versions) < 3 else [versions[len(versions) // 3], versions[-2], versions[-1]]

    def _ours(self, topic: Topic, versions: Sequence[int]) -> States:
        found: States = {}
        with plain_duckdb() as scratch:
            for version in versions:
                view = self.site.lake().at(version=version)
                for info in view._tables():
                    if info.schema_name == "main" and info.name in topic.tables:
                        found[(info.name, version)] = our_state(view, info, scratch)
        for name in topic.texts:
            with plain_duckdb() as connection:
                self.site.lake().at(version=versions[-1]).register(connection)
                found[(name, versions[-1])] = _texts(connection, name)
        return found

    def _stocks(self, topic: Topic, versions: Sequence[int]) -> States:
        stock = self.site.stock()
        known = self.rows("SELECT table_name, begin_snapshot, end_snapshot FROM ducklake_table WHERE schema_id = 0")
        found = {
            (name, version): stock_state(stock, f"l.main.{name} AT (VERSION => {version:d})")
            for name, begin, end in known
            for version in versions
            if name in topic.tables and begin <= version and (end is None or version < end)
        }
        last = f"AT (VERSION => {versions[-1]:d})"
        return found | {(name, versions[-1]): _texts(stock, f"l.main.{name} {last}") for name in topic.texts}


def _texts(connection: duckdb.DuckDBPyConnection, source: str) -> TableState:
    """A table as SQL shows it, without row ids."""
    rows = connection.execute(f"SELECT NULL, COLUMNS(*)::VARCHAR FROM {source} ORDER BY ALL").fetchall()
    return TableState((), tuple(rows))


@dataclass
class Books:
    """The lakes of one database: of both clients, or of ours where the other cannot write."""

    kind: str
    books: Sequence[Book]
    other: Callable[[], Books]

    def check(self, topic: str, *, same_ids: bool = True) -> None:
        """Every client reads the same rows in every lake at every snapshot, and in one lake the same row ids.

        With ``same_ids`` they are the same in all lakes.
        """
        *_, reference = self._comparable()
        expected = reference.seen("stock", topic)
        assert expected, "nothing was read"
        for book in self.books:
            seen = [book.seen(reader, topic) for reader in self._readers]
            for other in seen[1:]:
                _assert_same(other, seen[0], f"in the lake that {book.writer} wrote, stock DuckLake sees")
            if same_ids:
                _assert_same(seen[0], expected, f"in the lake that {book.writer} wrote")
            else:
                _assert_same(_without_ids(seen[0]), _without_ids(expected), f"in the lake that {book.writer} wrote")

    @property
    def _readers(self) -> Sequence[str]:
        return ("ours",) if self.kind == "mysql" else ("ours", "stock")

    def columns(self, table: str, expected: str) -> None:
        """A catalog table has these columns, in this order, in all lakes."""
        for book in self.books:
            names = [row[0] for row in book.rows(f"DESCRIBE ducklake_{table}")]
            assert names == expected.split(", "), book.writer

    def same(self, table: str, columns: str = "*", where: str = "true") -> list[tuple[Any, ...]]:
        """Rows of a catalog table that are alike in all lakes."""
        query = f"SELECT {columns} FROM ducklake_{table} WHERE {where} ORDER BY ALL"
        first, *others = [book.rows(query) for book in self._comparable()]
        for found in others:
            assert found == first, table
        return first

    def each(self, query: str) -> list[list[tuple[Any, ...]]]:
        """The rows of a query in each of the lakes."""
        return [book.rows(query) for book in self.books]

    def _comparable(self) -> Sequence[Book]:
        return [*self.books, self.other().books[-1]] if self.kind == "mysql" else self.books


def _assert_same(found: States, expected: States, what: str) -> None:
    assert set(found) == set(expected)
    for key, state in found.items():
        assert state.columns == expected[key].columns, (what, key)
        assert state.rows == expected[key].rows, (what, key)


def _without_ids(states: States) -> States:
    return {
        key: TableState(state.columns, tuple(sorted((row[1:] for row in state.rows), key=str)))
        for key, state in states.items()
    }


@dataclass
class Library:
    """All lakes, each written when it is first needed."""

    make_site: Callable[..., LakeSite]
    _books: dict[tuple[str, Topics], Books] = field(default_factory=dict)

    def books(self, kind: str, topics: Topics) -> Books:
        """The lakes of one database and history."""
        if (kind, topics) not in self._books:
            books = [
                self._write(kind, writer, topics) for writer in (("ours",) if kind == "mysql" else ("ours", "stock"))
            ]
            self._books[(kind, topics)] = Books(kind, books, lambda: self.books("sqlite", topics))
        return self._books[(kind, topics)]

    def _write(self, kind: str, writer: str, topics: Topics) -> Book:
        site = self.make_site(kind)
        site.foreign_paths = [site.folder / "outside"]
        book = Book(site, writer, topics(site))
        book.play()
        return book


def _tables(site: LakeSite) -> dict[str, pa.Table]:
    """Every table of the catalog, read by the reference implementation."""
    names = [f"ducklake_{name}" for name in SPEC]
    names += [name for (name,) in site.metadata("SELECT table_name FROM {m}.ducklake_inlined_data_tables")]
    tables = {name: _read(site, name) for name in names}
    for (id_,) in site.metadata("SELECT DISTINCT table_id FROM {m}.ducklake_table"):
        name = f"ducklake_inlined_delete_{id_}"
        with suppress(duckdb.CatalogException):
            tables[name] = _read(site, name)
    return tables


def _read(site: LakeSite, name: str) -> pa.Table:
    return site.stock().execute(f'FROM __ducklake_metadata_l."{name}"').to_arrow_table()


def _mysql_tables(site: LakeSite) -> dict[str, pa.Table]:
    engine = sa.create_engine(parse_url(site.url).url)
    with engine.connect() as connection:
        names = [name for name in sa.inspect(connection).get_table_names() if name.startswith("ducklake_")]
        found = {name: connection.execute(sa.text(f"SELECT * FROM `{name}`")) for name in names}
        tables = {
            name: pa.table({key: [row[key] for row in rows] for key in result.keys()})  # noqa: SIM118
            for name, result in found.items()
            for rows in [result.mappings().all()]
        }
    engine.dispose()
    return tables
