"""The services of ``docker-compose.yml`` come up in any order: their commands run here, without Docker."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from quacklake.connectors.nats.connection import NatsConnection
from services import NatsServer, S3Server
from services.process import free_port
from tests.docs.blocks import REPOSITORY

COMPOSE = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))
OWN = ("minio-init", "pipeline", "api")
"""The services whose commands are the project's own."""
MC = """#!{python}
import sys
from services import S3Server
if sys.argv[1] == "mb":
    for name in sys.argv[3:]:
        S3Server.attached({port}).create_bucket("{prefix}" + name.removeprefix("minio/"))
"""
"""The client of MinIO, as far as the file uses it."""


@dataclass
class Machine:
    """Runs commands of the file, and starts them again as their policies say."""

    folder: Path
    environment: dict[str, str]
    replaced: Mapping[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)

    def start(self, name: str) -> None:
        service = COMPOSE["services"][name]
        command = self._replace(service.get("entrypoint") or service["command"]).replace("$$", "$")
        command = re.sub(r"pip install '[^']*' \S+ && ", "", command)
        environment = {key: self._replace(str(value)) for key, value in service["environment"].items()}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                env=environment | self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self.starts[name] = self.starts.get(name, 0) + 1

    def supervise(self) -> None:
        """Start again what has ended, as Docker does."""
        for name, process in list(self.processes.items()):
            policy = COMPOSE["services"][name]["restart"]
            if process.poll() is not None and (policy == "unless-stopped" or process.returncode):
                self.start(name)

    def said(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("*.log"))

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()

    def _replace(self, text: str) -> str:
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text


@dataclass
class World:
    """A machine with the project's own servers, and where the API will be."""

    machine: Machine
    nats: str
    stream: str
    url: str


@pytest.fixture
def world(tmp_path: Path, s3_server: S3Server, nats_server: NatsServer) -> Iterator[World]:
    programs, port, word = tmp_path / "bin", free_port(), f"c{secrets.token_hex(4)}"
    programs.mkdir()
    (tmp_path / "lake").mkdir()
    (programs / "mc").write_text(MC.format(python=sys.executable, port=s3_server.port, prefix=f"{word}-"))
    (programs / "mc").chmod(0o755)
    for name, words in {"quacklake": "-m quacklake.cli", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (programs / name).chmod(0o755)
    stored = s3_server.environment()
    machine = Machine(
        tmp_path,
        {
            **stored,
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
            "NATS_STREAM": word,
            "NATS_SUBJECT": f"{word}.>",
            "NATS_URL": nats_server.url,
            "DUCKLAKE_FLUSH_INTERVAL": "50ms",
            "HOME": str(tmp_path),
        },
        {
            "/data/ducklake": str(tmp_path / "lake"),
            "ducklake-data": f"{word}-ducklake-data",
            f"minio/{word}-ducklake-data": "minio/ducklake-data",
            "0.0.0.0": "127.0.0.1",
            "--port 8000": f"--port {port}",
        },
    )
    yield World(machine, nats_server.url, word, f"http://127.0.0.1:{port}")
    machine.stop()
    with NatsConnection(nats_server.url) as nats:
        nats.jetstream(f"STREAM.DELETE.{word}")


def _publish(world: World) -> None:
    with NatsConnection(world.nats) as nats:
        nats.jetstream(f"STREAM.CREATE.{world.stream}", {"name": world.stream, "subjects": [f"{world.stream}.>"]})
        message: dict[str, Any] = {
            "hash": "0x1", "from": "0x1", "to": "0x2", "value": "1", "gas": "1", "gasPrice": "1", "nonce": 1, "input": "0x",
            "blockHash": "0xb", "blockNumber": 1, "transactionIndex": 0, "timestamp": 1_700_000_000,
            "network": "Avalanche", "subnet": "Mainnet", "vm_type": "EVM",
        }  # fmt: skip
        nats.publish([(f"{world.stream}.x", json.dumps(message).encode(), None)])


def _total(world: World) -> int | None:
    tokens = world.machine.folder / "lake" / "tokens"
    if not tokens.exists() or not tokens.read_text():
        return None
    role, token = tokens.read_text().split()
    assert role == "admin" and tokens.stat().st_mode & 0o077 == 0
    with suppress(httpx.HTTPError):
        answer = httpx.get(f"{world.url}/api/transactions/", headers={"Authorization": f"Bearer {token}"}, timeout=30)
        return int(answer.json()["total"]) if answer.status_code == 200 else None
    return None


@pytest.mark.daily(0.2)
@pytest.mark.parametrize(
    "order", [("api", "pipeline", "minio-init"), ("pipeline", "minio-init", "api"), OWN], ids="-".join
)
def test_the_services_come_up_in_any_order(world: World, order: tuple[str, ...]) -> None:
    machine, until = world.machine, time.monotonic() + 150
    for name in order:
        machine.start(name)
        if name != order[-1]:
            time.sleep(0.5)  # the order is that of the starts; what comes of it must not depend on this
    while machine.processes["minio-init"].poll() != 0 and time.monotonic() < until:
        machine.supervise()
        time.sleep(0.2)
    _publish(world)
    while _total(world) != 1:
        assert time.monotonic() < until, machine.said()
        machine.supervise()
        time.sleep(0.5)
    kept = (machine.folder / "lake" / "tokens").read_text()
    machine.processes["api"].kill()
    machine.processes["api"].wait()
    machine.supervise()
    while _total(world) != 1:
        assert time.monotonic() < until, machine.said()
        time.sleep(0.2)
    assert (machine.folder / "lake" / "tokens").read_text() == kept


def test_every_service_that_stays_is_started_again_and_needs_no_file_of_its_owner() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["restart"] == ("on-failure" if name == "minio-init" else "unless-stopped")
        volumes = [volume.partition(":")[0] for volume in service.get("volumes", ())]
        assert all(volume == "." or volume in COMPOSE["volumes"] for volume in volumes)
