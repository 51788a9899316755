"""Store the catalog of a lake as Arrow files, one per table, streamed in both directions."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from quacklake.core import faults
from quacklake.core.catalog.image import DELETE_COLUMNS, IMAGED, ImageReader, ImageWriter, InlinedId
from quacklake.core.format import inline
from quacklake.core.format.schema import Column, ColumnRow, TableSchema, flatten, unflatten
from quacklake.core.scan.inlined_rows import decode_inlined
from quacklake.core.scan.plan import column_key
from quacklake.core.storage import FileEntry, Store
from quacklake.core.storage.sealed import MAGIC
from quacklake.errors import ConfigError, CorruptFileError, NotFoundError, UnsupportedFeatureError

#: Columns of a table as text that DuckDB casts back: column id -> texts.
Texts = Callable[[pa.Table, Sequence[Column]], Mapping[int, Sequence[str | None]]]

_SCHEMA = b"quacklake.schema"


def write_image(reader: ImageReader, database: str, store: Store, folder: str) -> list[str]:
    """Write everything that a read transaction sees; return the names of the files without their suffix."""
    names: list[str] = []
    for name in IMAGED:
        _write(store, folder, name, reader.arrow_schema(name), reader.rows(name))
        names.append(name)
    for id_ in reader.inlined_ids():
        schema = reader.tables.columns_at(id_.table_id, id_.schema_version)
        name = inline.data_table_name(id_.table_id, id_.schema_version)
        _write_inlined(store, folder, name, schema, decoded_pages(reader, database, id_, schema))
        names.append(name)
    for table_id in reader.inlined.delete_tables():
        name = inline.delete_table_name(table_id)
        _write(store, folder, name, DELETE_COLUMNS, reader.inlined_delete_pages(table_id))
        names.append(name)
    return names


def decoded_pages(reader: ImageReader, database: str, id_: InlinedId, schema: TableSchema) -> Iterator[pa.Table]:
    """Yield the rows of a table of inlined rows. Raise ``UnsupportedFeatureError`` for rows that cannot be moved."""
    name = inline.data_table_name(id_.table_id, id_.schema_version)
    if any(leaf.type == "variant" for leaf in schema.leaves()):
        raise UnsupportedFeatureError(
            f"{name} has inlined values of the type variant, which no other database can hold",
            hint="flush the inlined rows of the table into files first",
        )
    pages = (decode_inlined([page], schema, database, ends=True) for page in reader.inlined_pages(id_, schema))
    return (page for page in pages if page is not None)


def _write(store: Store, folder: str, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    faults.reach("backup.image.before")
    with store.open_output(f"{folder}{name}.arrow") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    faults.reach("backup.image.after")


def _write_inlined(store: Store, folder: str, name: str, schema: TableSchema, pages: Iterator[pa.Table]) -> None:
    """Write decoded rows; a file without rows has the table's columns only in its metadata."""
    first = next(pages, None)
    metadata = {_SCHEMA: json.dumps([asdict(row) for row in flatten(schema)]).encode()}
    arrow = (pa.schema([]) if first is None else first.schema).with_metadata(metadata)

    def batches() -> Iterator[pa.RecordBatch]:
        if first is not None:
            yield from first.cast(arrow).to_batches()
        for page in pages:
            yield from page.cast(arrow).to_batches()

    _write(store, folder, name, arrow, batches())


