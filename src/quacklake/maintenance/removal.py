"""Remove many files in batches, tolerate failures, and report them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from quacklake.errors import QuacklakeError
from quacklake.maintenance.reports import Skipped
from quacklake.storage import Store

BATCH = 1000
"""The number of files to remove in one batch."""


#: Called with the path of every removed file.
OnPath = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """Report of a cleanup: the number of removed ``files``, their ``bytes`` if known, and the first ``paths``.

    ``left`` counts files that stay although they were scheduled, or that cannot be removed; ``skipped`` lists the first
    with reasons. Files that ``failed`` are tried again next time. The setting ``report_paths`` limits both lists.
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
    """Counts removed and remaining files; keeps only the first ``keep`` paths."""

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
        """Count files as left in place, each with its reason."""
        for path, reason in paths:
            self._left += 1
            if len(self._skipped) < self.keep:
                self._skipped.append(Skipped(path, reason))

    def tried(self, removal: Removal) -> None:
        """Count the results of one batch."""
        self.gone(removal.gone)
        self.failed += len(removal.failed)
        self.stay((path, error.message) for path, error in removal.failed.items())

    def report(self, size: int | None, *, dry_run: bool) -> CleanupReport:
        """Return the report."""
        return CleanupReport(
            tuple(self._paths), self.files, size, self.failed, self._left, tuple(self._skipped), dry_run
        )


@dataclass(frozen=True, slots=True)
class Removal:
    """The removed files, and the reasons why others could not be removed."""

    gone: Sequence[str]
    failed: dict[str, QuacklakeError]

    @property
    def hopeless(self) -> bool:
        """True when nothing could be removed because the store may be down, so that more tries would waste time."""
        return not self.gone and any(error.transient for error in self.failed.values())


def remove(store: Store, paths: Sequence[str], threads: int) -> Removal:
    """Remove files, at most ``threads`` at a time. A missing file counts as removed; a failure stops no other."""

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
