"""The tables of a shared lake as the database has them: the first column of each is ``catalog_id``.

``definitions`` are for creating them, and for statements over many catalogs; everything else goes through ``Tables``,
whose statements are bound to one catalog.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateTable

from quacklake.core.catalog import scoped
from quacklake.core.catalog.indexes import INDEXES
from quacklake.core.catalog.name_keys import name_indexes
from quacklake.core.catalog.scoped import CATALOG_ID
from quacklake.core.catalog.statements import DELETES, ROWS
from quacklake.core.catalog.tables import OWN_TABLES, WIDE_SPEC, ColumnSpec, Name, Text
from quacklake.errors import UnsupportedFeatureError

_KEYS = {
    "view_id": "view view_column_tag",
    "macro_id": "macro macro_impl macro_parameters",
}
#: Indexes of a shared lake; name -> (table, columns), each of which follows ``catalog_id``.
_INDEXES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "idx_snapshot_catalog": ("ducklake_snapshot", ("snapshot_time",)),
        "idx_schema_catalog": ("ducklake_schema", ("schema_id", "begin_snapshot")),
        "idx_table_catalog": ("ducklake_table", ("table_id", "begin_snapshot")),
        **{
            name: (f"ducklake_{table}", columns)
            for name, (table, columns) in INDEXES.items()
            if name != "quacklake_table_id"
        },
        "quacklake_metadata": ("ducklake_metadata", ()),
        **{
            f"quacklake_{table}": (f"ducklake_{table}", (key,))
            for key, tables in _KEYS.items()
            for table in tables.split()
        },
        "quacklake_variant_stats": ("ducklake_file_variant_stats", ("table_id", "data_file_id")),
        "quacklake_scheduled": ("ducklake_files_scheduled_for_deletion", ("data_file_id",)),
        "quacklake_inlined_rows": (ROWS, ("table_id", "schema_version", "row_id")),
        "quacklake_inlined_deletes": (DELETES, ("table_id", "file_id")),
        "quacklake_commit_snapshots": ("quacklake_commits", ("snapshot_id",)),
    }
)


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """A catalog of a shared lake. ``folder`` is the folder of its files, below the data path of the lake.

    ``borrows`` are folders elsewhere whose files it may read: those of the lake that it was forked or adopted from.
    """

    id: int
    name: str
    uuid: str
    folder: str
    created_ms: int
    dropped_ms: int | None = None
    borrows: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: Any) -> CatalogRow:
        """Return the catalog of a row of the database."""
        id_, name, uid, folder, created_ms, dropped_ms, borrows = row
        folders = tuple(json.loads(borrows)) if borrows else ()
        return cls(id_, name, uid, folder, created_ms, dropped_ms, folders)


def folder_path(root: str, folder: str) -> str:
    """Return the data path of a catalog of a shared lake; a converted plain lake keeps its whole path."""
    if folder.startswith("/") or "://" in folder:
        return folder
    return f"{root.rstrip('/')}/{folder}/"


def differing(claims: Iterable[str | None], data_path: str) -> list[str | None]:
    """Return the data paths that rows of the metadata claim and that are not the registered one."""
    return [claim for claim in claims if claim is None or _plain(claim) != _plain(data_path)]


def _plain(path: str) -> str:
    return path.removeprefix("file://").rstrip("/")


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """The facts that a shared lake stores about itself."""

    layout: str
    data_path: str
    encrypted: bool


class SharedTables:
    """The tables of all shared lakes in a schema of that name; ``of`` makes them once.

    With a ``prefix`` to their names they are created beside those of a lake, and get its names later.
    """

    @staticmethod
    @functools.lru_cache(maxsize=16)
    def of(metadata_schema: str | None = None, prefix: str = "") -> SharedTables:
        """Return the tables of a schema."""
        return SharedTables(metadata_schema, prefix)

    def __init__(self, metadata_schema: str | None = None, prefix: str = "") -> None:
        self.metadata = sa.MetaData(schema=metadata_schema)
        self._prefix = prefix
        self.catalog = self._registry(
            "ducklake_catalog",
            "catalog_id:id* catalog_name:key! created_snapshot:id catalog_uuid:uid! catalog_key:key! folder:text!"
            # a dropped catalog that was purged keeps its row while a client may still write into its folder
            " folder_key:key! created_ms:id! dropped_ms:id borrows:text purged_ms:id limits:text",
        )
        self.shared = self._registry(
            "quacklake_shared",
            "id:id* next_catalog_id:id! layout:text! data_path:text! encrypted:id! limits:text"
            # the last catalog that a round of maintenance looked at
            " maintained_id:id",
        )
        #: The files of a catalog that must stay because of another catalog, or of a plain lake elsewhere.
        self.shares = self._registry("quacklake_shares", "owner_id:id! borrower_id:id place:text below_file_id:id!")
        stock = {f"ducklake_{name}": columns for name, columns in WIDE_SPEC.items()}
        own = {f"quacklake_{name}": tuple(map(ColumnSpec.parse, text.split())) for name, text in OWN_TABLES.items()}
        #: Every table whose rows are a catalog's, by its full name.
        self.definitions = {name: self._table(name, columns) for name, columns in {**stock, **own}.items()}
        self.definitions[ROWS] = self._plain_table(ROWS, "table_id schema_version row_id begin_snapshot end_snapshot")
        self.definitions[ROWS].append_column(sa.Column("payload", Text(), nullable=False))
        self.definitions[DELETES] = self._plain_table(DELETES, "table_id file_id row_id begin_snapshot")
        self._indexes: dict[str, list[sa.Index]] = {}

    def __getitem__(self, name: str) -> sa.Table:
        return self.definitions[f"ducklake_{name}"]

    def _registry(self, name: str, columns: str) -> sa.Table:
        """Return a table that belongs to no catalog; keys are unique, and compared byte by byte on PostgreSQL too."""
        made: list[sa.Column[Any]] = []
        for column in map(ColumnSpec.parse, columns.split()):
            if column.kind == "key":
                kind = Name().with_variant(sa.String(collation="C"), "postgresql")
                made.append(sa.Column(column.name, kind, nullable=False, unique=True))
            else:
                made.append(column.made())
        return scoped.registry(sa.Table(f"{self._prefix}{name}", self.metadata, *made))

    def _table(self, name: str, columns: tuple[ColumnSpec, ...]) -> sa.Table:
        keyed = any(column.primary_key for column in columns)
        return sa.Table(
            f"{self._prefix}{name}",
            self.metadata,
            sa.Column(scoped.CATALOG_ID, sa.BigInteger(), primary_key=keyed, autoincrement=False, nullable=False),
            *(column.made() for column in columns),
        )

    def _plain_table(self, name: str, columns: str) -> sa.Table:
        first = sa.Column(scoped.CATALOG_ID, sa.BigInteger(), nullable=False)
        others = (sa.Column(column, sa.BigInteger(), nullable=column == "end_snapshot") for column in columns.split())
        return sa.Table(f"{self._prefix}{name}", self.metadata, first, *others)

    def all(self) -> list[sa.Table]:
        """Return every table, in the order of creation: the one that makes them a shared lake comes last."""
        return [*self.definitions.values(), self.shares, self.shared, self.catalog]

    def indexes(self, database: str) -> list[sa.Index]:
        """Return the indexes, the same ones each time: a table keeps every index that is made for it."""
        if database == "duckdb":
            return []  # a plain lake has none there either
        if database not in self._indexes:
            self._indexes[database] = [
                sa.Index(name, *(self.definitions[table].c[column] for column in (scoped.CATALOG_ID, *columns)))
                for name, (table, columns) in _INDEXES.items()
            ]
            stock = {name: self[name] for name in WIDE_SPEC}
            self._indexes[database] += name_indexes(stock, database, (scoped.CATALOG_ID,))
            self._indexes[database].append(self._index_dropped(database))
            self._indexes[database].append(sa.Index("quacklake_shares_owner", self.shares.c.owner_id))
            self._indexes[database].append(sa.Index("quacklake_shares_borrower", self.shares.c.borrower_id))
        return self._indexes[database]

    def _index_dropped(self, database: str) -> sa.Index:
        """Return the index of dropped catalogs: few among many, so the listing of the others must not use it."""
        t = self.catalog
        if database == "mysql":
            return sa.Index("quacklake_catalog_gone", t.c.dropped_ms, t.c.catalog_key)
        few = t.c.dropped_ms.is_not(None)
        return sa.Index("quacklake_catalog_gone", t.c.catalog_key, postgresql_where=few, sqlite_where=few)

    def retired(self) -> list[sa.Index]:
        """Return indexes that older versions made and that have been replaced."""
        table = sa.Table(self.catalog.name, sa.MetaData(schema=self.metadata.schema), sa.Column("dropped_ms"))
        return [sa.Index("quacklake_catalog_dropped", table.c.dropped_ms)]


def create_statements(
    table: sa.Table, dialect: Dialect, partitions: int | None, *, if_not_exists: bool
) -> Iterator[sa.schema.ExecutableDDLElement]:
    """Yield the statements that create a table, as a whole or, where it can be, partitioned by the catalog's hash."""
    create = CreateTable(table, if_not_exists=if_not_exists)
    if partitions is None:
        yield create
        return
    text = f"{str(create.compile(dialect=dialect)).rstrip()} PARTITION BY HASH ({CATALOG_ID})"
    if dialect.name in ("mysql", "mariadb"):
        yield _ddl(f"{text} PARTITIONS {partitions:d}")
    elif dialect.name == "postgresql":
        yield _ddl(text)
        whole = dialect.identifier_preparer.format_table(table)
        for number in range(partitions):
            part = dialect.identifier_preparer.format_table(table, name=f"{table.name}_{number}")
            bounds = f"FOR VALUES WITH (MODULUS {partitions:d}, REMAINDER {number:d})"
            yield _ddl(f"CREATE TABLE {part} PARTITION OF {whole} {bounds}")
    else:
        raise UnsupportedFeatureError(
            f"tables of {dialect.name} have no partitions", hint="leave metadata_partitions out"
        )


def _ddl(text: str) -> sa.DDL:
    return sa.DDL(text.replace("%", "%%"))  # type: ignore[no-untyped-call]
