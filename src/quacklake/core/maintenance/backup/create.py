"""Make backups, restore lakes from them, and remove backups with the files that only they have.

A backup copies the catalog in one short read transaction, then the files that the place lacks. A restore copies the
files first, then the whole catalog in one transaction. A prune first reads the backups to keep. Then it ends the others
one by one, and only then removes the files that no backup names. So an interrupted prune damages no remaining backup,
and the next one continues it.

A running backup relies on the files it has found, so backups and prunes exclude each other: each leaves a mark before
it looks for the other's. The mark of a backup is its image of the catalog.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core import faults
from quacklake.core.catalog import Catalog
from quacklake.core.catalog.checks.audit_rows import RowAudit
from quacklake.core.catalog.image import IMAGED, ImageReader, ImageWriter, InlinedId
from quacklake.core.catalog.tables import WRITABLE_VERSIONS
from quacklake.core.catalog.writing.writer import Writer
from quacklake.core.format.names import uuid7
from quacklake.core.maintenance.backup import checksums
from quacklake.core.maintenance.backup.image import (
    ABANDONED,
    MANIFEST,
    BackupInfo,
    ImageFile,
    Texts,
    folder_of,
    folders,
    image_files,
    list_backups,
    make_inlined_table,
    new_id,
    put_page,
    read_batches,
    remove_unfinished,
    table_schema,
    write_image,
    write_manifest,
)
from quacklake.core.maintenance.cleanup import BATCH, KnownPaths
from quacklake.core.maintenance.reports import Skipped
from quacklake.core.progress import Progress, Report, silent
from quacklake.core.storage import FileEntry, Store
from quacklake.core.storage.store_pairs import overlap
from quacklake.errors import (
    AlreadyExistsError,
    CorruptFileError,
    InputError,
    PathError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)

_MARKS = "pruning/"
_SIGN = 60.0  # seconds between signs of life
_SILENCE = dt.timedelta(hours=1)  # a prune without a sign of life for this long no longer removes anything
_PRUNED = "pruned"  # the name of a file that marks a backup as being removed


@dataclass(frozen=True, slots=True)
class PruneReport(Report):
    """Report of a prune: the ids of the removed backups, and the files that only they had."""

    backups: tuple[str, ...]
    kept: tuple[str, ...]
    files: int
    bytes: int
    dry_run: bool = False


def prune(
    store: Store,
    *,
    keep_last: int | None,
    before: dt.datetime | None,
    dry_run: bool = False,
    progress: Progress = silent,
) -> PruneReport:
    """Remove the backups made before a time, except the last ``keep_last``; the newest always stays.

    Raise ``StorageUnavailableError`` while a backup is made, ``CorruptFileError`` when one that stays cannot be read.
    """
    with PruneMark(store, dry_run=dry_run) as mark, KnownPaths() as known:
        _check_no_backup_is_made(store)
        found = list_backups(store)  # only now, when no other backup can appear
        old = found[: -max(keep_last or 1, 1)]
        gone = [info for info in old if before is None or dt.datetime.fromisoformat(info.time) < before]
        ids = {info.id for info in gone}
        kept = [info for info in found if info.id not in ids]
        for number, info in enumerate(kept):
            progress("reading backups", number, len(kept))
            files = image_files(store, folder_of(info.id), info.data_path)
            paths = (f"data/{file.path}" for file in files if file.path is not None)
            while page := list(itertools.islice(paths, BATCH)):
                mark.live()
                known.add(page)
        if not dry_run:
            for info in gone:
                mark.live()
                _end(store, info.id)
        count, size = _remove_files(store, known, mark, dry_run=dry_run, progress=progress)
        if not dry_run:
            _remove_folders(store)
    return PruneReport(tuple(info.id for info in gone), tuple(info.id for info in kept), count, size, dry_run)


def check_not_pruned(store: Store) -> None:
    """Raise ``StorageUnavailableError`` while backups are being removed; called after the image is written."""
    if any(_within(entry, _SILENCE) for entry in store.list(_MARKS)):
        raise StorageUnavailableError(
            f"backups in {store.root} are being removed", hint="try again later: in an hour if that was interrupted"
        )


def _within(entry: FileEntry, span: dt.timedelta) -> bool:
    return entry.mtime is None or entry.mtime >= dt.datetime.now(dt.UTC) - span


class PruneMark:
    """Shows others that backups are being removed; it expires without a sign of life."""

    def __init__(self, store: Store, *, dry_run: bool) -> None:
        self._store = store
        self._path = None if dry_run else f"{_MARKS}{uuid7().hex}"
        self._written = -math.inf

    def __enter__(self) -> PruneMark:
        self.live()
        faults.reach("prune.marked")
        return self

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            old = [entry.path for entry in self._store.list(_MARKS) if not _within(entry, ABANDONED)]
            self._store.delete([self._path, *old])

    def live(self) -> None:
        """Give a sign of life; called before every step."""
        if self._path is not None and time.monotonic() - self._written > _SIGN:
            self._store.write(self._path, b"")
            self._written = time.monotonic()


def _check_no_backup_is_made(store: Store) -> None:
    for name, entries in folders(store).items():
        names = {entry.path.rpartition("/")[2] for entry in entries}
        if not names & {MANIFEST, _PRUNED} and any(_within(entry, ABANDONED) for entry in entries):
            raise StorageUnavailableError(
                f"the backup {name} in {store.root} is being made, or was interrupted within the last day",
                hint="try again when it has ended",
            )


def _end(store: Store, id_: str) -> None:
    """End a backup, and mark its folder to distinguish it from a backup being made."""
    store.write(f"{folder_of(id_)}{_PRUNED}", b"")
    faults.reach("prune.backup.before")
    store.delete([f"{folder_of(id_)}{MANIFEST}"])
    faults.reach("prune.backup.after")


def _remove_files(
    store: Store, known: KnownPaths, mark: PruneMark, *, dry_run: bool, progress: Progress
) -> tuple[int, int]:
    """Remove the files that no backup has; return their number and size."""
    files = size = seen = 0
    entries = store.list("data/")
    while page := list(itertools.islice(entries, BATCH)):
        named = known.among([entry.path for entry in page])
        free = [entry for entry in page if entry.path not in named]
        if not dry_run:
            mark.live()
            faults.reach("prune.files.before")
            store.delete([entry.path for entry in free])
            faults.reach("prune.files.after")
        files += len(free)
        size += sum(entry.size for entry in free)
        seen += len(page)
        progress("files", seen, None)
    return files, size


def _remove_folders(store: Store) -> None:
    """Remove the folders of ended backups, the mark of each at the very end."""
    for entries in folders(store).values():
        paths = {entry.path.rpartition("/")[2]: entry.path for entry in entries}
        if _PRUNED in paths and MANIFEST not in paths:
            store.delete([path for name, path in paths.items() if name != _PRUNED])
            faults.reach("prune.folder.before")
        if _PRUNED in paths:
            store.delete([paths[_PRUNED]])
    remove_unfinished(store)


_ATTEMPTS = 5
_THREADS = 8
_PAGE = 2_000


@dataclass(frozen=True, slots=True)
class BackupReport(Report):
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
class _BackupWork:
    source: Store
    target: Store
    have: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    copied: int = 0
    bytes_copied: int = 0
    missing: list[int] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    sums: dict[str, str] = field(default_factory=dict)

    def sums_of(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the hashes of files, as far as they are known."""
        return {path: self.sums[path] for path in paths if path in self.sums}


