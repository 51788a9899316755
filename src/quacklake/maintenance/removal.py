"""Removing many files, a few at a time, when some may fail."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quacklake.errors import QuacklakeError
from quacklake.storage import Store

__all__ = ["BATCH", "Removal", "remove"]

BATCH = 1000
"""Files that are removed before the next are looked for."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of some files: those that are gone now, and why the others are not."""

    gone: Sequence[str]
    failed: dict[str, QuacklakeError]

    @property
    def hopeless(self) -> bool:
        """True when nothing could be removed and the store may be down: further tries would only take their time."""
        return not self.gone and any(error.transient for error in self.failed.values())


def remove(store: Store, paths: Sequence[str], threads: int) -> Removal:
    """Remove files, at most ``threads`` at a time; one that is gone already is fine, one that fails stops no other."""

    def attempt(path: str) -> QuacklakeError | None:
        try:
            store.delete([path])
        except QuacklakeError as error:
            return error
        return None

    if len(paths) <= 1:
        results = [attempt(path) for path in paths]
    else:
        with ThreadPoolExecutor(min(threads, len(paths)), "quacklake-remove") as pool:
            results = list(pool.map(attempt, paths))
    failed = {path: error for path, error in zip(paths, results, strict=True) if error is not None}
    return Removal([path for path in paths if path not in failed], failed)
