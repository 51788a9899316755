"""Export, adopt and fork catalogs of a shared lake, and copy a whole catalog to another lake in any kind of database.

Rows stream from one read transaction into one commit transaction, so there is a complete new lake or none. Files either
stay in place and are named by absolute paths, or are copied first.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.config import Config
from quacklake.core import faults
from quacklake.core.catalog import Catalog, CatalogRow, Writer, file_names, folder_path, open_catalog, parse_url
from quacklake.core.catalog.file_names import NamedFile
from quacklake.core.catalog.image import IMAGED, ImageReader, ImageWriter
from quacklake.core.catalog.statements import parts
from quacklake.core.catalog.tables import WRITABLE_VERSIONS
from quacklake.core.engines.duckdb import DuckDBEngine
from quacklake.core.format.names import check_tenant_name
from quacklake.core.format.options import EXPOSED
from quacklake.core.maintenance.backup.image import Texts, decoded_pages, make_inlined_table, put_page
from quacklake.core.operations.stores import open_store
from quacklake.core.progress import Progress, silent
from quacklake.core.storage import Store
from quacklake.core.storage.store_pairs import overlap
from quacklake.core.tenancy.opening import create_lake, new_root, open_metadata
from quacklake.core.tenancy.sharing import whole_folders
from quacklake.core.tenancy.tenancy import Tenancy
from quacklake.errors import AlreadyExistsError, InputError, NotFoundError, UnsupportedVersionError

if TYPE_CHECKING:
    from quacklake.core.tenancy.tenants import Tenant


_THREADS = 8
_PARTITIONS = re.compile(r"(?:[^/=]+=[^/]*/)*[^/]*\Z")
_FILES = {"ducklake_data_file": "data_file_id", "ducklake_delete_file": "delete_file_id"}
_OBJECTS = {"ducklake_schema": "schema_uuid", "ducklake_table": "table_uuid"}


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Report of an export of a catalog to a plain lake.

    The lake names ``files``, of which ``copied`` are in its own data path. The others are in ``foreign_paths``:
    Quacklake needs that setting to open the lake, stock DuckDB does not.
    """

    url: str
    data_path: str
    files: int
    copied: int
    foreign_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantShare:
    """A user of a catalog's files: another ``catalog``, or a plain lake exported to ``url``."""

    catalog: str | None
    url: str | None


