"""The catalog: a lake's metadata in a SQL database, behind a pool of connections."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake import telemetry
from quacklake.core.catalog import migrations, scoped
from quacklake.core.catalog.databases.connections import Connections
from quacklake.core.catalog.databases.database import PreparedSelect
from quacklake.core.catalog.databases.duckdb import DuckDBDatabase
from quacklake.core.catalog.databases.mysql import MySQLDatabase
from quacklake.core.catalog.databases.postgres import PostgresDatabase
from quacklake.core.catalog.databases.sqlite import SqliteDatabase
from quacklake.core.catalog.databases.urls import CatalogUrl, parse_url
from quacklake.core.catalog.reading.known_bounds import BoundsMemory
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.reading.tables import LATEST, LIMITS
from quacklake.core.catalog.registry import CATALOG_REQUIRED, Registry, no_such_catalog, shared_facts
from quacklake.core.catalog.scoped import CATALOG
from quacklake.core.catalog.shared_tables import CatalogRow, SharedFacts, SharedTables, differing, folder_path
from quacklake.core.catalog.tables import (
    NEXT,
    PARTS,
    READABLE_VERSIONS,
    VERSION,
    WRITABLE_VERSIONS,
    Part,
    Tables,
    has_next,
)
from quacklake.core.catalog.turns import give_back_own
from quacklake.core.catalog.writing.files import TotalsCache
from quacklake.core.catalog.writing.writer import Writer, add_first_rows, create_own, create_tables
from quacklake.core.format.inline import PACKED
from quacklake.core.format.objects import NO_LIMITS, Limits
from quacklake.errors import (
    AlreadyExistsError,
    CommitUnknown,
    ConfigError,
    NotFoundError,
    QuacklakeError,
    ReadOnlyError,
    UnsupportedFeatureError,
    UnsupportedVersionError,
)

_LOG = logging.getLogger("quacklake.catalog")
_DATABASES = {kind.name: kind for kind in (SqliteDatabase, DuckDBDatabase, PostgresDatabase, MySQLDatabase)}


class Catalog(Connections):
    """A lake's metadata. Above this class nobody names a table or a column of the database.

    ``read()`` is one consistent read transaction, ``commit()`` the one short transaction of a commit.
    """

    def __init__(
        self,
        url: CatalogUrl,
        *,
        catalog: str | None = None,
        metadata_schema: str | None = None,
        bounds_bytes: int = 0,
        **options: Any,
    ) -> None:
        """Remember up to ``bounds_bytes`` of bounds of files. See ``Database`` for the other options."""
        super().__init__(_DATABASES[url.database](url, **options), shared=catalog is not None)
        self.read_only = self._opened_read_only = self.backend.read_only
        self.metadata_schema = metadata_schema or url.metadata_schema
        #: The name of a catalog (tenant) of a shared lake; None for a plain lake, which is one without a name.
        self.tenant = catalog
        self.shared = catalog is not None
        #: The form of inlined rows: as in this kind of database, or packed.
        self.encoding = PACKED if self.shared else self.database
        self.tenant_row: CatalogRow | None = None
        #: The catalog that ``create_from`` makes.
        self.reserved: CatalogRow | None = None
        self.shared_facts: SharedFacts | None = None
        #: The data path of a catalog of a shared lake, from a table that only the owner of the lake can write.
        self.registered_data_path: str | None = None
        self._tables = Tables.of(metadata_schema=self.metadata_schema, shared=self.shared)
        self._cache: dict[Any, Any] = {}
        #: The bounds of files that are remembered.
        self.bounds = BoundsMemory(bounds_bytes)
        self._lock = threading.Lock()
        self._known_plain = False
        self._prepared = False
        #: True when commits can be remembered by a token.
        self.has_tokens = False
        self.totals = TotalsCache()
        self.metadata: Mapping[str, str] = {}

    # -- life --------------------------------------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """The limits of a catalog of a shared lake, as they were when a snapshot was read last."""
        limits: Limits = self._cache.get(LIMITS, NO_LIMITS)
        return limits

    def exists(self) -> bool:
        """Return whether the database holds a lake, or the requested catalog of a shared one.

        Raise ``ConfigError`` when it is a lake of the other layout.
        """
        path = self.url.path
        if path is not None and not path.exists():
            return False
        if self.tenant is not None:
            try:
                with self.translate_errors("open"), self.asking() as connection:
                    return self._holds_catalog(connection, self.tenant)
            except ReadOnlyError:
                # do not reveal that the catalog exists to a role that may not see it
                raise no_such_catalog(self.tenant) from None
        with self.translate_errors("open"), self.asking() as connection:
            if not self.holds_lake(connection):
                return False
            if not self._known_plain and self.backend.has_table(connection, "ducklake_catalog", self.metadata_schema):
                raise ConfigError(CATALOG_REQUIRED, hint="pass catalog=, or set QUACKLAKE_CATALOG")
            self._known_plain = True
            return True

    def _holds_catalog(self, connection: Connection, name: str) -> bool:
        self.shared_facts = shared_facts(connection, self.backend, self.metadata_schema)
        if self.shared_facts is None:
            table = scoped.registry(sa.Table("ducklake_metadata", sa.MetaData(), schema=self.metadata_schema))
            if not self.backend.has_table(connection, table.name, self.metadata_schema):
                return False
            # on MySQL a creation that failed, or is under way, shows its tables, all empty
            any_row: sa.Select[Any] = sa.select(sa.literal(1)).select_from(table).limit(1)
            if self.database == "mysql" and connection.execute(any_row).first() is None:
                return False
            # another client may have created it in between
            self.shared_facts = shared_facts(connection, self.backend, self.metadata_schema)
            if self.shared_facts is None:
                raise ConfigError(
                    f"the lake at {self.url} is not a shared one: it has one catalog, without a name",
                    hint="leave catalog out",
                )
        self.tenant_row = row = Registry(connection, self.backend, self.metadata_schema).find(name)
        if row is not None:
            self.backend.enter_file(self, row.id)
            self._engine.update_execution_options(**{CATALOG: row.id})
        return row is not None

    def is_called(self, name: str) -> bool:
        """Return whether the catalog (tenant) of that name is this one: names change, and are used again."""
        with self.translate_errors("read"), self.connected() as connection:
            row = Registry(connection, self.backend, self.metadata_schema).find(name)
        return row is not None and self.tenant_row is not None and row.id == self.tenant_row.id

    def holds_lake(self, connection: Connection) -> bool:
        """Return whether the database has the tables of a lake."""
        metadata = self._tables["metadata"]
        if not self.backend.has_table(connection, metadata.name, self.metadata_schema):
            return False
        # on MySQL a failed creation leaves its tables behind, all empty
        return self.database != "mysql" or connection.execute(sa.select(metadata.c.key).limit(1)).first() is not None

    def load(self, *, found: bool = False) -> None:
        """Read the lake's own facts (version, data path, encryption); ``found`` if ``exists`` was just true.

        Raise ``NotFoundError`` when there is no lake and ``UnsupportedVersionError`` for an unknown version.
        """
        if not found and not self.exists():
            if self.tenant is not None:
                raise no_such_catalog(self.tenant)
            raise NotFoundError(f"there is no lake at {self.url.shown}", hint="pass data_path= to create one")
        every: sa.Select[Any] = sa.select(sa.literal_column("*")).select_from(self._tables["metadata"])
        with self.read(once=True) as reader:
            rows = reader.run("options", every).mappings().all()
        # the oldest version has no scopes
        self.metadata = {row["key"]: row["value"] for row in rows if row.get("scope") is None}
        self._set_registered([row["value"] for row in rows if row["key"] == "data_path" and row.get("scope") is None])
        version = self.metadata.get("version", "unknown")
        if version not in READABLE_VERSIONS:
            raise UnsupportedVersionError(
                f"the lake at {self.url} has the format version {version}",
                hint=f"this version of quacklake reads {', '.join(READABLE_VERSIONS)}",
            )
        lacking = self._lacking() if has_next(version) else frozenset()
        tables = Tables.of(version, self.metadata_schema, shared=self.shared, lacking=lacking)
        if tables is not self._tables:
            self._tables = tables
            self._cache.clear()
            self.bounds.clear()
        self.read_only = self._opened_read_only or version not in WRITABLE_VERSIONS

    def _set_registered(self, claims: Sequence[str | None]) -> None:
        """Replace what the metadata of a catalog of a shared lake says by what the registry of the lake says.

        Whoever may write a catalog may write its metadata, and the owner of the lake removes files by its data path.
        """
        if self.tenant_row is None or self.shared_facts is None:
            return
        data_path = folder_path(self.shared_facts.data_path, self.tenant_row.folder)
        self.metadata = {**self.metadata, "data_path": data_path}
        self.registered_data_path = data_path
        if claims and not differing(claims, data_path):
            return
        _LOG.warning(
            "the metadata of the catalog '%s' does not name its data path %s: the registry of the lake decides,"
            " and verify reports it",
            self.tenant_row.name,
            data_path,
        )

    def _lacking(self) -> frozenset[Part]:
        """Return the parts of 1.1 that the database lacks, whatever its version says."""
        wide = Tables.of(NEXT, self.metadata_schema, shared=self.shared)
        with self.translate_errors("open"), self.connected() as connection:
            columns = {
                name: self.backend.column_names(connection, wide[name].name, self.metadata_schema)
                for name in sorted({table for table, _ in PARTS})
            }
        return frozenset(
            (table, column)
            for table, column in PARTS
            if (not columns[table] if column is None else column not in columns[table])
        )

    @property
    def version(self) -> str:
        """The format version of the lake."""
        return self._tables.version

    @property
    def is_next(self) -> bool:
        """True for a lake of the format version 1.1."""
        return self._tables.is_next

    @property
    def encrypted(self) -> bool:
        """True when every file of the lake is encrypted with its own key."""
        demanded = self.shared_facts is not None and self.shared_facts.encrypted
        return demanded or self.metadata.get("encrypted") == "true"

    def size(self) -> int | None:
        """Return the bytes of the metadata; None in a shared lake and where the database cannot tell."""
        if self.shared:
            return None
        with self.translate_errors("read"), self.connected() as connection:
            size = self.backend.size(connection, self._tables.metadata.schema)
        if size is not None:
            telemetry.gauge("catalog.bytes", size)
        return size

    @property
    def outdated(self) -> bool:
        """True when the lake has an older format version, which is read but not written."""
        return self.version not in WRITABLE_VERSIONS

    def refusal(self) -> ReadOnlyError:
        """Return the error that says why this lake cannot be written."""
        hint = None
        if self.outdated:
            hint = "lake.migrate() or `quacklake migrate` brings a lake of an older format version to the present one"
        return ReadOnlyError(f"this lake is open read-only (format version {self.version})", hint=hint)

    def migrate(self, to: str | None = None) -> tuple[str, ...]:
        """Bring a lake to another format version: ``1.0`` or ``1.1``, by default the oldest that can be written.

        Return the versions it has had. All or nothing, except on MySQL, where it can be run again after a failure.
        Raise ``UnsupportedFeatureError`` for what 1.0 has no place for.
        """
        target = to or (VERSION if self.outdated else self.version)
        if target not in WRITABLE_VERSIONS:
            raise UnsupportedVersionError(
                f"a lake cannot be migrated to the format version {target}", hint=f"{VERSION} and {NEXT} are known"
            )
        if self._opened_read_only:
            raise self.refusal()
        if target == self.version:
            return (self.version,)
        try:
            with telemetry.timed("migrate"):
                with self.translate_errors("migrate"), self.connected() as connection:
                    self.backend.prepare_write(connection)
                with self.queued() as writer:
                    passed = migrations.migrate(writer, target)
                    if not self.shared:
                        create_own(writer, Tables.of(target, self.metadata_schema))
        except BaseException:
            with suppress(QuacklakeError):
                self.load()  # where DDL cannot be undone, some steps may have been committed
            raise
        self.totals = TotalsCache()
        self._prepared = self.has_tokens = True
        self.load()
        return passed

    def create(self, data_path: str, *, encrypted: bool = False, version: str = VERSION) -> None:
        """Make a new lake exactly as stock DuckLake does, plus our indexes and tables."""
        self._tables = Tables.of(version, self.metadata_schema)
        self._begin_new()
        with self.commit(create=True) as writer:
            mine = not self.holds_lake(writer.connection)  # no other client was quicker
            if mine:
                create_tables(writer)
                add_first_rows(writer, data_path, encrypted=encrypted)
        self._prepared = self.has_tokens = mine
        self.load()

    def create_from(self, fill: Callable[[Writer], None], version: str) -> None:
        """Make the tables of a lake, or a ``reserved`` catalog, and have them filled, all in one transaction.

        Raise ``AlreadyExistsError``. On MySQL tables may be left behind empty after a failure.
        """
        self._tables = Tables.of(version, self.metadata_schema, shared=self.shared)
        if self.shared:
            if has_next(version):
                self.widen()
            self._create_reserved(fill)
            return
        self._begin_new()
        with self.commit(create=True) as writer:
            if self.holds_lake(writer.connection):
                raise AlreadyExistsError(f"there is a lake at {self.url} already")
            create_tables(writer)
            fill(writer)
        self._prepared = self.has_tokens = True
        self.load()

    def replace_from(self, fill: Callable[[Writer], None], version: str) -> None:
        """Replace everything in the tables of a plain lake, in one transaction. Raise ``UnsupportedFeatureError``."""
        if self.shared or self.database == "mysql":
            raise UnsupportedFeatureError(
                f"a {'shared' if self.shared else 'MySQL'} catalog cannot be replaced as a whole",
                hint="restore into an empty database",
            )
        if version != self.version:
            raise UnsupportedFeatureError(
                f"the lake has the format version {self.version}, and what would replace it has {version}",
                hint="migrate one of them first",
            )
        with self.commit() as writer:
            fill(writer)
        self._cache.clear()
        self.bounds.clear()
        self.load()

    def _create_reserved(self, fill: Callable[[Writer], None]) -> None:
        assert self.tenant is not None
        row = self.reserved
        if row is None:
            raise UnsupportedFeatureError("no catalog of the shared lake is reserved for this")
        with self.queued("/catalogs") as writer:
            registry = Registry(writer.connection, self.backend, self.metadata_schema)
            registry.check_free(self.tenant)
            writer.connection.execution_options(**{CATALOG: row.id})
            fill(writer)
            registry.enter([row])
        self.load()

    def widen(self) -> None:
        """Give the tables of a shared lake that an older version made the columns of 1.1."""
        with self.translate_errors("open"), self.connected() as connection:
            there = self.backend.has_table(connection, migrations.LAST, self.metadata_schema)
        if not there:
            with self.queued("/catalogs") as writer:
                migrations.widen(writer, SharedTables.of(self.metadata_schema).definitions)

    def _begin_new(self) -> None:
        if self.read_only:
            raise ReadOnlyError("cannot create a lake through a read-only connection")
        if self.shared:
            raise UnsupportedFeatureError(
                "a catalog of a shared lake cannot be created this way", hint="leave catalog out to create a plain lake"
            )
        with self.translate_errors("create"):
            self.backend.make_file()
        with self.translate_errors("create"), self.connected() as raw:
            self.backend.prepare_write(raw)

    def prepare(self) -> None:
        """Create our tables and indexes once before the first write, as far as the rights suffice."""
        with self._lock:  # held to the end: no thread may commit without a token meanwhile
            if self._prepared:
                return
            if self.shared:  # it has all its tables, and its catalogs may create none
                self._prepared = self.has_tokens = True
                return
            # without the right to create tables we still commit, but cannot recover a lost answer
            with suppress(ReadOnlyError), self.translate_errors("prepare"), self.connected() as connection:
                self.backend.prepare_write(connection)
            with suppress(ReadOnlyError), self.commit(create=True) as writer:
                create_own(writer, self._tables)
            with self.translate_errors("prepare"), self.connected() as connection:
                self.has_tokens = self.backend.has_table(connection, "quacklake_commits", self.metadata_schema)
            self._prepared = True

    # -- transactions ------------------------------------------------------------------------------------------------

    @contextmanager
    def read(self, *, once: bool = False) -> Iterator[Reader]:
        """Lend one consistent read transaction, or ``once`` what runs a single statement."""
        with self.reading(once=once) as connection:
            yield Reader(connection, self._tables, self.backend, self._cache, self.bounds)

    @contextmanager
    def commit(self, *, create: bool = False, latest: bool = False) -> Iterator[Writer]:
        """Lend the commit transaction, entered when its turn in the queue has come; leaving it commits.

        With ``latest`` the newest snapshot is read first, and may come with the turn. Raise ``Collision`` when the
        commit has to be replayed, ``CommitUnknown`` when the connection was lost while the database was committing.
        """
        if self.read_only:
            raise self.refusal()
        if not create:
            self.prepare()
        newest: sa.Select[Any] | None = self._cache.get(LATEST) if latest else None
        with self.queued(ahead=None if newest is None else PreparedSelect(newest)) as writer:
            yield writer

    def run_sql(self, make: Callable[[str], str]) -> int:
        """Run a statement in the database's own SQL, for repairs by hand; return how many rows it changed.

        ``make`` is given what stands before the names of the metadata tables. Nothing checks what is changed.
        """
        if self.shared:
            raise UnsupportedFeatureError(
                "the metadata of a shared lake cannot be changed by hand: a statement could reach other catalogs",
                hint="use lake.maintenance.repair(), or the methods of the lake",
            )
        schema = self._tables.metadata.schema
        with self.commit() as writer:
            changed = writer.run_sql(make("" if schema is None else f"{schema}."))
        self._cache.clear()
        self.bounds.clear()
        return changed

    @contextmanager
    def queued(self, queue: str = "", ahead: PreparedSelect | None = None) -> Iterator[Writer]:
        """Lend a transaction with its turn in the queue of commits, or another; ``ahead`` may be asked at once."""
        give_back_own()
        # catalogs of a shared lake do not wait for each other
        scope = f"{self.metadata_schema or ''}{queue}"
        if self.tenant_row is not None:
            scope = f"{scope}#{self.tenant_row.id}"
        with self._committing(scope, self._forget_uncommitted, ahead) as (connection, answer):
            writer = Writer(connection, self._tables, self.backend, self._cache)
            writer.ahead = answer
            yield writer

    def _forget_uncommitted(self) -> None:
        """Forget the tables of inlined rows of a failed commit: their names may come back with other columns."""
        for key in list(self._cache):
            if isinstance(key, tuple) and key[0] in ("inlined", "inlined_deletes", "inlined_exists"):
                self._cache.pop(key, None)

    def forget(self) -> None:
        """Forget what was read: the lake is no longer the one that it was read from."""
        self._cache.clear()
        self.bounds.clear()
        self.totals = TotalsCache()

    def find_commit(self, token: str) -> int | None:
        """Return the snapshot that a commit with this token made, if any, after waiting for a turn in the queue."""
        if not self.has_tokens:
            raise CommitUnknown(
                "the answer to a commit was lost, and this catalog has no table to look it up in",
                hint="compare lake.snapshots() with what you wrote before trying again",
            )
        table = self._tables.own["commits"]
        with self.commit() as writer:
            statement = sa.select(table.c.snapshot_id).where(table.c.token == token)
            return writer.run("find_commit", statement).scalar()


def open_catalog(url: str | CatalogUrl, **options: Any) -> Catalog:
    """Return the catalog for a URL; see ``Catalog`` for the options. Opens no connection yet."""
    return Catalog(parse_url(url) if isinstance(url, str) else url, **options)
