"""``quacklake doctor``: check the installation, extras, Spark, the settings, the catalog and the files."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from quacklake import telemetry
from quacklake.cli.context import Context
from quacklake.cli.failures import as_typed
from quacklake.cli.output import plural
from quacklake.config import redact, unknown_variables
from quacklake.config.resolver import TOLD
from quacklake.errors import ConfigError, QuacklakeError, UnsupportedVersionError

if TYPE_CHECKING:
    from quacklake.config import Config
    from quacklake.extend.stores import Store
    from quacklake.lake.lake import Lake

State = Literal["ok", "absent", "warning", "failed"]

SECONDS = 15.0
"""The most seconds that one check may take."""


_BROKEN = 1
_SIGNS = {"ok": ("✓", "green"), "absent": ("–", "dim"), "warning": ("!", "yellow"), "failed": ("✗", "bold red")}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: its subject, its state, and advice."""

    area: str
    what: str
    state: State
    detail: str = ""
    fix: str | None = None

    def row(self) -> dict[str, str | None]:
        """Return the result without secrets."""
        return {name: value if value is None else redact(value) for name, value in asdict(self).items()}


def _run_bounded(
    area: str, what: str, check: Callable[[], list[CheckResult]], *, fix: str = "try again"
) -> list[CheckResult]:
    """Return the results of a check. An error is a result too, and so is a check that takes too long."""
    found: list[list[CheckResult]] = []
    problem = [f"no answer after {SECONDS:g} s", fix]

    def run() -> None:
        try:
            found.append(check())
        except QuacklakeError as error:
            problem[:] = [error.message, fix if error.hint is None else as_typed(error.hint)]
        except BaseException as error:
            problem[0] = f"{type(error).__name__}: {error}"

    thread = threading.Thread(target=run, name="checkup", daemon=True)
    thread.start()
    thread.join(SECONDS)
    return found[0] if found else [CheckResult(area, what, "failed", *problem)]


def doctor(context: Context) -> int:
    """The command suggests a fix for each problem. It writes a small file to the data path and removes it again.

    The exit code is 1 if a check has failed; warnings and missing optional packages do not count.
    """
    findings = _checkup(context)
    if context.output.for_people:
        _print(context, findings)
    else:
        import pyarrow as pa

        schema = pa.schema([(name, pa.string()) for name in ("area", "what", "state", "detail", "fix")])
        context.output.rows(pa.Table.from_pylist([found.row() for found in findings], schema=schema))
    return _BROKEN if any(found.state == "failed" for found in findings) else 0


