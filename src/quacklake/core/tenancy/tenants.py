"""Manage the catalogs (tenants) of a shared lake."""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

from quacklake.config import Config, resolve
from quacklake.core.catalog import CatalogRow, folder_path, parse_url
from quacklake.core.format.names import check_name, check_tenant_name, former_name
from quacklake.core.format.objects import Limits
from quacklake.core.maintenance.lake_maintenance import LakeMaintenance
from quacklake.core.operations.context import boundary
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.operations.stores import open_store
from quacklake.core.progress import Progress, silent
from quacklake.core.storage import Store
from quacklake.core.storage.store_pairs import overlap
from quacklake.core.tenancy.moving import Moving
from quacklake.core.tenancy.opening import check_enabled, create_lake, migrate_layout, open_lake, open_metadata
from quacklake.core.tenancy.sharing import Occupancy, whole_folders
from quacklake.core.tenancy.tenancy import Tenancy
from quacklake.errors import ConfigError, InputError, StorageError, UnsupportedFeatureError

T = TypeVar("T", bound="TenantCatalogs")
_PAGE = 1_000
_ROWS = 10_000
_FILES = 1_000
_ATTEMPTS = 5
_ITS_OWN = (
    *("url", "catalog", "catalog_type", "catalog_path", "data_path", "bucket_name", "encrypted"),
    *(f"postgres_{name}" for name in ("host", "port", "database", "user", "password")),
)
"""Settings that select a lake, as opposed to settings for its use."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A catalog of a shared lake. ``data_path`` holds its files; ``id`` is never reused."""

    id: int
    name: str
    uuid: str
    data_path: str
    created: dt.datetime
    dropped: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class TenantStats:
    """The size of a catalog at its newest snapshot, and its number of snapshots."""

    name: str
    snapshots: int
    tables: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """Report of a purge. ``waiting`` catalogs were not purged, because others still use their files."""

    catalogs: int = 0
    files: int = 0
    rows: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Exposure:
    """A catalog exposed to stock DuckDB: the schema to use as METADATA_SCHEMA and META_SCHEMA, and the SQL for it."""

    schema: str
    sql: tuple[str, ...]


class _Given(TypedDict, total=False):
    commits_per_second: float | None
    concurrent_scans: int | None
    bytes: int | None
    tables: int | None
    snapshots: int | None


