"""Copy a whole catalog to another lake, plain or shared, in any kind of database.

Rows stream from one read transaction into one commit transaction, so there is a complete new lake or none. Files either
stay in place and are named by absolute paths, or are copied first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import faults
from quacklake.catalog import Catalog, file_names
from quacklake.catalog.file_names import NamedFile
from quacklake.catalog.image import IMAGED, ImageReader, ImageWriter
from quacklake.catalog.statements import parts
from quacklake.catalog.tables import WRITABLE_VERSIONS
from quacklake.errors import UnsupportedVersionError
from quacklake.format.options import EXPOSED
from quacklake.maintenance.backup.image import Texts, decoded_pages, make_inlined_table, put_page
from quacklake.progress import Progress, silent
from quacklake.storage import Store
from quacklake.storage.store_pairs import copy_file

_THREADS = 8
_PARTITIONS = re.compile(r"(?:[^/=]+=[^/]*/)*[^/]*\Z")
_FILES = {"ducklake_data_file": "data_file_id", "ducklake_delete_file": "delete_file_id"}
_OBJECTS = {"ducklake_schema": "schema_uuid", "ducklake_table": "table_uuid"}


@dataclass(frozen=True, slots=True)
class Moved:
    """The number of files that a catalog names, and how many of them were copied."""

    files: int
    copied: int


def move_catalog(
    source: Catalog,
    store: Store,
    target: Catalog,
    new_store: Store,
    texts: Texts,
    *,
    copy_data: bool = False,
    progress: Progress = silent,
) -> Moved:
    """Create the lake ``target`` with everything in ``source``; its new files go to ``new_store``.

    Rows, row ids, snapshots, options and keys stay the same. The files of ``source`` are named in place as foreign
    files, unless ``copy_data`` is true. Raises ``AlreadyExistsError``, ``UnsupportedVersionError`` or
    ``UnsupportedFeatureError``; on failure there is no new lake.
    """
    if source.version not in WRITABLE_VERSIONS:
        raise UnsupportedVersionError(
            f"the lake at {source.url} has the format version {source.version}", hint="migrate it first"
        )
    with source.read() as reader:
        image = ImageReader.of(reader)
        places = _Places(store.root, file_names.folders(reader), copied=copy_data)
        if copy_data:
            moved = _copy_files(image, places, store, new_store, progress)
        else:
            moved = Moved(sum(len(page) for page in file_names.all_files(reader)), 0)
        progress("writing the catalog", 0, None)
        target.create_from(
            lambda writer: _fill(
                image,
                source.encoding,
                ImageWriter.of(writer),
                target.encoding,
                texts,
                lambda name, batch: places.changed(name, batch, new_store.root),
            ),
            source.version,
        )
    return moved


Change = Callable[[str, pa.RecordBatch], pa.RecordBatch]


def _fill(
    source: ImageReader, encoding: str, writer: ImageWriter, new_encoding: str, texts: Texts, change: Change
) -> None:
    versions = [(id_, source.tables.columns_at(id_.table_id, id_.schema_version)) for id_ in source.inlined_ids()]
    with_deletes = source.inlined.delete_tables()
    # Create all tables first: MySQL commits whenever a table is created, and must have nothing to commit then.
    for id_, schema in versions:
        make_inlined_table(writer, new_encoding, id_, schema)
    for table_id in with_deletes:
        writer.make_inlined_deletes(table_id)
    for id_, schema in versions:
        for page in decoded_pages(source, encoding, id_, schema):
            put_page(writer, new_encoding, id_, schema, page, texts)
    for table_id in with_deletes:
        for batch in source.inlined_delete_pages(table_id):
            writer.put_inlined_deletes(table_id, batch)
    for name in IMAGED:
        faults.reach("move.table.before")
        if name == "ducklake_files_scheduled_for_deletion":
            continue  # the source removes these files
        for batch in source.rows(name):
            writer.put_rows(name, change(name, batch))
    faults.reach("move.table.after")


@dataclass(frozen=True, slots=True)
class _Places:
    """The old and new places of files; the new ones are below ``root``, in the folders of their tables."""

    root: str
    folders: dict[int, tuple[str, bool]]
    copied: bool

    def absolute(self, table_id: int, path: str, is_relative: bool) -> str:
        """Return the absolute path of a file."""
        if not is_relative:
            return path
        folder, inside = self.folders.get(table_id, ("", True))
        return f"{self.root}{folder}{path}" if inside else f"{folder.rstrip('/')}/{path}"

    def inner(self, id_: int, path: str, is_relative: bool) -> str:
        """Return the path of a copy in its table's folder; a foreign file keeps only its partitions and name."""
        if is_relative:
            return path
        found = _PARTITIONS.search(path)
        folders, _, name = (found[0] if found else "").rpartition("/")
        return f"{folders}/{id_}-{name}" if folders else f"{id_}-{name}"

    def changed(self, name: str, batch: pa.RecordBatch, new_root: str) -> pa.RecordBatch:
        """Return the rows of a table as the new lake stores them."""
        if name == "ducklake_metadata":
            batch = batch.filter(pc.not_equal(batch.column("key"), EXPOSED))
            own = pc.and_(pc.equal(batch.column("key"), "data_path"), pc.is_null(batch.column("scope")))
            return _with(batch, value=pc.if_else(own, new_root, batch.column("value")))
        if name in _OBJECTS:
            return self._objects(batch, _OBJECTS[name])
        return self._files(batch, _FILES[name]) if name in _FILES else batch

    def _objects(self, batch: pa.RecordBatch, uid: str) -> pa.RecordBatch:
        """Replace folders outside the old data path, because the new lake must not write there."""
        inside = pc.fill_null(batch.column("path_is_relative"), True)
        own = pc.binary_join_element_wise(batch.column(uid), "", "/")
        return _with(batch, path=pc.if_else(inside, batch.column("path"), own), path_is_relative=_all(True, batch))

    def _files(self, batch: pa.RecordBatch, key: str) -> pa.RecordBatch:
        columns = (batch.column(name).to_pylist() for name in (key, "table_id", "path", "path_is_relative"))
        paths = [
            self.inner(id_, path, relative is not False)
            if self.copied
            else self.absolute(table, path, relative is not False)
            for id_, table, path, relative in zip(*columns, strict=True)
        ]
        return _with(batch, path=pa.array(paths, pa.string()), path_is_relative=_all(self.copied, batch))


