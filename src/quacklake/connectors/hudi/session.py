"""The Spark session that writes Hudi tables, and the settings that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from quacklake.errors import ConfigError, ConnectorError, UnsupportedVersionError
from quacklake.spark.runtime.settings import HUDI, installed_version, require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TESTED = (3, 5)


def settings() -> dict[str, str]:
    """Return the settings of a session that writes Hudi tables, for the installed Spark.

    Raise ``UnsupportedVersionError`` for a Spark that Hudi has no jar for.
    """
    require_pyspark()
    version = installed_version()
    assert version is not None
    if version not in HUDI:
        known = ", ".join(f"{major}.{minor}" for major, minor in HUDI)
        raise UnsupportedVersionError(
            f"Hudi does not write with Spark {version[0]}.{version[1]}", hint=f"use one of these: {known}"
        )
    return {
        "spark.jars.packages": HUDI[version],
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    }


def active_session() -> SparkSession:
    """Return the session of this process. Raise ``ConfigError`` when there is none."""
    require_pyspark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        raise ConfigError("hudi: there is no Spark session, which alone writes Hudi tables", hint=_hint()) from None


@contextmanager
def writing() -> Iterator[None]:
    """Turn the errors of Spark into ours."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        text = str(error)
        if "data source: hudi" in text or "DATA_SOURCE_NOT_FOUND" in text or "HoodieSparkSessionExtension" in text:
            raise ConfigError("hudi: the Spark session has no jar of Hudi", hint=_hint()) from error
        if "KryoSerializer" in text:
            raise ConfigError("hudi: the Spark session lacks a serializer that Hudi needs", hint=_hint()) from error
        lines = [line.lstrip(": ") for line in text.splitlines() if line.strip()]
        if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
            del lines[0]  # the second line has the error of the JVM
        raise ConnectorError(f"the commit to the Hudi table failed: {''.join(lines[:1])}") from error


def _hint() -> str:
    needed = " ".join(f"{key}={value}" for key, value in settings().items())
    tested = "" if installed_version() == _TESTED else f" (tested with Spark {_TESTED[0]}.{_TESTED[1]} only)"
    return f"Start Spark with: {needed}{tested}"
