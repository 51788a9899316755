"""Walking the files under a folder, one folder at a time, and finding those that a path or pattern names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow import fs

from quacklake.core.storage.roots import URL, Confinement, Links, Root, absolute
from quacklake.errors import PathError

if TYPE_CHECKING:
    from quacklake.core.storage.store import Attempts

# It does not contain the final name, so that the longest legal name still gets a temporary one.
TEMPORARY_PREFIX = ".quacklake-tmp-"


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


def walk(root: Root, attempts: Attempts, confinement: Confinement, folder: str) -> Iterator[FileEntry]:
    """Yield the files under ``folder`` (``""`` or ending in ``/``), depth first, before those of its subfolders."""
    pending = [folder]
    while pending:
        current = pending.pop()
        entries, folders = attempts.run("list", root.url + current, partial(_entries, root, confinement, current))
        yield from entries
        pending.extend(reversed(folders))


def stream(root: Root, attempts: Attempts, confinement: Confinement) -> Iterator[FileEntry]:
    """Yield all files under the root, in no order; on a local disk not even one folder is held as a whole."""
    if root.scheme != "file":
        yield from walk(root, attempts, confinement, "")
        return
    pending = [""]
    while pending:
        folder = pending.pop()
        with attempts.once("list", root.url + folder), _open_folder(root, confinement, folder) as items:
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    pending.append(f"{folder}{item.name}/")
                elif (entry := _local_entry(folder, item)) is not None:
                    yield entry


def _open_folder(
    root: Root, confinement: Confinement, folder: str
) -> AbstractContextManager[Iterable[os.DirEntry[str]]]:
    try:
        return os.scandir(confinement.readable(folder[:-1], Links()) if folder else root.prefix)
    except (FileNotFoundError, NotADirectoryError):
        return nullcontext(())


def _local_entry(folder: str, item: os.DirEntry[str]) -> FileEntry | None:
    """Return a file, or None for anything else and for one that was removed since the folder was read."""
    if not item.is_file(follow_symlinks=False):
        return None
    try:
        status = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return FileEntry(folder + item.name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def _entries(root: Root, confinement: Confinement, folder: str) -> tuple[list[FileEntry], list[str]]:
    """Return the files and the folders in a folder, both in order."""
    files: list[FileEntry] = []
    folders: list[str] = []
    if root.scheme == "file":
        with _open_folder(root, confinement, folder) as items:
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    folders.append(f"{folder}{item.name}/")
                elif (entry := _local_entry(folder, item)) is not None:
                    files.append(entry)
    else:
        selector = fs.FileSelector((root.prefix + folder).rstrip("/"), allow_not_found=True)
        for info in root.filesystem.get_file_info(selector):
            if info.type == fs.FileType.Directory:
                folders.append(f"{folder}{info.base_name}/")
            elif info.type == fs.FileType.File:
                files.append(FileEntry(folder + info.base_name, int(info.size), info.mtime))
    files.sort(key=lambda entry: entry.path)
    return files, sorted(folders)


_MAGIC = re.compile(r"[*?[]")


def find(root: Root, pattern: str) -> list[str]:
    """See ``Store.find``."""
    match = URL.match(pattern)
    scheme = match[1].lower() if match else root.scheme
    if scheme != root.scheme:
        raise PathError(
            f"{pattern!r} is in another kind of store than the data root {root.url}",
            hint="a lake reads files of its own kind of store only",
        )
    if root.scheme == "file":
        full = absolute(pattern[len("file://") :] if match else pattern)
        if Path(full).is_file():
            return [full]
        return sorted(str(path) for path in Path("/").glob(full.lstrip("/")) if path.is_file()) if full != "/" else []
    pattern = pattern if match else root.url + pattern
    start, _, rest = pattern.partition("://")
    magic = _MAGIC.search(rest)
    if magic is None:
        info = root.filesystem.get_file_info(rest)
        return [pattern] if info.type == fs.FileType.File else []
    folder = rest[: magic.start()].rpartition("/")[0]
    selector = fs.FileSelector(folder, allow_not_found=True, recursive=True)
    fits = re.compile(_expression(rest)).fullmatch
    entries = root.filesystem.get_file_info(selector)
    return sorted(f"{start}://{info.path}" for info in entries if info.type == fs.FileType.File and fits(info.path))


def _expression(pattern: str) -> str:
    """Return a pattern as a regular expression; ``**`` spans folders, nothing else does."""
    parts: list[str] = []
    for token in re.findall(r"\*\*/|\*\*|\*|\?|\[!?[^]]+\]|.", pattern, re.DOTALL):
        match token:
            case "**/":
                parts.append("(?:.*/)?")
            case "**":
                parts.append(".*")
            case "*":
                parts.append("[^/]*")
            case "?":
                parts.append("[^/]")
            case _ if len(token) > 1:
                body = token[1:-1]
                negated = body.startswith("!")
                parts.append(f"[{'^' if negated else ''}{re.escape(body.lstrip('!')).replace(chr(92) + '-', '-')}]")
            case _:
                parts.append(re.escape(token))
    return "".join(parts)
