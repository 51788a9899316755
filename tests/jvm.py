"""A JVM with a Spark session, which starts once, and short processes that use it: each may be killed without a new JVM.

The program that holds the JVM calls :func:`hold`, whoever starts that program uses :func:`lent`, and the processes call
:func:`attached_session`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NoSession", "attached_session", "hold", "lent", "main"]

ROOT = Path(__file__).resolve().parents[1]
JARS = "QUACKLAKE_TEST_JARS"
"""Jars for the session of :func:`main`, with commas."""


class NoSession(Exception):
    """The program ended before it had a session."""


def hold(session: SparkSession) -> None:
    """Say how to reach the JVM of a session, and keep it until the input ends."""
    gateway: Any = session.sparkContext._gateway
    known = gateway.gateway_parameters
    print(json.dumps({"PYSPARK_GATEWAY_PORT": str(known.port), "PYSPARK_GATEWAY_SECRET": known.auth_token}), flush=True)
    sys.stdin.read()
    session.stop()


@contextmanager
def lent(module: str, path: list[str], **variables: str) -> Iterator[dict[str, str]]:
    """Start a program that holds a JVM, and lend the environment of processes that use it. Raise :class:`NoSession`."""
    folders = os.pathsep.join([*path, str(ROOT), *sys.path])
    environment = {**os.environ, "PYTHONPATH": folders, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", module]
    pipes: Mapping[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env={**environment, **variables}, text=True, **pipes) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        try:
            line = host.stdout.readline()
            while line and not line.startswith('{"PYSPARK_GATEWAY_PORT"'):
                line = host.stdout.readline()
            if not line:
                raise NoSession
            yield {**environment, **json.loads(line)}
        finally:
            host.stdin.close()


def attached_session() -> SparkSession:
    """Return a session in the JVM that the environment names."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    jvm: Any = gateway.jvm
    context = jvm.org.apache.spark.api.java.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = SparkConf(_jvm=jvm, _jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf))


def main() -> None:
    """Hold a JVM with a small session like those of the tests."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
    }
    if os.environ.get(JARS):
        settings["spark.jars"] = os.environ[JARS]
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    hold(builder.getOrCreate())


if __name__ == "__main__":
    main()
