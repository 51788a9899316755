"""Private catalogs of Iceberg tables: a REST catalog and a Hive metastore. Both need the compiler of a JDK."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from services.jars import JavaServer, classpath, jars
from services.process import Unavailable
from services.spark import home

__all__ = ["HiveServer", "IcebergRestServer"]

_HERE = Path(__file__).resolve().parent
_DIRECT = build_opener(ProxyHandler({}))


class _Catalog(JavaServer):
    program: str

    @property
    def warehouse(self) -> str:
        """The folder of new tables."""
        return f"file://{self.directory}/warehouse"

    def prepare(self) -> None:
        if shutil.which("javac") is None:
            raise Unavailable("no Java compiler: it needs the openjdk-17-jdk-headless package")
        (self.directory / "warehouse").mkdir(exist_ok=True)
        self.classes()

    def classes(self) -> str:
        """Return the class path."""
        raise NotImplementedError

    def command(self) -> Sequence[str | Path]:
        words = (str(self.port), self.directory / "catalog", self.warehouse)
        return self.java(self.classes(), str(_HERE / f"{self.program}.java"), *words)


class IcebergRestServer(_Catalog):
    """The REST catalog that Iceberg tests itself with, on 127.0.0.1."""

    name = "iceberg-rest"
    program = "IcebergRest"

    @property
    def url(self) -> str:
        """The address of the catalog."""
        return f"http://127.0.0.1:{self.port}"

    def classes(self) -> str:
        hadoop = [
            *sorted((home() / "jars").glob("hadoop-client-*.jar")),
            *(home() / "jars").glob("jcl-over-slf4j-*.jar"),
        ]
        return ":".join([classpath(jars("iceberg-rest")), *map(str, hadoop)])

    def ready(self) -> bool:
        try:
            _DIRECT.open(f"{self.url}/v1/config", timeout=5).close()
        except HTTPError:
            return True
        except (URLError, OSError):
            return False
        return True


class HiveServer(_Catalog):
    """The metastore of the Hive that Spark brings along, on 127.0.0.1 over Derby."""

    name = "hive"
    program = "HiveMetastore"
    options = (*JavaServer.options, "-Dderby.stream.error.file=/dev/null")

    @property
    def url(self) -> str:
        """The address of the metastore."""
        return f"thrift://127.0.0.1:{self.port}"

    def classes(self) -> str:
        return classpath(home() / "jars")

    def ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True
