"""A private Kafka broker, which is its own controller."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from services.jars import JavaServer, classpath, jars
from services.process import free_port

__all__ = ["KafkaServer"]

_CLUSTER = "cXVhY2tsYWtlLXRlc3RzLTE"
"""Any 16 bytes, as Kafka writes them."""


class KafkaServer(JavaServer):
    """Kafka on 127.0.0.1, without ZooKeeper. Topics are made by who first writes to them."""

    name = "kafka"

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        jars("kafka")

    def command(self) -> Sequence[str | Path]:
        place = self.directory / "server.properties"
        if not place.exists() or f"127.0.0.1:{self.port}," not in place.read_text():
            self._format(place)
        return self.java(classpath(jars("kafka")), "kafka.Kafka", place)

    def ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _format(self, place: Path) -> None:
        """Write the settings, and make the folder of the log ready for them."""
        controller = free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "log.dirs": self.directory / "log",
            "num.partitions": 2,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        place.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        words = ("format", "--ignore-formatted", "-t", _CLUSTER, "-c", str(place))
        self.run(self.java(classpath(jars("kafka")), "kafka.tools.StorageTool", *words))
