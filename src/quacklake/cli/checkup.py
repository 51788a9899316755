"""What ``quacklake doctor`` looks at: the installation, the settings and the lake."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from quacklake.cli.context import Context
from quacklake.cli.failures import as_typed
from quacklake.cli.output import plural
from quacklake.config import redact
from quacklake.errors import ConfigError, QuacklakeError

if TYPE_CHECKING:
    from quacklake.config import Config
    from quacklake.lake import Lake

__all__ = ["Finding", "checkup", "installed", "java"]

State = Literal["ok", "absent", "warning", "failed"]

_NEEDED = {
    "duckdb": "1.5",
    "pyarrow": "18",
    "SQLAlchemy": "2.0",
    "duckdb-engine": "0.17",
    "sqlglot": "27",
    "rich": "13",
}
_EXTRAS = {
    "psycopg": ("postgres", "PostgreSQL catalogs"),
    "PyMySQL": ("mysql", "MySQL and MariaDB catalogs"),
    "duckdb-extension-httpfs": ("s3", "DuckDB's own S3 reader, and encrypted lakes"),
    "pandas": ("pandas", "pandas frames"),
    "polars": ("polars", "polars frames"),
    "pyspark": ("spark", "Spark"),
}
_JAVA = 17


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what it is, how it is, and what to do about it."""

    area: str
    what: str
    state: State
    detail: str = ""
    fix: str | None = None

    def row(self) -> dict[str, str | None]:
        """The finding without secrets."""
        return {name: value if value is None else redact(value) for name, value in asdict(self).items()}


def checkup(context: Context) -> list[Finding]:
    """Everything that was looked at."""
    found = [*_installation(), *_extras(context)]
    try:
        config = context.config
    except ConfigError as error:
        return [*found, Finding("settings", "settings", "failed", error.message, error.hint or "correct it")]
    return [*found, *_settings(config), *_lake(context)]


# -- the installation --------------------------------------------------------------------------------------------------


def _installation() -> Iterator[Finding]:
    version = platform.python_version()
    fits = sys.version_info >= (3, 11)
    yield Finding("installation", "Python", "ok" if fits else "failed", version, None if fits else "use 3.11 or newer")
    yield Finding("installation", "quacklake", "ok", installed("quacklake") or "from source")
    for package, least in _NEEDED.items():
        have = installed(package)
        if have is None:
            yield Finding("installation", package, "failed", "not installed", f"pip install '{package}>={least}'")
        elif _numbers(have) < _numbers(least):
            yield Finding("installation", package, "failed", have, f"pip install --upgrade '{package}>={least}'")
        else:
            yield Finding("installation", package, "ok", have)


def _extras(context: Context) -> Iterator[Finding]:
    needed = _needed_extras(context)
    for package, (extra, purpose) in _EXTRAS.items():
        have = installed(package)
        if have is not None:
            yield Finding("extras", package, "ok", f"{have}, for {purpose}")
        else:
            state: State = "failed" if extra in needed else "absent"
            yield Finding("extras", package, state, f"needed for {purpose}", f"pip install 'quacklake[{extra}]'")
    if installed("pyspark") is not None:
        yield java()


def _needed_extras(context: Context) -> set[str]:
    """What the lake that is configured cannot do without."""
    try:
        url = context.config.url or ""
    except ConfigError:
        return set()
    return {extra for word, extra in (("postgres", "postgres"), ("mysql", "mysql"), ("maria", "mysql")) if word in url}


def java() -> Finding:
    """Whether there is a Java that Spark can use."""
    from quacklake.storage.spark import find_java

    java = find_java()
    fix = f"install a JDK, {_JAVA} or newer, and let JAVA_HOME name its folder"
    if java is None:
        return Finding("extras", "Java", "absent", "not found, Spark needs it", fix)
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("extras", "Java", "warning", f"{java} does not run: {error}", fix)
    version = told.partition('"')[2].partition('"')[0]
    if not version or _numbers(version)[0] < _JAVA:
        return Finding("extras", "Java", "warning", f"{version or 'of unknown version'}, {java}", fix)
    return Finding("extras", "Java", "ok", f"{version}, {java}")


