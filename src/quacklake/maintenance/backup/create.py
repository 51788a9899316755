"""Create a backup: copy the catalog in one short read transaction, then the files that the place lacks."""

from __future__ import annotations

import datetime as dt
import itertools
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from quacklake import faults
from quacklake.catalog import Catalog
from quacklake.catalog.checks.audit_rows import RowAudit
from quacklake.catalog.image import ImageReader
from quacklake.catalog.tables import WRITABLE_VERSIONS
from quacklake.errors import CorruptFileError, InputError, PathError, StorageUnavailableError, UnsupportedFeatureError
from quacklake.maintenance.backup.image import ImageFile, image_files, write_image
from quacklake.maintenance.backup.manifest import BackupInfo, folder_of, new_id, remove_unfinished, write_manifest
from quacklake.maintenance.backup.pruning import check_not_pruned
from quacklake.maintenance.reports import Skipped
from quacklake.progress import Progress, silent
from quacklake.storage import Store
from quacklake.storage.store_pairs import copy_file, overlap

_ATTEMPTS = 5
_THREADS = 8
_PAGE = 2_000


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Report of a backup. ``copied`` files were new to the place; ``skipped`` files are not in it, with reasons."""

    id: str
    snapshot: int
    files: int
    copied: int
    bytes_copied: int
    skipped: tuple[Skipped, ...] = ()


class _Vanished(Exception):
    """Raised when a file is gone that the catalog no longer names: the image is out of date."""


@dataclass
class _Work:
    """One attempt."""

    source: Store
    target: Store
    have: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    copied: int = 0
    bytes_copied: int = 0
    missing: list[int] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def back_up(catalog: Catalog, store: Store, target: Store, progress: Progress = silent) -> BackupReport:
    """Back up a lake to another store. An interrupted backup leaves nothing visible, and the next one continues it.

    Raises ``InputError`` for a target in the lake's data path, ``UnsupportedFeatureError`` for an older format version.
    """
    if overlap(store, target):
        raise InputError(
            f"the backup would be in {target.root}, where the lake itself is", hint="name another folder or bucket"
        )
    if catalog.version not in WRITABLE_VERSIONS:
        raise UnsupportedFeatureError(
            f"a lake of the format version {catalog.version} cannot be backed up", hint="migrate it first"
        )
    work = _Work(store, target)
    for attempt in range(_ATTEMPTS):
        try:
            return _attempt(catalog, work, progress)
        except _Vanished:
            if attempt == _ATTEMPTS - 1:
                break
    raise StorageUnavailableError(
        "files of the lake were cleaned up during every attempt at a backup", hint="try again when no clean-up runs"
    )


def _attempt(catalog: Catalog, work: _Work, progress: Progress) -> BackupReport:
    progress("writing the catalog", 0, None)
    with tempfile.TemporaryDirectory(prefix="quacklake-backup-") as folder:
        # A read blocks commits on SQLite and the target may be slow, so copy to the target after the read.
        spool = Store.open(folder)
        with catalog.read() as reader:
            snapshot = reader.snapshots.latest()
            id_ = new_id(snapshot.id)
            images = write_image(ImageReader.of(reader), catalog.encoding, spool, folder_of(id_))
        for path in (f"{folder_of(id_)}{name}.arrow" for name in images):
            copy_file(spool, path, work.target, path)
    work.files = work.bytes = 0
    work.missing.clear()
    work.skipped.clear()
    try:
        # Check only now: a prune sees the image and keeps the files that are found here.
        check_not_pruned(work.target)
        work.have = {entry.path: entry.size for entry in work.target.list("data/")}
        _copy_all(catalog, work, folder_of(id_), progress)
    except BaseException:
        work.target.delete([f"{folder_of(id_)}{name}.arrow" for name in images])
        raise
    info = BackupInfo(
        id=id_,
        time=dt.datetime.now(dt.UTC).isoformat(timespec="microseconds"),
        snapshot=snapshot.id,
        version=catalog.version,
        database=catalog.database,
        data_path=work.source.root,
        encrypted=catalog.encrypted,
        files=work.files,
        bytes=work.bytes,
        images=tuple(images),
        missing=tuple(work.missing),
    )
    faults.reach("backup.manifest.before")
    write_manifest(work.target, info)
    faults.reach("backup.manifest.after")
    remove_unfinished(work.target)
    return BackupReport(id_, snapshot.id, work.files, work.copied, work.bytes_copied, tuple(work.skipped))


def _copy_all(catalog: Catalog, work: _Work, folder: str, progress: Progress) -> None:
    files = image_files(work.target, folder, work.source.root)
    with ThreadPoolExecutor(_THREADS, "quacklake-backup") as pool:
        while page := list(itertools.islice(files, _PAGE)):
            done = list(pool.map(partial(_copy, work), page))
            _note_missing(catalog, work, [file.id for file, size in zip(page, done, strict=True) if size == _MISSING])
            own = [file for file in page if file.path is not None]
            work.files += len(own)
            work.bytes += sum(file.size or 0 for file in own)
            work.copied += sum(size > 0 for size in done)
            work.bytes_copied += sum(size for size in done if size > 0)
            progress("copying files", work.files, None)


def _note_missing(catalog: Catalog, work: _Work, lost: Sequence[int]) -> None:
    """Record files that are missing although the catalog names them; raise if the image is out of date."""
    if not lost:
        return
    with catalog.read() as reader:
        there = RowAudit.of(reader).still_there(lost)
    if not there.issuperset(lost):
        raise _Vanished
    work.missing.extend(lost)
    work.skipped.extend(Skipped(f"file {id_}", "it was missing already") for id_ in lost)


_MISSING = -1


def _copy(work: _Work, file: ImageFile) -> int:
    """Copy a file unless it exists; return the number of copied bytes, or ``_MISSING``."""
    if file.path is None:
        work.skipped.append(Skipped(f"file {file.id}", "it is outside of the data path: the backup only refers to it"))
        return 0
    target = f"data/{file.path}"
    if work.have.get(target) == file.size:
        return 0
    try:
        size = copy_file(work.source, work.source.resolve(file.path, True), work.target, target)
    except PathError as error:
        work.skipped.append(Skipped(f"file {file.id}", error.message))
        return 0
    except CorruptFileError:
        if work.source.exists(file.path):
            raise
        return _MISSING
    work.have[target] = size
    return size
