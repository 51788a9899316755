"""Files from one store to another: streamed, or by the object store itself where both are the same one."""

from __future__ import annotations

from quacklake.errors import CorruptFileError
from quacklake.storage.store import Store

__all__ = ["copy_file"]

_CHUNK = 8 << 20
#: Object stores copy larger ones only in parts.
_LARGEST = 5 << 30


def copy_file(source: Store, path: str, target: Store, new_path: str) -> int:
    """Copy a file; it appears whole or not at all. Returns its size. ``CorruptFileError`` when it is missing."""
    size = source.size(path)
    if _same_service(source, target) and size < _LARGEST:
        target.attempts.run("copy", new_path, lambda: _copy_there(source, path, target, new_path))
        return size
    copied = 0
    with source.open_input(path) as stream, target.open_output(new_path) as sink:
        while chunk := stream.read(_CHUNK):
            sink.write(chunk)
            copied += len(chunk)
        if copied != size:
            raise CorruptFileError(f"{source.url(path)} ended after {copied} of {size} bytes")
    return size


def _same_service(source: Store, target: Store) -> bool:
    return not source.is_local and source.scheme == target.scheme and source.s3 == target.s3


def _copy_there(source: Store, path: str, target: Store, new_path: str) -> None:
    begin, end = source.url(path).partition("://")[2], target.url(new_path).partition("://")[2]
    target.filesystem.copy_file(begin, end)