def installed(package: str) -> str | None:
    """The version of a package, None when it is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version.

    >>> _numbers("2.0.1rc1"), _numbers("17") < _numbers("21.0.2")
    ((2, 0), True)
    """
    parts = []
    for part in version.split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts) or (0,)


# -- the settings ------------------------------------------------------------------------------------------------------


def _settings(config: Config) -> Iterator[Finding]:
    chosen = sorted(name for name, source in config.sources.items() if source != "default")
    yield Finding("settings", "settings", "ok", f"set: {', '.join(chosen) or 'none'}")
    if config.url is None:
        fix = "pass --lake, set QUACKLAKE_URL, or run `quacklake init`"
        yield Finding("settings", "url", "failed", "no lake was given", fix)
    if (config.s3_access_key is None) != (config.s3_secret_key is None):
        missing = "s3_secret_key" if config.s3_secret_key is None else "s3_access_key"
        yield Finding("settings", missing, "failed", "one S3 key without the other", f"quacklake config set {missing}")
    if config.s3_endpoint is not None and config.s3_endpoint.startswith("http://") and config.s3_secure:
        fix = "quacklake config set s3_secure false"
        yield Finding("settings", "s3_secure", "warning", "the endpoint speaks HTTP, and HTTPS is asked for", fix)
    file = Path("quacklake.toml")
    if file.is_file() and file.stat().st_mode & 0o077 and _secrets_in(config):
        detail = f"others can read it, and it has {', '.join(_secrets_in(config))}"
        yield Finding("settings", str(file), "warning", detail, f"chmod 600 {file}")


def _secrets_in(config: Config) -> list[str]:
    secrets = ["s3_access_key", "s3_secret_key", "s3_session_token"]
    if config.url is not None and redact(config.url) != config.url:
        secrets.append("url")
    return [name for name in secrets if config.sources[name].startswith("file")]


# -- the lake ----------------------------------------------------------------------------------------------------------


def _lake(context: Context) -> Iterator[Finding]:
    if context.config.url is None:
        return
    try:
        lake = context.open()
    except QuacklakeError as error:
        yield _failed("catalog", error, "check the URL and that it can be reached")
        return
    with lake:
        yield from _catalog(lake)
        yield _store(lake)


def _failed(what: str, error: QuacklakeError, fix: str) -> Finding:
    return Finding("lake", what, "failed", error.message, fix if error.hint is None else as_typed(error.hint))


def _catalog(lake: Lake) -> Iterator[Finding]:
    try:
        snapshot, tables = lake.current_snapshot(), len(lake.tables())
    except QuacklakeError as error:
        yield _failed("catalog", error, "run `quacklake verify`")
        return
    yield Finding("lake", "catalog", "ok", f"{lake.url}, snapshot {snapshot}, {plural(tables, 'table')}")
    if lake._shared.catalog.outdated:
        detail = f"{lake.version}, an older one: it can be read, not written"
        yield Finding("lake", "format version", "warning", detail, "run `quacklake migrate`")
    else:
        yield Finding("lake", "format version", "ok", lake.version)


def _store(lake: Lake) -> Finding:
    store = lake._shared.store
    try:
        there = store.exists_root()
    except QuacklakeError as error:
        return _failed("files", error, "check s3_endpoint, its keys and the network")
    if not there:
        return Finding("lake", "files", "ok", f"{store.root}: empty, or not there yet")
    if store.is_local and not os.access(store.root, os.W_OK):
        detail = f"{store.root} cannot be written"
        return Finding("lake", "files", "warning", detail, "change its owner or its mode, unless you only read")
    return Finding("lake", "files", "ok", store.root)
