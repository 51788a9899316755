"""Spark sessions that write Hudi tables: one JVM, which starts once, and short processes that use it.

``python -m tests.connectors.hudi_spark`` starts the JVM, says how to reach it, and ends when its input does. The
processes that write get this in their environment; each may be killed without a new JVM for the next one.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from quacklake.connectors.hudi.session import settings
from quacklake.spark.runtime.settings import installed_version
from tests.jvm import NoSession, hold, lent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = "3.5.9"
ROOT = Path(__file__).resolve().parents[2]


class Unreachable(Exception):
    """No Spark with Hudi can be had here."""


def hudi_session() -> SparkSession:
    """Return a new session with Hudi's jar, which comes from Maven."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    quick = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in {**quick, **settings()}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def spark_path() -> list[str]:
    """Return what comes first on the path of processes with a Spark that Hudi has a jar for. Raise ``Unreachable``."""
    if shutil.which("java") is None:
        raise Unreachable("Hudi is written with Spark, which needs Java")
    own = ROOT / ".venv" / f"spark-{SPARK}"
    if own.is_dir():
        return [str(own)]
    if installed_version() == (3, 5):
        return []
    raise Unreachable(f"Hudi is written with Spark {SPARK}, which `make test-hudi` installs")


@contextmanager
def hudi_jvm() -> Iterator[dict[str, str]]:
    """Start the JVM, and lend the environment of processes that use it. Raise ``Unreachable``."""
    try:
        with lent("tests.connectors.hudi_spark", spark_path()) as environment:
            yield environment
    except NoSession:
        raise Unreachable("no session of Spark with Hudi could be made: its jar comes from Maven") from None


def main() -> None:
    """Hold a JVM for others."""
    hold(hudi_session())


if __name__ == "__main__":
    main()
