"""A private S3 server: moto, which keeps its objects in memory."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from services.process import Server, Unavailable

__all__ = ["S3Server"]


class S3Server(Server):
    """An S3 endpoint over plain HTTP on 127.0.0.1."""

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

    def prepare(self) -> None:
        if find_spec("moto") is None or find_spec("flask") is None:
            raise Unavailable("no S3 server: the moto[server] package is not installed")

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(self.port)]

    def ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True
