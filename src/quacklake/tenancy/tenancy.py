"""A shared lake as a whole, for those who look after its catalogs (tenants)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from quacklake import telemetry
from quacklake.catalog import shared_lake
from quacklake.catalog.catalog import Catalog
from quacklake.catalog.databases.database import PreparedSelect
from quacklake.catalog.migrations.versions import VERSION, has_next
from quacklake.catalog.registry import (
    CatalogRow,
    CatalogTotals,
    Registry,
    SharedFacts,
    new_catalogs,
    no_such_catalog,
    shared_facts,
)
from quacklake.catalog.shared_lake import Share, SharedPlace
from quacklake.catalog.tables import SPEC, WIDE_SPEC
from quacklake.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConfigError,
    InputError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedFeatureError,
)
from quacklake.format.limits import Limits, changed
from quacklake.tenancy import access, exposing, granting, occupancy
from quacklake.tenancy.conversion import Conversion
from quacklake.tenancy.maintenance_needs import CatalogNeed, Thresholds, needs
from quacklake.tenancy.mysql_conversion import MySQLConversion
from quacklake.tenancy.sharing import Sharing

__all__ = ["Tenancy"]

_LOG = logging.getLogger("quacklake.migrate")
_LAYOUT = ("ducklake_catalog", "quacklake_shared")
_QUEUE = "/catalogs"
"""Where those wait who make, rename or drop a catalog; commits do not."""


class Tenancy:
    """The catalogs of a shared lake. ``catalog`` is one that was opened without a name, and is closed with it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def url(self) -> str:
        """Where the metadata is; never with a password."""
        return str(self._catalog.url)

    @property
    def database(self) -> str:
        """``sqlite``, ``duckdb``, ``postgres`` or ``mysql``."""
        return self._catalog.database

    def close(self) -> None:
        """Give back every connection."""
        self._catalog.close()

    def facts(self) -> SharedFacts | None:
        """What the lake says of itself; None when there is no shared lake. Raises ``ConfigError`` for a plain one."""
        path = self._catalog.url.path
        if path is not None and not path.exists():
            return None
        catalog = self._catalog
        with catalog._translate("open"), catalog._connection() as connection:
            found = shared_facts(connection, catalog._database, catalog._schema)
            if found is None and catalog._holds_lake(connection):
                # it may have been made between the two looks
                found = shared_facts(connection, catalog._database, catalog._schema)
                if found is not None:
                    return found
                raise ConfigError(
                    f"the lake at {self.url} is not a shared one: it has one catalog, without a name",
                    hint="use a database or metadata_schema of its own for a shared lake",
                )
            return found

    def need_facts(self) -> SharedFacts:
        """The same. Raises ``NotFoundError`` when there is no shared lake."""
        found = self.facts()
        if found is None:
            raise NotFoundError(f"there is no shared lake at {self.url}", hint="pass data_path= to make one")
        return found

    def create_lake(self, data_path: str, *, encrypted: bool, partitions: int | None = None) -> SharedFacts:
        """Make a shared lake without catalogs, unless there is one; see ``Registry.create_lake``."""
        catalog = self._catalog
        if catalog.read_only:
            raise ReadOnlyError("cannot create a lake through a read-only connection")
        with catalog._translate("create"):
            catalog._database.make_file()
        with catalog._translate("create"), catalog._connection() as connection:
            catalog._database.prepare_write(connection)
        with self._writing() as registry:
            if shared_facts(registry._connection, catalog._database, catalog._schema) is None:
                registry.create_lake(data_path, encrypted=encrypted, partitions=partitions)
        return self.need_facts()

    def mend_indexes(self) -> None:
        """Give a lake that an older version made the indexes and columns that it lacks, where the rights suffice."""
        with suppress(ReadOnlyError):
            self._catalog.widen()
        with self._reading() as registry:
            if not registry.missing_indexes():
                return
        with suppress(ReadOnlyError), self._writing() as registry:
            registry.mend_indexes()

    def mend_access(self) -> None:
        """Bring what roles of PostgreSQL may do and see on a lake that an older version made to the present state.

        Done by the owner of the tables alone, each part by itself, as far as rights suffice and nobody is in the way.
        """
        if self._catalog.database != "postgres" or self._catalog.read_only:
            return
        with self._reading() as registry:
            mends = access.needed(registry._connection, self._catalog._schema)
        for mend in mends:
            try:
                with self._writing() as registry:
                    place = shared_lake.find_place(registry._connection, self._catalog._schema)
                    statements = mend(registry._connection, place, self._catalog._schema)
                    shared_lake.execute(registry._connection, statements)
            except (ReadOnlyError, CatalogUnavailableError) as error:
                _LOG.warning("the rights of roles on the lake at %s are not up to date: %s", self.url, error.message)

    def is_convertible(self) -> bool:
        """True for a shared lake that a fork of DuckLake with catalogs has made."""
        catalog = self._catalog
        with catalog._translate("open"), catalog._connection() as connection:
            there = (catalog._database.has_table(connection, name, catalog._schema) for name in _LAYOUT)
            return tuple(there) == (True, False)

    def convert(
        self, name: str | None, data_path: str | None, path_of: Callable[[str, str], str], folder: str | None = None
    ) -> list[CatalogRow]:
        """Make a shared lake of a plain one, or of one of an older layout; see ``Conversion.convert``."""
        with self._converting() as conversion:
            version = conversion.version()
            made = conversion.convert(name, data_path, path_of, folder)
        self._tell_converted(version, asked=name is not None)
        return made

    def resume_conversion(self) -> bool:
        """End what an interrupted conversion has left; True when there is a shared lake now, and was none before.

        Only MySQL, which cannot undo the making of tables, leaves anything.
        """
        catalog = self._catalog
        if catalog.database != "mysql" or catalog.read_only:
            return False
        with catalog._translate("open"), catalog._connection() as connection:
            if not MySQLConversion(connection, catalog._database, catalog._schema).is_interrupted():
                return False
        with self._converting() as conversion:
            assert isinstance(conversion, MySQLConversion)
            ended = conversion.resume()
        if ended:
            self._tell_converted(VERSION, asked=False)
        return ended

    def _tell_converted(self, version: str, *, asked: bool) -> None:
        telemetry.count("migrate.steps")
        level = logging.INFO if asked else logging.WARNING
        _LOG.log(level, "the lake at %s was migrated from version %s to a shared lake", self.url, version)

    @contextmanager
    def _converting(self) -> Iterator[Conversion]:
        """A conversion in the turn of those who make catalogs, and of those who commit to a plain lake."""
        catalog = self._catalog
        database, scope = catalog._database, catalog._schema or ""
        kind = MySQLConversion if catalog.database == "mysql" else Conversion
        with catalog._queued(_QUEUE) as writer:
            connection = writer._connection
            if catalog.url.path is not None:  # a file has one writer
                yield kind(connection, database, catalog._schema)
                return
            database.enter_queue(connection, scope)
            try:
                yield kind(connection, database, catalog._schema)
            finally:
                database.leave_queue(connection, scope)

    @contextmanager
    def _reading(self) -> Iterator[Sharing]:
        catalog = self._catalog
        with catalog._reading() as connection:
            yield Sharing(connection, catalog._database, catalog._schema)

    @contextmanager
    def _writing(self, queue: str = _QUEUE, ahead: PreparedSelect | None = None) -> Iterator[Sharing]:
        catalog = self._catalog
        with catalog._queued(queue, ahead) as writer:
            yield Sharing(writer._connection, catalog._database, catalog._schema, writer.ahead)

    # -- catalogs ----------------------------------------------------------------------------------------------------

    def create(
        self,
        names: Sequence[str],
        *,
        if_not_exists: bool,
        path_of: Callable[[str], str],
        version: str = VERSION,
        folder: str | None = None,
    ) -> list[CatalogRow]:
        """Make catalogs, all or none; see ``Registry.create``."""
        keys = new_catalogs(names)
        if has_next(version):
            self._catalog.widen()
        ahead = Sharing.ask_known(keys, self._catalog._database, self._catalog._schema)
        with self._writing(ahead=ahead) as registry:
            return registry.create(keys, if_not_exists=if_not_exists, path_of=path_of, version=version, folder=folder)

    def get(self, name: str) -> CatalogRow:
        """The catalog of a name. Raises ``NotFoundError``."""
        with self._reading() as registry:
            return registry.need(name)

    def find(self, name: str) -> CatalogRow | None:
        """Return the catalog of a name, or None."""
        with self._reading() as registry:
            return registry.find(name)

    def catalogs(self, prefix: str, after: str | None, limit: int) -> list[CatalogRow]:
        """The next catalogs by their names."""
        with self._reading() as registry:
            return registry.catalogs(prefix, after, limit)

    def dropped(self, limit: int) -> list[CatalogRow]:
        """Those that wait to be purged."""
        with self._reading() as registry:
            return registry.dropped(limit)

    def purgeable(self, limit: int, before_ms: int) -> list[tuple[CatalogRow, bool]]:
        """The same, and those to look at once more; see ``Registry.purgeable``."""
        with self._reading() as registry:
            return registry.purgeable(limit, before_ms)

    def rename(self, name: str, new_name: str) -> CatalogRow:
        """Give a catalog another name; whoever has it open goes on."""
        with self._writing() as registry:
            return registry.rename(name, new_name)

    def drop(self, name: str) -> CatalogRow:
        """Take a catalog away, after the commit that it may be in the middle of."""
        row = self.get(name)
        with self._writing(f"#{row.id}") as registry:
            return registry.drop(row)

    def purge(self, row: CatalogRow, rows: int, *, forget: bool) -> Iterator[int]:
        """Remove what a dropped catalog holds, a transaction for each batch of rows; gives the rows of each.

        Last the catalog itself if ``forget``: its folder is then free.
        """
        with self._reading() as registry:
            names = registry.tables()
        for name in names:
            while True:
                with self._writing(f"#{row.id}") as registry:
                    found = registry.purge(name, row.id, rows)
                if not found:
                    break
                yield found
        with self._writing() as registry:
            registry.bury(row.id, forget=forget)

    def limits(self, name: str | None) -> Limits:
        """What a catalog may take, or each for which nothing else is said."""
        with self._reading() as registry:
            return Limits.of(*registry.limits(None if name is None else registry.need(name)))

    def set_limits(self, name: str | None, given: Mapping[str, Any], *, reset: bool) -> Limits:
        """Say what a catalog may take, beside what is said already unless ``reset``."""
        with self._writing() as registry:
            row = None if name is None else registry.need(name)
            own, default = registry.limits(row)
            if row is None:
                default = text = changed(None if reset else default, given)
            else:
                own = text = changed(None if reset else own, given)
            registry.set_limits(row, text)
            return Limits.of(own, default)

    def totals(self, ids: Sequence[int]) -> list[CatalogTotals]:
        """What catalogs hold."""
        with self._reading() as registry:
            return registry.totals(ids)

    # -- care --------------------------------------------------------------------------------------------------------

    def needs(self, after: int, limit: int, counted: Thresholds, orphans: int) -> list[CatalogNeed]:
        """What the next catalogs by their ids may want; see ``needs``."""
        with self._reading() as registry:
            return needs(registry, after, limit, counted, orphans)

    def last_maintained(self) -> int:
        """The id of the catalog that maintenance looked at last; -1 when there is none."""
        with self._reading() as registry:
            return registry.last_maintained()

    def maintained(self, id_: int) -> None:
        """Note that maintenance has come to a catalog."""
        with self._writing() as registry:
            registry.set_maintained(id_)

    # -- sharing files -----------------------------------------------------------------------------------------------

    def reserve(self, name: str) -> CatalogRow:
        """A catalog that does not exist yet: its id and folder."""
        with self._writing() as registry:
            return registry.reserve(name)

    def fork(self, name: str, new_name: str, root: str, path_of: Callable[[str], str]) -> CatalogRow:
        """Make a catalog that is the same as another, whose files below ``root`` it shares; its commits wait."""
        source, row = self.get(name), self.reserve(new_name)
        with self._writing(f"#{source.id}") as registry:
            found = registry.find(name)
            if found is None or found.id != source.id:
                raise no_such_catalog(name, listed=True)
            registry.check_free(new_name)
            self._check_unwritten(registry, found)
            return registry.fork(found, row, root, path_of(row.folder))

    def lend_to(self, name: str, place: str) -> None:
        """Keep the files that a catalog has now, for a lake elsewhere."""
        row = self.get(name)
        with self._writing(f"#{row.id}") as registry:
            self._check_unwritten(registry, row)
            registry.lend_to(row, place)

    def _check_unwritten(self, registry: Registry, row: CatalogRow) -> None:
        """Stock DuckDB does not know whose files it must leave where they are."""
        if self._catalog.database != "postgres":
            return
        place = shared_lake.find_place(registry._connection, self._catalog._schema)
        if exposing.exposed(registry._connection, place, row.id):
            raise InputError(
                f"the catalog '{row.name}' is exposed to be written, by clients that may remove files of others",
                hint="unexpose it first",
            )

    def take_back(self, name: str, place: str) -> bool:
        """Keep them no longer; returns whether they were kept."""
        row = self.get(name)
        with self._writing() as registry:
            owners = {row.id, *(share.owner_id for share in registry.shares(borrower=row.id))}
            return sum(registry.take_back(owner, place) for owner in owners) > 0

    def lent(self, name: str) -> list[tuple[Share, str | None]]:
        """Who uses files of a catalog, with the names of those that are catalogs."""
        row = self.get(name)
        with self._reading() as registry:
            found = registry.shares(owner=row.id)
            names = registry.names([share.borrower_id for share in found if share.borrower_id is not None])
        return [(share, None if share.borrower_id is None else names.get(share.borrower_id)) for share in found]

    def settle(self, row: CatalogRow, root: str) -> bool:
        """Forget who uses files of a catalog no longer; returns whether all are free now.

        Stock DuckDB finds the catalog no longer.
        """
        if self._catalog.database == "postgres":
            self.unexpose(row, dry_run=False)
        with self._writing(f"#{row.id}") as registry:
            return not registry.settle(row, root)

    def occupied(self, folder: Callable[[str], None], path: Callable[[str], None]) -> None:
        """Tell ``folder`` the data paths that are in use, and ``path`` what is named by absolute paths."""
        with self._reading() as registry:
            for found in occupancy.data_paths(registry):
                folder(found)
            for found in occupancy.named_paths(registry):
                path(found)

    def whole_folders(self) -> list[str]:
        """Return the folders of catalogs that are not below the data path of the lake."""
        with self._reading() as registry:
            return occupancy.whole_folders(registry)

    # -- roles of the database ---------------------------------------------------------------------------------------

    def secure(self, *, dry_run: bool = False) -> list[str]:
        """Let roles see the rows of their catalogs only; returns the statements, none when all was done before."""
        with self._guarding() as (registry, place):
            return self._run(registry, access.secure(registry._connection, place, self._catalog._schema), dry_run)

    def grant(self, name: str, role: str, *, writable: bool, dry_run: bool) -> list[str]:
        """Let a role use a catalog, on a lake that is secured by it; returns the statements."""
        with self._guarding() as (registry, place):
            row = registry.need(name)
            granting.check_role(registry._connection, place, role)
            given = granting.grant(registry._connection, place, role, row.id, writable=writable)
            before = access.secure(registry._connection, place, self._catalog._schema)
            return self._run(registry, [*before, *given], dry_run)

    def revoke(self, name: str, role: str, *, dry_run: bool) -> list[str]:
        """Take back what ``grant`` gave; returns the statements."""
        with self._guarding() as (registry, place):
            taken = granting.revoke(registry._connection, place, role, registry.need(name).id)
            before = access.rights(registry._connection, place, self._catalog._schema)
            return self._run(registry, [*before, *taken], dry_run)

    def _run(self, registry: Registry, statements: list[str], dry_run: bool) -> list[str]:
        if not dry_run:
            shared_lake.execute(registry._connection, statements)
        return statements

    # -- stock DuckDB ------------------------------------------------------------------------------------------------

    def exposure_schema(self, catalog_id: int) -> str:
        """The schema in which stock DuckDB finds a catalog that is exposed."""
        return shared_lake.exposure_schema(self._catalog._schema, catalog_id)

    def begin_exposing(self, row: CatalogRow, *, dry_run: bool) -> list[str]:
        """Let a catalog have no new inlined rows; returns the statements, none for one that is exposed."""
        with self._guarding(f"#{row.id}") as (registry, place):
            if exposing.exposed(registry._connection, place, row.id) is not None:
                return []
            schema = self.exposure_schema(row.id)
            if exposing.is_taken(registry._connection, schema):
                raise AlreadyExistsError(
                    f'the database has a schema "{schema}" already, which is not of this lake',
                    hint="rename that schema, or expose the catalog from a lake with a metadata_schema of its own",
                )
            return self._run(registry, exposing.begin(registry._connection, place, row.id), dry_run)

    def finish_exposing(
        self, row: CatalogRow, role: str | None, *, writable: bool, fresh: bool, dry_run: bool
    ) -> list[str]:
        """Make the views of a catalog that has no inlined rows, unless they are there; returns the statements.

        Raises ``InputError`` when it still has some.
        """
        schema = self.exposure_schema(row.id)
        with self._guarding(f"#{row.id}") as (registry, place):
            if role is not None:
                granting.need_role(registry._connection, role)
            if not dry_run and exposing.leftovers(registry._connection, place, row.id):
                raise InputError(
                    f"the catalog '{row.name}' has inlined rows of dropped tables, which stock DuckDB cannot read",
                    hint="expire the snapshots in which those tables were there, or restore and flush them",
                )
            if not fresh and exposing.exposed(registry._connection, place, row.id) is not writable:
                raise InputError(f"the catalog '{row.name}' is exposed in the other way", hint="unexpose it first")
            if writable and row.borrows:
                raise InputError(
                    f"the catalog '{row.name}' has files of others, which stock DuckDB might remove",
                    hint="expose it to be read only",
                )
            if writable and registry.shares(owner=row.id):
                raise InputError(
                    f"others use files of the catalog '{row.name}', which stock DuckDB might remove",
                    hint="expose it to be read only",
                )
            spec = WIDE_SPEC if has_next(registry.version_of(row.id)) else SPEC
            statements = exposing.views(place, schema, row.id, spec, writable=writable) if fresh else []
            if role is not None:
                statements += exposing.give(schema, role, spec, writable=writable)
            return self._run(registry, statements, dry_run)

    def unexpose(self, row: CatalogRow, *, dry_run: bool) -> list[str]:
        """Remove what exposing made; returns the statements, none for a catalog that is not exposed."""
        with self._guarding(f"#{row.id}") as (registry, place):
            if exposing.exposed(registry._connection, place, row.id) is None:
                return []
            return self._run(registry, self._unexposing(registry, place, row), dry_run)

    def _unexposing(self, registry: Sharing, place: SharedPlace, row: CatalogRow) -> list[str]:
        return exposing.unexpose(registry._connection, place, self.exposure_schema(row.id), row.id)

    @contextmanager
    def _guarding(self, queue: str = _QUEUE) -> Iterator[tuple[Sharing, SharedPlace]]:
        if self._catalog.database != "postgres":
            raise UnsupportedFeatureError(
                f"roles per catalog need PostgreSQL, and this lake is on {self._catalog.database}"
            )
        self.need_facts()
        with self._writing(queue) as registry:
            yield registry, shared_lake.find_place(registry._connection, self._catalog._schema)
