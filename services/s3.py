"""A private S3 server: versitygw, which keeps its objects in a folder, or moto, which keeps them in memory."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from services import versity
from services.process import Server, Unavailable

__all__ = ["MotoServer", "S3Server"]


HEALTH = "/minio/health/live"
"""The path at which MinIO tells that it is alive; versitygw does so at any path that it is given."""


class S3Server(Server):
    """An S3 endpoint over plain HTTP on 127.0.0.1: versitygw where it has been built, moto elsewhere."""

    name = "s3"
    access_key = "quacklake"
    secret_key = "quacklake-secret"
    region = "us-east-1"

    @property
    def host(self) -> str:
        """The endpoint without a scheme, as DuckDB and Arrow want it."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://{self.host}"

    def create_bucket(self, name: str) -> str:
        """Create a bucket and return its ``s3://`` URL."""
        from pyarrow.fs import S3FileSystem

        store = S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=self.region,
            scheme="http",
            endpoint_override=self.host,
            allow_bucket_creation=True,
        )
        store.create_dir(name)
        return f"s3://{name}"

    def environment(self) -> dict[str, str]:
        """The variables that point Quacklake at this server."""
        return {
            "MINIO_ENDPOINT": self.host,
            "MINIO_ACCESS_KEY": self.access_key,
            "MINIO_SECRET_KEY": self.secret_key,
            "MINIO_REGION": self.region,
            "MINIO_SECURE": "false",
        }

    @property
    def is_real(self) -> bool:
        """True for versitygw: it looks at keys and signatures, which moto does not."""
        return versity.program() is not None

    def prepare(self) -> None:
        if not self.is_real:
            _look_for_moto()
            return
        for name in ("data", "metadata"):
            (self.directory / name).mkdir(exist_ok=True)

    def command(self) -> Sequence[str | Path]:
        program = versity.program() if self.is_real else None
        if program is None:
            return [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(self.port)]
        # Connections are not kept alive: with that, it takes what is left of one request for the next.
        # Metadata beside the files and not in their attributes, which not every file system has.
        folders: list[str | Path] = ["--sidecar", self.directory / "metadata", self.directory / "data"]
        keys = ["--access", self.access_key, "--secret", self.secret_key, "--region", self.region]
        # With accounts in a folder, an unknown key is denied, as on AWS; without, it has a different status.
        options: list[str | Path] = ["--iam-dir", self.directory, "--health", HEALTH, "--quiet"]
        return [program, "--port", self.host, *keys, *options, "posix", *folders]

    def ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


class MotoServer(S3Server):
    """An S3 endpoint that lets everybody in, in memory: for faults, and for what differs between servers."""

    name = "moto"

    @property
    def is_real(self) -> bool:
        """False."""
        return False


def _look_for_moto() -> None:
    if find_spec("moto") is None or find_spec("flask") is None:
        raise Unavailable("no S3 server: the moto[server] package is not installed")
