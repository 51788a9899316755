"""Finding out why a database cannot be reached or opened: from error numbers, SQLSTATEs, sockets and files.

The texts of errors are in the language of the server, and change; nothing here reads them.
"""

from __future__ import annotations

import getpass
import os
import socket
import sqlite3
import ssl
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import sqlalchemy as sa

from quacklake.core.catalog.databases.sqlite_connection import LockedHere, read_head
from quacklake.core.catalog.databases.urls import CatalogUrl

_VERSION = 196_608
_SSL_REQUEST = struct.pack("!ii", 8, 80_877_103)


def startup_state(url: sa.URL, seconds: float) -> str | None:
    """Return the SQLSTATE with which the server refuses a connection; empty when it asks for a password, or lets it in.

    None when it cannot be asked, or does not answer as a server that works. Nothing secret is sent.
    """
    host = url.host
    if not host or host.startswith("/") or "," in host:
        return None
    user = url.username or ""
    try:
        with socket.create_connection((host, url.port or 5432), timeout=seconds) as plain:
            plain.sendall(_SSL_REQUEST)
            with _start_tls(plain) if _exactly(plain, 1) == b"S" else plain as server:
                words = f"user\0{user}\0database\0{url.database or user}\0\0".encode()
                server.sendall(struct.pack("!ii", len(words) + 8, _VERSION) + words)
                return _refusal(server)
    except (OSError, ValueError):
        return None


def _start_tls(plain: socket.socket) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing secret is sent, and the answer is only shown
    return context.wrap_socket(plain)


def _refusal(server: socket.socket) -> str | None:
    """Return the SQLSTATE of the first error among the messages of the server, empty when there is none."""
    while True:
        kind = _exactly(server, 1)
        (length,) = struct.unpack("!i", _exactly(server, 4))
        body = _exactly(server, length - 4)
        if kind == b"E":
            fields = {part[:1]: part[1:] for part in body.split(b"\0") if part}
            return fields.get(b"C", b"").decode("ascii", "replace") or None
        if kind == b"Z" or (kind == b"R" and body[:4] != b"\0\0\0\0"):
            return ""


