"""Which files of a table go together in a compaction: pure functions over what the catalog knows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Group", "Layout", "SourceFile", "batches", "merge_groups", "optimize_groups", "rewrite_groups"]

#: The partitioning that a file was written under, and the texts of its keys.
Layout = tuple[int | None, tuple[tuple[int, str | None], ...]]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A live data file. ``deleted`` counts its deleted rows; ``begin`` is the snapshot it came with.

    ``version`` stands for the columns its rows are seen with; None when they cannot be told, so that it stays alone.
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
        """About how many bytes its live rows take."""
        return self.size * (self.records - self.deleted) // self.records if self.records else 0


@dataclass(frozen=True, slots=True)
class Group:
    """Files whose rows go into new files together."""

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
    """Small files without deletes that become one file each: of one partition, with the same columns, in their order.

    ``target`` is the size at which a file is full. Files of ``min_size`` to below ``max_size`` (``target`` when it is
    not given) take part.
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
    """The files of which at least a share of ``threshold`` is deleted, by partition; cut by what is left of them.

    Of files below the size ``small`` any deleted row is enough.
    """
    chosen = [
        file for file in files if file.deleted and (file.deleted >= threshold * file.records or file.size < small)
    ]
    classes = _classes(chosen, lambda file: file.layout)
    return [group for members in classes for group in _cut(members, target, max_files, lambda file: file.live_size)]


def optimize_groups(files: Iterable[SourceFile], partition_id: int | None) -> list[Group]:
    """All files of each partition; all together when some do not belong to the partitioning ``partition_id``."""
    found = list(files)
    strangers = any(file.layout[0] != partition_id for file in found)
    return [Group(tuple(members)) for members in _classes(found, lambda file: None if strangers else file.layout)]


def batches(groups: Iterable[Group], *, max_files: int, max_bytes: int) -> list[list[Group]]:
    """Groups in commits: each has at least one, and otherwise at most this many files and bytes."""
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
    """The files by a key, each class in the order in which its files came."""
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