def _all(value: bool, batch: pa.RecordBatch) -> pa.Array:
    return pa.array([value] * batch.num_rows, pa.bool_())


def _with(batch: pa.RecordBatch, **columns: Any) -> pa.RecordBatch:
    for name, values in columns.items():
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, batch.schema.field(place), values)
    return batch


def _copy_files(reader: ImageReader, places: _Places, store: Store, target: Store, progress: Progress) -> Moved:
    """Copy every named file; files left by an interrupted copy are copied again."""
    folders = _new_folders(reader, places)

    def copy(file: NamedFile) -> None:
        path = folders.get(file.table_id, "") + places.inner(file.id, file.path, file.is_relative)
        url = places.absolute(file.table_id, file.path, file.is_relative)
        copy_file(store, store.resolve(url, False), target, path)

    files = 0
    with ThreadPoolExecutor(_THREADS, "quacklake-move") as pool:
        for page in file_names.all_files(reader):
            for some in parts(page):
                files += sum(1 for _ in pool.map(copy, some))
                progress("copying files", files, None)
    return Moved(files, files)


def _new_folders(reader: ImageReader, places: _Places) -> dict[int, str]:
    """Return the folder of each table below the new data path, as its newest row will have it."""
    schemas = {row["schema_id"]: row["path"] or "" for row in _changed(reader, places, "ducklake_schema")}
    found: dict[int, tuple[int, str]] = {}
    for row in _changed(reader, places, "ducklake_table"):
        if row["begin_snapshot"] >= found.get(row["table_id"], (0, ""))[0]:
            folder = schemas.get(row["schema_id"], "") + (row["path"] or "")
            found[row["table_id"]] = (row["begin_snapshot"], folder)
    return {id_: folder for id_, (_, folder) in found.items()}


def _changed(reader: ImageReader, places: _Places, name: str) -> Iterator[dict[str, Any]]:
    for batch in reader.rows(name):
        yield from places.changed(name, batch, "").to_pylist()
