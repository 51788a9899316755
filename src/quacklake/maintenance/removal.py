"""Removing many files, a few at a time, when some may fail, and telling of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from quacklake.errors import QuacklakeError
from quacklake.maintenance.reports import Skipped
from quacklake.storage import Store

__all__ = ["BATCH", "CleanupReport", "OnPath", "Removal", "Tally", "remove"]

BATCH = 1000
"""Files that are removed before the next are looked for."""


#: Told the path of every file that is removed.
OnPath = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """How many ``files`` were removed: the first of their ``paths`` below the data path, ``bytes`` where that is known.

    ``left`` files stay although they were scheduled, or could not be removed: ``skipped`` are the first of them, and
    why. Those that ``failed`` are tried again next time. The setting ``report_paths`` says how many the first are.
    """

    paths: tuple[str, ...] = ()
    files: int = 0
    bytes: int | None = None
    failed: int = 0
    left: int = 0
    skipped: Sequence[Skipped] = ()
    dry_run: bool = False


@dataclass
class Tally:
    """What has become of files so far; of a great many only the first ``keep`` are remembered."""

    keep: int
    on_path: OnPath | None = None
    files: int = 0
    failed: int = 0
    _paths: list[str] = field(default_factory=list)
    _left: int = 0
    _skipped: list[Skipped] = field(default_factory=list)

    def gone(self, paths: Sequence[str]) -> None:
        """Count files as removed."""
        self.files += len(paths)
        self._paths += paths[: self.keep - len(self._paths)]
        if self.on_path is not None:
            for path in paths:
                self.on_path(path)

    def stay(self, paths: Iterable[tuple[str, str]]) -> None:
        """Count files, each with the reason, as left where they are."""
        for path, reason in paths:
            self._left += 1
            if len(self._skipped) < self.keep:
                self._skipped.append(Skipped(path, reason))

    def tried(self, removal: Removal) -> None:
        """Count what became of one batch."""
        self.gone(removal.gone)
        self.failed += len(removal.failed)
        self.stay((path, error.message) for path, error in removal.failed.items())

    def report(self, size: int | None, *, dry_run: bool) -> CleanupReport:
        """All of it."""
        return CleanupReport(
            tuple(self._paths), self.files, size, self.failed, self._left, tuple(self._skipped), dry_run
        )


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