def _print(context: Context, findings: list[CheckResult]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = context.output.console
    area = ""
    for found in findings:
        row = found.row()
        if found.area != area:
            area = found.area
            console.print(Text(f"{area}", style="bold"))
        sign, style = _SIGNS[found.state]
        table = Table.grid(padding=(0, 1))
        table.add_row("", Text(sign, style=style), Text(f"{found.what:<24}"), Text(row["detail"] or ""))
        console.print(table)
        if row["fix"] is not None:
            console.print(Text(f"      → {row['fix']}", style=style))
    failed = sum(found.state == "failed" for found in findings)
    warned = sum(found.state == "warning" for found in findings)
    told = [f"{count} {what}" for count, what in ((failed, "failed"), (warned, "with a warning")) if count]
    context.output.say(", ".join(told) or "all checks passed")


def _checkup(context: Context) -> list[CheckResult]:
    """Return the results of all checks. No check takes longer than a few seconds."""
    misspelt = list(_check_variables())  # first, so that no other check reports them
    found = [*_check_installation(), *_check_extras(context)]
    found += _run_bounded("Spark", "Java", lambda: list(_check_spark()))
    found += misspelt
    try:
        config = context.config
    except ConfigError as error:
        fix = error.hint or "correct it; `quacklake config show` lists all settings"
        return [*found, CheckResult("settings", "settings", "failed", error.message, fix)]
    telemetry.configure_logging(config.log_level, config.log_format)
    return [*found, *_check_settings(config), *_check_lake(context)]


# -- installation ------------------------------------------------------------------------------------------------------

_PYTHON = (3, 11)
_EXTRAS = {
    "psycopg": ("postgres", "PostgreSQL catalogs"),
    "PyMySQL": ("mysql", "MySQL and MariaDB catalogs"),
    "duckdb-extension-httpfs": ("s3", "DuckDB's own S3 reader, and encrypted lakes"),
    "pandas": ("pandas", "pandas frames"),
    "polars": ("polars", "polars frames"),
    "pyspark": ("spark", "Spark"),
    "python-calamine": ("excel", "reading Excel files"),
    "XlsxWriter": ("excel", "writing Excel files"),
}
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([\w-]+)[\"']")


def _check_installation() -> Iterator[CheckResult]:
    """Yield the state of Python and of the required packages."""
    right = sys.version_info >= _PYTHON
    fix = None if right else "use Python 3.11 or newer"
    yield CheckResult("installation", "Python", "ok" if right else "failed", platform.python_version(), fix)
    yield CheckResult("installation", "quacklake", "ok", installed("quacklake") or "from source")
    for package, bounds in _requirements().items():
        have = installed(package)
        fix = f"pip install --upgrade '{package}{bounds}'"
        if have is None:
            yield CheckResult("installation", package, "failed", "not installed", fix)
        elif not _fits(have, bounds):
            yield CheckResult("installation", package, "failed", f"{have} is installed, but {bounds} is required", fix)
        else:
            yield CheckResult("installation", package, "ok", have)


def _check_extras(context: Context) -> Iterator[CheckResult]:
    """Yield the state of the optional packages. One that the configured lake needs has failed if it is missing."""
    from quacklake.extend.inputs import parse_url

    needed = None
    with suppress(ConfigError):
        needed = None if context.config.url is None else parse_url(context.config.url).database
    for package, (extra, purpose) in _EXTRAS.items():
        have, bounds = installed(package), _requirements(extra).get(package.lower(), "")
        if have is not None and _fits(have, bounds):
            yield CheckResult("extras", package, "ok", f"{have}, for {purpose}")
            continue
        problem = "not installed;" if have is None else f"{have} is installed, but {bounds} is"
        state: State = "failed" if extra == needed else "absent" if have is None else "warning"
        fix = f"pip install 'quacklake[{extra}]'"
        yield CheckResult("extras", package, state, f"{problem} required for {purpose}", fix)


def installed(package: str) -> str | None:
    """Return the version of a package, or None when it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _requirements(extra: str | None = None) -> dict[str, str]:
    """Return the packages that Quacklake or one of its extras requires, with bounds such as ``>=2.0,<3``."""
    try:
        lines = importlib.metadata.requires("quacklake") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        marker = _EXTRA.search(match[3] or "") if match else None
        if match and (marker[1] if marker else None) == extra:
            found[match[1].lower() if extra else match[1]] = match[2].strip()
    return found


def _fits(version: str, bounds: str) -> bool:
    """Return True when a version is within bounds.

    >>> _fits("4.1.0", ">=4.0,<4.4"), _fits("4.4.1", "<4.4,>=4.0"), _fits("1.4", ">=1.5"), _fits("3", "")
    (True, False, False, True)
    """
    have = _numbers(version)
    for bound in filter(None, map(str.strip, bounds.split(","))):
        limit = _numbers(bound.lstrip("<>=!~ "))
        if (bound.startswith(">=") and have < limit) or (bound[0] == "<" and bound[1] != "=" and have >= limit):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version.

    >>> _numbers("2.0.1rc1"), _numbers("17") < _numbers("21.0.2")
    ((2, 0), True)
    """
    parts = []
    for part in version.split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts) or (0,)


# -- Spark -------------------------------------------------------------------------------------------------------------

_JAVA = 17


def _check_spark() -> Iterator[CheckResult]:
    """Yield the state of Spark, and of the Java it runs on; nothing without Spark."""
    from quacklake.spark.runtime.settings import STEADY, parse_version

    version = installed("pyspark")
    if version is None:
        return
    try:
        if parse_version(version) < STEADY:
            detail = f"{version} can read, append to, overwrite and create tables; all else needs 4.0"
            yield CheckResult("Spark", "Spark", "warning", detail, "pip install 'quacklake[spark]'")
        else:
            yield CheckResult("Spark", "Spark", "ok", version)
    except UnsupportedVersionError as error:
        yield CheckResult("Spark", "Spark", "warning", error.message, error.hint)
    yield java()


def java() -> CheckResult:
    """Check for a Java that Spark can use."""
    from quacklake.spark.runtime.settings import find_java

    program = find_java()
    fix = f"install a JDK, version {_JAVA} or newer, and set JAVA_HOME to its folder"
    if program is None:
        return CheckResult("Spark", "Java", "absent", "not found; Spark needs it", fix)
    try:
        shown = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=10, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return CheckResult("Spark", "Java", "warning", f"{program} does not run: {error}", fix)
    version = shown.partition('"')[2].partition('"')[0]
    if not version or _numbers(version)[0] < _JAVA:
        detail = f"{version or 'of unknown version'}, {program}: Spark needs {_JAVA} or newer"
        return CheckResult("Spark", "Java", "warning", detail, fix)
    return CheckResult("Spark", "Java", "ok", f"{version}, {program}")


# -- settings ----------------------------------------------------------------------------------------------------------


def _check_variables() -> Iterator[CheckResult]:
    """Yield the variables that look like settings but are not."""
    for name, meant in unknown_variables(os.environ).items():
        TOLD.add(name)
        fix = meant or "unset it; `quacklake config show` lists all settings"
        yield CheckResult("settings", name, "warning", "the variable is not a setting and has no effect", fix)


