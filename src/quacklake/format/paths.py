"""Paths below the data root: how they are made, joined, and kept from leaving it."""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from urllib.parse import unquote

from quacklake.errors import PathError
from quacklake.format.names import check_name

__all__ = [
    "check_name",
    "checked_relative",
    "data_file_name",
    "delete_file_name",
    "join_relative",
    "normalise_root",
    "object_dir",
    "uuid7",
]

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # of a URL, or the letter of a drive


def object_dir(name: str, uuid: str) -> str:
    """Return the directory of a new schema or table: its name when that is plain ASCII, else its uuid.

    >>> object_dir("sales_2024", "u"), object_dir("a b", "u")
    ('sales_2024/', 'u/')
    """
    return f"{name if _PLAIN.fullmatch(name) else uuid}/"


def normalise_root(path: str) -> str:
    r"""Return the data path with forward slashes and a slash at its end. Raises :class:`PathError` for an empty one.

    >>> normalise_root("data"), normalise_root("C:\\lake"), normalise_root("s3://b/p/")
    ('data/', 'C:/lake/', 's3://b/p/')
    """
    path = path.replace("\\", "/")
    if not path or "\0" in path:
        raise PathError("the data path is empty or contains a NUL character")
    return path if path.endswith("/") else f"{path}/"


def checked_relative(path: str) -> str:
    """Return the path, when it is relative and stays below where it starts; :class:`PathError` when not.

    Refused: absolute paths, drives and URLs, ``.`` and ``..``, empty segments (one slash at the end is fine),
    backslashes and control characters. What percent-encoding hides must not lead out either, but may be
    anything else: partition values are encoded into directory names.
    """
    if not path:
        raise PathError("the path is empty")
    if "\\" in path or any(ord(character) < 32 for character in path):
        raise PathError(f"the path {path!r} contains a backslash or a control character")
    if not all(segment.strip(" ") for segment in path.removesuffix("/").split("/")):
        raise PathError(f"the path {path!r} is absolute or has an empty part")
    decoded = path
    while True:
        _check_confined(decoded, path)
        further = unquote(decoded, errors="replace")
        if further == decoded:
            return path
        decoded = further


def _check_confined(text: str, path: str) -> None:
    parts = text.replace("\\", "/").split("/")
    if not parts[0] or _SCHEME.match(text) or "\0" in text:
        raise PathError(f"the path {path!r} is not relative")
    if any(part.strip(" ") in (".", "..") for part in parts):
        raise PathError(f"the path {path!r} would leave its directory")


def join_relative(base: str, path: str) -> str:
    """Return ``path`` below ``base``. Raises :class:`PathError` when it would not be below.

    >>> join_relative("data/", "main/t/f.parquet")
    'data/main/t/f.parquet'
    """
    checked_relative(path)
    return f"{base}{path}" if not base or base.endswith("/") else f"{base}/{path}"


def data_file_name() -> str:
    """Return a fresh name for a data file; later ones sort after earlier ones."""
    return f"ducklake-{uuid7()}.parquet"


def delete_file_name(format: str = "parquet") -> str:
    """Return a fresh name for a delete file of the given format."""
    return f"ducklake-{uuid7()}-delete.{format}"


_lock = threading.Lock()
_last = 0


def uuid7() -> uuid.UUID:
    """Return a version 7 UUID: milliseconds since the epoch, then random bits; ascending within a process."""
    global _last
    with _lock:
        # The 12 bits after the milliseconds count, so that ids of one millisecond ascend too.
        _last = max(_last + 1, (time.time_ns() // 1_000_000) << 12)
        stamp = _last
    high = (stamp >> 12) << 16 | 0x7000 | (stamp & 0xFFF)
    low = int.from_bytes(os.urandom(8)) & (1 << 62) - 1 | 1 << 63
    return uuid.UUID(int=(high << 64) | low)
