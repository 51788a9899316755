"""Read in Spark's checkpoint what a batch holds: a replay is known by that, not guessed from its number.

Before Spark runs a batch, it writes where the batch ends in each source, and when it was planned, into the file
``offsets/<batch>`` of the checkpoint. A replay finds this file and leaves it as it is. A batch that is planned anew,
such as after an older copy of the checkpoint was put back, gets a file of its own, even if its number was there before.
So the digest of the file identifies the batch. A source of files keeps only the number of a list of files there; the
list is in ``sources/``, and belongs to the digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from quacklake.core.format.objects import BatchContent
from quacklake.errors import StreamMismatchError
from quacklake.extend.stores import Store
from quacklake.spark.runtime.session import is_connect
from quacklake.spark.runtime.settings import escape_pattern

__all__ = ["ReadFiles", "SparkCheckpoint", "digest_batch", "read_from_folder", "read_from_spark", "read_from_store"]

ReadFiles: TypeAlias = Callable[[str, Sequence[str]], Mapping[str, bytes]]
"""Reads files of a folder below the checkpoint: those of the names that exist, by name."""

_HEADER = 2
"""The lines before the offsets: the version of the file, and what Spark notes of the batch."""
_NEAR = 100
"""The batches on each side that are looked for: Spark keeps as many."""
_FILES = "logOffset"
"""The only key of an offset that is the number of a list of files."""


class SparkCheckpoint:
    """The checkpoint of one query of Spark. It remembers the batch that it was last asked for."""

    def __init__(self, read: ReadFiles) -> None:
        self._read = read
        self._known: tuple[int, str] | None = None

    def content(self, epoch: int) -> BatchContent:
        """Return what a batch and the one before it hold. Raise ``StreamMismatchError`` for a batch without files."""
        if self._known is not None and self._known[0] == epoch - 1:
            before: str | None = self._known[1]
        else:
            before = self.digest(epoch - 1) if epoch > 0 else None
        digest = self.digest(epoch)
        if digest is None:
            raise StreamMismatchError(
                f"the checkpoint of the stream does not say what its batch {epoch} holds: files are missing in it",
                hint="restore the whole checkpoint: offsets, commits, sources and state belong together",
            )
        self._known = epoch, digest
        return BatchContent(digest, before)

    def digest(self, epoch: int) -> str | None:
        """Return the digest of a batch; None when the checkpoint does not have it, or not as a whole."""
        offsets = self._read("offsets", [str(epoch)]).get(str(epoch))
        if offsets is None:
            return None
        lists: list[bytes] = []
        for source, number in _file_lists(offsets):
            found = self._read(f"sources/{source}", [str(number), f"{number}.compact"])
            if not found:
                return None
            lists.append(found[min(found)])
        return digest_batch(offsets, lists)

    def next_batch(self, epoch: int) -> int:
        """Return the batch that Spark would run next, of a checkpoint that has come about as far as a batch."""
        near = [str(number) for number in range(max(0, epoch - _NEAR), epoch + _NEAR)]
        last = max(map(int, self._read("offsets", near)), default=-1)
        return last + 1 if last < 0 or self._read("commits", [str(last)]) else last

    def query(self) -> str | None:
        """Return the id of the query that the checkpoint belongs to; None for one that is not begun."""
        metadata = self._read("", ["metadata"]).get("metadata")
        try:
            return None if metadata is None else str(json.loads(metadata)["id"])
        except (ValueError, KeyError, TypeError):
            return None


def digest_batch(offsets: bytes, lists: Sequence[bytes] = ()) -> str:
    """Return the digest of a batch from its file of offsets and its lists of files."""
    found = hashlib.sha256(offsets)
    for each in lists:
        found.update(hashlib.sha256(each).digest())
    return f"sha256:{found.hexdigest()}"


def _file_lists(offsets: bytes) -> list[tuple[int, int]]:
    """Return the lists of files that offsets refer to: the number of the source, and that of its list.

    >>> _file_lists(b'v1\\n{"batchWatermarkMs":0}\\n{"logOffset":4}\\n-\\n{"topic":{"0":7}}\\n{"logOffset":0}')
    [(0, 4), (3, 0)]
    """
    lists: list[tuple[int, int]] = []
    for source, line in enumerate(offsets.splitlines()[_HEADER:]):
        try:
            offset = json.loads(line)
        except ValueError:
            continue
        if isinstance(offset, dict) and offset.keys() == {_FILES} and isinstance(offset[_FILES], int):
            lists.append((source, offset[_FILES]))
    return [each for each in lists if each[1] >= 0]


def read_from_store(store: Store, folder: str) -> ReadFiles:
    """Return a reader of a checkpoint in the store of a lake."""

    def read(below: str, names: Sequence[str]) -> Mapping[str, bytes]:
        paths = {name: "/".join(part for part in (folder.rstrip("/"), below, name) if part) for name in names}
        return {name: store.read(path) for name, path in paths.items() if store.exists(path)}

    return read


def read_from_folder(folder: Path) -> ReadFiles:
    """Return a reader of a checkpoint in a folder of this machine."""

    def read(below: str, names: Sequence[str]) -> Mapping[str, bytes]:
        files = ((name, folder / below / name) for name in names)
        return {name: file.read_bytes() for name, file in files if file.is_file()}

    return read


def read_from_spark(session: SparkSession, location: str) -> ReadFiles:
    """Return a reader of a checkpoint wherever Spark has it. A folder of this machine is read without a job."""
    root = location.rstrip("/")
    local = None if is_connect(session) else _local_folder(root)

    def read(below: str, names: Sequence[str]) -> Mapping[str, bytes]:
        if local is not None and (local / "metadata").is_file():
            return read_from_folder(local)(below, names)
        folder = escape_pattern("/".join(part for part in (root, below) if part))
        reader = session.read.format("binaryFile")
        try:
            rows = reader.load(f"{folder}/{{{','.join(names)}}}").select("path", "content").collect()
        except AnalysisException:  # there is no such file
            return {}
        return {str(row[0]).rpartition("/")[2]: bytes(row[1]) for row in rows}

    return read


def _local_folder(root: str) -> Path | None:
    """Return the folder of an absolute path, or of a URI of files; None for another store.

    A relative path is relative to a folder that Spark has chosen.
    """
    if root.startswith("file:/"):
        return Path("/" + root.removeprefix("file:").lstrip("/"))
    return Path(root) if root.startswith("/") else None
