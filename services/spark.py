"""Spark from the pyspark wheel: a standalone cluster of a master and two workers, and a Spark Connect server."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.request import ProxyHandler, build_opener

from services.process import Server, Unavailable, free_port

__all__ = ["SparkCluster", "SparkConnectServer", "SparkWorker"]

_JOIN_SECONDS = 90.0
_DIRECT = build_opener(ProxyHandler({}))
"""Connects to this machine directly, even if a proxy is set."""


class _SparkProcess(Server):
    """A JVM of Spark. ``durable`` means nothing to it: it keeps no data."""

    daemon_memory = "192m"

    def prepare(self) -> None:
        home()
        home_of_java = os.environ.get("JAVA_HOME")
        if shutil.which("java", path=f"{home_of_java}/bin" if home_of_java else None) is None:
            raise Unavailable("no Java: it needs the openjdk-17-jre-headless package")

    def spark_class(self, name: str, *arguments: str) -> list[str | Path]:
        """The command that runs one of Spark's programs."""
        return [home() / "bin" / "spark-class", name, *arguments]

    def ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _environment(self) -> dict[str, str]:
        # SPARK_* variables are the caller's, not ours
        kept = {key: value for key, value in super()._environment().items() if not key.startswith("SPARK_")}
        return kept | {
            "SPARK_HOME": str(home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.directory),
            "SPARK_DAEMON_MEMORY": self.daemon_memory,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
        }


class SparkWorker(_SparkProcess):
    """A worker of a cluster, with one core. The master knows when it is there."""

    name = "spark-worker"
    memory = "1g"

    def __init__(self, master: str) -> None:
        super().__init__()
        self.master = master

    @property
    def url(self) -> str:
        """The address of its web page."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str | Path]:
        place = ["--host", "127.0.0.1", "--webui-port", str(self.port), "--work-dir", str(self.directory / "work")]
        room = ["--cores", "1", "--memory", self.memory]
        return self.spark_class("org.apache.spark.deploy.worker.Worker", *place, *room, self.master)

    def ready(self) -> bool:
        """True at once, so that workers start side by side."""
        return True


class SparkCluster(_SparkProcess):
    """A standalone master with two workers on 127.0.0.1."""

    name = "spark"
    size = 2

    def __init__(self, directory: Path | None = None, *, durable: bool = True) -> None:
        super().__init__(directory, durable=durable)
        self.workers: list[SparkWorker] = []
        self._page = 0

    @property
    def url(self) -> str:
        """The URL that a session takes as its master."""
        return f"spark://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str | Path]:
        self._page = free_port()
        place = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self._page)]
        return self.spark_class("org.apache.spark.deploy.master.Master", *place)

    def start(self) -> Self:
        """Start the master and the workers, and return once it knows them."""
        super().start()
        try:
            for _ in range(self.size):
                self.workers.append(SparkWorker(self.url).start())
            self._wait_for_workers()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the workers with all that they run, then the master."""
        for worker in self.workers:
            worker.stop()
        self.workers = []
        super().stop()

    def alive(self) -> bool:
        return super().alive() and all(worker.alive() for worker in self.workers)

    def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + _JOIN_SECONDS
        while time.monotonic() < deadline and self.alive():
            if self._known_workers() == self.size:
                return
            time.sleep(0.1)
        raise RuntimeError("the workers of the Spark cluster did not find their master")

    def _known_workers(self) -> int:
        try:
            with _DIRECT.open(f"http://127.0.0.1:{self._page}/json/", timeout=10) as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:  # the page comes up after the master
            return 0


class SparkConnectServer(_SparkProcess):
    """A Spark Connect server on 127.0.0.1, which runs its work in itself or on a cluster."""

    name = "spark-connect"
    daemon_memory = "1g"  # it counts as a daemon, and runs the driver

    def __init__(self, directory: Path | None = None, *, durable: bool = True, master: str = "local[2]") -> None:
        super().__init__(directory, durable=durable)
        self.master = master

    @property
    def url(self) -> str:
        """The URL that a session takes as its remote."""
        return f"sc://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str | Path]:
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": self.port,
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": 2,
            "spark.log.level": "ERROR",
        }
        options = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
        program = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", self.master]
        return self.spark_class("org.apache.spark.deploy.SparkSubmit", *program, *options, "spark-internal")


def home() -> Path:
    """Return the folder of Spark, which is in the wheel. Raise :class:`Unavailable` without it."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise Unavailable("no Spark: the pyspark package is not installed")
    return Path(found.origin).parent
