"""Check Python, required packages and optional packages."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator

from quacklake.cli.checkup.findings import CheckResult, State
from quacklake.cli.context import Context
from quacklake.errors import ConfigError

_PYTHON = (3, 11)
_EXTRAS = {
    "psycopg": ("postgres", "PostgreSQL catalogs"),
    "PyMySQL": ("mysql", "MySQL and MariaDB catalogs"),
    "duckdb-extension-httpfs": ("s3", "DuckDB's own S3 reader, and encrypted lakes"),
    "pandas": ("pandas", "pandas frames"),
    "polars": ("polars", "polars frames"),
    "pyspark": ("spark", "Spark"),
}
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([\w-]+)[\"']")


def check_installation() -> Iterator[CheckResult]:
    """Yield the state of Python and of the required packages."""
    right = sys.version_info >= _PYTHON
    fix = None if right else "use Python 3.11 or newer"
    yield CheckResult("installation", "Python", "ok" if right else "failed", platform.python_version(), fix)
    yield CheckResult("installation", "quacklake", "ok", installed("quacklake") or "from source")
    for package, bounds in _requirements().items():
        have = installed(package)
        if have is None:
            yield CheckResult("installation", package, "failed", "not installed", f"pip install '{package}{bounds}'")
        elif not fits(have, bounds):
            fix = f"pip install --upgrade '{package}{bounds}'"
            yield CheckResult("installation", package, "failed", f"{have}, and {bounds} is needed", fix)
        else:
            yield CheckResult("installation", package, "ok", have)


def check_extras(needed: set[str]) -> Iterator[CheckResult]:
    """Yield the state of the optional packages. A package that is ``needed`` and missing has failed."""
    for package, (extra, purpose) in _EXTRAS.items():
        have, bounds = installed(package), _requirements(extra).get(package.lower(), "")
        fix = f"pip install 'quacklake[{extra}]'"
        if have is None:
            state: State = "failed" if extra in needed else "absent"
            yield CheckResult("extras", package, state, f"not installed: needed for {purpose}", fix)
        elif not fits(have, bounds):
            state = "failed" if extra in needed else "warning"
            yield CheckResult("extras", package, state, f"{have}, and {bounds} is needed for {purpose}", fix)
        else:
            yield CheckResult("extras", package, "ok", f"{have}, for {purpose}")


def needed_extras(context: Context) -> set[str]:
    """Return the extras that the configured lake needs."""
    from quacklake.catalog.databases.database import parse_url

    try:
        return set() if context.config.url is None else {parse_url(context.config.url).database}
    except ConfigError:
        return set()


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


def fits(version: str, bounds: str) -> bool:
    """Return True when a version is within bounds.

    >>> fits("4.1.0", ">=4.0,<4.4"), fits("4.4.1", "<4.4,>=4.0"), fits("1.4", ">=1.5"), fits("3", "")
    (True, False, False, True)
    """
    have = numbers(version)
    for bound in filter(None, map(str.strip, bounds.split(","))):
        limit = numbers(bound.lstrip("<>=!~ "))
        if (bound.startswith(">=") and have < limit) or (bound[0] == "<" and bound[1] != "=" and have >= limit):
            return False
    return True


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version.

    >>> numbers("2.0.1rc1"), numbers("17") < numbers("21.0.2")
    ((2, 0), True)
    """
    parts = []
    for part in version.split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts) or (0,)
