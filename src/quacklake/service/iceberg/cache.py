"""Generated files: named by their content, written once, whole or not at all, and bounded.

A file is found by a key of everything it was made from; the index leads from the key to the name. What was used lately
stays: a file that is used is written again if it is older than half of ``cache_seconds``, which is looked up every
quarter of them, and only files older than ``cache_seconds`` are removed: a reader that is told of a file finds it.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from quacklake.errors import CorruptFileError, LimitError, PathError, StorageError
from quacklake.extend import reporting
from quacklake.extend.stores import Store
from quacklake.service.iceberg.settings import IcebergSettings

__all__ = ["Cache", "Made"]

_VERSION = "1"
"""Part of every key: files of another version of this code are never taken for its own."""
_STRIPES = 64
_REMEMBERED = 100_000


@dataclass(frozen=True)
class Made:
    """A generated file: its address for readers, its size, and what its maker wants to remember of it."""

    url: str
    size: int
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    size: int
    facts: dict[str, Any]


#: Makes the content of a file, and what to remember of it.
Make = Callable[[], tuple[bytes | pa.Buffer, dict[str, Any]]]


class Cache:
    """The generated files of one lake. Safe to share between threads; processes may share the folder."""

    def __init__(self, store: Store, folder: str, settings: IcebergSettings) -> None:
        self._store = store
        self._folder = folder
        self._settings = settings
        self._known: dict[str, tuple[_Entry, float]] = {}
        self._lock = threading.Lock()
        self._stripes = [threading.Lock() for _ in range(_STRIPES)]
        self._bytes: int | None = None

    def key(self, *parts: object) -> str:
        """Return the key of what a file is made from."""
        return hashlib.sha256(json.dumps([_VERSION, *map(_text, parts)]).encode()).hexdigest()

    @contextmanager
    def making(self, what: str) -> Iterator[None]:
        """Let one thread at a time make the files of a thing."""
        with self._stripes[hash(what) % _STRIPES]:
            yield

    def once(self, key: str, suffix: str, make: Make) -> Made:
        """Return the file of a key; it is made if it is not there. A file that was lost is made again."""
        entry = self._fresh(key) or self._find_stored(key)
        if entry is None:
            content, facts = make()
            entry = self._write(key, suffix, pa.py_buffer(content), facts)
        return Made(self._store.url(entry.name), entry.size, entry.facts)

    def _fresh(self, key: str) -> _Entry | None:
        with self._lock:
            known = self._known.get(key)
        return known[0] if known and time.monotonic() - known[1] < self._settings.cache_seconds / 4 else None

    def _find_stored(self, key: str) -> _Entry | None:
        """Return the entry that the index has, after making sure that its file is whole and will stay."""
        place = self._index(key)
        try:
            told = json.loads(self._store.read(place, limit=1 << 24))
            entry = _Entry(str(told["name"]), int(told["size"]), dict(told["facts"]))
            folder = entry.name.rpartition("/")[0]
            if not entry.name.startswith(self._folder):
                return None
            seen = next((each for each in self._store.list(folder) if each.path == entry.name), None)
            if seen is None or seen.size != entry.size:
                return None
            if seen.mtime is None or time.time() - seen.mtime.timestamp() > self._settings.cache_seconds / 2:
                # as new, so that it is not among the oldest
                self._store.write(entry.name, self._store.read(entry.name))
                self._store.write(place, json.dumps(asdict(entry)).encode())
        except (CorruptFileError, PathError, LookupError, TypeError, ValueError):
            return None
        self._remember(key, entry)
        return entry

    def _write(self, key: str, suffix: str, content: pa.Buffer, facts: dict[str, Any]) -> _Entry:
        self._make_room(content.size)
        digest = hashlib.sha256(content).hexdigest()
        entry = _Entry(f"{self._folder}{digest[:2]}/{digest}.{suffix}", content.size, facts)
        reporting.reach("iceberg.cache.before")
        self._store.write(entry.name, content)
        reporting.reach("iceberg.cache.between")
        self._store.write(self._index(key), json.dumps(asdict(entry)).encode())
        self._remember(key, entry)
        return entry

    def _index(self, key: str) -> str:
        return f"{self._folder}index/{key[:2]}/{key}.json"

    def _remember(self, key: str, entry: _Entry) -> None:
        with self._lock:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = (entry, time.monotonic())

    def _make_room(self, size: int) -> None:
        """Count bytes that will be written; remove old files if there would be too many. Raise ``LimitError``."""
        limit = self._settings.cache_bytes
        with self._lock:
            if self._bytes is None or self._bytes + size > limit:
                self._bytes = self._sweep(limit - size)
            if self._bytes + size > limit:
                raise LimitError(
                    f"the generated files of the Iceberg catalog would take more than {limit:,} bytes",
                    hint="raise cache_bytes, or lower cache_seconds so that files are removed sooner",
                )
            self._bytes += size

    def _sweep(self, room: int) -> int:
        """Remove files that nobody has used for a while, oldest first, until the others fit; return their bytes."""
        entries = sorted(self._store.list(self._folder), key=lambda entry: entry.mtime or datetime.now(UTC))
        total, old = sum(entry.size for entry in entries), []
        limit = time.time() - self._settings.cache_seconds
        for entry in entries:
            if total <= room and not entry.is_temporary:
                continue
            if entry.mtime is not None and entry.mtime.timestamp() < limit:
                old.append(entry.path)
                total -= entry.size
        if old:
            try:
                self._store.delete(old)
            except StorageError:
                total = self._settings.cache_bytes  # what is left is counted next time
        return total


def _text(part: object) -> str:
    return part if isinstance(part, str) else json.dumps(part, sort_keys=True, default=str)
