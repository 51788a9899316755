"""Contents of files: small ones go into the tree, large ones into the store under their SHA-256.

Nothing here holds more than one block of a file in memory.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO, Protocol

from quacklake import faults, telemetry
from quacklake.errors import CorruptFileError
from quacklake.format.names import uuid7
from quacklake.storage import FileEntry, Store

THRESHOLD = 64 * 1024
"""The most bytes of a file that the tree itself holds."""
BLOCK = 1 << 20
"""The bytes that are in memory at a time."""
FOLDER = "_large_files"
_FLAT = 100
"""The number of files in the folder from which on new ones go into folders by the first digits of their names."""
_INCOMING = f"{FOLDER}/incoming-"


class Readable(Protocol):
    """An open file or stream of bytes that contents are read from."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; none at the end."""


@dataclass(frozen=True, slots=True)
class Content:
    """Written contents: their number of bytes and hash, and the bytes themselves if they are few."""

    size: int
    sha256: str
    inline: bytes | None


class LargeFiles:
    """The large files of a pond, by the hash of their bytes. Equal contents are stored once."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def write(self, source: Readable) -> Content:
        """Store the bytes of a stream, unless they are few enough for the tree, and return what they are."""
        head = _fill(source, THRESHOLD + 1)
        if len(head) <= THRESHOLD:
            return Content(len(head), hashlib.sha256(head).hexdigest(), head)
        return self._local(head, source) if self.store.is_local else self._remote(head, source)

    def _local(self, head: bytes, source: Readable) -> Content:
        """Write beside the final place, and rename when the hash is known."""
        incoming = f"{_INCOMING}{uuid7().hex}"
        with self.store.open_output(incoming) as sink:
            content = _copy(head, source, sink)
        faults.reach("pond.large_file.written")
        path = self.find(content.sha256)
        # the same bytes replace themselves: a file that was just written is not taken for one that nobody needs
        self.store.rename(incoming, path or self._place(content.sha256))
        telemetry.count("pond.large_files.shared" if path else "pond.large_files.written")
        faults.reach("pond.large_file.placed")
        return content

    def _remote(self, head: bytes, source: Readable) -> Content:
        """Keep the bytes in a temporary file until the hash, and so their place, is known."""
        with tempfile.TemporaryFile(prefix="pond-") as spool:
            content = _copy(head, source, spool)
            if self.find(content.sha256) is None:
                spool.seek(0)
                with self.store.open_output(self._place(content.sha256)) as sink:
                    for block in blocks(spool):
                        sink.write(block)
                telemetry.count("pond.large_files.written")
        return content

    def find(self, sha256: str) -> str | None:
        """Return the path of a content in the store, or None."""
        return next((path for path in (_flat(sha256), sharded(sha256)) if self.store.exists(path)), None)

    def _place(self, sha256: str) -> str:
        folder = f"{FOLDER}/sha256="
        count = sum(1 for entry in self.store.list(FOLDER) if entry.path.startswith(folder))
        return _flat(sha256) if count < _FLAT else sharded(sha256)

    def open(self, sha256: str, size: int, name: str) -> BinaryIO:
        """Return a file, open for reading at any position, after its bytes were found to be what they should be.

        Raises ``CorruptFileError``, which calls the file ``name``.
        """
        self.check(sha256, size, name)
        path = self.find(sha256)
        assert path is not None
        opened: BinaryIO = self.store.open_input(path)
        return opened

    def check(self, sha256: str, size: int, name: str) -> None:
        """Read a file whole. Raises ``CorruptFileError`` when it is missing or its bytes have changed."""
        path = self.find(sha256)
        if path is None:
            raise CorruptFileError(
                f"the content of {name} is missing: {_flat(sha256)}", hint="restore it from a backup"
            )
        digest, count = hashlib.sha256(), 0
        with self.store.open_input(path) as source:
            for block in blocks(source):
                digest.update(block)
                count += len(block)
        telemetry.count("pond.large_files.verified")
        if count != size or digest.hexdigest() != sha256:
            raise CorruptFileError(
                f"the content of {name} has changed: {path} is not what was written",
                hint="restore it from a backup; nothing of it is shown",
            )

    def entries(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield the hash of every file in the store, and how a listing shows it."""
        for entry in self.store.list(FOLDER):
            name = entry.path.rpartition("/")[2]
            if name.startswith("sha256="):
                yield name.removeprefix("sha256="), entry

    def stored(self) -> Iterator[tuple[str, int]]:
        """Yield the hash and size of every file in the store."""
        return ((sha256, entry.size) for sha256, entry in self.entries())

    def remove_leftovers(self) -> int:
        """Remove what writers that died have left, and return how many files that were. No writer may be running."""
        left = [
            entry.path for entry in self.store.list(FOLDER) if entry.is_temporary or entry.path.startswith(_INCOMING)
        ]
        return self.store.delete(left)


def blocks(source: Readable) -> Iterator[bytes]:
    """Yield the rest of a stream in blocks."""
    while block := source.read(BLOCK):
        yield block


def _fill(source: Readable, size: int) -> bytes:
    """Return the first bytes of a stream that may give fewer at a time."""
    pieces: list[bytes] = []
    while size > 0 and (piece := source.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _copy(head: bytes, source: Readable, sink: IO[bytes]) -> Content:
    digest, size, block = hashlib.sha256(), 0, head
    while block:
        digest.update(block)
        sink.write(block)
        size += len(block)
        block = source.read(BLOCK)
    return Content(size, digest.hexdigest(), None)


def _flat(sha256: str) -> str:
    return f"{FOLDER}/sha256={sha256}"


def sharded(sha256: str) -> str:
    """Return the path of a content among many."""
    return f"{FOLDER}/sha256_16={sha256[:4]}/sha256={sha256}"
