"""Local files that appear whole or not at all, also when the machine stops in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from quacklake import faults

# It does not contain the final name, so that the longest legal name still gets a temporary one.
TEMPORARY_PREFIX = ".quacklake-tmp-"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Lend a temporary name beside ``path``; when the block ends well, the file written there becomes ``path``.

    Contents and name are on disk when the block has ended. When the block raises, the temporary is removed and
    ``path`` is as it was. ``OSError`` when the disk refuses.
    """
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
