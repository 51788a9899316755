"""Restore a lake from a backup: files first, then the whole catalog in one transaction."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import faults
from quacklake.catalog import Catalog
from quacklake.catalog.image import IMAGED, ImageWriter, InlinedId
from quacklake.errors import AlreadyExistsError
from quacklake.maintenance.backup.image import Texts, fill_inlined, image_files, make_inlined, read_batches
from quacklake.maintenance.backup.manifest import BackupInfo, folder_of
from quacklake.progress import Progress, silent
from quacklake.storage import Store
from quacklake.storage.store_pairs import copy_file

_THREADS = 8
_PAGE = 2_000
_INLINED = re.compile(r"ducklake_inlined_(?:data_([0-9]+)_([0-9]+)|delete_([0-9]+))")
_WITH_PATHS = ("ducklake_schema", "ducklake_table", "ducklake_data_file", "ducklake_delete_file")


def restore(
    source: Store, info: BackupInfo, catalog: Catalog, target: Store, texts: Texts, progress: Progress = silent
) -> None:
    """Restore the lake of a backup into an empty database and an empty data path.

    An interrupted restore leaves no lake, and the files it has copied are not copied again. Raises
    ``AlreadyExistsError`` when there is a lake, or files that are not from the backup.
    """
    if catalog.exists():
        raise AlreadyExistsError(f"there is a lake at {catalog.url} already", hint="restore into an empty database")
    missing = set(info.missing)
    files = image_files(source, folder_of(info.id), info.data_path)
    wanted = {file.path: file.size for file in files if file.path is not None and file.id not in missing}
    have = {}
    for entry in target.list():
        if wanted.get(entry.path) is None and not entry.is_temporary:
            raise AlreadyExistsError(
                f"{target.root} is not empty: {entry.path} is none of the backup's files",
                hint="restore into an empty folder",
            )
        have[entry.path] = entry.size
    _copy_all(source, target, [path for path, size in wanted.items() if have.get(path) != size], progress)
    progress("writing the catalog", 0, None)
    catalog.create_from(
        lambda writer: _write_catalog(source, info, ImageWriter.of(writer), catalog.encoding, target, texts),
        info.version,
    )


def _copy_all(source: Store, target: Store, paths: list[str], progress: Progress) -> None:
    with ThreadPoolExecutor(_THREADS, "quacklake-restore") as pool:
        for start in range(0, len(paths), _PAGE):
            page = paths[start : start + _PAGE]
            for _ in pool.map(lambda path: copy_file(source, f"data/{path}", target, path), page):
                pass
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
            make_inlined(writer, database, id_, read_batches(source, folder, name))
        else:
            writer.make_inlined_deletes(int(match[3]))
    for name, match in inlined:
        batches = read_batches(source, folder, name)
        if match[3] is None:
            fill_inlined(writer, database, InlinedId(int(match[1]), int(match[2])), batches, texts)
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
                writer.put_rows(name, _moved(name, batch, info.data_path, target.root))


def _moved(name: str, batch: pa.RecordBatch, old: str, new: str) -> pa.RecordBatch:
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
