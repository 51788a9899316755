"""Contents of files: small ones go into the tree, large ones into the store under their SHA-256.

Nothing here holds more than one block of a file in memory.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO, Protocol

from quacklake import telemetry
from quacklake.errors import CorruptFileError
from quacklake.extend import reporting
from quacklake.extend.names import uuid7
from quacklake.extend.stores import Store

THRESHOLD = 64 * 1024
"""The most bytes of a file that the tree itself holds."""
BLOCK = 1 << 20
"""The bytes that are in memory at a time."""
FOLDER = "_large_files"
_FLAT = 100
"""The number of files in the folder from which on new ones go into folders by the first digits of their names."""
_INCOMING = f"{FOLDER}/incoming/"
"""The folder of files that are being written, each in a folder of its own that names the process."""
GRACE = dt.timedelta(days=2)
"""The age from which on nobody is taken to need a file that nothing names, or to write to an unfinished one."""


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


@dataclass(frozen=True, slots=True)
class LargeFile:
    """A large file in its store: the hash of its bytes, its path, its size, and when it was last changed."""

    sha256: str
    path: str
    size: int
    changed: dt.datetime | None


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
        folder = f"{_INCOMING}{uuid7().hex}-{os.getpid()}-{_host()}"
        try:
            with self.store.open_output(f"{folder}/content") as sink:
                content = _copy(head, source, sink)
            reporting.reach("pond.large_file.written")
            path = self.find(content.sha256)
            # the same bytes replace themselves: a file that was just written is not taken for one that nobody needs
            self.store.rename(f"{folder}/content", path or self._place(content.sha256))
        finally:
            self.store.prune(folder)
        telemetry.count("pond.large_files.shared" if path else "pond.large_files.written")
        reporting.reach("pond.large_file.placed")
        return content

    def _remote(self, head: bytes, source: Readable) -> Content:
        """Keep the bytes in a temporary file until the hash, and so their place, is known."""
        with tempfile.TemporaryFile(prefix="pond-") as spool:
            content = _copy(head, source, spool)
            if not self._has_young(content.sha256):
                spool.seek(0)
                with self.store.open_output(self._place(content.sha256)) as sink:
                    for block in blocks(spool):
                        sink.write(block)
                telemetry.count("pond.large_files.written")
        return content

    def _has_young(self, sha256: str) -> bool:
        """Return whether a content is there, and so young that maintenance will leave it until it is named."""
        path, limit = self.find(sha256), dt.datetime.now(dt.UTC) - GRACE / 2
        found = () if path is None else self.store.list(path.rpartition("/")[0])
        return any(each.path == path and each.mtime is not None and each.mtime > limit for each in found)

    def find(self, sha256: str) -> str | None:
        """Return the path of a content in the store, or None."""
        return next((path for path in (_flat(sha256), sharded(sha256)) if self.store.exists(path)), None)

    def _place(self, sha256: str) -> str:
        folder = f"{FOLDER}/sha256="
        count = sum(1 for entry in self.store.list(FOLDER) if entry.path.startswith(folder))
        return _flat(sha256) if count < _FLAT else sharded(sha256)

    def open(self, sha256: str, size: int, name: str) -> BinaryIO:
        """Return a file, open for reading at any position, after its bytes were found to be what they should be.

        Raise ``CorruptFileError``, which calls the file ``name``.
        """
        self.check(sha256, size, name)
        path = self.find(sha256)
        assert path is not None
        opened: BinaryIO = self.store.open_input(path)
        return opened

    def check(self, sha256: str, size: int, name: str) -> None:
        """Read a file whole. Raise ``CorruptFileError`` when it is missing or its bytes have changed."""
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

    def entries(self) -> Iterator[LargeFile]:
        """Yield every file in the store."""
        for entry in self.store.list(FOLDER):
            name = entry.path.rpartition("/")[2]
            if name.startswith("sha256="):
                yield LargeFile(name.removeprefix("sha256="), entry.path, entry.size, entry.mtime)

    def stored(self) -> Iterator[tuple[str, int]]:
        """Yield the hash and size of every file in the store."""
        return ((file.sha256, file.size) for file in self.entries())

    def leftovers(self) -> list[str]:
        """Return the paths of files that processes which have ended left unfinished."""
        limit = dt.datetime.now(dt.UTC) - GRACE
        found = []
        for entry in self.store.list(FOLDER):
            is_incoming = entry.path.startswith(_INCOMING)
            is_old = entry.mtime is not None and entry.mtime < limit
            is_dead = is_incoming and not _may_run(entry.path.removeprefix(_INCOMING).partition("/")[0])
            if is_dead or (is_old and (is_incoming or entry.is_temporary)):
                found.append(entry.path)
        return found

    def remove_leftovers(self) -> int:
        """Remove what processes that have ended left unfinished, and return how many files that were."""
        found = self.leftovers()
        removed = self.store.delete(found)
        for path in found:
            if path.startswith(_INCOMING):
                self.store.prune(path.rpartition("/")[0])
        return removed


def _host() -> str:
    return re.sub(r"[^\w.-]", "_", socket.gethostname())


def _may_run(folder: str) -> bool:
    """Return whether the process that a folder names runs on this machine, or may run on another."""
    _, pid, host = [*folder.split("-", 2), "", ""][:3]
    if host != _host() or not pid.isdigit():
        return True
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


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
