"""Let a run of everything go on where an earlier run of the same code was cut, and divide it into shards.

``make test-all`` takes hours. It notes each test that ends well, and leaves it out when it runs again on the same code.
``SHARD=2/5`` takes the second of five parts of the files.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.layout import LAYOUT

__all__ = ["Progress", "in_shard", "parse_shard"]

FOLDER = "QUACKLAKE_TEST_RESUME"
SHARD = "QUACKLAKE_TEST_SHARD"
_REPOSITORY = Path(__file__).resolve().parent.parent


def parse_shard(text: str | None) -> tuple[int, int]:
    """Return the number of a shard, from 1 on, and the count of all shards.

    >>> parse_shard("2/5"), parse_shard(None)
    ((2, 5), (1, 1))
    """
    number, _, count = (text or "1/1").partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f'SHARD="{text}" is no shard: write 2/5 for the second of five')
    return int(number), int(count)


def in_shard(nodeid: str, shard: tuple[int, int]) -> bool:
    """Return True if the file of a test belongs to a shard."""
    number, count = shard
    return zlib.crc32(nodeid.partition("::")[0].encode()) % count == number - 1


class Progress:
    """The tests that ended well on this code, in a file that outlives an interrupted run.

    Tests of this run go into a second file, so that all processes of it leave out the same ones.
    """

    def __init__(self, folder: Path, code: str) -> None:
        self._passed = folder / f"{LAYOUT}-{code}.txt"
        self._new = self._passed.with_suffix(".new")

    @classmethod
    def from_environment(cls) -> Progress | None:
        """Return the progress that the environment asks for, or None."""
        folder = os.environ.get(FOLDER)
        return Progress(Path(folder), _fingerprint()) if folder else None

    def begin(self) -> None:
        """Take over what the last run noted."""
        self._passed.parent.mkdir(parents=True, exist_ok=True)
        with self._passed.open("a", encoding="utf-8") as passed:
            if self._new.exists():
                passed.write(self._new.read_text(encoding="utf-8"))
        self._new.unlink(missing_ok=True)

    def read(self) -> set[str]:
        """Return the names of the tests that ended well in earlier runs."""
        if not self._passed.exists():
            return set()
        return set(self._passed.read_text(encoding="utf-8").split("\n")) - {""}

    def add(self, nodeids: Iterable[str]) -> None:
        """Note tests that ended well in this run."""
        with self._new.open("a", encoding="utf-8") as new:
            new.writelines(f"{nodeid}\n" for nodeid in nodeids)


def _fingerprint() -> str:
    """Return a digest of all files that git knows in this checkout, as they are now."""
    names = subprocess.run(
        ["git", "-C", str(_REPOSITORY), "ls-files", "-z"], capture_output=True, check=True
    ).stdout.split(b"\0")
    digest = hashlib.sha256()
    for name in filter(None, names):
        path = _REPOSITORY / os.fsdecode(name)
        digest.update(name + b"\0" + (path.read_bytes() if path.is_file() else b"") + b"\0")
    return digest.hexdigest()[:16]
