"""The one place that touches files: bytes in and out of a data root, local or in an object store."""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.storage.failures import Bucket, explain
from quacklake.core.storage.listing import TEMPORARY_PREFIX, FileEntry, find, stream, walk
from quacklake.core.storage.roots import Confinement, Links, S3Options, open_root
from quacklake.errors import ConfigError, CorruptFileError, StorageError

T = TypeVar("T")

_MAX_WAIT = 10.0


@dataclass(frozen=True, slots=True)
class Attempts:
    """The rules of retries; ``secrets`` stay out of messages, calls are counted for the tenant ``label``."""

    max_retries: int = 5
    retry_wait: float = 0.05
    secrets: tuple[str, ...] = field(default=(), repr=False)
    place: Callable[[], StorageError | None] = field(default=lambda: None, repr=False)
    """Gives the error to raise where a file is missing because all are."""
    label: str | None = None

    def __post_init__(self) -> None:
        if self.max_retries < 0 or self.retry_wait < 0:
            raise ConfigError(f"max_retries={self.max_retries} and retry_wait={self.retry_wait} must not be negative")

    def run(self, name: str, what: str, action: Callable[[], T]) -> T:
        """Return what ``action`` returns; ``name`` is the call, ``what`` the file it is about.

        Transient failures are tried again, each after a random part of a wait that doubles, so ``action`` must be safe
        to repeat. In the end raise what ``failures.explain`` makes of the last failure.
        """
        telemetry.count(f"storage.{name}", tenant=self.label)
        attempt = 0
        with telemetry.timed(f"storage.{name}", what, tenant=self.label):
            while True:
                try:
                    faults.reach(f"storage.{name}.before")
                    result = action()
                    faults.reach(f"storage.{name}.after")
                    return result
                except Exception as error:
                    failure = explain(error, what, secrets=self.secrets)
                    if failure is None:
                        raise
                    if isinstance(error, FileNotFoundError):
                        failure = self.place() or failure
                    if not failure.transient or attempt >= self.max_retries:
                        # The original may quote credentials; its cleaned text is in the message.
                        raise failure from None
                telemetry.count("storage.retries", tenant=self.label)
                time.sleep(random.uniform(0, min(_MAX_WAIT, self.retry_wait * 2**attempt)))
                attempt += 1

    @contextmanager
    def once(self, name: str, what: str) -> Iterator[None]:
        """Do the same around a block that cannot be repeated: one try, and its I/O errors explained.

        A ``FileNotFoundError`` passes as it is: it is about something else that the block wanted.
        """
        telemetry.count(f"storage.{name}", tenant=self.label)
        with telemetry.timed(f"storage.{name}", what, tenant=self.label):
            try:
                faults.reach(f"storage.{name}.before")
                yield
                faults.reach(f"storage.{name}.after")
            except FileNotFoundError:
                raise
            except OSError as error:
                raise explain(error, what, secrets=self.secrets) or error from None


@contextmanager
def replace_file(path: Path, *, parents: bool = False) -> Iterator[Path]:
    """Lend a temporary name beside ``path``; when the block ends well, the file there becomes ``path``, on disk.

    When the block raises, the temporary is removed and ``path`` is as it was. ``parents`` makes folders that are
    missing. ``OSError`` when the disk refuses.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replace_file(Path(folder, "new", "report.txt"), parents=True) as part:
    ...         _ = part.write_text("whole")
    ...     Path(folder, "new", "report.txt").read_text()
    'whole'
    """
    if parents:
        make_directory(path.parent)
    temporary = path.with_name(TEMPORARY_PREFIX + uuid4().hex)
    try:
        yield temporary
        sync(temporary)
        faults.reach("storage.publish.before")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    faults.reach("storage.publish.after")
    sync(path.parent)


