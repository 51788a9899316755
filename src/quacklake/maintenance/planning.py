"""Choose the files that a compaction puts together: pure functions over catalog data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: The partitioning of a file and the texts of its partition values.
Layout = tuple[int | None, tuple[tuple[int, str | None], ...]]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A live data file. ``deleted`` counts its deleted rows; ``begin`` is the snapshot that added it.

    ``version`` identifies the columns that its rows are read with; None when they are unknown, so the file stays alone.
    """

    id: int
    size: int
    records: int
    begin: int
    layout: Layout = (None, ())
    deleted: int = 0
    version: int | None = 0

    @property
    def live_size(self) -> int:
        """The approximate size of the live rows in bytes."""
        return self.size * (self.records - self.deleted) // self.records if self.records else 0


@dataclass(frozen=True, slots=True)
class Group:
    """Files whose rows are written together."""

    files: tuple[SourceFile, ...]

    @property
    def ids(self) -> list[int]:
        return [file.id for file in self.files]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def merge_groups(
    files: Iterable[SourceFile],
    target: int,
    *,
    max_files: int,
    min_size: int | None = None,
    max_size: int | None = None,
    max_groups: int | None = None,
) -> list[Group]:
    """Return groups of small files to merge into one each: one partition, equal columns, no deletes, in file order.

    ``target`` is the size of a full file. Files of ``min_size`` to below ``max_size`` (default ``target``) take part.
    """
    limit = target if max_size is None else min(max_size, target)
    chosen = [
        file for file in files if not file.deleted and file.version is not None and (min_size or 0) <= file.size < limit
    ]
    found = []
    for members in _classes(chosen, lambda file: (file.version, file.layout)):
        found += [group for group in _cut(members, target, max_files, lambda file: file.size) if len(group.files) > 1]
    return found if max_groups is None else found[:max_groups]


def rewrite_groups(
    files: Iterable[SourceFile], threshold: float, target: int, *, max_files: int, small: int = 0
) -> list[Group]:
    """Group files by partition if at least ``threshold`` of their rows are deleted; limit groups by live size.

    Of files smaller than ``small``, any deleted row is enough.
    """
    chosen = [
        file for file in files if file.deleted and (file.deleted >= threshold * file.records or file.size < small)
    ]
    classes = _classes(chosen, lambda file: file.layout)
    return [group for members in classes for group in _cut(members, target, max_files, lambda file: file.live_size)]


def optimize_groups(files: Iterable[SourceFile], partition_id: int | None) -> list[Group]:
    """Return one group for each partition, or a single group if some files do not use ``partition_id``."""
    found = list(files)
    strangers = any(file.layout[0] != partition_id for file in found)
    return [Group(tuple(members)) for members in _classes(found, lambda file: None if strangers else file.layout)]


def batches(groups: Iterable[Group], *, max_files: int, max_bytes: int) -> list[list[Group]]:
    """Split groups into commits of at least one group and otherwise at most this many files and bytes."""
    found: list[list[Group]] = []
    files = size = 0
    for group in groups:
        files, size = files + len(group.files), size + group.size
        if not found or files > max_files or size > max_bytes:
            found.append([])
            files, size = len(group.files), group.size
        found[-1].append(group)
    return found


def _classes(files: Iterable[SourceFile], key: Callable[[SourceFile], Any]) -> list[list[SourceFile]]:
    """Return the files by key, each list in the order in which its files were added."""
    classes: dict[Any, list[SourceFile]] = {}
    for file in sorted(files, key=lambda file: (file.begin, file.id)):
        classes.setdefault(key(file), []).append(file)
    return list(classes.values())


def _cut(files: Sequence[SourceFile], target: int, max_files: int, size: Callable[[SourceFile], int]) -> list[Group]:
    groups: list[list[SourceFile]] = []
    total = 0
    for file in files:
        if not groups or total >= target or len(groups[-1]) == max_files:
            groups.append([])
            total = 0
        groups[-1].append(file)
        total += size(file)
    return [Group(tuple(group)) for group in groups]