def read_batches(store: Store, folder: str, name: str) -> Iterator[pa.RecordBatch | pa.Schema]:
    """Yield the schema of a file of an image, then its rows. Raise ``CorruptFileError``."""
    path = f"{folder}{name}.arrow"
    try:
        with store.open_input(path) as source, pa.ipc.open_stream(source) as reader:
            yield reader.schema
            yield from reader
    except pa.ArrowException as error:
        raise CorruptFileError(f"{store.url(path)} of the backup cannot be read") from error


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A data or delete file of an image; ``path`` is below the data path, None for a file elsewhere."""

    id: int
    path: str | None
    size: int | None


def image_files(store: Store, folder: str, data_path: str) -> Iterator[ImageFile]:
    """Yield the files that an image names; ``data_path`` is that of the backed-up lake."""
    schemas = {row["schema_id"]: row["path"] or "" for row in _rows(store, folder, "ducklake_schema")}
    folders: dict[int, str] = {}
    for row in _rows(store, folder, "ducklake_table"):
        above = schemas.get(row["schema_id"], "") if row["path_is_relative"] else ""
        folders[row["table_id"]] = above + (row["path"] or "")
    for name, key in (("ducklake_data_file", "data_file_id"), ("ducklake_delete_file", "delete_file_id")):
        for row in _rows(store, folder, name):
            path = folders.get(row["table_id"], "") + row["path"] if row["path_is_relative"] else row["path"]
            path = path.removeprefix(f"file://{data_path}").removeprefix(data_path)
            elsewhere = path.startswith("/") or "://" in path
            yield ImageFile(row[key], None if elsewhere else path, row["file_size_bytes"])


def _rows(store: Store, folder: str, name: str) -> Iterator[dict[str, Any]]:
    for batch in read_batches(store, folder, name):
        if isinstance(batch, pa.RecordBatch):
            yield from batch.to_pylist()


_NO_PLACE = "use the kind of database it came from, or flush the table's inlined rows into files first"


def make_inlined_table(writer: ImageWriter, database: str, id_: InlinedId, schema: TableSchema) -> None:
    """Create a table of inlined rows. Raise ``UnsupportedFeatureError`` when the database cannot hold such rows."""
    strange = [
        column.name for column in schema.columns if not inline.supports(column, database, prefixed=writer.meta.is_next)
    ]
    if strange:
        raise UnsupportedFeatureError(
            f'the {database} catalog cannot hold inlined rows with the column "{strange[0]}"', hint=_NO_PLACE
        )
    if not inline.fits(schema.columns, database):
        raise UnsupportedFeatureError(
            f"the {database} catalog cannot hold inlined rows with {len(schema.columns)} columns", hint=_NO_PLACE
        )
    writer.make_inlined(id_, schema)


def put_page(
    writer: ImageWriter, database: str, id_: InlinedId, schema: TableSchema, rows: pa.Table, texts: Texts
) -> None:
    """Insert decoded inlined rows, encoded for their database."""
    life = list(zip(*(rows.column(name).to_pylist() for name in _LIFE), strict=True))
    writer.put_inlined(id_, schema, life, _encode(rows, schema, database, texts))


_LIFE = ("row_id", "begin_snapshot", "end_snapshot")


def table_schema(schema: Any) -> TableSchema:
    """Return the columns of the table that a file of inlined rows has, from its Arrow schema."""
    assert isinstance(schema, pa.Schema)
    return unflatten(ColumnRow(**row) for row in json.loads((schema.metadata or {})[_SCHEMA]))


def _encode(rows: pa.Table, schema: TableSchema, database: str, texts: Texts) -> Iterator[tuple[Any, ...]]:
    named = rows.select([column_key(column) for column in schema.columns]).rename_columns(list(schema.names))
    encoded = [inline.encode(named.column(i), column, database) for i, column in enumerate(schema.columns)]
    hard = [column for column, values in zip(schema.columns, encoded, strict=True) if values is None]
    found = texts(named, hard)
    columns = [
        found[column.id] if values is None else values for column, values in zip(schema.columns, encoded, strict=True)
    ]
    return zip(*columns, strict=True)


_FORMAT = 1
MANIFEST = "manifest.json"
_LIMIT = 64 << 20
ABANDONED = dt.timedelta(days=1)
"""The age at which a backup without a manifest counts as abandoned."""


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """A backup; ``missing`` lists files that were already gone: reading them fails, as it did then."""

    id: str
    time: str
    snapshot: int
    version: str
    database: str
    data_path: str
    encrypted: bool
    files: int
    bytes: int
    images: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()
    checksums: str | None = None
    """The hash of the file that has the hashes of all others."""


def folder_of(id_: str) -> str:
    return f"backups/{id_}/"


def new_id(snapshot: int) -> str:
    """Return the id of a new backup; ids sort by time."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S%f}Z-s{snapshot}"


def write_manifest(store: Store, info: BackupInfo) -> None:
    """Write the manifest, which makes the backup exist."""
    text = json.dumps({"format": _FORMAT, **asdict(info)}, indent=1)
    store.write(folder_of(info.id) + MANIFEST, text.encode())


def read_manifest(store: Store, id_: str) -> BackupInfo:
    """Return a backup by its folder's name, which may be a copy. Raise ``NotFoundError``, ``CorruptFileError``."""
    path = folder_of(id_) + MANIFEST
    if not store.exists(path):
        raise NotFoundError(
            f"there is no backup {id_} in {store.root}", hint="quacklake.backups(…) lists those that exist"
        )
    text = store.read(path, limit=_LIMIT)
    if text.startswith(MAGIC):
        raise ConfigError(
            f"the backups in {store.root} are encrypted", hint="set QUACKLAKE_BACKUP_KEY, or name the file of the key"
        )
    try:
        found = json.loads(text)
        if found.pop("format") != _FORMAT:
            raise CorruptFileError(f"the backup {id_} was made by a newer version of quacklake")
        info = BackupInfo(**{**found, "images": tuple(found["images"]), "missing": tuple(found["missing"])})
        _read_creation_time(info)
        return replace(info, id=id_)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"the manifest of the backup {id_} cannot be read") from error


def folders(store: Store) -> dict[str, list[FileEntry]]:
    """Return the files of each backup by id, complete or not."""
    found: dict[str, list[FileEntry]] = {}
    for entry in store.list("backups/"):
        found.setdefault(entry.path.split("/")[1], []).append(entry)
    return found


def remove_unfinished(store: Store) -> None:
    """Remove the remains of backups that were interrupted long ago."""
    old = dt.datetime.now(dt.UTC) - ABANDONED
    for entries in folders(store).values():
        whole = any(entry.path.endswith(f"/{MANIFEST}") for entry in entries)
        if not whole and all(entry.mtime is not None and entry.mtime < old for entry in entries):
            store.delete([entry.path for entry in entries])


def list_backups(store: Store) -> list[BackupInfo]:
    """Return every complete backup, oldest first."""
    ids = {entry.path.split("/")[1] for entry in store.list("backups/") if entry.path.endswith(f"/{MANIFEST}")}
    return sorted((read_manifest(store, id_) for id_ in ids), key=lambda info: (_read_creation_time(info), info.id))


def _read_creation_time(info: BackupInfo) -> dt.datetime:
    time = dt.datetime.fromisoformat(info.time)
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)


def choose(store: Store, id_: str | None) -> BackupInfo:
    """Return a backup by id, or the newest. Raise ``NotFoundError``."""
    if id_ is not None:
        return read_manifest(store, id_)
    found = list_backups(store)
    if not found:
        raise NotFoundError(f"there is no backup in {store.root}", hint="one that was interrupted does not count")
    return found[-1]
