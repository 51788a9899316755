"""The commits of a Hudi table, in the order in which they became visible.

The instant of a commit is the time at which it began, and its name. Since version 8 of the table format the file of a
commit also has the time of its completion: of two commits, the one that began first may be completed last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from hudi import HudiInstant, HudiTable, HudiTimeline

from quacklake.connectors.table_source import NOTHING
from quacklake.errors import ConnectorError, ConnectorUnavailableError, SnapshotExpiredError
from quacklake.extend.stores import Store

_FILE = re.compile(r"(\d{14,})(?:_(\d{14,}))?\.(commit|deltacommit|replacecommit)")
_PENDING = re.compile(r"(\d{14,})\.(?:commit\.|deltacommit\.)?(?:requested|inflight)")
_NO_ROWS = ("CLUSTER", "COMPACT", "LOG_COMPACT")
_ROOT = ".hoodie/"
PROPERTIES = f"{_ROOT}hoodie.properties"
"""The file that a folder has if it is a Hudi table."""


@dataclass(frozen=True)
class FileChange:
    """The file that a commit wrote into a group of files: a new one, which replaces ``previous``, or a log."""

    group: str
    path: str
    previous: str | None
    changed: int

    @property
    def is_log(self) -> bool:
        """True when the rows went into a log beside the file."""
        return ".log." in self.path


class Commit:
    """A completed commit."""

    def __init__(self, instant: str, completed: str, place: HudiInstant, timeline: HudiTimeline) -> None:
        self.instant, self.completed = instant, completed
        self._place, self._timeline = place, timeline

    @property
    def version(self) -> int:
        """The instant as a number."""
        return int(self.instant)

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """The commit's metadata as Hudi wrote it."""
        with failing("the timeline of the Hudi table cannot be read"):
            found: Mapping[str, Any] = json.loads(self._timeline.get_instant_metadata_in_json(self._place))
            return found

    @property
    def extra(self) -> Mapping[str, str]:
        """The metadata that the writer has added."""
        return self.metadata.get("extraMetadata") or {}

    @property
    def files(self) -> list[FileChange]:
        """The files that the commit wrote, sorted."""
        found = []
        for stats in (self.metadata.get("partitionToWriteStats") or {}).values():
            for each in stats:
                previous = each.get("prevCommit") or "null"
                changed = (each.get("numUpdateWrites") or 0) + (each.get("numDeletes") or 0)
                name = None if previous == "null" else previous
                found.append(FileChange(each["fileId"], each["path"], name, changed))
        return sorted(found, key=lambda file: file.path)

    @property
    def replaced(self) -> set[str]:
        """The groups of files that the commit took out of the table."""
        return {group for groups in (self.metadata.get("partitionToReplaceFileIds") or {}).values() for group in groups}

    @property
    def moves_only(self) -> bool:
        """True for a compaction or a clustering, which leaves all rows as they are."""
        return bool(self.metadata.get("compacted")) or self.metadata.get("operationType") in _NO_ROWS

    @property
    def changes_rows(self) -> bool:
        """True when the commit changed or removed rows that were there before."""
        return bool(self.replaced) or any(file.changed for file in self.files)


