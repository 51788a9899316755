"""Check that the catalog answers, and that files can be read and written in the data path."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quacklake.catalog.reading.health import table_health
from quacklake.cli.checkup.findings import CheckResult, bounded, failed
from quacklake.cli.context import Context
from quacklake.cli.output import plural
from quacklake.errors import QuacklakeError

if TYPE_CHECKING:
    from quacklake.config import Config
    from quacklake.lake.lake import Lake
    from quacklake.storage import Store

_NAMES = {"sqlite": "SQLite", "duckdb": "DuckDB", "postgres": "PostgreSQL", "mysql": "MySQL"}
_VERSIONS = {"sqlite": "SELECT sqlite_version()", "duckdb": "SELECT version()"}
_REACH_SECONDS = 3.0


def check_lake(context: Context) -> Iterator[CheckResult]:
    """Yield the state of the lake that the settings name."""
    if context.config.url is None:
        yield CheckResult(
            "lake", "catalog", "absent", "no lake was given", "pass --lake, or make one: `quacklake init`"
        )
        return
    opened: list[Lake] = []

    def look() -> list[CheckResult]:
        opened.append(context.open())
        return list(_catalog(opened[0]))

    try:
        yield from bounded("lake", "catalog", look, fix="check the URL and that it can be reached")
        if opened:
            store, config = opened[0]._context.store, context.config
            files = _count_files(opened[0])
            fix = "check s3_endpoint, its keys and the network" if not store.is_local else "check the disk"
            yield from bounded("lake", "files", lambda: [_files(store, config, files)], fix=fix)
    finally:
        for one in opened:
            with suppress(QuacklakeError):
                one.close()


def _catalog(lake: Lake) -> Iterator[CheckResult]:
    """Yield the state of the database."""
    import sqlalchemy as sa

    catalog = lake._context.catalog
    try:
        with catalog.translate_errors("read"), catalog.connected() as connection:
            statement = _VERSIONS.get(catalog.database, "SELECT version()")
            version = str(connection.execute(sa.text(statement)).scalar())
        snapshot, tables = lake.current_snapshot(), len(lake.tables())
    except QuacklakeError as error:
        yield failed("lake", "catalog", error, "run `quacklake verify`")
        return
    name = "MariaDB" if "MariaDB" in version else _NAMES[catalog.database]
    product = version if version.startswith(name) else f"{name} {version.removeprefix('v')}"
    yield CheckResult("lake", "database", "ok", product.partition(" on ")[0])
    yield CheckResult("lake", "catalog", "ok", f"{lake.url}, snapshot {snapshot}, {plural(tables, 'table')}")
    if catalog.outdated:
        detail = f"{lake.version}, an older one: it can be read, not written"
        yield CheckResult("lake", "format version", "warning", detail, "run `quacklake migrate`")
    else:
        yield CheckResult("lake", "format version", "ok", lake.version)


def _count_files(lake: Lake) -> int:
    """Return the number of data files of the lake, as far as it is known."""
    try:
        with lake._context.catalog.read() as reader:
            health = table_health(reader, reader.snapshots.latest(), small=0, small_of={}, worn=1.0)
        return sum(table.files for table in health.values())
    except QuacklakeError:
        return 0


# -- files -------------------------------------------------------------------------------------------------------------


def _files(store: Store, config: Config, files: int) -> CheckResult:
    """Check that the data path exists and can be written, with a tiny file that is removed again."""
    if not store.is_local:
        reached = _endpoint(config)
        if reached is not None:
            return reached
        store.exists_root()  # a wrong key fails here, and the caller reports it
        problem = store.attempts.place()
        if problem is not None:
            return CheckResult("lake", "files", "failed", problem.message, problem.hint)
    elif not Path(store.root).is_dir():
        return _missing_folder(Path(store.root), files)
    name = f".quacklake-doctor-{uuid.uuid4().hex}"
    try:
        store.write(name, b"can be removed")
        store.delete([name])
    except QuacklakeError as error:
        fix = "give this user the right to write there, unless it only reads"
        return CheckResult("lake", "files", "warning", f"{store.root} cannot be written: {error.message}", fix)
    return CheckResult("lake", "files", "ok", f"{store.root}, {plural(files, 'data file')}, can be written")


def _missing_folder(folder: Path, files: int) -> CheckResult:
    if files:
        detail = f"there is no folder {folder}, and the lake has {plural(files, 'data file')} there"
        return CheckResult(
            "lake", "files", "failed", detail, "mount or restore it; `quacklake verify` tells what is missing"
        )
    parent = next((parent for parent in folder.parents if parent.exists()), Path("/"))
    if not os.access(parent, os.W_OK):
        detail = f"{folder} does not exist, and cannot be made in {parent}"
        return CheckResult(
            "lake", "files", "failed", detail, f"change the owner or mode of {parent}, or make the folder"
        )
    return CheckResult("lake", "files", "ok", f"{folder}: it is made with the first file")


def _endpoint(config: Config) -> CheckResult | None:
    """Return what is wrong with the S3 endpoint, or None. Arrow retries for a long time before it fails."""
    if config.s3_endpoint is None:
        return None
    text = config.s3_endpoint if "://" in config.s3_endpoint else f"http://{config.s3_endpoint}"
    parts = urlsplit(text)
    port = parts.port or (443 if config.s3_secure and not text.startswith("http://") else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=_REACH_SECONDS):
            return None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        detail = f"the S3 endpoint {config.s3_endpoint} cannot be reached: {reason}"
        return CheckResult(
            "lake", "files", "failed", detail, "start it, or correct it: quacklake config set s3_endpoint URL"
        )