@boundary
class TenantCatalogs(Moving):
    """The catalogs of a shared lake."""

    def __init__(self, tenancy: Tenancy, url: str, config: Config, root: str) -> None:
        self._tenancy = tenancy
        self._url = url
        self._config = config
        self._root = root

    @property
    def url(self) -> str:
        """The URL of the metadata database, without a password."""
        return self._tenancy.url

    @property
    def data_path(self) -> str:
        """The data path of the lake, below which each catalog has a folder."""
        return self._root

    def close(self) -> None:
        """Close every connection; lakes opened from here stay open."""
        self._tenancy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Tenants of {self.url}, data in {self._root}>"

    def _tenant(self, row: CatalogRow) -> Tenant:
        gone = None if row.dropped_ms is None else _time(row.dropped_ms)
        return Tenant(row.id, row.name, row.uuid, self._path(row.folder), _time(row.created_ms), gone)

    def create(self, name: str, *, if_not_exists: bool = False, data_path: str | Path | None = None) -> Tenant:
        """Create a catalog, with the schema ``main`` in its first snapshot.

        Names are case-insensitive and consist of ASCII letters, digits and ``_ - .``. The files go to the catalog's
        folder below the data path of the lake, or to ``data_path``, a separate folder or bucket. Raise
        ``AlreadyExistsError`` unless ``if_not_exists``, ``InvalidNameError``, or ``InputError`` for a data path that is
        not separate.
        """
        if data_path is None:
            return self.create_many([name], if_not_exists=if_not_exists)[0]
        folder = self._free_folder(name, str(data_path), if_not_exists=if_not_exists)
        made = self._tenancy.create(
            [name],
            if_not_exists=if_not_exists,
            path_of=self._path,
            version=self._config.format_version,
            folder=folder,
        )
        return self._tenant(made[0])

    def _free_folder(self, name: str, data_path: str, *, if_not_exists: bool) -> str:
        """Return a full data path. Raise ``InputError`` when it is not separate from those of others."""
        store = open_store(data_path, self._config, tenant=check_tenant_name(name))
        with self._tenancy.reading() as registry:
            folders = whole_folders(registry)
            if if_not_exists and registry.find(name) is not None:
                return store.root
        for path in (self._root, *folders):
            if overlap(store, open_store(path, self._config)):
                raise InputError(
                    f"the data path {store.root} overlaps with the files of other catalogs",
                    hint="pass a folder outside the data path of the shared lake",
                )
        return store.root

    def create_many(self, names: Iterable[str], *, if_not_exists: bool = False) -> builtins.list[Tenant]:
        """Create many catalogs in one transaction, all or none."""
        made = self._tenancy.create(
            builtins.list(names),
            if_not_exists=if_not_exists,
            path_of=self._path,
            version=self._config.format_version,
        )
        return [self._tenant(row) for row in made]

    def get(self, name: str) -> Tenant:
        """Return a catalog by name. Raise ``NotFoundError``."""
        return self._tenant(self._tenancy.get(name))

    def list(self, prefix: str = "", *, after: str | None = None, limit: int = _PAGE) -> builtins.list[Tenant]:
        """Return a page of catalogs in order of name: those that begin with ``prefix`` and come after ``after``."""
        if limit < 1:
            raise InputError(f"limit must be at least 1, not {limit}")
        with self._tenancy.reading() as registry:
            return [self._tenant(row) for row in registry.catalogs(prefix, after, limit)]

    def __iter__(self) -> Iterator[Tenant]:
        after: str | None = None
        while page := self.list(after=after):
            yield from page
            after = page[-1].name

    def rename(self, name: str, new_name: str) -> Tenant:
        """Rename a catalog. Its files stay in their folder, and clients that have it open can continue."""
        with self._tenancy.writing() as registry:
            return self._tenant(registry.rename(name, new_name))

    def drop(self, name: str) -> Tenant:
        """Drop a catalog: nobody can open, read or write it from now on, and its name is free.

        Its rows and files stay until ``purge``.
        """
        return self._tenant(self._tenancy.drop(name))

    def dropped(self, *, limit: int = _PAGE) -> builtins.list[Tenant]:
        """Return the catalogs that are dropped but not purged yet, under their current names."""
        with self._tenancy.reading() as registry:
            return [self._tenant(row) for row in registry.dropped(limit)]

    def purge(
        self,
        *,
        limit: int = _PAGE,
        batch_rows: int = _ROWS,
        grace: dt.timedelta | None = None,
        progress: Progress = silent,
    ) -> PurgeReport:
        """Remove the contents of dropped catalogs for good, up to ``limit`` of them: files first, then rows in batches.

        An interrupted purge does no harm, and the next one continues. A catalog waits while forks or exported lakes use
        its files, or while another catalog names anything in its folder. A client that was writing when the catalog was
        dropped may leave a file later. So the folder is not reused, and the first purge after ``grace`` (default: the
        setting ``orphan_grace``) checks it again. An unreachable store does not stop the purge of other catalogs; its
        ``StorageError`` is raised at the end.
        """
        if limit < 1 or batch_rows < 1:
            raise InputError("limit and batch_rows must be at least 1")
        late = dt.datetime.now(dt.UTC) - (self._config.orphan_grace if grace is None else grace)
        late_ms = int(late.timestamp() * 1000)
        with self._tenancy.reading() as registry:
            waiting = registry.purgeable(limit, late_ms)
        catalogs = files = rows = left = 0
        failure: StorageError | None = None
        free = [self._tenancy.settle(row, self._path(row.folder)) for row, _ in waiting]
        occupancy = Occupancy(self._root, (self._path(row.folder) for row, _ in waiting), self._config)
        if waiting:
            with self._tenancy.reading() as registry:
                occupancy.add(registry)
        for number, (row, purged) in enumerate(waiting):
            progress("purge", number, len(waiting))
            if not free[number] or not occupancy.is_free(self._path(row.folder)):
                left += 1
                continue
            try:
                files += self._remove_files(row)
            except StorageError as error:
                failure = failure or error
                continue
            rows += sum(self._tenancy.purge(row, batch_rows, forget=(row.dropped_ms or 0) <= late_ms))
            catalogs += not purged
        if failure is not None:
            raise failure
        return PurgeReport(catalogs, files, rows, left)

    def _remove_files(self, row: CatalogRow) -> int:
        store = open_store(self._path(row.folder), self._config, tenant=former_name(row.name))
        removed = 0
        while some := [entry.path for entry in islice(store.list(), _FILES)]:
            found = store.delete(some)
            removed += found
            if not found:
                break  # stop at files that cannot be removed
        return removed

    def stats(
        self, name: str | None = None, *, prefix: str = "", after: str | None = None, limit: int = _PAGE
    ) -> builtins.list[TenantStats]:
        """Return the stats of one catalog, or of a page of them, as ``list`` pages."""
        with self._tenancy.reading() as registry:
            rows = [registry.need(name)] if name is not None else registry.catalogs(prefix, after, limit)
            names = {row.id: row.name for row in rows}
            return [TenantStats(names[id_], *numbers) for id_, *numbers in registry.totals(builtins.list(names))]

    def open_handle(self, name: str, *, create: bool = False, read_only: bool = False, **settings: Any) -> LakeHandle:
        """Open a catalog with the settings of this object."""
        given = _settings(self._config) | settings
        return open_lake(self._url, catalog=name, create=create, read_only=read_only, **given)

    # -- limits and access -------------------------------------------------------------------------------------------

    def limit(self, name: str | None = None, *, reset: bool = False, **limits: Unpack[_Given]) -> Limits:
        """Set limits of a catalog and return the limits that now apply to it.

        The limits are ``commits_per_second``, ``concurrent_scans`` (per process), ``bytes`` (of data files at the
        newest snapshot), ``tables`` and ``snapshots``. Limits that are not given stay, None removes a limit, and
        ``reset`` first removes all limits set before. Without a name, they apply to every catalog without limits of its
        own. They take effect with the next commit or scan, also for clients that have the catalog open. Raise
        ``NotFoundError`` or ``InputError``.
        """
        return self._tenancy.set_limits(name, limits, reset=reset)

    def limits(self, name: str | None = None) -> Limits:
        """Return the limits of a catalog; without a name, those of every catalog without its own limits."""
        with self._tenancy.reading() as registry:
            return Limits.of(*registry.limits(None if name is None else registry.need(name)))

    def secure(self, *, dry_run: bool = False) -> builtins.list[str]:
        """Force row-level security on every table of the lake; return the SQL, which ``dry_run`` does not run.

        Superusers and the tables' owner are not affected. ``grant`` also does this. Clients of other roles should
        reconnect.
        """
        return self._tenancy.secure(dry_run=dry_run)

    def grant(self, name: str, role: str, *, read_only: bool = False, dry_run: bool = False) -> builtins.list[str]:
        """Let a database role read and write one catalog, or with ``read_only`` only read it; return the SQL.

        The role then opens this catalog with its own credentials, and even its raw SQL sees no row of another. Raise
        ``NotFoundError``, or ``InputError`` for a role that bypasses policies.
        """
        return self._tenancy.grant(name, check_name(role, "role"), writable=not read_only, dry_run=dry_run)

    def revoke(self, name: str, role: str, *, dry_run: bool = False) -> builtins.list[str]:
        """Undo ``grant``; return the SQL."""
        return self._tenancy.revoke(name, check_name(role, "role"), dry_run=dry_run)

    def expose(self, name: str, role: str | None = None, *, writable: bool = False, dry_run: bool = False) -> Exposure:
        """Let stock DuckDB read one catalog, and write it if ``writable``, through a separate schema.

        ``role`` optionally gives a database role access to it. The catalog's inlined rows are flushed to files, and it
        inlines none while it is exposed. Raise ``InputError`` when dropped tables still have inlined rows. Can be
        called again for another role.
        """
        row, tenancy = self._tenancy.get(name), self._tenancy
        if role is not None:
            check_name(role, "role")
        begun = tenancy.begin_exposing(row, dry_run=dry_run)
        try:
            if begun and not dry_run:
                with self.open_handle(name) as lake:
                    LakeMaintenance(lake).flush_inlined_data()
            made = tenancy.finish_exposing(row, role, writable=writable, fresh=bool(begun), dry_run=dry_run)
        except BaseException:
            if begun and not dry_run:
                tenancy.unexpose(row, dry_run=False)
            raise
        return Exposure(tenancy.exposure_schema(row.id), (*begun, *made))

    def unexpose(self, name: str, *, dry_run: bool = False) -> builtins.list[str]:
        """Remove the schema of an exposed catalog; return the SQL, none if it is not exposed."""
        return self._tenancy.unexpose(self._tenancy.get(name), dry_run=dry_run)


