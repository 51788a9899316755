"""Making lakes of backups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quacklake.catalog import parse_url
from quacklake.config import resolve
from quacklake.engines.duckdb import DuckDBEngine
from quacklake.errors import CorruptFileError
from quacklake.lake.connect import connect, open_metadata
from quacklake.lake.lake import Lake
from quacklake.lake.stores import open_store
from quacklake.maintenance.backup import BackupInfo, list_backups, restore
from quacklake.maintenance.backup.manifest import choose
from quacklake.maintenance.reports import Progress, silent

__all__ = ["backups", "restore_backup"]


def backups(place: str | Path, *, config_file: str | Path | None = None, **settings: Any) -> list[BackupInfo]:
    """The backups in a folder or at an ``s3://`` URL, oldest first."""
    return list_backups(open_store(str(place), resolve(settings, config_file=config_file)))


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
    """Make a lake of a backup, the newest unless ``backup`` is the id of another, and open it.

    ``url`` is an empty database of any kind, ``data_path`` an empty folder or prefix. The lake is the one that was
    backed up: the same snapshots, rows and row ids. It is verified at the end. An interrupted restore leaves no lake
    and can be run again. Raises ``AlreadyExistsError``, ``NotFoundError``, ``UnsupportedFeatureError`` or
    ``CorruptFileError``.
    """
    config = resolve({"url": url, "data_path": str(data_path), **settings}, config_file=config_file)
    source, target = open_store(str(from_), config), open_store(str(data_path), config)
    info = choose(source, backup)
    catalog = open_metadata(parse_url(url), config, read_only=False)
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
