"""The ``Tenancy`` class: manages the catalogs (tenants) of a shared lake in its database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy.engine import Connection

from quacklake import telemetry
from quacklake.core.catalog import shared_lake
from quacklake.core.catalog.catalog import Catalog
from quacklake.core.catalog.databases.database import PreparedSelect
from quacklake.core.catalog.registry import Registry, TenantToken, new_catalogs, no_such_catalog, shared_facts
from quacklake.core.catalog.shared_lake import Share, SharedPlace
from quacklake.core.catalog.shared_tables import CatalogRow, SharedFacts, SharedTables
from quacklake.core.catalog.tables import SPEC, VERSION, WIDE_SPEC, has_next
from quacklake.core.format.objects import Limits, changed_limits
from quacklake.core.tenancy import exposing, roles
from quacklake.core.tenancy.conversion import Conversion, MySQLConversion
from quacklake.core.tenancy.sharing import Sharing
from quacklake.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConfigError,
    InputError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedFeatureError,
)

_LOG = logging.getLogger("quacklake.migrate")
_LAYOUT = ("ducklake_catalog", "quacklake_shared")
_QUEUE = "/catalogs"
"""The queue for creating, renaming and dropping catalogs; commits do not wait in it."""


class Tenancy:
    """Manages the catalogs of a shared lake. ``catalog`` was opened without a name, and is closed with this object."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        #: The URL of the metadata database, without a password.
        self.url = str(catalog.url)
        self.database = catalog.database
        self._has_users = False

    def close(self) -> None:
        """Close every connection."""
        self._catalog.close()

    def facts(self) -> SharedFacts | None:
        """Return the facts of the shared lake, or None if there is none. Raise ``ConfigError`` for a plain lake."""
        catalog = self._catalog
        path = catalog.url.path
        if path is not None and not path.exists():
            return None
        with catalog.translate_errors("open"), catalog.connected() as connection:
            found = shared_facts(connection, catalog.backend, catalog.metadata_schema)
            if found is None and catalog.holds_lake(connection):
                # The lake may have been created between the two reads.
                found = shared_facts(connection, catalog.backend, catalog.metadata_schema)
                if found is None:
                    raise ConfigError(
                        f"the lake at {self.url} is a plain lake, not a shared one",
                        hint="use another database or metadata_schema for a shared lake",
                    )
            return found

    def need_facts(self) -> SharedFacts:
        """Like ``facts``, but raise ``NotFoundError`` if there is no shared lake."""
        found = self.facts()
        if found is None:
            raise NotFoundError(f"there is no shared lake at {self.url}", hint="pass data_path= to create one")
        return found

    def create_lake(self, data_path: str, *, encrypted: bool, partitions: int | None = None) -> SharedFacts:
        """Create a shared lake without catalogs if there is none; see ``Registry.create_lake``."""
        catalog = self._catalog
        if catalog.read_only:
            raise ReadOnlyError("cannot create a lake through a read-only connection")
        with catalog.translate_errors("create"):
            catalog.backend.make_file()
        with catalog.translate_errors("create"), catalog.connected() as connection:
            catalog.backend.prepare_write(connection)
        with self.writing() as registry:
            if shared_facts(registry.connection, catalog.backend, catalog.metadata_schema) is None:
                registry.create_lake(data_path, encrypted=encrypted, partitions=partitions)
        return self.need_facts()

    def mend_indexes(self) -> None:
        """Add missing tables, indexes and columns to a lake of an older version, if the rights suffice."""
        with suppress(ReadOnlyError):
            self._catalog.widen()
        with self.reading() as registry:
            if not registry.missing_tables() and not registry.missing_indexes():
                return
        with suppress(ReadOnlyError), self.writing() as registry:
            registry.mend()

    def mend_access(self) -> None:
        """Upgrade the rights and views of PostgreSQL roles on a lake of an older version, each part on its own.

        Only the owner of the tables does this, if the rights suffice and no lock is in the way.
        """
        if self._catalog.database != "postgres" or self._catalog.read_only:
            return
        schema = self._catalog.metadata_schema
        with self.reading() as registry:
            mends = needed_mends(registry.connection, schema)
        for mend in mends:
            try:
                with self.writing() as registry:
                    place = shared_lake.find_place(registry.connection, schema)
                    shared_lake.execute(registry.connection, mend(registry.connection, place, schema))
            except (ReadOnlyError, CatalogUnavailableError) as error:
                text = "the rights of roles on the lake at %s are not up to date: %s"
                _LOG.warning(text, self.url, error.message, extra=telemetry.error_facts(error, lake=self.url))

    def is_convertible(self) -> bool:
        """Return whether this is a shared lake made by a DuckLake fork with catalogs."""
        catalog = self._catalog
        with catalog.translate_errors("open"), catalog.connected() as connection:
            there = (catalog.backend.has_table(connection, name, catalog.metadata_schema) for name in _LAYOUT)
            return tuple(there) == (True, False)

    def convert(
        self, name: str | None, data_path: str | None, path_of: Callable[[str, str], str], folder: str | None = None
    ) -> list[CatalogRow]:
        """Convert a plain lake, or one of an older layout, to a shared lake; see ``Conversion.convert``."""
        with self._converting() as conversion:
            version = conversion.version()
            made = conversion.convert(name, data_path, path_of, folder)
        self._tell_converted(version, asked=name is not None)
        return made

    def resume_conversion(self) -> bool:
        """Finish an interrupted conversion, which only MySQL leaves; return True if that made the lake a shared one."""
        catalog = self._catalog
        if catalog.database != "mysql" or catalog.read_only:
            return False
        with catalog.translate_errors("open"), catalog.connected() as connection:
            if not MySQLConversion(connection, catalog.backend, catalog.metadata_schema).is_interrupted():
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
        """Yield a conversion while holding the queues for creating catalogs and for commits to a plain lake."""
        catalog = self._catalog
        database, scope = catalog.backend, catalog.metadata_schema or ""
        kind = MySQLConversion if catalog.database == "mysql" else Conversion
        with catalog.queued(_QUEUE) as writer:
            connection = writer.connection
            if catalog.url.path is not None:  # a file has one writer
                yield kind(connection, database, catalog.metadata_schema)
                return
            database.enter_queue(connection, scope)
            try:
                yield kind(connection, database, catalog.metadata_schema)
            finally:
                database.leave_queue(connection, scope)

    @contextmanager
    def reading(self) -> Iterator[Sharing]:
        """Yield the registry of catalogs in one read transaction."""
        catalog = self._catalog
        with catalog.reading() as connection:
            yield Sharing(connection, catalog.backend, catalog.metadata_schema)

    @contextmanager
    def writing(self, queue: str = _QUEUE, ahead: PreparedSelect | None = None) -> Iterator[Sharing]:
        """Yield the registry of catalogs in one transaction that waits for its turn in a queue."""
        catalog = self._catalog
        with catalog.queued(queue, ahead) as writer:
            yield Sharing(writer.connection, catalog.backend, catalog.metadata_schema, writer.ahead)

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
        """Create catalogs, all or none; see ``Registry.create``."""
        keys = new_catalogs(names)
        if has_next(version):
            self._catalog.widen()
        ahead = Sharing.ask_known(keys, self._catalog.backend, self._catalog.metadata_schema)
        with self.writing(ahead=ahead) as registry:
            return registry.create(keys, if_not_exists=if_not_exists, path_of=path_of, version=version, folder=folder)

    def get(self, name: str) -> CatalogRow:
        """Return the catalog with a name. Raise ``NotFoundError``."""
        with self.reading() as registry:
            return registry.need(name)

    def tokens(self, token_id: str, name: str | None) -> list[TenantToken]:
        """Return the tokens with an id, of the catalog of a name or of every catalog; see ``Registry.tokens``."""
        with self.reading() as registry:
            return registry.tokens(token_id, name) if self._finds_users(registry) else []

    def users(self, user: str, name: str | None) -> list[TenantToken]:
        """Return the users with a name, of the catalog of a name or of every catalog; see ``Registry.users``."""
        with self.reading() as registry:
            return registry.users(user, name) if self._finds_users(registry) else []

    def _finds_users(self, registry: Registry) -> bool:
        """Return whether the lake has the tables of users; once they are there, they stay."""
        self._has_users = self._has_users or registry.has_users()
        return self._has_users

    def drop(self, name: str) -> CatalogRow:
        """Drop a catalog, after any commit in progress."""
        row = self.get(name)
        with self.writing(f"#{row.id}") as registry:
            return registry.drop(row)

    def purge(self, row: CatalogRow, rows: int, *, forget: bool) -> Iterator[int]:
        """Remove the contents of a dropped catalog in one transaction per batch; yield the number of rows of each.

        ``forget`` finally removes the catalog itself, so that its folder can be used again.
        """
        with self.reading() as registry:
            names = registry.tables()
        for name in names:
            while True:
                with self.writing(f"#{row.id}") as registry:
                    found = registry.purge(name, row.id, rows)
                if not found:
                    break
                yield found
        with self.writing() as registry:
            registry.bury(row.id, forget=forget)

    def set_limits(self, name: str | None, given: Mapping[str, Any], *, reset: bool) -> Limits:
        """Set limits of a catalog; others stay unless ``reset``."""
        with self.writing() as registry:
            row = None if name is None else registry.need(name)
            own, default = registry.limits(row)
            if row is None:
                default = text = changed_limits(None if reset else default, given)
            else:
                own = text = changed_limits(None if reset else own, given)
            registry.set_limits(row, text)
            return Limits.of(own, default)

    # -- sharing files -----------------------------------------------------------------------------------------------

    def reserve(self, name: str) -> CatalogRow:
        """Reserve a catalog that does not exist yet: its id and folder."""
        with self.writing() as registry:
            return registry.reserve(name)

    def fork(self, name: str, new_name: str, root: str, path_of: Callable[[str], str]) -> CatalogRow:
        """Create a fork of a catalog that shares its files below ``root``; commits to the source wait."""
        source, row = self.get(name), self.reserve(new_name)
        with self.writing(f"#{source.id}") as registry:
            found = registry.find(name)
            if found is None or found.id != source.id:
                raise no_such_catalog(name, listed=True)
            registry.check_free(new_name)
            self._check_unwritten(registry, found)
            return registry.fork(found, row, root, path_of(row.folder))

    def lend_to(self, name: str, place: str) -> None:
        """Keep the current files of a catalog for a lake elsewhere."""
        row = self.get(name)
        with self.writing(f"#{row.id}") as registry:
            self._check_unwritten(registry, row)
            registry.lend_to(row, place)

    def _check_unwritten(self, registry: Registry, row: CatalogRow) -> None:
        """Reject a catalog that stock DuckDB can write, because it does not know which files to keep."""
        if self._catalog.database != "postgres":
            return
        place = shared_lake.find_place(registry.connection, self._catalog.metadata_schema)
        if exposing.exposed(registry.connection, place, row.id):
            raise InputError(
                f"the catalog '{row.name}' is exposed as writable, and stock DuckDB might remove shared files",
                hint="unexpose it first",
            )

    def take_back(self, name: str, place: str) -> bool:
        """Stop keeping files for a lake elsewhere; return whether any were kept."""
        row = self.get(name)
        with self.writing() as registry:
            owners = {row.id, *(share.owner_id for share in registry.shares(borrower=row.id))}
            return sum(registry.take_back(owner, place) for owner in owners) > 0

    def lent(self, name: str) -> list[tuple[Share, str | None]]:
        """Return the users of a catalog's files, with the names of those that are catalogs."""
        row = self.get(name)
        with self.reading() as registry:
            found = registry.shares(owner=row.id)
            names = registry.names([share.borrower_id for share in found if share.borrower_id is not None])
        return [(share, None if share.borrower_id is None else names.get(share.borrower_id)) for share in found]

    def settle(self, row: CatalogRow, root: str) -> bool:
        """Forget former users of a catalog's files, and end its exposure; return whether all files are free now."""
        if self._catalog.database == "postgres":
            self.unexpose(row, dry_run=False)
        with self.writing(f"#{row.id}") as registry:
            return not registry.settle(row, root)

    # -- roles of the database ---------------------------------------------------------------------------------------

    def secure(self, *, dry_run: bool = False) -> list[str]:
        """Limit roles to the rows of their catalogs; return the statements, none if this was done before."""
        with self._guarding() as (registry, place):
            return self._run(registry, secure(registry.connection, place, self._catalog.metadata_schema), dry_run)

    def grant(self, name: str, role: str, *, writable: bool, dry_run: bool) -> list[str]:
        """Let a role use a catalog, and secure the lake; return the statements."""
        with self._guarding() as (registry, place):
            row = registry.need(name)
            roles.check_role(registry.connection, place, role)
            given = roles.grant(registry.connection, place, role, row.id, writable=writable)
            before = secure(registry.connection, place, self._catalog.metadata_schema)
            return self._run(registry, [*before, *given], dry_run)

    def revoke(self, name: str, role: str, *, dry_run: bool) -> list[str]:
        """Undo ``grant``; return the statements."""
        with self._guarding() as (registry, place):
            taken = roles.revoke(registry.connection, place, role, registry.need(name).id)
            tables = SharedTables.of(self._catalog.metadata_schema)
            before = roles.missing_rights(registry.connection, place, tables)
            return self._run(registry, [*before, *taken], dry_run)

    def _run(self, registry: Registry, statements: list[str], dry_run: bool) -> list[str]:
        if not dry_run:
            shared_lake.execute(registry.connection, statements)
        return statements

    # -- stock DuckDB ------------------------------------------------------------------------------------------------

    def exposure_schema(self, catalog_id: int) -> str:
        """Return the schema in which stock DuckDB finds an exposed catalog."""
        return shared_lake.exposure_schema(self._catalog.metadata_schema, catalog_id)

    def begin_exposing(self, row: CatalogRow, *, dry_run: bool) -> list[str]:
        """Prevent new inlined rows in a catalog; return the statements, none if it is already exposed."""
        with self._guarding(f"#{row.id}") as (registry, place):
            if exposing.exposed(registry.connection, place, row.id) is not None:
                return []
            schema = self.exposure_schema(row.id)
            if exposing.is_taken(registry.connection, schema):
                raise AlreadyExistsError(
                    f'the database already has a schema "{schema}", which does not belong to this lake',
                    hint="rename that schema, or use a shared lake in another metadata_schema",
                )
            return self._run(registry, exposing.begin(registry.connection, place, row.id), dry_run)

    def finish_exposing(
        self, row: CatalogRow, role: str | None, *, writable: bool, fresh: bool, dry_run: bool
    ) -> list[str]:
        """Create the views of a catalog if they do not exist; return the statements.

        Raise ``InputError`` when the catalog still has inlined rows.
        """
        schema = self.exposure_schema(row.id)
        with self._guarding(f"#{row.id}") as (registry, place):
            if role is not None:
                roles.need_role(registry.connection, role)
            if not dry_run and exposing.leftovers(registry.connection, place, row.id):
                raise InputError(
                    f"the catalog '{row.name}' has inlined rows of dropped tables, which stock DuckDB cannot read",
                    hint="expire the snapshots that have these tables, or undrop and flush the tables",
                )
            if not fresh and exposing.exposed(registry.connection, place, row.id) is not writable:
                raise InputError(
                    f"the catalog '{row.name}' is already exposed as {'read-only' if writable else 'writable'}",
                    hint="unexpose it first",
                )
            if writable and row.borrows:
                raise InputError(
                    f"the catalog '{row.name}' uses files of other catalogs, which stock DuckDB might remove",
                    hint="expose it without writable",
                )
            if writable and registry.shares(owner=row.id):
                raise InputError(
                    f"other catalogs use files of the catalog '{row.name}', which stock DuckDB might remove",
                    hint="expose it without writable",
                )
            spec = WIDE_SPEC if has_next(registry.version_of(row.id)) else SPEC
            statements = exposing.views(place, schema, row.id, spec, writable=writable) if fresh else []
            if role is not None:
                statements += exposing.give(schema, role, spec, writable=writable)
            return self._run(registry, statements, dry_run)

    def unexpose(self, row: CatalogRow, *, dry_run: bool) -> list[str]:
        """Remove the exposure of a catalog; return the statements, none if it is not exposed."""
        with self._guarding(f"#{row.id}") as (registry, place):
            if exposing.exposed(registry.connection, place, row.id) is None:
                return []
            schema = self.exposure_schema(row.id)
            return self._run(registry, exposing.unexpose(registry.connection, place, schema, row.id), dry_run)

    @contextmanager
    def _guarding(self, queue: str = _QUEUE) -> Iterator[tuple[Sharing, SharedPlace]]:
        if self._catalog.database != "postgres":
            raise UnsupportedFeatureError(
                f"access per role needs PostgreSQL, but this lake is on {self._catalog.database}"
            )
        self.need_facts()
        with self.writing(queue) as registry:
            yield registry, shared_lake.find_place(registry.connection, self._catalog.metadata_schema)