def open_tenants(
    url: str | None = None,
    data_path: str | Path | None = None,
    *,
    create: bool | None = None,
    convert: str | None = None,
    migrate: bool = True,
    config_file: str | Path | None = None,
    kind: type[T] = TenantCatalogs,  # type: ignore[assignment]
    **settings: Any,
) -> T:
    """Open, create or convert a shared lake; see ``quacklake.tenants``."""
    flags = {"url": url, "data_path": None if data_path is None else str(data_path), **settings}
    config = resolve({name: value for name, value in flags.items() if value is not None}, config_file=config_file)
    check_enabled(config)
    if config.url is None:
        raise ConfigError("no catalog URL was given", hint='pass one, such as "postgresql://host/db"')
    parsed = parse_url(config.url)
    tenancy = Tenancy(open_metadata(parsed, config, read_only=False, whole=True))
    try:
        given = config.data_path or parsed.data_path
        if convert is not None:
            _convert(tenancy, config, convert, given)
        if migrate:
            migrate_layout(tenancy.facts, parsed, config)
            tenancy.resume_conversion()
        facts = tenancy.facts()
        place = given or config.bucket_name
        if facts is None and create is not False and (place is not None or create):
            facts = create_lake(tenancy, parsed, config, given)
        elif facts is None:
            facts = tenancy.need_facts()
        elif migrate:
            tenancy.mend_indexes()
            tenancy.mend_access()
    except BaseException:
        tenancy.close()
        raise
    return kind(tenancy, config.url, config, facts.data_path)