def back_up(catalog: Catalog, store: Store, target: Store, progress: Progress = silent) -> BackupReport:
    """Back up a lake to another store. An interrupted backup leaves nothing visible, and the next one continues it.

    Raise ``InputError`` for a target in the lake's data path, ``UnsupportedFeatureError`` for an older format version.
    """
    if overlap(store, target):
        raise InputError(
            f"the backup would be in {target.root}, where the lake itself is", hint="name another folder or bucket"
        )
    if catalog.version not in WRITABLE_VERSIONS:
        raise UnsupportedFeatureError(
            f"a lake of the format version {catalog.version} cannot be backed up", hint="migrate it first"
        )
    work = _BackupWork(store, target, sums=_known_sums(target))
    for _ in range(_ATTEMPTS):
        with suppress(_Vanished):
            return _attempt(catalog, work, progress)
    raise StorageUnavailableError(
        "files of the lake were cleaned up during every attempt at a backup", hint="try again when no clean-up runs"
    )


def _known_sums(target: Store) -> dict[str, str]:
    """Return the hashes of the files that the newest backup has, which are not copied again."""
    found = list_backups(target)
    with suppress(CorruptFileError):  # then they are computed again
        return checksums.read(target, folder_of(found[-1].id), found[-1].checksums) if found else {}
    return {}


