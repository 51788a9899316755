"""The hook: a lake, its SQL and SQLAlchemy, by a connection of Airflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.providers.common.sql.hooks.sql import DbApiHook
from sqlalchemy.engine import URL, make_url

import quacklake
from quacklake import dbapi

_SERVICES = ("http://", "https://")


class QuacklakeHook(DbApiHook):
    """Opens the lake of a connection.

    The connection's host is the URL of the lake's catalog or of a service, without secrets. Login and password are
    those of the catalog; for a service, the password is the token. The extra has settings of ``quacklake.connect``,
    such as ``data_path`` and ``catalog``.
    """

    conn_name_attr = "quacklake_conn_id"
    default_conn_name = "quacklake_default"
    conn_type = "quacklake"
    hook_name = "Quacklake"
    supports_autocommit = True
    supports_executemany = True
    _placeholder = "?"
    _test_connection_sql = "SELECT 1"

    @property
    def is_service(self) -> bool:
        """True if the lake is that of a service, which commits each statement by itself."""
        return str(self.connection.host or "").startswith(_SERVICES)

    def arguments(self) -> tuple[str, dict[str, Any]]:
        """Return the URL and the settings for ``quacklake.connect``. Raise ``ValueError`` without a URL."""
        found = self.connection
        if not found.host:
            raise ValueError(f"the connection {found.conn_id} needs the URL of a lake as its host")
        settings = dict(self.connection_extra)
        if self.is_service:
            return str(found.host), settings | ({"token": found.password} if found.password else {})
        url = make_url(str(found.host))
        url = url.set(username=found.login or url.username, password=found.password or url.password)
        return url.render_as_string(hide_password=False), settings

    @contextmanager
    def lake(self) -> Iterator[quacklake.Lake]:
        """Open the lake for a block."""
        url, settings = self.arguments()
        with quacklake.connect(url, **settings) as lake:
            yield lake

    def get_conn(self) -> dbapi.Connection:
        """Return a connection of Python's database interface."""
        url, settings = self.arguments()
        return dbapi.connect(url, **settings)

    def set_autocommit(self, conn: Any, autocommit: bool) -> None:
        """Set whether each statement is committed by itself; through a service, each always is."""
        conn.autocommit = autocommit or self.is_service

    def get_autocommit(self, conn: Any) -> bool:
        """Return whether each statement is committed by itself."""
        return bool(conn.autocommit)

    @property
    def sqlalchemy_url(self) -> URL:
        """The URL for SQLAlchemy, with its secrets."""
        text, settings = self.arguments()
        token = settings.pop("token", None)
        url = make_url(text)
        if token is not None:
            url = url.set(username="token", password=token)
        return url.set(
            drivername=f"quacklake+{url.drivername}", query={name: str(value) for name, value in settings.items()}
        )

    def get_uri(self) -> str:
        """Return the URL for SQLAlchemy as text, with its secrets."""
        return self.sqlalchemy_url.render_as_string(hide_password=False)
