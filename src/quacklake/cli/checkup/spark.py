"""Check that Spark and Java are installed and fit together."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from quacklake.cli.checkup.findings import CheckResult
from quacklake.cli.checkup.installation import installed, numbers
from quacklake.errors import UnsupportedVersionError

_JAVA = 17
_JAVA_SECONDS = 10


def check_spark() -> Iterator[CheckResult]:
    """Yield the state of Spark, and of the Java it runs on; nothing without Spark."""
    from quacklake.spark.runtime.settings import STEADY, parse_version

    version = installed("pyspark")
    if version is None:
        return
    try:
        if parse_version(version) < STEADY:
            detail = f"{version} reads, appends to, overwrites and makes tables; the rest takes 4.0"
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
    fix = f"install a JDK, {_JAVA} or newer, and let JAVA_HOME name its folder"
    if program is None:
        return CheckResult("Spark", "Java", "absent", "not found, Spark needs it", fix)
    try:
        told = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return CheckResult("Spark", "Java", "warning", f"{program} does not run: {error}", fix)
    version = told.partition('"')[2].partition('"')[0]
    if not version or numbers(version)[0] < _JAVA:
        detail = f"{version or 'of unknown version'}, {program}: Spark needs {_JAVA} or newer"
        return CheckResult("Spark", "Java", "warning", detail, fix)
    return CheckResult("Spark", "Java", "ok", f"{version}, {program}")