def _exactly(server: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = server.recv(count - len(data))
        if not part:
            raise ValueError("the server hung up")
        data += part
    return data


_SECONDS = 3.0
"""Seconds that one look at a server may take."""
_PORTS = {"postgres": 5432, "mysql": 3306}
_MAGIC = {"sqlite": (0, b"SQLite format 3\0"), "duckdb": (8, b"DUCK")}
_NAMES = {"sqlite": "SQLite", "duckdb": "DuckDB", "postgres": "PostgreSQL", "mysql": "MySQL"}


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason why a database cannot be used, what to do about it, and whether it may pass by itself."""

    message: str
    hint: str
    passes: bool = False
    by_us: bool = False
    """True when it is another client in this very process that stands in the way."""


def cause_of(url: CatalogUrl, error: BaseException) -> Cause | None:
    """Return why a connection failed, or None if the reason is unknown."""
    if url.path is not None:
        return _file(url.database, url.path, error)
    if url.database == "postgres":
        return _network(url) or _postgres(url, error)
    if url.database == "mysql":
        number = error.args[0] if error.args else None
        known = _MYSQL.get(number) if isinstance(number, int) else None
        return _network(url) if known is None else known(url)
    return None


# -- servers -----------------------------------------------------------------------------------------------------------


def _network(url: CatalogUrl) -> Cause | None:
    """Return what stands between this machine and the server."""
    host, port = url.url.host, url.url.port or _PORTS[url.database]
    if not host or host.startswith("/") or "," in host:
        return None
    try:
        with socket.create_connection((host, port), timeout=_SECONDS):
            return None
    except socket.gaierror:
        return Cause(f"the host {host} is not known", "check the name of the host in the URL", passes=True)
    except ConnectionRefusedError:
        return Cause(
            f"nothing listens on port {port} of {host} (connection refused)",
            f"start {_NAMES[url.database]} there, or check the port in the URL",
            passes=True,
        )
    except TimeoutError:
        return Cause(
            f"{host} does not answer on port {port}", "check the network, its firewalls and the port", passes=True
        )
    except OSError as error:
        return Cause(f"{host} cannot be reached on port {port}: {error.strerror}", "check the network", passes=True)


def _postgres(url: CatalogUrl, error: BaseException) -> Cause | None:
    state = getattr(error, "sqlstate", None) or startup_state(url.url, _SECONDS)
    if state == "":
        return _postgres_login(url)
    if state is None:
        return None  # a server that hangs up is broken; it does not refuse the password
    if state == "57P03":
        return Cause("the server is starting or stopping", "try again in a moment", passes=True)
    cause = _describe_refusal if state[:2] == "28" else _POSTGRES.get(state)
    return None if cause is None else cause(url)


def _postgres_login(url: CatalogUrl) -> Cause | None:
    """Tell a wrong password from a missing database: another database may take the password and know."""
    import psycopg

    for other in ("postgres", "template1"):
        options: dict[str, Any] = {"host": url.url.host, "port": url.url.port, "user": url.url.username}
        options |= {"password": url.url.password, "dbname": other, "connect_timeout": int(_SECONDS)}
        try:
            with psycopg.connect(**{name: value for name, value in options.items() if value is not None}) as connection:
                query = "SELECT has_database_privilege(oid, 'CONNECT') FROM pg_database WHERE datname = %s"
                row = connection.execute(query, [url.url.database or url.url.username]).fetchone()
        except psycopg.Error:
            continue
        if row is None:
            return _no_database(url)
        return None if row[0] else _no_right(url)
    # the server still asks for a password, as before: this was an outage, not a wrong password
    return _describe_refusal(url) if startup_state(url.url, _SECONDS) == "" else None


def _no_database(url: CatalogUrl) -> Cause:
    name = url.url.database or url.url.username
    return Cause(f'the server has no database "{name}"', f'make it there (CREATE DATABASE "{name}"), or check its name')


def _describe_refusal(url: CatalogUrl) -> Cause:
    how = "with this password" if url.url.password else "without a password"
    return Cause(
        f'the server does not let the user "{url.url.username or ""}" in {how}',
        "check the user and the password: in the URL, in QUACKLAKE_URL, or where the tools of the database look for it",
    )


def _no_right(url: CatalogUrl) -> Cause:
    return Cause(
        f'the user "{url.url.username or ""}" has no right to the database "{url.url.database}"',
        "let somebody who may grant it, or connect as another user",
    )


def _too_many(url: CatalogUrl) -> Cause:
    return Cause("the server has no connection left", "try again, or lower pool_size in the programs that use it", True)


_MYSQL = {1049: _no_database, 1044: _no_right, 1045: _describe_refusal, 1698: _describe_refusal, 1040: _too_many}
_POSTGRES = {"3D000": _no_database, "42501": _no_right, "53300": _too_many}


# -- files -------------------------------------------------------------------------------------------------------------


def _file(database: str, path: Path, error: BaseException) -> Cause | None:
    """Return what is wrong with a database file, or with the folder it should be in."""
    if path.is_dir():
        return Cause(f"{path} is a folder, not a database file", f"name a file: {database}:///{path}/lake.db")
    if not path.parent.is_dir():
        return Cause(f"there is no folder {path.parent}", f"make it (mkdir -p {path.parent}), or check the path")
    if not path.exists():
        return _unless(os.access(path.parent, os.W_OK | os.X_OK), f"nothing can be written in {path.parent}")
    if not os.access(path, os.R_OK):
        return _unless(False, f"{path} cannot be read")
    if not _is_database(database, path):
        return Cause(
            f"{path} is not a {_NAMES[database]} database",
            f"check the path and the scheme: {_kind(path) or 'another file may have this name'}",
        )
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    locked = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    about_file = locked or code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)
    if not (about_file or isinstance(error, duckdb.IOException)):
        return None  # it is about what is in the file
    holders = _holders(path)
    if isinstance(error, LockedHere):
        return Cause(
            f"{path} is locked by another client in this process, such as DuckDB's own ducklake extension",
            "end its transaction and read its results to their end, then try again",
            passes=True,
            by_us=True,
        )
    if locked or holders:
        by = f" by {', '.join(holders)}" if holders else " by another program"
        hint = "DuckDB files are for one process at a time: end that one, or use SQLite or PostgreSQL"
        return Cause(
            f"{path} is locked{by}", hint if database == "duckdb" else "try again when it is done", passes=True
        )
    return _unless(os.access(path, os.W_OK) and os.access(path.parent, os.W_OK), f"{path} cannot be written")


def _unless(allowed: bool, message: str) -> Cause | None:
    user = getpass.getuser()
    return None if allowed else Cause(f"{message} (permission denied)", f"change its owner or mode for the user {user}")


def _is_database(database: str, path: Path) -> bool:
    offset, magic = _MAGIC[database]
    begin = read_head(path, 64)
    return not begin or begin[offset : offset + len(magic)] == magic


def _kind(path: Path) -> str | None:
    for database in _MAGIC:
        if path.stat().st_size and _is_database(database, path):
            return f"it is a {_NAMES[database]} database, {database}:///{path}"
    return None


def _holders(path: Path) -> list[str]:
    """Return the other processes with a lock on a file, where the system tells: their names and numbers."""
    try:
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    inode = str(path.stat().st_ino)
    numbers = {int(words[4]) for words in map(str.split, locks) if len(words) > 5 and words[5].endswith(f":{inode}")}
    holders = []
    for number in sorted(number for number in numbers - {os.getpid()} if number > 0):
        try:
            holders.append(f"{Path(f'/proc/{number}/comm').read_text().strip()} (PID {number})")
        except OSError:
            holders.append(f"PID {number}")
    return holders
