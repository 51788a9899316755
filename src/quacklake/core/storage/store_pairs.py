"""Two stores: whether their files may be among each other, and copying files from one to the other."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from pathlib import Path

from quacklake.core.storage.store import Store
from quacklake.errors import CorruptFileError

_SAME_SERVICE = {"s3a": "s3", "s3n": "s3", "gs": "gcs", "abfs": "az", "abfss": "az"}


def overlap(one: Store, other: Store) -> bool:
    """Return whether one of two stores is inside the other, or both are the same, however their roots are spelled.

    Links are followed, and the case of letters counts only where the file system tells names apart by it.
    """
    if one.is_local != other.is_local:
        return False
    if not one.is_local:
        roots = sorted((_place(one), _place(other)), key=len)
        return roots[1][: len(roots[0])] == roots[0]
    short, long = sorted(
        ([part for part in os.path.realpath(store.root).split("/") if part] for store in (one, other)), key=len
    )
    long = long[: len(short)]
    if short == long:
        return True
    if _folded(short) != _folded(long):
        return False
    first, second = Path("/", *short), Path("/", *long)
    there = first.exists(), second.exists()
    # if only one spelling exists, the file system distinguishes them
    return first.samefile(second) if all(there) else not any(there)


def spellings(store: Store) -> tuple[str, ...]:
    """Return the root of a store as a catalog may spell it, before and after following links."""
    if not store.is_local:
        return (store.root,)
    real = os.path.realpath(store.root).rstrip("/") + "/"
    return tuple(dict.fromkeys((store.root, real, f"file://{store.root}", f"file://{real}")))


def _place(store: Store) -> list[str]:
    scheme, _, rest = store.root.partition("://")
    bucket, *folders = rest.strip("/").split("/")
    return [_SAME_SERVICE.get(scheme, scheme), bucket.partition("@")[0], *folders]


def _folded(parts: list[str]) -> list[str]:
    return [unicodedata.normalize("NFC", part).casefold() for part in parts]


_CHUNK = 8 << 20
#: Object stores copy larger ones only in parts.
_LARGEST = 5 << 30


def copy_file(source: Store, path: str, target: Store, new_path: str) -> int:
    """Copy a file; it appears whole or not at all. Return its size. ``CorruptFileError`` when it is missing."""
    return copy_hashed(source, path, target, new_path)[0]


def copy_hashed(
    source: Store, path: str, target: Store, new_path: str, expected: str | None = None
) -> tuple[int, str | None]:
    """Copy a file; return its size and its SHA-256, None where an object store copied it by itself.

    Raises ``CorruptFileError`` when it is missing, and copies nothing when its hash is not the ``expected`` one.
    """
    size = source.size(path)
    alike = source.scheme == target.scheme and source.s3 == target.s3 and not source.is_sealed and not target.is_sealed
    if not source.is_local and alike and size < _LARGEST and expected is None:
        begin, end = source.url(path).partition("://")[2], target.url(new_path).partition("://")[2]
        target.attempts.run("copy", new_path, lambda: target.filesystem.copy_file(begin, end))
        return size, None
    copied, digest = 0, hashlib.sha256()
    with source.open_input(path) as stream, target.open_output(new_path) as sink:
        while chunk := stream.read(_CHUNK):
            sink.write(chunk)
            digest.update(chunk)
            copied += len(chunk)
        if copied != size:
            raise CorruptFileError(f"{source.url(path)} ended after {copied} of {size} bytes")
        if expected is not None and digest.hexdigest() != expected:
            raise CorruptFileError(f"{source.url(path)} has changed since it was written", hint="use another copy")
    return size, digest.hexdigest()