def _attempt(catalog: Catalog, work: _BackupWork, progress: Progress) -> BackupReport:
    progress("writing the catalog", 0, None)
    with tempfile.TemporaryDirectory(prefix="quacklake-backup-") as folder:
        # A read blocks commits on SQLite and the target may be slow, so copy to the target after the read.
        spool = Store.open(folder)
        with catalog.read() as reader:
            snapshot = reader.snapshots.latest()
            id_ = new_id(snapshot.id)
            images = write_image(ImageReader.of(reader), catalog.encoding, spool, folder_of(id_))
        for path in (f"{folder_of(id_)}{name}.arrow" for name in images):
            spool.copy_to(path, work.target, path)
        sums = {path: checksums.sha256_of(spool, path) for path in (f"{folder_of(id_)}{name}.arrow" for name in images)}
    work.files = work.bytes = 0
    work.missing.clear()
    work.skipped.clear()
    try:
        # Check only now: a prune sees the image and keeps the files that are found here.
        check_not_pruned(work.target)
        work.have = {entry.path: entry.size for entry in work.target.list("data/")}
        _copy_all(catalog, work, folder_of(id_), progress)
        hashed = checksums.write(work.target, folder_of(id_), sums | work.sums_of(work.have))
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
        checksums=hashed,
    )
    faults.reach("backup.manifest.before")
    write_manifest(work.target, info)
    faults.reach("backup.manifest.after")
    remove_unfinished(work.target)
    return BackupReport(id_, snapshot.id, work.files, work.copied, work.bytes_copied, tuple(work.skipped))


def _copy_all(catalog: Catalog, work: _BackupWork, folder: str, progress: Progress) -> None:
    files = image_files(work.target, folder, work.source.root)
    with ThreadPoolExecutor(_THREADS, "quacklake-backup") as pool:
        while page := list(itertools.islice(files, _PAGE)):
            done = list(pool.map(partial(_copy, work), page))
            lost = [file.id for file, size in zip(page, done, strict=True) if size == _MISSING]
            if lost:  # though the catalog names them, or because the image is out of date
                with catalog.read() as reader:
                    if not RowAudit.of(reader).still_there(lost).issuperset(lost):
                        raise _Vanished
                work.missing.extend(lost)
                work.skipped.extend(Skipped(f"file {id_}", "it was missing already") for id_ in lost)
            own = [file for file in page if file.path is not None]
            work.files += len(own)
            work.bytes += sum(file.size or 0 for file in own)
            work.copied += sum(size > 0 for size in done)
            work.bytes_copied += sum(size for size in done if size > 0)
            progress("copying files", work.files, None)


_MISSING = -1


def _copy(work: _BackupWork, file: ImageFile) -> int:
    """Copy a file unless it exists; return the number of copied bytes, or ``_MISSING``."""
    if file.path is None:
        work.skipped.append(Skipped(f"file {file.id}", "it is outside of the data path: the backup only refers to it"))
        return 0
    target = f"data/{file.path}"
    try:
        if work.have.get(target) == file.size:
            if target not in work.sums:
                work.sums[target] = checksums.sha256_of(work.source, work.source.resolve(file.path, True))
            return 0
        size, sha256 = work.source.copy_to(work.source.resolve(file.path, True), work.target, target)
    except PathError as error:
        work.skipped.append(Skipped(f"file {file.id}", error.message))
        return 0
    except CorruptFileError:
        if work.source.exists(file.path):
            raise
        return _MISSING
    work.have[target] = size
    if sha256 is not None:
        work.sums[target] = sha256
    return size


_INLINED = re.compile(r"ducklake_inlined_(?:data_([0-9]+)_([0-9]+)|delete_([0-9]+))")
_WITH_PATHS = ("ducklake_schema", "ducklake_table", "ducklake_data_file", "ducklake_delete_file")


