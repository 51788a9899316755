"""Files of this machine that collectors look at again and again: which are complete, and what their bytes are."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from quacklake.errors import ConfigError, InputError, LimitError
from quacklake.pond.host_files import sha256_of

_MAX_KNOWN = 100_000
_BLOCK = 1 << 20
_known: dict[tuple[str, int, int], str] = {}
_lock = threading.Lock()


def find_files(folder: Path, patterns: Sequence[str], *, settle: float, most: int, what: str) -> list[Path]:
    """Return the files of a folder, by name, that nobody has written to for a while.

    Raise ``InputError`` for a folder that cannot be read, ``LimitError`` for too many files.
    """
    for pattern in patterns:
        if ".." in Path(pattern).parts or Path(pattern).is_absolute():
            raise ConfigError(f"{what}: the pattern {pattern!r} leads out of the folder")
    if not folder.is_dir():
        raise InputError(f"{what}: there is no folder {folder}", hint="make it, or correct the option folder")
    before = time.time() - settle
    found = {
        path
        for pattern in patterns
        for path in folder.glob(pattern)
        if not path.name.startswith((".", "~$")) and _is_complete(path, before)
    }
    if len(found) > most:
        raise LimitError(f"{what}: {folder} has more than {most} files", hint="move some away, or raise max_files")
    return sorted(found)


def _is_complete(path: Path, before: float) -> bool:
    try:
        return path.is_file() and path.stat().st_mtime <= before
    except OSError:  # somebody has just moved it
        return False


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file; one that has not changed since the last time is not read again."""
    try:
        facts = path.stat()
        key = (str(path), facts.st_size, facts.st_mtime_ns)
        with _lock:
            found = _known.get(key)
        if found is None:
            found = sha256_of(path)
            with _lock:
                if len(_known) >= _MAX_KNOWN:
                    _known.clear()
                _known[key] = found
        return found
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def begins_with(path: Path, size: int, sha256: str) -> bool:
    """Return whether the first bytes of a file have a hash."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = size
        while left and (block := file.read(min(left, _BLOCK))):
            digest.update(block)
            left -= len(block)
    return left == 0 and digest.hexdigest() == sha256


class Repeated:
    """Contents of which a series had every row already, so that no version tells that they were taken."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str, str]] = set()

    def add(self, pond: str, path: str, sha256: str) -> None:
        """Remember a content until this process ends."""
        if len(self._seen) >= _MAX_KNOWN:
            self._seen.clear()
        self._seen.add((pond, path, sha256))

    def __contains__(self, key: tuple[str, str, str]) -> bool:
        return key in self._seen