def _convert(tenancy: Tenancy, config: Config, name: str, data_path: str | None) -> None:
    """Convert a plain lake to a shared one. Rows that others inline meanwhile are flushed too."""
    if data_path is None:
        raise ConfigError("a conversion needs a data path for new catalogs", hint="pass data_path=")
    check_tenant_name(name)
    root = open_store(data_path, config)
    if tenancy.resume_conversion():
        return
    for attempt in range(_ATTEMPTS):
        own = _flush(config, root)
        try:
            tenancy.convert(name, root.root, folder_path, own)
        except UnsupportedFeatureError:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def _flush(config: Config, root: Store) -> str:
    """Flush the inlined rows of a plain lake; return its data path, which must be separate from ``root``."""
    with open_lake(config.url, catalog="", migrate=True, **_settings(config)) as lake:
        own = open_store(lake.context.store.root, config)
        if overlap(root, own):
            raise InputError(
                f"the data path {root.root} overlaps with the files of the lake in {own.root}",
                hint="pass another data_path",
            )
        LakeMaintenance(lake).flush_inlined_data()
    return own.root


def _settings(config: Config) -> dict[str, Any]:
    """Return the chosen settings that apply to every lake."""
    chosen = (key for key, source in config.sources.items() if source != "default" and key not in _ITS_OWN)
    return {key: getattr(config, key) for key in chosen}


def _time(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
