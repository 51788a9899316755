"""A private MariaDB server, from the system's packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from services.database import DatabaseServer
from services.process import Unavailable

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

__all__ = ["MySQLServer"]

USER = "quacklake"
PASSWORD = "quacklake"


class MySQLServer(DatabaseServer):
    """MariaDB with one all-powerful user, ``quacklake``, on 127.0.0.1."""

    name = "mysql"
    accounts = ("mysql",)

    @property
    def url(self) -> str:
        """The URL of the server's own ``mysql`` database."""
        return self.url_of("mysql")

    def url_of(self, database: str) -> str:
        """The URL of ``database``."""
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self._execute(f"CREATE DATABASE `{name}`")
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drop a database."""
        self._execute(f"DROP DATABASE IF EXISTS `{name}`")

    def prepare(self) -> None:
        install, _ = _find_program("mariadb-install-db"), _find_program("mariadbd")
        self._temporary.mkdir(exist_ok=True)
        self._temporary.chmod(0o777)
        if not (self.directory / "data" / "mysql").exists():
            options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
            self.run([install, "--no-defaults", *self._folders(), *options])
        accounts = self.directory / "accounts.sql"
        accounts.write_text(
            f"CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        accounts.chmod(0o644)

    @property
    def _temporary(self) -> Path:
        return self.directory / "tmp"

    def _folders(self) -> list[str]:
        # a server that starts removes what it finds of temporary tables, also those of others
        return [f"--datadir={self.directory / 'data'}", f"--tmpdir={self._temporary}"]

    def command(self) -> Sequence[str | Path]:
        return [
            _find_program("mariadbd"),
            "--no-defaults",
            *self._folders(),
            f"--socket={self.directory / 'socket'}",
            f"--pid-file={self.directory / 'pid'}",
            f"--init-file={self.directory / 'accounts.sql'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--max-connections=200",
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 0}",
        ]

    def ready(self) -> bool:
        import pymysql

        try:
            self._connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _connect(self) -> Connection[Cursor]:
        try:
            import pymysql
        except ImportError as error:
            raise Unavailable("the pymysql package is not installed") from error
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, autocommit=True, connect_timeout=5
        )

    def _execute(self, statement: str) -> None:
        connection = self._connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()


def _find_program(name: str) -> str:
    path = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"]))
    if path is None:
        raise Unavailable(f"no MariaDB: {name} is not installed (Debian package mariadb-server)")
    return path
