"""Ask a PostgreSQL server why it refuses a connection: libpq hides the SQLSTATE of one that fails."""

from __future__ import annotations

import socket
import ssl
import struct

import sqlalchemy as sa

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
            with _encrypted(plain) if _exactly(plain, 1) == b"S" else plain as server:
                words = f"user\0{user}\0database\0{url.database or user}\0\0".encode()
                server.sendall(struct.pack("!ii", len(words) + 8, _VERSION) + words)
                return _refusal(server)
    except (OSError, ValueError):
        return None


def _encrypted(plain: socket.socket) -> ssl.SSLSocket:
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