@dataclass(frozen=True)
class Timeline:
    """A table as it is now, with the commits that its timeline still has, the first completed first."""

    table: HudiTable
    store: Store
    commits: tuple[Commit, ...]
    options: Mapping[str, str]

    @classmethod
    def load(cls, location: str, store: Store, storage: Mapping[str, str], *, settled: bool = False) -> Self:
        """Open a table. Raise ``ConnectorError`` where there is none.

        A timeline of the old layout does not say when commits were completed. Of such a table, ``settled`` leaves out
        the commits behind one that is still under way: nothing can then appear before those that are left.
        """
        if ":" not in location:
            location = str(Path(location).absolute())  # the library takes a relative path for a URL without a scheme
        with failing("the Hudi table cannot be opened"):
            options = HudiTable(location, dict(storage)).hudi_options()
        folder = _folder(options)
        # A listing that races with writers may show a commit and not the one before it. The second one shows both.
        limit = max((done for _, done in _find_completed(store, folder, settled)), default="")
        with failing("the Hudi table cannot be opened"):
            table = HudiTable(location, dict(storage))
            timeline = table.get_timeline()
            lists = (
                timeline.get_completed_commits(),
                timeline.get_completed_deltacommits(),
                timeline.get_completed_replacecommits(),
            )
        known = {each.timestamp: each for instants in lists for each in instants}
        found = [
            Commit(instant, done, known[instant], timeline)
            for instant, done in _find_completed(store, folder, settled)
            if done <= limit and instant in known
        ]
        return cls(table, store, tuple(sorted(found, key=lambda commit: commit.completed)), options)

    @property
    def newest(self) -> int:
        """The version of the commit that was completed last."""
        return self.commits[-1].version if self.commits else NOTHING

    @property
    def archived(self) -> bool:
        """True when the timeline has lost its oldest commits to the archive."""
        old, new = ("hoodie.archivelog.folder", "archived"), ("hoodie.timeline.history.path", "history")
        folder = _folder(self.options)
        name, default = old if folder == _ROOT else new
        return next(self.store.list(f"{folder}{self.options.get(name, default)}/", limit=1), None) is not None

    def after(self, version: int) -> tuple[Commit, ...]:
        """Return the commits behind a version; all of them behind a number that is not positive.

        Raise ``SnapshotExpiredError`` when the timeline does not have all of them.
        """
        if version <= 0:
            if self.archived:
                raise SnapshotExpiredError(
                    "the first commits of the Hudi table were archived",
                    hint="read the whole table: mode='continuous'",
                )
            return self.commits
        for number, commit in enumerate(self.commits, 1):
            if commit.version == version:
                return self.commits[number:]
        raise SnapshotExpiredError(
            f"the timeline of the Hudi table has no commit {version}: it was archived, rolled back, or never there",
            hint="begin without a checkpoint, or name a commit that is there",
        )

    def at(self, moment: datetime) -> int | None:
        """Return the version of the commit that was completed last at a time."""
        zone = UTC if self.table.timezone.lower() == "utc" else None
        found = None
        for commit in self.commits:
            time = datetime.strptime(commit.completed.ljust(20, "0"), "%Y%m%d%H%M%S%f")
            if (time.replace(tzinfo=zone) if zone else time.astimezone()) <= moment:
                found = commit.version
        return found


def _folder(options: Mapping[str, str]) -> str:
    """Return the folder of the timeline."""
    if options.get("hoodie.timeline.layout.version", "1") == "1":
        return _ROOT
    return f"{_ROOT}{options.get('hoodie.timeline.path', 'timeline')}/"


def _find_completed(store: Store, folder: str, settled: bool) -> list[tuple[str, str]]:
    """Return the instants of completed commits, and when each was completed; when it began, if that is not known."""
    paths = [entry.path.removeprefix(folder) for entry in store.list(folder)]
    names = [path for path in paths if "/" not in path]
    found = [(match[1], match[2]) for name in names if (match := _FILE.fullmatch(name))]
    if settled and folder == _ROOT:
        begun = {match[1] for name in names if (match := _PENDING.fullmatch(name))}
        first = min(begun - {instant for instant, _ in found}, default=None)
        found = [each for each in found if first is None or each[0] < first]
    return [(instant, completed or instant) for instant, completed in found]


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Turn the errors of the library into ours."""
    try:
        yield
    except OSError as error:
        raise ConnectorUnavailableError(f"{what}: {error}") from error
    except BaseException as error:
        # The library does not export the classes of its errors. What it has not implemented is a panic, which is no
        # ``Exception``.
        if type(error).__name__ not in ("HudiCoreError", "PanicException"):
            raise
        raise ConnectorError(f"{what}: {error}") from error
