"""The dialect for a lake that a service has: ``create_engine("quacklake+https://token@host:8080")``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import exc
from sqlalchemy.engine import URL, Engine

from quacklake.sqlalchemy.dialect import QuacklakeDialect

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import ConnectArgsType

_SETTINGS: dict[str, Callable[[str], Any]] = {
    "lake": str,
    "timeout": float,
    "retries": int,
    "ca_file": str,
}


class ServiceDialect(QuacklakeDialect):
    """SQLAlchemy's view of a lake that a service has. Each statement is committed by itself."""

    supports_statement_cache = True

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        """Keep the token of an engine's URL where SQLAlchemy does not show it: in the password."""
        url = engine.url
        if url.username and not url.password:
            engine.url = url.set(username="token", password=url.username)

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        """Return the arguments of ``dbapi.connect``: the URL of the service, the token and settings."""
        settings: dict[str, Any] = {}
        for name, text in url.query.items():
            if name not in _SETTINGS or not isinstance(text, str):
                raise exc.ArgumentError(f"the URL of a service has settings of {', '.join(_SETTINGS)}, not {name}")
            try:
                settings[name] = _SETTINGS[name](text)
            except ValueError:
                raise exc.ArgumentError(f"{name} in the URL of a service is a number") from None
        if token := url.password or url.username:
            settings["token"] = str(token)
        address = URL.create(url.drivername.partition("+")[2], host=url.host, port=url.port, database=url.database)
        return [address.render_as_string()], settings

    def get_isolation_level_values(self, dbapi_connection: Any) -> Sequence[Any]:
        """Return the only isolation level: each statement is committed by itself."""
        return ("AUTOCOMMIT",)

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        """Return the isolation level of a new connection."""
        return "AUTOCOMMIT"