# -- access of PostgreSQL roles: creating it, and upgrading that of older versions -------------------------------------

Mend = Callable[[Connection, SharedPlace, str | None], list[str]]
"""Takes a lake and its metadata schema, and returns the statements that it lacks; none if it is up to date."""


def secure(connection: Connection, place: SharedPlace, metadata_schema: str | None) -> list[str]:
    """Return statements that limit roles to the rows of their catalogs; only those not yet run."""
    tables = SharedTables.of(metadata_schema)
    rights = roles.missing_rights(connection, place, tables)
    return [*rights, *roles.secure_rows(place, tables), *shared_lake.readable_views(connection, place)]


def needed_mends(connection: Connection, metadata_schema: str | None) -> list[Mend]:
    """Return the upgrades for a lake of an older version; none for a user who does not own its tables."""
    place = shared_lake.find_place(connection, metadata_schema)
    if not shared_lake.is_owner(connection, place):
        return []
    mends: list[Mend] = [_functions, _secure_tables, _statistics, _views]
    return [mend for mend in mends if mend(connection, place, metadata_schema)]


def _functions(connection: Connection, place: SharedPlace, _: str | None) -> list[str]:
    """Revoke execution of functions that every role could execute."""
    return exposing.mend(connection, place) if exposing.has_open_functions(connection, place) else []


def _secure_tables(connection: Connection, place: SharedPlace, metadata_schema: str | None) -> list[str]:
    """Revoke the rights that let readers lock tables, and secure tables that were added later."""
    return secure(connection, place, metadata_schema) if place.secured else []


def _statistics(connection: Connection, place: SharedPlace, metadata_schema: str | None) -> list[str]:
    """Stop collecting statistics about values that roles must not learn."""
    names = [name for name in SharedTables.of(metadata_schema).definitions if name in place.secured]
    if not names and exposing.is_used(connection, place):
        names = [f"ducklake_{name}" for name in WIDE_SPEC]
    return roles.open_statistics(connection, place, names) if names else []


def _views(connection: Connection, place: SharedPlace, metadata_schema: str | None) -> list[str]:
    """Create the views over the metadata."""
    readers = place.group if place.secured else None
    return shared_lake.missing_views(connection, metadata_schema, shared=True, readers=readers)