class Moving:
    """Exports, adopts and forks catalogs."""

    _tenancy: Tenancy
    _url: str
    _config: Config
    _root: str

    def _tenant(self, row: CatalogRow) -> Tenant:
        raise NotImplementedError

    def _path(self, folder: str) -> str:
        return folder_path(self._root, folder)

    def export(
        self,
        name: str,
        to: str,
        *,
        data_path: str | Path | None = None,
        copy_data: bool = False,
        progress: Progress = silent,
    ) -> ExportReport:
        """Create a plain lake from a catalog, in an empty database of any kind at the URL ``to``. The catalog stays.

        The lake is the same at every snapshot. It names the catalog's files in place, which the catalog then keeps
        until ``release``; with ``copy_data`` it has copies of all files. New files go to ``data_path``, by default next
        to the database file ``to``. An interrupted export leaves no lake. Raise ``NotFoundError``,
        ``AlreadyExistsError``, ``InputError`` for a data path inside that of the shared lake, or
        ``UnsupportedFeatureError``.
        """
        url = parse_url(to)
        if data_path is None and url.path is not None:
            data_path = f"{url.path}.files"
        target = open_store(new_root(url, self._config, None if data_path is None else str(data_path)), self._config)
        if overlap(target, open_store(self._root, self._config)):
            raise InputError(
                f"the data path {target.root} overlaps with that of the shared lake, {self._root}",
                hint="pass another data_path",
            )
        row = self._tenancy.get(name)
        with closing(open_catalog(url)) as lake, self._open(row.name) as (source, store):
            if lake.exists():
                raise AlreadyExistsError(f"there is a lake at {url} already", hint="export to an empty database")
            # Do this before anything is read: files named from now on are kept.
            self._tenancy.lend_to(row.name, str(url))
            try:
                moved = self._move(source, store, lake, target, copy_data=copy_data, progress=progress)
            except BaseException:
                if not lake.exists():  # the lake exists if only the reply was lost
                    self._tenancy.take_back(row.name, str(url))
                raise
        if copy_data:
            self._tenancy.take_back(row.name, str(url))
        foreign = () if copy_data else (store.root, *row.borrows)
        return ExportReport(str(url), target.root, moved.files, moved.copied, foreign)

    def release(self, name: str, to: str) -> None:
        """Stop keeping the files of a catalog for the plain lake that was exported to a URL.

        Raise ``NotFoundError`` when none are kept for it.
        """
        if not self._tenancy.take_back(name, str(parse_url(to))):
            raise NotFoundError(f"no files of the catalog '{name}' are kept for a lake at {parse_url(to)}")

    def shares(self, name: str) -> builtins.list[TenantShare]:
        """Return the users of a catalog's files; while there is one, these files are not removed."""
        return [TenantShare(other, share.place) for share, other in self._tenancy.lent(name)]

    def adopt(self, url: str, as_: str, *, progress: Progress = silent) -> Tenant:
        """Create a catalog from a plain lake, which stays as it is. The catalog is the same at every snapshot.

        The files stay in place; the catalog never removes them, and writes new ones to its own folder. The plain lake
        does not know the catalog, so files that it cleans up are lost to both. An interrupted adoption leaves no
        catalog. Raise ``NotFoundError``, ``AlreadyExistsError``, ``UnsupportedVersionError``, or ``InputError`` for a
        lake whose files are among those of catalogs.
        """
        parsed = parse_url(url)
        if parsed.catalog is not None:
            raise InputError("only a plain lake can be adopted", hint="fork a catalog of this shared lake instead")
        check_tenant_name(as_)
        with closing(open_catalog(parsed, read_only=True)) as source:
            source.load()
            store = open_store(source.metadata["data_path"], self._config)
            row = self._tenancy.reserve(as_)
            self._check_apart(source, store)
            target = open_store(self._path(row.folder), self._config, tenant=as_)
            with closing(self._metadata(as_)) as catalog:
                catalog.reserved = replace(row, borrows=(store.root,))
                self._move(source, store, catalog, target, progress=progress)
        return self._tenant(self._tenancy.get(as_))

    def fork(self, name: str, as_: str) -> Tenant:
        """Create a copy of a catalog that is the same at every snapshot and then develops on its own.

        No file is copied: the fork names the files of the other catalog, which keeps them while the fork needs them,
        even if dropped and purged. Stream positions stay behind. Raise ``NotFoundError`` or ``AlreadyExistsError``.
        """
        with self._open(name) as (_, store):
            root = store.root
        return self._tenant(self._tenancy.fork(name, as_, root, self._path))

    def _move(
        self,
        source: Catalog,
        store: Store,
        target: Catalog,
        new_store: Store,
        *,
        copy_data: bool = False,
        progress: Progress = silent,
    ) -> _Moved:
        """Create the lake ``target`` with everything in ``source``; its new files go to ``new_store``.

        Rows, row ids, snapshots, options and keys stay the same. The files of ``source`` are named in place as foreign
        files, unless ``copy_data`` is true. Raise ``AlreadyExistsError``, ``UnsupportedVersionError`` or
        ``UnsupportedFeatureError``; on failure there is no new lake.
        """
        if source.version not in WRITABLE_VERSIONS:
            raise UnsupportedVersionError(
                f"the lake at {source.url} has the format version {source.version}", hint="migrate the lake first"
            )
        with closing(DuckDBEngine(new_store, threads=self._config.duckdb_threads)) as engine, source.read() as reader:
            image = ImageReader.of(reader)
            places = _Places(store.root, file_names.folders(reader), copied=copy_data)
            if copy_data:
                moved = _copy_files(image, places, store, new_store, progress)
            else:
                moved = _Moved(sum(len(page) for page in file_names.all_files(reader)), 0)
            progress("writing the catalog", 0, None)

            def fill(writer: Writer) -> None:
                to = ImageWriter.of(writer)
                _fill(
                    image, source.encoding, to, target.encoding, engine.texts, partial(places.changed, new_store.root)
                )

            target.create_from(fill, source.version)
        return moved

    def _check_apart(self, source: Catalog, store: Store) -> None:
        """Raise ``InputError`` if files of a plain lake are, or could later be, among those of (unnamed) catalogs."""
        with self._tenancy.reading() as registry:
            folders = whole_folders(registry)
        ours = [open_store(path, self._config) for path in (self._root, *folders)]
        if any(overlap(store, mine) for mine in ours):
            raise InputError(
                f"the data path of the lake, {store.root}, overlaps with the files of this shared lake",
                hint="move the files of the lake to another folder first",
            )
        with source.read() as reader:
            for file in (file for page in file_names.absolute_files(reader) for file in page):
                path = f"{file.folder.rstrip('/')}/{file.path}" if file.is_relative else file.path
                if any(mine.locate(path) is not None for mine in ours):
                    raise InputError(
                        "the lake uses files among those of this shared lake",
                        hint="adopt a lake that has copies of all its files, as export(copy_data=True) creates",
                    )

    def _metadata(self, name: str) -> Catalog:
        return open_metadata(parse_url(self._url), self._config, read_only=False, catalog=name)

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[Catalog, Store]]:
        """Open a catalog and the store of its files."""
        with closing(self._metadata(name)) as catalog:
            catalog.load()
            assert catalog.tenant_row is not None
            row = catalog.tenant_row
            yield catalog, open_store(catalog.metadata["data_path"], self._config, row.borrows, tenant=row.name)