def _check_settings(config: Config) -> Iterator[CheckResult]:
    """Yield the settings that are set, and what is wrong with them."""
    chosen = sorted(name for name, source in config.sources.items() if source != "default")
    yield CheckResult("settings", "settings", "ok", f"set: {', '.join(chosen) or 'none'}")
    if (config.s3_access_key is None) != (config.s3_secret_key is None):
        missing = "s3_secret_key" if config.s3_secret_key is None else "s3_access_key"
        fix = f"quacklake config set {missing}"
        yield CheckResult("settings", missing, "failed", "one S3 key is set without the other", fix)
    if config.s3_endpoint is not None and config.s3_endpoint.startswith("http://") and config.s3_secure:
        fix = "quacklake config set s3_secure false"
        yield CheckResult(
            "settings", "s3_secure", "warning", "the endpoint uses HTTP, but the setting asks for HTTPS", fix
        )
    file = Path("quacklake.toml")
    names = ["s3_access_key", "s3_secret_key", "s3_session_token", "stores", "postgres_password"]
    if config.url is not None and redact(config.url) != config.url:
        names.append("url")
    secrets = [name for name in names if config.sources[name].startswith("file")]
    if file.is_file() and file.stat().st_mode & 0o077 and secrets:
        detail = f"other users can read it, and it contains {', '.join(secrets)}"
        yield CheckResult("settings", str(file), "warning", detail, f"chmod 600 {file}")


# -- lake --------------------------------------------------------------------------------------------------------------

_NAMES = {"sqlite": "SQLite", "duckdb": "DuckDB", "postgres": "PostgreSQL", "mysql": "MySQL"}
_REACH_SECONDS = 3.0


def _check_lake(context: Context) -> Iterator[CheckResult]:
    """Yield the state of the lake that the settings name."""
    if context.config.url is None:
        fix = "pass --lake, or create a lake with `quacklake init`"
        yield CheckResult("lake", "catalog", "absent", "no lake was given", fix)
        return
    from quacklake.extend.stores import find_store

    opened: list[Lake] = []

    def look() -> list[CheckResult]:
        opened.append(context.open())
        return list(_catalog(opened[0]))

    try:
        yield from _run_bounded("lake", "catalog", look, fix="check the URL, and that the database can be reached")
        if opened:
            store, files = find_store(opened[0]), _count_files(opened[0])
            fix = "check s3_endpoint, the keys and the network" if not store.is_local else "check the disk"
            yield from _run_bounded(
                "lake",
                "files",
                lambda: [CheckResult("lake", "files", *_check_files(store, context.config, files))],
                fix=fix,
            )
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
            statement = "SELECT sqlite_version()" if catalog.database == "sqlite" else "SELECT version()"
            version = str(connection.execute(sa.text(statement)).scalar())
        snapshot, tables = lake.current_snapshot(), len(lake.tables())
    except QuacklakeError as error:
        error.hint = error.hint or "run `quacklake verify`"
        raise
    name = "MariaDB" if "MariaDB" in version else _NAMES[catalog.database]
    product = version if version.startswith(name) else f"{name} {version.removeprefix('v')}"
    yield CheckResult("lake", "database", "ok", product.partition(" on ")[0])
    yield CheckResult("lake", "catalog", "ok", f"{lake.url}, snapshot {snapshot}, {plural(tables, 'table')}")
    if catalog.outdated:
        detail = f"{lake.version} is an older version: the lake can be read, but not written"
        yield CheckResult("lake", "format version", "warning", detail, "run `quacklake migrate`")
    else:
        yield CheckResult("lake", "format version", "ok", lake.version)


def _count_files(lake: Lake) -> int:
    """Return the number of data files of the lake, as far as it is known."""
    try:
        return int(lake.sql("SELECT coalesce(sum(file_count), 0) FROM lake.table_info()").fetchall()[0][0])
    except QuacklakeError:
        return 0


def _check_files(store: Store, config: Config, files: int) -> tuple[State, str, str | None]:
    """Check that the data path exists and can be written, with a tiny file that is removed again."""
    if not store.is_local:
        detail = _unreachable(config)
        if detail is not None:
            return "failed", detail, "start the server, or run `quacklake config set s3_endpoint URL`"
        store.exists_root()  # a wrong key fails here, and the caller reports it
        problem = store.attempts.place()
        if problem is not None:
            return "failed", problem.message, problem.hint
    elif not Path(store.root).is_dir():
        return _missing_folder(Path(store.root), files)
    name = f".quacklake-doctor-{uuid.uuid4().hex}"
    try:
        store.write(name, b"can be removed")
        store.delete([name])
    except QuacklakeError as error:
        fix = "give this user write access, unless it only reads"
        return "warning", f"{store.root} cannot be written: {error.message}", fix
    return "ok", f"{store.root}, {plural(files, 'data file')}, can be written", None


def _missing_folder(folder: Path, files: int) -> tuple[State, str, str | None]:
    if files:
        detail = f"the folder {folder} does not exist, but the lake has {plural(files, 'data file')} there"
        return "failed", detail, "mount or restore it; `quacklake verify` lists missing files"
    parent = next((parent for parent in folder.parents if parent.exists()), Path("/"))
    if os.access(parent, os.W_OK):
        return "ok", f"{folder} will be created with the first file", None
    detail = f"the folder {folder} does not exist and cannot be created in {parent}"
    return "failed", detail, f"change the owner or mode of {parent}, or create the folder"


def _unreachable(config: Config) -> str | None:
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
        return f"the S3 endpoint {config.s3_endpoint} cannot be reached: {reason}"
