"""Open a lake, or a catalog of a shared lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quacklake.config import Config, resolve
from quacklake.core.catalog import parse_url
from quacklake.core.engines.duckdb import DuckDBEngine
from quacklake.core.lazy import provided
from quacklake.core.maintenance.backup import BackupInfo, PruneReport, lend, list_backups, prune, restore
from quacklake.core.maintenance.backup.image import choose
from quacklake.core.operations.stores import open_backups, open_store
from quacklake.core.operations.times import Age, before
from quacklake.core.progress import Progress, silent
from quacklake.core.tenancy.moving import reserve_catalog
from quacklake.core.tenancy.opening import check_enabled, open_lake, open_metadata
from quacklake.errors import CorruptFileError, InputError, UnsupportedFeatureError
from quacklake.lake.lake import Lake


def connect(
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
) -> Lake:
    """Open a lake, or create one.

    ``url`` names the metadata database: ``sqlite:///lake.db``, ``duckdb:///lake.db``, ``postgresql://…``, ``mysql://…``
    or DuckLake's own ``ducklake:sqlite:lake.db``. Without it, the URL comes from the environment or ``quacklake.toml``.
    ``data_path`` is required to create a lake (``create=False`` forbids creating one). For an existing lake it must
    match the lake's own data path, unless ``override_data_path`` is true. ``encrypted=True`` creates a lake that
    encrypts each file with its own key; the catalog holds the keys, so opening the lake needs no key. ``catalog`` names
    one catalog (tenant) of a shared lake, which holds many separate lakes in one database; ``create=True`` creates a
    missing catalog, with its files in ``data_path/<catalog>``. ``format_version="1.1"`` creates a lake in the upcoming
    format version; the default is ``"1.0"``, and an existing lake keeps its version. A lake in an older version opens
    read-only, or is upgraded to 1.0 with ``migrate=True``; a shared lake in an older layout is upgraded unless
    ``migrate`` is false. Any other setting can be passed by name.

    ``url`` may also be that of a service, ``http://…`` or ``https://…``, with ``token=`` and, if it has several lakes,
    ``lake=``. Its lake has the same methods for reading, appending and SQL.

    Raise ``ConfigError``, ``NotFoundError`` or ``UnsupportedVersionError``; no message contains a password.
    """
    if url is not None and url.startswith(("http://", "https://")):
        return connect_service(url, **settings)
    handle = open_lake(
        url,
        data_path,
        catalog=catalog,
        create=create,
        override_data_path=override_data_path,
        read_only=read_only,
        migrate=migrate,
        config_file=config_file,
        **settings,
    )
    return Lake(handle)


@provided
def connect_service(url: str, **settings: Any) -> Lake:
    """Return the lake that a service has: not a ``Lake``, but an object with the same methods for reading and SQL."""
    raise NotImplementedError


def backups(place: str | Path, *, config_file: str | Path | None = None, **settings: Any) -> list[BackupInfo]:
    """Return the backups in a folder or at an ``s3://`` URL, oldest first."""
    return list_backups(open_backups(str(place), resolve(settings, config_file=config_file)))


def prune_backups(
    place: str | Path,
    *,
    keep_last: int | None = None,
    older_than: Age | None = None,
    dry_run: bool = False,
    config_file: str | Path | None = None,
    progress: Progress = silent,
    **settings: Any,
) -> PruneReport:
    """Remove backups older than ``older_than`` or beyond the last ``keep_last``, and the files that only they use.

    If both are given, a backup is removed only if neither keeps it; the newest always stays. ``dry_run`` removes
    nothing. An interrupted run damages none of the remaining backups, and the next run finishes the work.
    Raise ``InputError`` when neither is given, ``StorageUnavailableError`` while a backup is being written there, and
    ``CorruptFileError`` when a backup that should stay cannot be read.
    """
    if keep_last is None and older_than is None:
        raise InputError("pass keep_last= or older_than=")
    if keep_last is not None and (isinstance(keep_last, bool) or keep_last < 1):
        raise InputError(f"keep_last must be a whole number of at least 1, not {keep_last!r}")
    return prune(
        open_backups(str(place), resolve(settings, config_file=config_file)),
        keep_last=keep_last,
        before=None if older_than is None else before(older_than),
        dry_run=dry_run,
        progress=progress,
    )


def restore_backup(
    from_: str | Path,
    url: str,
    data_path: str | Path,
    *,
    backup: str | None = None,
    config_file: str | Path | None = None,
    progress: Progress = silent,
    **settings: Any,
) -> Lake:
    """Restore a backup as a new lake and open it. ``backup`` is the id of a backup; the default is the newest.

    ``url`` must name an empty database of any kind, ``data_path`` an empty folder or prefix. With ``catalog``, the
    backup becomes a new catalog of a shared lake, and its files go below that lake's data path. The restored lake has
    the same snapshots, rows and row ids, and is verified at the end. An interrupted restore leaves no lake and can be
    run again. Raise ``AlreadyExistsError``, ``NotFoundError``, ``UnsupportedFeatureError`` or ``CorruptFileError``.
    """
    config = resolve({"url": url, "data_path": str(data_path), **settings}, config_file=config_file)
    check_enabled(config)
    source, target = open_backups(str(from_), config), open_store(str(data_path), config)
    info = choose(source, backup)
    catalog = open_metadata(parse_url(url), config, read_only=False)
    if catalog.tenant is not None:
        catalog.reserved, path = reserve_catalog(url, catalog.tenant, str(data_path), config)
        target = open_store(path, config, tenant=catalog.tenant)
    engine = DuckDBEngine(target, threads=config.duckdb_threads)
    try:
        restore(source, info, catalog, target, engine.texts, progress)
    finally:
        engine.close()
        catalog.close()
    lake = connect(url, config_file=config_file, **settings)
    try:
        errors = [each for each in lake.verify(progress=progress).errors if each.file_id not in info.missing]
        if errors:
            raise CorruptFileError(f"the restored lake has {len(errors)} errors, the first: {errors[0].what}")
    except BaseException:
        lake.close()
        raise
    return lake


def replace_from_backup(
    lake: Lake, from_: str | Path, backup: str, config: Config, progress: Progress = silent
) -> None:
    """Replace an older state of a lake by a backup of the same lake, in one transaction; its files are copied first.

    Raise ``UnsupportedFeatureError`` for a catalog in MySQL or in a shared lake.
    """
    context, source = lake.handle.context, open_backups(str(from_), config)
    info = choose(source, backup)
    restore(source, info, context.catalog, context.store, context.engine.texts, progress, replace_lake=True)
    context.forget()


def lend_backup(from_: str | Path, url: str, backup: str, config: Config) -> None:
    """Make a catalog in an empty database that reads the files of a backup where they are. They must not be encrypted.

    Whoever opens the lake must not write to it.
    """
    source, files = open_backups(str(from_), config), open_store(f"{str(from_).rstrip('/')}/data", config)
    if source.is_sealed:
        raise UnsupportedFeatureError("files of an encrypted backup cannot be read in place", hint="restore it first")
    catalog = open_metadata(parse_url(url), config, read_only=False)
    engine = DuckDBEngine(files, threads=config.duckdb_threads)
    try:
        lend(source, choose(source, backup), catalog, files, engine.texts)
    finally:
        engine.close()
        catalog.close()
