"""Read a backup whole, and compare it with the hashes that were written with it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from quacklake.core.maintenance.backup import checksums
from quacklake.core.maintenance.backup.create import check_images
from quacklake.core.maintenance.backup.image import BackupInfo, ImageFile, folder_of, image_files
from quacklake.core.progress import Progress, silent
from quacklake.core.storage import Store
from quacklake.errors import CorruptFileError

_THREADS = 8
_PAGE = 256


@dataclass(frozen=True, slots=True)
class BackupCheck:
    """The contents of a backup that a restore would bring; ``ok`` when all of it is there and as it was.

    ``missing`` files were gone before the backup was made, so that it cannot have them.
    """

    id: str
    snapshot: int
    ok: bool
    files: int
    bytes: int
    damaged: int
    missing: int


def check_backup(source: Store, info: BackupInfo, progress: Progress = silent) -> BackupCheck:
    """Compare every file of a backup with its hash, and those of an older backup without hashes with their sizes."""
    progress("reading the catalog", 0, None)
    try:
        sums = check_images(source, info)
    except CorruptFileError:
        return BackupCheck(info.id, info.snapshot, False, 0, 0, 1, len(info.missing))
    missing = set(info.missing)
    files = (file for file in image_files(source, folder_of(info.id), info.data_path) if file.id not in missing)
    count = size = damaged = 0
    with ThreadPoolExecutor(_THREADS, "quacklake-check") as pool:
        while page := list(itertools.islice(files, _PAGE)):
            damaged += sum(not whole for whole in pool.map(partial(_is_whole, source, sums), page))
            count, size = count + len(page), size + sum(file.size or 0 for file in page)
            progress("reading files", count, info.files)
    return BackupCheck(info.id, info.snapshot, damaged == 0, count, size, damaged, len(missing))


def _is_whole(source: Store, sums: Mapping[str, str], file: ImageFile) -> bool:
    if file.path is None:  # outside of the data path: no backup has it
        return True
    path = f"data/{file.path}"
    if not source.exists(path):
        return False
    known = sums.get(path)
    return source.size(path) == file.size if known is None else checksums.sha256_of(source, path) == known
