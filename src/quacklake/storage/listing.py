"""Walking the files under a folder, one folder at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from pyarrow import fs

from quacklake.storage.atomic import TEMPORARY_PREFIX
from quacklake.storage.attempts import Attempts
from quacklake.storage.confinement import Confinement
from quacklake.storage.roots import Root

__all__ = ["FileEntry", "walk"]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as a listing shows it: its path under the root, its bytes, and when it was last changed (UTC)."""

    path: str
    size: int
    mtime: datetime | None

    @property
    def is_temporary(self) -> bool:
        """True for the unfinished file of a write that is under way or was cut short by a crash."""
        return self.path.rpartition("/")[2].startswith(TEMPORARY_PREFIX)


def walk(
    root: Root, attempts: Attempts, confinement: Confinement, folder: str, limit: int | None
) -> Iterator[FileEntry]:
    """The files under ``folder`` (``""`` or ending in ``/``), depth first, files of a folder before its subfolders."""
    left = limit
    pending = [folder]
    while pending and left != 0:
        current = pending.pop()
        entries, folders = attempts.run("list", root.url + current, partial(_entries, root, confinement, current))
        for entry in entries:
            if left == 0:
                return
            yield entry
            if left is not None:
                left -= 1
        pending.extend(reversed(folders))


def _entries(root: Root, confinement: Confinement, folder: str) -> tuple[list[FileEntry], list[str]]:
    if root.scheme == "file":
        files, folders = _local_entries(root, confinement, folder)
    else:
        files, folders = _remote_entries(root, folder)
    files.sort(key=lambda entry: entry.path)
    return files, sorted(folders)


def _local_entries(root: Root, confinement: Confinement, folder: str) -> tuple[list[FileEntry], list[str]]:
    files: list[FileEntry] = []
    folders: list[str] = []
    try:
        full = confinement.readable(folder[:-1]) if folder else root.prefix
        with os.scandir(full) as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    folders.append(f"{folder}{item.name}/")
                elif item.is_file(follow_symlinks=False):
                    try:
                        status = item.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # removed since the folder was read
                    mtime = datetime.fromtimestamp(status.st_mtime, UTC)
                    files.append(FileEntry(folder + item.name, status.st_size, mtime))
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    return files, folders


def _remote_entries(root: Root, folder: str) -> tuple[list[FileEntry], list[str]]:
    selector = fs.FileSelector((root.prefix + folder).rstrip("/"), allow_not_found=True)
    files: list[FileEntry] = []
    folders: list[str] = []
    for info in root.filesystem.get_file_info(selector):
        if info.type == fs.FileType.Directory:
            folders.append(f"{folder}{info.base_name}/")
        elif info.type == fs.FileType.File:
            files.append(FileEntry(folder + info.base_name, int(info.size), info.mtime))
    return files, folders
