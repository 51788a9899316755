"""The files of a table through time, as pure data: which snapshots changed it, and what was there at each.

Data files are put into chunks by their ids, such that a chunk stays as it is while others change: a manifest describes
a chunk, so a commit makes one or two new manifests, however many files there are.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

__all__ = ["Chunk", "DataFile", "DeleteFile", "Deleted", "chunks", "last_point", "states"]

_CHUNK = 1024
"""The files of a chunk, on average."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file and its life; ``path`` is below the data root or absolute, ``partial_max`` its newest snapshot."""

    id: int
    path: str
    records: int
    size: int
    begin: int
    end: int | None = None
    row_id_start: int | None = None
    partial_max: int | None = None
    mapping_id: int | None = None

    def lives(self, snapshot: int) -> bool:
        """Return whether a snapshot sees the file."""
        return self.begin <= snapshot and (self.end is None or self.end > snapshot)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file of a data file and its life."""

    id: int
    path: str
    format: str
    begin: int
    end: int | None = None
    partial_max: int | None = None

    def lives(self, snapshot: int) -> bool:
        """Return whether a snapshot sees the file."""
        return self.begin <= snapshot and (self.end is None or self.end > snapshot)


@dataclass(frozen=True, slots=True)
class Deleted:
    """The deletes of a data file at a snapshot, without looking into any file.

    ``file`` is its delete file, of which dates up to ``until`` count, all if that is None. ``positions`` are in the
    catalog. Rows that came after ``rows_until`` are not there yet.
    """

    file: DeleteFile | None
    until: int | None
    positions: tuple[int, ...]
    rows_until: int | None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for the same deletes."""
        file = None if self.file is None else (self.file.id, self.file.path)
        return file, self.until, self.positions, self.rows_until


@dataclass(frozen=True)
class Chunk:
    """Some data files, with everything that was ever deleted of them."""

    files: tuple[DataFile, ...]
    deletes: Mapping[int, Sequence[DeleteFile]] = field(default_factory=dict)
    inlined: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Of a data file: deleted positions in the catalog, and since when."""
    served: Sequence[int] = ()
    """The snapshots that anybody asks about, in order."""

    @cached_property
    def points(self) -> tuple[int, ...]:
        """Return the snapshots at which files came or went."""
        ends = {file.end for file in self.files if file.end is not None}
        return tuple(sorted({file.begin for file in self.files} | ends))

    @cached_property
    def delete_points(self) -> tuple[int, ...]:
        """Return the snapshots at which what is deleted of any file may have changed."""
        found: set[int] = set()
        for file in self.files:
            deletes, inlined = self.deletes.get(file.id, ()), self.inlined.get(file.id, ())
            if file.partial_max is not None:
                found.update((file.begin, *self._find_served(file.begin, file.partial_max)))
            for each in deletes:
                found.update((each.begin, *self._find_served(each.begin, each.partial_max or 0)))
                found.update(() if each.end is None else (each.end,))
            found.update(begin for _, begin in inlined)
            if (deletes or inlined or file.partial_max is not None) and file.end is not None:
                found.add(file.end)
        return tuple(sorted(found))

    def _find_served(self, first: int, last: int) -> Sequence[int]:
        """Return the served snapshots between two, which may be any numbers."""
        return self.served[bisect_left(self.served, first) : bisect_right(self.served, last)]

    def live(self, snapshot: int) -> list[DataFile]:
        """Return the files that a snapshot sees."""
        return [file for file in self.files if file.lives(snapshot)]

    def deleted(self, snapshot: int) -> dict[int, Deleted]:
        """Return what is deleted at a snapshot, of the files that have deletes."""
        if not self.deletes and not self.inlined and all(file.partial_max is None for file in self.files):
            return {}
        found = {}
        for file in self.live(snapshot):
            current = next((each for each in self.deletes.get(file.id, ()) if each.lives(snapshot)), None)
            dated = current is not None and current.partial_max is not None and current.partial_max > snapshot
            positions = sorted(position for position, begin in self.inlined.get(file.id, ()) if begin <= snapshot)
            later = file.partial_max is not None and file.partial_max > snapshot
            if current is not None or positions or later:
                found[file.id] = Deleted(
                    current, snapshot if dated else None, tuple(positions), snapshot if later else None
                )
        return found


def chunks(
    files: Sequence[DataFile],
    deletes: Mapping[int, Sequence[DeleteFile]],
    inlined: Mapping[int, Sequence[tuple[int, int]]],
    served: Sequence[int] = (),
    size: int = _CHUNK,
) -> Iterator[Chunk]:
    """Yield the chunks of files in the order of their ids; each ends with a file whose id says so.

    A file that comes or goes therefore changes its own chunk, or parts or joins two.
    """
    part: list[DataFile] = []
    for file in sorted(files, key=lambda file: file.id):
        part.append(file)
        if zlib.crc32(str(file.id).encode()) % size == 0 or len(part) >= 8 * size:
            yield _chunk(part, deletes, inlined, served)
            part = []
    if part:
        yield _chunk(part, deletes, inlined, served)


def _chunk(
    files: Sequence[DataFile],
    deletes: Mapping[int, Sequence[DeleteFile]],
    inlined: Mapping[int, Sequence[tuple[int, int]]],
    served: Sequence[int],
) -> Chunk:
    ids = [file.id for file in files]
    return Chunk(
        tuple(files),
        {id_: deletes[id_] for id_ in ids if id_ in deletes},
        {id_: inlined[id_] for id_ in ids if id_ in inlined},
        served,
    )


def last_point(points: Sequence[int], snapshot: int) -> int | None:
    """Return the last of some sorted snapshots up to one, None if there is none."""
    at = bisect_right(points, snapshot)
    return points[at - 1] if at else None


def states(snapshots: Iterable[int], points: Iterable[int], limit: int) -> list[tuple[int, list[int]]]:
    """Return the states of a table, oldest first: the last change, and the snapshots that see it.

    Only the newest ``limit`` states are kept.

    >>> states([3, 4, 5, 8], [1, 5, 6], 2)
    [(5, [5]), (6, [8])]
    """
    known = sorted(set(points))
    found: dict[int, list[int]] = {}
    for snapshot in sorted(snapshots):
        point = last_point(known, snapshot)
        if point is not None:
            found.setdefault(point, []).append(snapshot)
    return list(found.items())[-limit:]
