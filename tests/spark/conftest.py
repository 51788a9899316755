"""One Spark session for all tests, in local mode. It takes seconds and a gigabyte, so that one test process has it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quacklake.spark.runtime.settings import find_java, installed_version, parse_version
from services.jars import jars
from services.process import Unavailable
from tests.conformance.conftest import make_site
from tests.conftest import skip_or_fail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["make_site"]


def pytest_itemcollected(item: pytest.Item) -> None:
    if Path(__file__).parent in item.path.parents:
        item.add_marker("spark")
        for mark in item.iter_markers("needs_spark"):
            _check_version(item, *mark.args, **mark.kwargs)


def _check_version(item: pytest.Item, since: str = "3.5", before: str | None = None) -> None:
    """Skip a test that is about other versions of Spark than the one that is installed."""
    installed = installed_version()
    if installed is not None and installed < parse_version(since):
        item.add_marker(pytest.mark.skip(reason=f"needs Spark {since}"))
    if installed is not None and before is not None and installed >= parse_version(before):
        item.add_marker(pytest.mark.skip(reason=f"tests what Spark lacks before {before}"))


def _iceberg_jars() -> str:
    """The reader of Iceberg tables, for the few tests that need it; a jar cannot be added to a running session."""
    try:
        return os.pathsep.join(str(jar) for jar in sorted(jars("spark-iceberg").glob("*.jar")))
    except Unavailable:
        return ""


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session, in a time zone other than UTC, so that nothing depends on UTC."""
    if find_java() is None:
        skip_or_fail("no Java: it needs the openjdk-17-jre-headless package")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    made = (
        SparkSession.builder.master("local[2]")
        .appName("quacklake-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.extraClassPath", _iceberg_jars())
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    yield made
    made.stop()