def restore(
    source: Store,
    info: BackupInfo,
    catalog: Catalog,
    target: Store,
    texts: Texts,
    progress: Progress = silent,
    *,
    replace_lake: bool = False,
) -> None:
    """Restore the lake of a backup into an empty database and an empty data path.

    An interrupted restore leaves no lake, and the files it has copied are not copied again. Raise
    ``AlreadyExistsError`` when there is a lake, or files that are not from the backup. With ``replace_lake`` there is
    an older state of the same lake, which the backup replaces in one transaction; its files stay.
    """
    if catalog.exists() and not replace_lake:
        raise AlreadyExistsError(f"there is a lake at {catalog.url} already", hint="restore into an empty database")
    missing = set(info.missing)
    sums = check_images(source, info)
    files = image_files(source, folder_of(info.id), info.data_path)
    wanted = {file.path: file.size for file in files if file.path is not None and file.id not in missing}
    have = {}
    for entry in target.list():
        if wanted.get(entry.path) is None and not entry.is_temporary and not replace_lake:
            raise AlreadyExistsError(
                f"{target.root} is not empty: {entry.path} is none of the backup's files",
                hint="restore into an empty folder",
            )
        have[entry.path] = entry.size
    _fetch(source, target, [path for path, size in wanted.items() if have.get(path) != size], sums, progress)
    progress("writing the catalog", 0, None)

    def fill(writer: Writer) -> None:
        images = ImageWriter.of(writer)
        if replace_lake:
            images.clear()
        _write_catalog(source, info, images, catalog.encoding, target, texts)

    faults.reach("restore.catalog.before")
    (catalog.replace_from if replace_lake else catalog.create_from)(fill, info.version)


def lend(source: Store, info: BackupInfo, catalog: Catalog, files: Store, texts: Texts) -> None:
    """Make a catalog of a backup in an empty database that reads the files where they are: in the store ``files``."""
    check_images(source, info)
    catalog.create_from(
        lambda writer: _write_catalog(source, info, ImageWriter.of(writer), catalog.encoding, files, texts),
        info.version,
    )


def check_images(source: Store, info: BackupInfo) -> dict[str, str]:
    """Return the hashes of the files of a backup. Raise ``CorruptFileError`` when its catalog is not what it was."""
    sums = checksums.read(source, folder_of(info.id), info.checksums)
    for name in info.images:
        path = f"{folder_of(info.id)}{name}.arrow"
        checksums.check(source, path, sums.get(path))
    return sums


def _fetch(source: Store, target: Store, paths: list[str], sums: Mapping[str, str], progress: Progress) -> None:
    def fetch(path: str) -> None:
        source.copy_to(f"data/{path}", target, path, sums.get(f"data/{path}"))

    with ThreadPoolExecutor(_THREADS, "quacklake-restore") as pool:
        for start in range(0, len(paths), _PAGE):
            page = paths[start : start + _PAGE]
            deque(pool.map(fetch, page), maxlen=0)
            progress("copying files", start + len(page), len(paths))


def _write_catalog(
    source: Store, info: BackupInfo, writer: ImageWriter, database: str, target: Store, texts: Texts
) -> None:
    folder = folder_of(info.id)
    inlined = [(name, match) for name in info.images if (match := _INLINED.fullmatch(name))]
    # Create all tables first: MySQL commits whenever a table is created, and must have nothing to commit then.
    for name, match in inlined:
        if match[3] is None:
            id_ = InlinedId(int(match[1]), int(match[2]))
            make_inlined_table(writer, database, id_, table_schema(next(read_batches(source, folder, name))))
        else:
            writer.make_inlined_deletes(int(match[3]))
    for name, match in inlined:
        batches = read_batches(source, folder, name)
        if match[3] is None:
            id_, schema = InlinedId(int(match[1]), int(match[2])), table_schema(next(batches))
            for batch in batches:
                put_page(writer, database, id_, schema, pa.Table.from_batches([batch]), texts)
            continue
        for batch in batches:
            if isinstance(batch, pa.RecordBatch):
                writer.put_inlined_deletes(int(match[3]), batch)
    for name in IMAGED:
        if name not in info.images:
            continue  # made by a version that knew fewer tables
        faults.reach("restore.table.before")
        for batch in read_batches(source, folder, name):
            if isinstance(batch, pa.RecordBatch):
                writer.put_rows(name, _move_paths(name, batch, info.data_path, target.root))


def _move_paths(name: str, batch: pa.RecordBatch, old: str, new: str) -> pa.RecordBatch:
    """Return the rows of a table with absolute paths moved from the old data path to the new one."""
    if name == "ducklake_metadata":
        own = pc.and_(pc.equal(batch.column("key"), "data_path"), pc.is_null(batch.column("scope")))
        return batch.set_column(1, batch.schema.field(1), pc.if_else(own, new, batch.column("value")))
    if name not in _WITH_PATHS:
        return batch
    place = batch.schema.get_field_index("path")
    paths = batch.column(place)
    below = pc.and_(pc.invert(pc.fill_null(batch.column("path_is_relative"), True)), pc.starts_with(paths, old))
    changed = pc.replace_substring(paths, pattern=old, replacement=new, max_replacements=1)
    return batch.set_column(place, batch.schema.field(place), pc.if_else(pc.fill_null(below, False), changed, paths))