def make_directory(path: Path) -> None:
    """Make ``path`` and what is missing above it, so that they outlast a power cut; an existing one is fine."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        sync(directory.parent)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


READ_LIMIT = 1 << 30
"""The bytes that :meth:`Store.read` takes into memory unless told otherwise."""

_DELETE_THREADS = 8
_SYNC_THREADS = 16
_DELETE_BATCH = 1000
_COPY_BYTES = 8 << 20
_MAX_COPY = 5 << 30
"""Object stores copy larger files only in parts."""

# Inside the class ``list`` is a method.
_Urls = list[str]


class Store(Confinement):
    """Files under one data root.

    ``root`` is an absolute local path or a full URL that ends with ``/``, ``scheme`` is ``file``, ``s3``, ``gs``,
    ``gcs``, ``az``, ``abfs`` or ``abfss``, and ``filesystem``, which knows nothing of the root, is Arrow's. Every path
    is relative to the root and confined to it, else ``PathError``. Other failures are ``CorruptFileError`` (a file is
    missing), ``StorageUnavailableError`` (after ``max_retries``) or ``StorageError``. Safe to share between threads.

    >>> Store.open("/data/lake").root
    '/data/lake/'
    """

    attempts: Attempts
    """The rules by which calls on this store are retried."""
    s3: S3Options | None

    @classmethod
    def open(
        cls,
        root: str,
        *,
        s3: S3Options | None = None,
        external: Sequence[str] = (),
        borrowed: Sequence[str] = (),
        closed: Sequence[str] = (),
        max_retries: int = 5,
        retry_wait: float = 0.05,
        label: str | None = None,
    ) -> Store:
        """Return the store at ``root``: a local folder, ``file://``, ``s3://``, ``gs://``, ``az://``, ``abfs://``.

        Nothing is created or read yet. ``external`` are folders elsewhere: files in them may be read when the catalog
        names them by an absolute path, never written or deleted; ``find`` finds none of those in ``borrowed``. Of the
        folders ``closed`` only the root itself, and those in them that ``external`` or ``borrowed`` names, are seen.
        ``label`` is that of a tenant. Raise ``ConfigError`` when the root or one of ``external`` cannot be one.
        """
        opened = open_root(root, s3)
        store = cls(opened, external=external, borrowed=borrowed, closed=closed)
        secrets = s3.secrets if s3 else ()
        store.attempts = Attempts(max_retries, retry_wait, secrets, Bucket(opened).problem, label)
        store.s3 = s3
        return store

    def __repr__(self) -> str:
        return f"Store({self.root!r})"

    @property
    def is_sealed(self) -> bool:
        """True for a store whose files are encrypted."""
        return False

    @property
    def label(self) -> str | None:
        """The label of the tenant for which work on this store is counted."""
        return self.attempts.label

    def find(self, pattern: str) -> _Urls:
        """Return the files that a path or pattern (``*``, ``?``, ``[a-z]``, ``**``) names, absolute and in order.

        A relative one starts at the working directory, or in an object store at the root. Hidden files are not found.
        """
        paths = self.attempts.run("find", pattern, lambda: find(self._root, pattern))
        return [url for url in paths if not self.hides(url)]

    def check_place(self) -> None:
        """Raise ``StorageError`` if the bucket of an object store is missing, and with it every file."""
        problem = self.attempts.place()
        if problem is not None:
            raise problem

    def exists_root(self) -> bool:
        """Return whether the root folder is there; in an object store, whether anything lies under it."""

        def action() -> bool:
            info = self.filesystem.get_file_info(self._root.prefix.rstrip("/") or "/")
            return bool(info.type == fs.FileType.Directory)

        return self.attempts.run("exists_root", self.root, action)

    def exists(self, path: str) -> bool:
        """Return whether ``path`` is a file."""
        return self.attempts.run("exists", self._show(path), lambda: bool(self._info(path).type == fs.FileType.File))

    def size(self, path: str) -> int:
        """Return the bytes of the file; ``CorruptFileError`` when it is missing."""

        def action() -> int:
            info = self._info(path)
            if info.type != fs.FileType.File:
                raise FileNotFoundError(path)
            return int(info.size)

        return self.attempts.run("size", self._show(path), action)

    def open_input(self, path: str, links: Links | None = None) -> pa.NativeFile:
        """Return the file, open for reading at any position; the caller closes it. ``links`` is one of many calls."""
        return self.attempts.run("open_input", self._show(path), lambda: self._open(path, links))

    def read(self, path: str, *, limit: int = READ_LIMIT) -> bytes:
        """Return the whole file; ``StorageError`` when it has more than ``limit`` bytes."""

        def action() -> bytes:
            with self._open(path) as source:
                size = source.size()
                if size > limit:
                    raise StorageError(
                        f"{self._show(path)} has {size} bytes, more than the limit of {limit}",
                        hint="read it in parts with open_input, or raise the limit",
                    )
                data = bytes(source.read(size))
            if len(data) != size:
                raise CorruptFileError(f"{self._show(path)} ended after {len(data)} of {size} bytes")
            return data

        return self.attempts.run("read", self._show(path), action)

    def write(self, path: str, data: bytes | bytearray | memoryview | pa.Buffer) -> int:
        """Make ``path`` and its folders, hold ``data``, return the size. Readers see the whole file or none."""
        buffer = pa.py_buffer(data)

        def action() -> None:
            target = self.writable(path)
            if not self.is_local:
                self._send(target, buffer)
                return
            with replace_file(Path(target), parents=True) as temporary, temporary.open("xb") as sink:
                sink.write(buffer)

        self.attempts.run("write", self._show(path), action)
        return int(buffer.size)

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        """Open a stream to a new file that becomes ``path`` when the block ends, and vanishes when the block raises.

        In an object store the bytes wait in a local temporary file, so that a broken upload can be repeated.
        """
        what = self._show(path)
        target = self.writable(path)
        with self.attempts.once("open_output", what):
            if self.is_local:
                with replace_file(Path(target), parents=True) as temporary, pa.OSFile(str(temporary), "wb") as sink:
                    yield sink
                return
            with tempfile.TemporaryDirectory(prefix="quacklake-") as folder:
                spool = Path(folder, "spool")
                with pa.OSFile(str(spool), "wb") as sink:
                    yield sink
                if spool.stat().st_size == 0:  # cannot be mapped
                    self.attempts.run("upload", what, lambda: self._send(target, pa.py_buffer(b"")))
                    return
                with pa.memory_map(str(spool), "rb") as source:
                    buffer = source.read_buffer()
                    self.attempts.run("upload", what, lambda: self._send(target, buffer))

    def copy_to(self, path: str, target: Store, new_path: str, expected: str | None = None) -> tuple[int, str | None]:
        """Copy a file to another store, where it appears whole or not at all; return its size and its SHA-256.

        The hash is None where an object store copied it by itself. Raise ``CorruptFileError`` when the file is missing
        or its hash is not the ``expected`` one.
        """
        size = self.size(path)
        alike = self.scheme == target.scheme and self.s3 == target.s3 and not self.is_sealed and not target.is_sealed
        if not self.is_local and alike and size < _MAX_COPY and expected is None:
            begin, end = self.url(path).partition("://")[2], target.url(new_path).partition("://")[2]
            target.attempts.run("copy", new_path, lambda: target.filesystem.copy_file(begin, end))
            return size, None
        copied, digest = 0, hashlib.sha256()
        with self.open_input(path) as stream, target.open_output(new_path) as sink:
            while chunk := stream.read(_COPY_BYTES):
                sink.write(chunk)
                digest.update(chunk)
                copied += len(chunk)
            if copied != size:
                raise CorruptFileError(f"{self.url(path)} ended after {copied} of {size} bytes")
            if expected is not None and digest.hexdigest() != expected:
                raise CorruptFileError(f"{self.url(path)} has changed since it was written", hint="use another copy")
        return size, digest.hexdigest()

    def make_parent(self, path: str) -> None:
        """Make the folder that will hold ``path``, for an engine that writes there. Object stores have none."""
        target = self.writable(path)
        if self.is_local:
            self.attempts.run("make_parent", self._show(path), lambda: make_directory(Path(target).parent))

    def rename(self, path: str, new_path: str) -> None:
        """Let a file of a local store be called ``new_path``; folders are made as needed. A file there is replaced."""
        source, target = Path(self.writable(path)), Path(self.writable(new_path))

        def action() -> None:
            make_directory(target.parent)
            source.replace(target)

        self.attempts.run("rename", self._show(path), action)

    def prune(self, path: str) -> None:
        """Remove a folder of a local store and the folders in it, unless they contain files."""
        if not self.is_local:
            return
        target = Path(self.writable(path.rstrip("/")))
        if target.is_symlink():
            return
        for folder in sorted((each[0] for each in os.walk(target)), reverse=True):
            with suppress(OSError):
                Path(folder).rmdir()

    def sync(self, paths: Sequence[str]) -> None:
        """Have files that an engine wrote on disk, name and all; those of object stores are when a write has ended."""
        if not self.is_local:
            return

        def sync_one(target: Path) -> None:
            self.attempts.run("sync", str(target), partial(sync, target))

        targets = [Path(self.writable(path)) for path in paths]
        for each in (targets, dict.fromkeys(target.parent for target in targets)):
            if len(each) == 1:
                sync_one(*each)
            elif each:
                # a disk syncs many files at once faster than one by one
                with ThreadPoolExecutor(min(_SYNC_THREADS, len(each)), "quacklake-sync") as pool:
                    deque(pool.map(sync_one, each), maxlen=0)

    def delete(self, paths: Iterable[str]) -> int:
        """Remove the files, after checking all paths, and return how many were there. It can be repeated."""
        targets = _Urls(dict.fromkeys(self.own(path) for path in paths))
        if len(targets) <= 1:
            return sum(map(self._delete, targets))
        removed = 0
        with ThreadPoolExecutor(min(_DELETE_THREADS, len(targets)), "quacklake-delete") as pool:
            for start in range(0, len(targets), _DELETE_BATCH):
                removed += sum(pool.map(self._delete, targets[start : start + _DELETE_BATCH]))
        return removed

    def list(self, prefix: str = "", limit: int | None = None) -> Iterator[FileEntry]:
        """Return every file under the folder ``prefix``, at most ``limit``, sorted within each folder.

        One folder at a time is read and held; symbolic links are passed over.
        """
        folder = self.own(prefix.rstrip("/")) + "/" if prefix.rstrip("/") else ""
        return islice(walk(self._root, self.attempts, self, folder), limit)

    def stream(self) -> Iterator[FileEntry]:
        """Return every file of the store, in no order, in bounded memory; symbolic links are passed over."""
        return stream(self._root, self.attempts, self)

    def _show(self, path: str) -> str:
        return path if self.is_absolute(path) else self._root.url + path

    def _info(self, path: str) -> fs.FileInfo:
        return self.filesystem.get_file_info(self.readable(path, Links()))

    def _open(self, path: str, links: Links | None = None) -> pa.NativeFile:
        return self.filesystem.open_input_file(self.readable(path, links or Links()))

    def _send(self, target: str, buffer: pa.Buffer) -> None:
        # An object appears when its stream is closed, and Arrow closes it even after a failed write: so one call
        # writes all there is, and what a failure may have left is removed.
        sink = self.filesystem.open_output_stream(target)
        try:
            sink.write(buffer)
        except BaseException:
            with suppress(OSError):
                sink.close()
            with suppress(OSError):
                self.filesystem.delete_file(target)
            raise
        sink.close()

    def _delete(self, path: str) -> int:
        def action() -> int:
            target = self.writable(path)
            try:
                if self.is_local:
                    Path(target).unlink()
                else:
                    self.filesystem.delete_file(target)
            except (FileNotFoundError, NotADirectoryError):
                self.check_place()  # a file that cannot be reached has not been removed
                return 0
            return 1

        return self.attempts.run("delete", self._show(path), action)
