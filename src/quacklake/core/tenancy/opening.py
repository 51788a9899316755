"""Open or create lakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from quacklake.config import Config, resolve
from quacklake.core.catalog import (
    Catalog,
    CatalogUrl,
    SharedFacts,
    folder_path,
    no_such_catalog,
    open_catalog,
    parse_url,
)
from quacklake.core.engines.duckdb import DuckDBEngine, FileWriter
from quacklake.core.format.names import check_tenant_name
from quacklake.core.operations.context import LakeContext, ScanGate
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.operations.stores import open_store, without_others
from quacklake.core.scan.remembered import plans_of
from quacklake.core.storage import Store
from quacklake.core.transaction import CommitGroup, TableCache
from quacklake.errors import ConfigError, NotFoundError, UnsupportedVersionError

if TYPE_CHECKING:
    from quacklake.core.tenancy.tenancy import Tenancy

T = TypeVar("T")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", re.ASCII)


def open_lake(
    url: str | None = None,
    data_path: str | Path | None = None,
    *,
    catalog: str | None = None,
    create: bool | None = None,
    override_data_path: bool = False,
    read_only: bool = False,
    migrate: bool | None = None,
    config_file: str | Path | None = None,
    **settings: Any,
) -> LakeHandle:
    """Open a lake, or create one; see ``quacklake.connect``."""
    flags = {"url": url, "catalog": catalog, "data_path": None if data_path is None else str(data_path), **settings}
    config = resolve({name: value for name, value in flags.items() if value is not None}, config_file=config_file)
    check_enabled(config)
    if config.url is None:
        raise ConfigError(
            "no catalog URL was given", hint='pass one, such as "sqlite:///lake.db", or set QUACKLAKE_URL'
        )
    parsed = parse_url(config.url)
    metadata = open_metadata(parsed, config, read_only=read_only)
    try:
        given = config.data_path or parsed.data_path
        there = None
        if metadata.shared and migrate is not False and not read_only:
            there = migrate_layout(metadata.exists, parsed, config)
        if there is None:
            there = metadata.exists()
        if not there:
            may_create = False if read_only else create
            if metadata.shared:
                _create_catalog(metadata, parsed, config, given, create=may_create)
            elif may_create is False:
                hint = "check the URL, or pass create=True to create one"
                raise NotFoundError(f"there is no lake at {parsed.shown}", hint=hint)
            else:
                root = new_root(parsed, config, given)
                metadata.create(root, encrypted=bool(config.encrypted), version=config.format_version)
        else:
            metadata.load(found=True)
            if migrate and metadata.outdated:
                metadata.migrate()
        _check_encryption(metadata, config)
        store = _store(metadata, config, given, override=override_data_path)
        row = metadata.tenant_row
        config = without_others(config, store.root, None if row is None else row.name)
        metadata.label = store.label
    except BaseException:
        metadata.close()
        raise
    tenant = None if row is None else row.uuid
    identity = (metadata.url, metadata.metadata_schema, tenant, *store.confines)
    plans = plans_of(identity, config.plan_cache_bytes)
    limit = config.duckdb_memory_limit
    engine = DuckDBEngine(
        store,
        memory_limit=None if limit is None else f"{limit}B",
        threads=config.duckdb_threads,
        gate=ScanGate(metadata, config.limit_wait_ms / 1000, plans),
        reuse=not metadata.encrypted,
    )
    writer = FileWriter(store, encrypted=metadata.encrypted)
    group = CommitGroup(config.commit_group)
    context = LakeContext(metadata, store, engine, config, TableCache(metadata), writer, group, plans)
    if config.openlineage_url is not None:
        from quacklake.core.operations.lineage import Lineage

        context.lineage = Lineage(config, str(metadata.url), metadata.tenant)
    return LakeHandle(context)


def check_enabled(config: Config) -> None:
    """Raise ``ConfigError`` when the settings disable opening lakes."""
    if not config.enabled:
        raise ConfigError(
            f"lakes are disabled: enabled = false ({config.sources['enabled']})",
            hint="set enabled, or the variable QUACKLAKE_ENABLED, to true",
        )


def open_metadata(
    url: CatalogUrl, config: Config, *, read_only: bool, catalog: str | None = None, whole: bool = False
) -> Catalog:
    """Return the metadata at a URL, lake or not, of ``catalog`` or the one in the settings, or of a ``whole`` lake."""
    name = None if whole else catalog or config.catalog or url.catalog
    return open_catalog(
        url,
        catalog=None if name is None else check_tenant_name(name),
        metadata_schema=config.metadata_schema,
        read_only=read_only,
        busy_timeout_ms=config.busy_timeout_ms,
        pool_size=config.pool_size,
        max_overflow=config.pool_max_overflow,
        storage_version=config.duckdb_storage_version,
        sqlite_journal=config.sqlite_journal,
        bounds_bytes=config.plan_cache_bytes,
    )


def new_root(url: CatalogUrl, config: Config, data_path: str | None) -> str:
    """Return the data path of a new lake."""
    if data_path is None and config.bucket_name is not None:
        if not _BUCKET.fullmatch(config.bucket_name):
            raise ConfigError(
                f"bucket_name = {config.bucket_name!r} is not the name of a bucket",
                hint="set data_path for a folder in a bucket",
            )
        data_path = f"s3://{config.bucket_name}/data/"
    if data_path is None and url.database == "duckdb" and url.path is not None:
        data_path = f"{url.path}.files"  # as stock DuckLake does
    if data_path is None:
        raise ConfigError(
            f"there is no lake at {url.shown}, and no data_path to create one",
            hint="pass data_path= for the new lake's files",
        )
    return open_store(data_path, config).root


def migrate_layout(look: Callable[[], T], url: CatalogUrl, config: Config) -> T | None:
    """Return the result of ``look``; None after migrating an older layout, or finishing a conversion: look again."""
    try:
        return look()
    except UnsupportedVersionError:
        with closing(_whole(url, config)) as whole:
            if whole.is_convertible():
                whole.convert(None, None, folder_path)
            else:
                whole.resume_conversion()
        return None


def _whole(url: CatalogUrl, config: Config) -> Tenancy:
    from quacklake.core.tenancy.tenancy import Tenancy

    return Tenancy(open_metadata(url, config, read_only=False, whole=True))


def _create_catalog(
    catalog: Catalog, url: CatalogUrl, config: Config, data_path: str | None, *, create: bool | None
) -> None:
    """Create a catalog of a shared lake, and the lake itself if it does not exist."""
    assert catalog.tenant is not None
    there = catalog.shared_facts is not None
    if create is False or (there and not create):
        raise no_such_catalog(catalog.tenant)
    with closing(_whole(url, config)) as whole:
        root = (catalog.shared_facts or create_lake(whole, url, config, data_path)).data_path
        whole.create(
            [catalog.tenant],
            if_not_exists=True,
            path_of=lambda folder: folder_path(root, folder),
            version=config.format_version,
        )
    catalog.load()


def create_lake(tenancy: Tenancy, url: CatalogUrl, config: Config, data_path: str | None) -> SharedFacts:
    """Create a shared lake without catalogs."""
    root = new_root(url, config, data_path)
    return tenancy.create_lake(root, encrypted=bool(config.encrypted), partitions=config.metadata_partitions)


def _check_encryption(catalog: Catalog, config: Config) -> None:
    if config.encrypted not in (None, catalog.encrypted):
        known, wanted = ("encrypted", "plain") if catalog.encrypted else ("plain", "encrypted")
        raise ConfigError(
            f"the files of the lake are {known}, but {wanted} files were requested",
            hint="leave out encrypted=: it cannot be changed after a lake was created",
        )


def _store(catalog: Catalog, config: Config, given: str | None, *, override: bool) -> Store:
    stored, row = catalog.metadata.get("data_path"), catalog.tenant_row
    closed: list[str] = []
    if row is not None and catalog.shared_facts is not None:
        closed.append(catalog.shared_facts.data_path)
        if given is not None:
            closed.append(open_store(given, config).root)
            given = folder_path(given, row.folder)
    if stored is None and given is None:
        raise ConfigError("the catalog of the lake has no data path", hint="pass data_path=")
    borrows, name = ((), None) if row is None else (row.borrows, row.name)
    own = None if stored is None else open_store(stored, config, borrows, closed=closed, tenant=name)
    if given is None:
        assert own is not None
        return own
    mine = open_store(given, config, borrows, closed=closed, tenant=name)
    if own is not None and mine.root != own.root and not override:
        raise ConfigError(
            f'DATA_PATH parameter "{mine.root}" does not match existing data path in the catalog "{own.root}".',
            hint="leave out data_path, or pass override_data_path=True if the files were moved",
        )
    if closed and (own is None or mine.root != own.root):
        _check_apart(mine, open_store(closed[0], config))
    return mine


def _check_apart(mine: Store, whole: Store) -> None:
    """Raise ``ConfigError`` when the files of a catalog would be among those of others of a shared lake."""
    if whole.locate(mine.root) is not None or mine.locate(f"{whole.root}x") is not None:
        raise ConfigError(
            f"the files of a catalog cannot be in {mine.root}: other catalogs may have files there",
            hint="leave out data_path, or pass a folder outside the data path of the shared lake",
        )