def reserve_catalog(url: str, name: str, data_path: str, config: Config) -> tuple[CatalogRow, str]:
    """Reserve a catalog in the shared lake at a URL, which is created if missing; also return its data path."""
    parsed = parse_url(url)
    with closing(Tenancy(open_metadata(parsed, config, read_only=False, whole=True))) as tenancy:
        facts = tenancy.facts() or create_lake(tenancy, parsed, config, data_path)
        row = tenancy.reserve(name)
        return row, folder_path(facts.data_path, row.folder)


# -- copying -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moved:
    """The number of files that a catalog names, and how many of them were copied."""

    files: int
    copied: int


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

    def changed(self, new_root: str, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a table as the new lake stores them."""
        if name == "ducklake_metadata":
            batch = batch.filter(pc.not_equal(batch.column("key"), EXPOSED))
            own = pc.and_(pc.equal(batch.column("key"), "data_path"), pc.is_null(batch.column("scope")))
            return _with(batch, value=pc.if_else(own, new_root, batch.column("value")))
        if name in _OBJECTS:  # the new lake must not write to folders outside the old data path
            inside = pc.fill_null(batch.column("path_is_relative"), True)
            own = pc.binary_join_element_wise(batch.column(_OBJECTS[name]), "", "/")
            return _with(batch, path=pc.if_else(inside, batch.column("path"), own), path_is_relative=_all(True, batch))
        return self._files(batch, _FILES[name]) if name in _FILES else batch

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


def _copy_files(reader: ImageReader, places: _Places, store: Store, target: Store, progress: Progress) -> _Moved:
    """Copy every named file; files left by an interrupted copy are copied again."""
    folders = _new_folders(reader, places)

    def copy(file: NamedFile) -> None:
        path = folders.get(file.table_id, "") + places.inner(file.id, file.path, file.is_relative)
        url = places.absolute(file.table_id, file.path, file.is_relative)
        store.copy_to(store.resolve(url, False), target, path)

    files = 0
    with ThreadPoolExecutor(_THREADS, "quacklake-move") as pool:
        for page in file_names.all_files(reader):
            for some in parts(page):
                files += sum(1 for _ in pool.map(copy, some))
                progress("copying files", files, None)
    return _Moved(files, files)


def _new_folders(reader: ImageReader, places: _Places) -> dict[int, str]:
    """Return the folder of each table below the new data path, as its newest row will have it."""
    schemas = {row["schema_id"]: row["path"] or "" for row in _read_changed_rows(reader, places, "ducklake_schema")}
    found: dict[int, tuple[int, str]] = {}
    for row in _read_changed_rows(reader, places, "ducklake_table"):
        if row["begin_snapshot"] >= found.get(row["table_id"], (0, ""))[0]:
            folder = schemas.get(row["schema_id"], "") + (row["path"] or "")
            found[row["table_id"]] = (row["begin_snapshot"], folder)
    return {id_: folder for id_, (_, folder) in found.items()}


def _read_changed_rows(reader: ImageReader, places: _Places, name: str) -> Iterator[dict[str, Any]]:
    for batch in reader.rows(name):
        yield from places.changed("", name, batch).to_pylist()
