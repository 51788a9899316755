"""The checkpoints of a writer that a Hudi table has: in the metadata of its commits, and in a file beside them.

The timeline of a table forgets its oldest commits, so that the last checkpoint of each writer is also in a file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from urllib.parse import quote

from quacklake.connectors.hudi.timeline import Timeline
from quacklake.connectors.table_source import NOTHING
from quacklake.extend.stores import Store

FOLDER = ".quacklake/"
"""Our own folder below a table. Hudi passes it over."""
_PREFIX = "quacklake."


@dataclass(frozen=True)
class Mark:
    """A checkpoint, and the version of the table that has it."""

    checkpoint: int = NOTHING
    version: int = NOTHING


@dataclass(frozen=True)
class WriterMarks:
    """The checkpoints of one writer."""

    store: Store
    writer_id: str

    def settings(self, checkpoint: int) -> dict[str, str]:
        """Return the settings that put a checkpoint into the metadata of a commit."""
        return {
            "hoodie.datasource.write.commitmeta.key.prefix": _PREFIX,
            f"{_PREFIX}writer": self.writer_id,
            f"{_PREFIX}checkpoint": str(checkpoint),
        }

    def versions(self, timeline: Timeline | None) -> dict[int, int]:
        """Return the checkpoints that the timeline has, and the versions of their commits."""
        commits = () if timeline is None else timeline.commits
        return {
            int(commit.extra[f"{_PREFIX}checkpoint"]): commit.version
            for commit in commits
            if commit.extra.get(f"{_PREFIX}writer") == self.writer_id
        }

    def last(self, timeline: Timeline | None) -> Mark:
        """Return the last checkpoint, that of the file or that of a commit."""
        marks = [Mark(*each) for each in self.versions(timeline).items()]
        return max([self._read_mark(), *marks], key=lambda mark: mark.checkpoint)

    def keep(self, mark: Mark) -> None:
        """Write a checkpoint into the file, unless that has a later one."""
        if self._read_mark().checkpoint < mark.checkpoint:
            self.store.write(self._path, json.dumps(asdict(mark)).encode())

    @property
    def _path(self) -> str:
        return f"{FOLDER}writers/{quote(self.writer_id, safe='')}.json"

    def _read_mark(self) -> Mark:
        if not self.store.exists(self._path):
            return Mark()
        return Mark(**json.loads(self.store.read(self._path)))
