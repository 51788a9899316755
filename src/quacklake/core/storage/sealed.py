"""A store whose files are encrypted: AES-GCM in chunks of bounded size, with a key of its own for each file.

A file is a magic word, a salt, and chunks. Its key is derived from the key of the store, the salt and the path, so that
no file can stand in for another. Each chunk is sealed with its number and whether it is the last, so that none can be
left out, moved or cut off. Names and sizes of files are not hidden.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.core.storage.listing import FileEntry
from quacklake.core.storage.roots import Links
from quacklake.core.storage.store import READ_LIMIT, Store
from quacklake.errors import ConfigError, CorruptFileError, MissingExtraError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"QLSEAL1\n"
CHUNK = 1 << 20
"""The bytes of a file that are in one chunk."""
KEY_BYTES = 32
_SALT, _TAG = 16, 16
_HEAD = len(MAGIC) + _SALT


def parse_key(text: str) -> bytes:
    """Return a key that is written as 64 hexadecimal digits, or in base64. ``ConfigError`` does not quote it."""
    text = text.strip()
    try:
        key = bytes.fromhex(text) if len(text) == 2 * KEY_BYTES else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"the encryption key is not {KEY_BYTES} bytes in hexadecimal digits or base64",
            hint="make one with: openssl rand -hex 32",
        )
    return key


def plain_size(sealed: int) -> int:
    """Return the bytes of a file from those of its encrypted form; -1 for what is none.

    >>> plain_size(8 + 16 + 16), plain_size(8 + 16 + 5 + 16), plain_size(3)
    (0, 5, -1)
    """
    rest = sealed - _HEAD
    chunks = -(-rest // (CHUNK + _TAG))
    return rest - chunks * _TAG if rest >= _TAG else -1


class SealedStore(Store):
    """A store that encrypts what is written, and checks and decrypts what is read. Sizes are those of the contents."""

    _key: bytes

    def with_key(self, key: bytes) -> SealedStore:
        """Set the key, and return the store. Raise ``MissingExtraError`` without the library."""
        _library()
        self._key = key
        return self

    @property
    def is_sealed(self) -> bool:
        """True: files are encrypted."""
        return True

    def size(self, path: str) -> int:
        return max(plain_size(super().size(path)), 0)

    def list(self, prefix: str = "", limit: int | None = None) -> Iterator[FileEntry]:
        return (replace(entry, size=plain_size(entry.size)) for entry in super().list(prefix, limit))

    def open_input(self, path: str, links: Links | None = None) -> pa.NativeFile:
        return pa.PythonFile(_Opened(super().open_input(path, links), self._key, path, self._show(path)), mode="r")

    def read(self, path: str, *, limit: int = READ_LIMIT) -> bytes:
        with self.open_input(path) as source:
            return bytes(source.read(limit))

    def write(self, path: str, data: bytes | bytearray | memoryview | pa.Buffer) -> int:
        sink = io.BytesIO()
        with _Sealing(sink, self._key, path) as sealing:
            sealing.write(data)
        super().write(path, sink.getvalue())
        return memoryview(data).nbytes

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        with (
            super().open_output(path) as sink,
            _Sealing(sink, self._key, path) as sealing,
            pa.PythonFile(sealing, mode="w") as file,
        ):
            yield file


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import aead
    except ImportError:
        raise MissingExtraError(
            "encryption needs the Python package cryptography", hint='pip install "quacklake[encryption]"'
        ) from None
    return aead


def _cipher(key: bytes, salt: bytes, path: str) -> AESGCM:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    own = HKDF(SHA256(), KEY_BYTES, salt, MAGIC + path.encode()).derive(key)
    cipher: AESGCM = _library().AESGCM(own)
    return cipher


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


class _Sealing(io.RawIOBase):
    """Takes the contents of a file, and gives a sink its encrypted form."""

    def __init__(self, sink: Any, key: bytes, path: str) -> None:
        salt = os.urandom(_SALT)
        self._sink, self._cipher = sink, _cipher(key, salt, path)
        self._waiting, self._number, self._ended = bytearray(), 0, False
        sink.write(MAGIC + salt)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), CHUNK):
            self._waiting += view[start : start + CHUNK]
            while len(self._waiting) > CHUNK:  # the last chunk is known only at the end
                self._put(bytes(self._waiting[:CHUNK]), last=False)
                del self._waiting[:CHUNK]
        return len(view)

    def _put(self, chunk: bytes, *, last: bool) -> None:
        self._sink.write(self._cipher.encrypt(_nonce(self._number, last=last), chunk, None))
        self._number += 1

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None and not self._ended:
            self._ended = True
            self._put(bytes(self._waiting), last=True)

    def close(self) -> None:
        """Do nothing: the end of the block ends the file, so that a broken one has no end."""


class _Opened(io.RawIOBase):
    """The contents of an encrypted file, read at any position. ``CorruptFileError`` when it is not what was written."""

    def __init__(self, source: pa.NativeFile, key: bytes, path: str, name: str) -> None:
        self._source, self._name = source, name
        size = source.size()
        head = source.read(_HEAD)
        if head[: len(MAGIC)] != MAGIC:
            raise CorruptFileError(f"{name} is not encrypted", hint="it may come from a place without a key")
        self._size = plain_size(size)
        self._cipher = _cipher(key, bytes(head[len(MAGIC) :]), path)
        self._chunks = -(-(size - _HEAD) // (CHUNK + _TAG))
        self._position, self._held, self._chunk = 0, -1, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self._size)[whence]
        self._position = max(base + offset, 0)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._size - self._position if size is None or size < 0 else size
        pieces = []
        while wanted > 0 and (piece := self._piece(wanted)):
            pieces.append(piece)
            self._position += len(piece)
            wanted -= len(piece)
        if self._size == 0 and self._held < 0:
            self._load(0)  # also an empty file has to be ours
        return b"".join(pieces)

    def _piece(self, wanted: int) -> bytes:
        number, offset = divmod(self._position, CHUNK)
        if self._position >= self._size:
            return b""
        self._load(number)
        return self._chunk[offset : offset + wanted]

    def _load(self, number: int) -> None:
        if number == self._held:
            return
        from cryptography.exceptions import InvalidTag

        self._source.seek(_HEAD + number * (CHUNK + _TAG))
        sealed = self._source.read(CHUNK + _TAG)
        try:
            self._chunk = self._cipher.decrypt(_nonce(number, last=number == self._chunks - 1), bytes(sealed), None)
        except InvalidTag:
            raise CorruptFileError(
                f"{self._name} cannot be decrypted", hint="the key is another, or the file has changed"
            ) from None
        self._held = number

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()
