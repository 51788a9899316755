"""Catalog URLs: parsed in any spelling, and shown without their secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import sqlalchemy as sa

from quacklake.config import redact
from quacklake.errors import ConfigError, nearest

__all__ = ["DATABASES", "CatalogUrl", "parse_url"]

DATABASES = ("sqlite", "duckdb", "postgres", "mysql")
_SCHEMES = {
    "sqlite": "sqlite",
    "duckdb": "duckdb",
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_DRIVERS = {"sqlite": "sqlite", "duckdb": "duckdb", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_SPELLINGS = "sqlite:///lake.db, duckdb:///lake.db, postgresql://host/db, mysql://host/db or ducklake:sqlite:lake.db"
_MOTHERDUCK = ("md", "motherduck")
_OWN_PARAMETERS = ("catalog", "metadata_schema", "data_path")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_FILE = re.compile(r"[\w./~-]+\.(db|sqlite3?|ducklake)")
"""Matches what can only be the path of a file, and hides no password."""
_SECRET_WORD = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)
_DSN_WORD = re.compile(r"\s*(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|\S*)")


@dataclass(frozen=True, slots=True)
class CatalogUrl:
    """A parsed catalog URL. Printing it never shows the password."""

    database: str
    url: sa.URL = field(repr=False)
    catalog: str | None = None
    metadata_schema: str | None = None
    data_path: str | None = None
    typed: str = field(default="", repr=False, compare=False)
    """The URL as the user wrote it, secrets included."""

    @property
    def shown(self) -> str:
        """The URL as the user wrote it, secrets masked."""
        return redact(self.typed) if self.typed else str(self)

    @property
    def path(self) -> Path | None:
        """The database file of SQLite and DuckDB; None for a server or an in-memory database."""
        if self.database not in ("sqlite", "duckdb") or self.url.database in (None, "", ":memory:"):
            return None
        return Path(str(self.url.database))

    def __str__(self) -> str:
        shown = {name: "***" if _SECRET_WORD.search(name) else value for name, value in self.url.query.items()}
        return self.url.set(query=shown).render_as_string(hide_password=True)


def parse_url(text: str) -> CatalogUrl:
    """Parse a catalog URL in any spelling, or raise ``ConfigError``, whose message never contains a password.

    >>> parsed = parse_url("ducklake:postgres:host=db dbname=shop")
    >>> parsed.database, parsed.path, parse_url("sqlite:///lake.db").path.name
    ('postgres', None, 'lake.db')
    """
    return replace(_parse(text), typed=text)


def _parse(text: str) -> CatalogUrl:
    if not text.strip():
        raise ConfigError("the catalog URL is empty", hint=f"use {_SPELLINGS}")
    if text.startswith("ducklake:"):
        return _parse_ducklake(text[len("ducklake:") :])
    if text.partition(":")[0].lower() in _MOTHERDUCK and ":" in text:
        raise _no_motherduck()
    scheme, separator, rest = text.partition("://")
    database = _SCHEMES.get(scheme.split("+")[0].lower())
    if not separator or database is None:
        # a text that is not a scheme may be anything, even a password
        shown = scheme if separator and _SCHEME.fullmatch(scheme) else "(none)"
        near = f'did you mean "sqlite:///{text}"?' if _FILE.fullmatch(text) else nearest(shown, _SCHEMES)
        hint = near or f"use {_SPELLINGS}"
        raise ConfigError(f"unknown catalog URL scheme {shown!r}", hint=hint)
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigError(f"malformed {database} catalog URL", hint=f"use {_SPELLINGS}") from None
    if database not in ("sqlite", "duckdb") and rest.partition("?")[0].count("@") > 1:
        raise ConfigError(f"malformed {database} catalog URL", hint="write an @ in the password as %40")
    own = {name: url.query.get(name) for name in _OWN_PARAMETERS}
    url = url.difference_update_query(_OWN_PARAMETERS).set(drivername=_DRIVERS[database])
    if database in ("sqlite", "duckdb") and url.host:
        raise ConfigError(
            f"the {database} URL names a host", hint=f"write three slashes before the path: {database}:///lake.db"
        )
    return CatalogUrl(database, url, **{name: str(value) for name, value in own.items() if value is not None})


def _no_motherduck() -> ConfigError:
    return ConfigError(
        "MotherDuck cannot hold the metadata of a lake here",
        hint="keep it in PostgreSQL, or open the lake in DuckDB with MotherDuck's own extension",
    )


def _parse_ducklake(rest: str) -> CatalogUrl:
    kind, separator, target = rest.partition(":")
    if separator and kind.lower() in _MOTHERDUCK:
        raise _no_motherduck()
    database = _SCHEMES.get(kind.lower()) if separator else None
    if kind == "ducklake":
        raise ConfigError("the URL says ducklake: twice", hint=f"use {_SPELLINGS}")
    if target.startswith("//") or (database is None and "://" in rest):
        return parse_url(rest)
    if database is None:
        database, target = "duckdb", rest
    if not target:
        raise ConfigError("the ducklake: URL names no database", hint=f"use {_SPELLINGS}")
    if database in ("sqlite", "duckdb"):
        return CatalogUrl(database, sa.URL.create(_DRIVERS[database], database=target))
    if "://" in target:
        return parse_url(target)
    return CatalogUrl(database, _from_dsn(database, target))


def _from_dsn(database: str, dsn: str) -> sa.URL:
    """Return a libpq-like ``key=value`` string as a URL."""
    words: dict[str, str] = {}
    position = 0
    while position < len(dsn.rstrip()):
        match = _DSN_WORD.match(dsn, position)
        if match is None:
            raise ConfigError(f"malformed {database} connection string", hint="use key=value words: host=… dbname=…")
        value = match[2]
        words[match[1].lower()] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith("'") else value
        position = match.end()
    port = words.pop("port", None)
    if port is not None and not (port.isascii() and port.isdigit()):
        raise ConfigError(f"the port in the {database} connection string is not a number")
    name = words.pop("dbname", None) or words.pop("database", None) or words.pop("db", None)
    host = words.pop("host", None)
    query: dict[str, str] = {}
    if host and host.startswith("/"):
        query["host" if database == "postgres" else "unix_socket"] = host
        host = None
    user, password = words.pop("user", None), words.pop("password", None) or words.pop("passwd", None)
    return sa.URL.create(
        _DRIVERS[database],
        username=user,
        password=password,
        host=host,
        port=int(port) if port else None,
        database=name,
        query={**query, **words},
    )
