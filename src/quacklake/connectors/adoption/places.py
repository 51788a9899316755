"""Places of foreign tables: URLs and paths of any spelling as the one that the lake's store knows."""

from __future__ import annotations

import glob
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from quacklake.errors import CorruptFileError, PathError
from quacklake.extend.stores import Store

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
_ALIASES: Mapping[str, str] = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


def plain(text: str, *, encoded: bool = False) -> str:
    """Return a path or URL in one spelling: local paths are absolute and without ``file:``.

    ``encoded`` says that percent signs stand for other characters.

    >>> plain("file:///a/b"), plain("s3a://bucket/a"), plain("file:/a%20b", encoded=True)
    ('/a/b', 's3://bucket/a', '/a b')
    """
    match = _URL.match(text)
    text = unquote(text) if encoded else text
    if match is None:
        return _absolute(text)
    scheme, rest = match[1].lower(), text[match.end() :]
    if scheme == "file":
        return _absolute("/" + rest.lstrip("/"))
    if not rest.startswith("//"):
        raise PathError(f"{text!r} is neither a path nor a URL")
    return f"{_ALIASES.get(scheme, scheme)}:{rest}"


def _absolute(path: str) -> str:
    """Return a local path from the root of the file system, as text alone says it: links are not followed."""
    return os.path.normpath(Path(path).expanduser().absolute())


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what metadata that is not what it should be leads to into ``CorruptFileError``."""
    try:
        yield
    except _DAMAGE as error:
        raise CorruptFileError(f"{what} cannot be read: {type(error).__name__}: {error}") from error


class Folder:
    """A folder of a foreign table, read through the store of the lake: its settings, keys and limits hold."""

    def __init__(self, store: Store, place: str) -> None:
        self.store = store
        self.url = plain(place).rstrip("/")

    def files(self, folder: str) -> dict[str, str]:
        """Return the files in a folder, by name. Raise ``PathError`` for one that may not be read."""
        start = f"{self.url}/{folder}/"
        self.store.resolve(start.rstrip("/"), False)
        found = self.store.find(f"{glob.escape(start)}*")
        return {url[len(start) :]: url for url in found if url.startswith(start)}

    def read(self, url: str) -> bytes:
        """Return the contents of a file."""
        return read(self.store, url)


def read(store: Store, url: str) -> bytes:
    """Return the contents of a file anywhere that may be read."""
    return store.read(store.resolve(url, False))
