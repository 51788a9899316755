"""Export, adopt and fork catalogs of a shared lake."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from quacklake.catalog import Catalog, CatalogRow, file_names, open_catalog, parse_url
from quacklake.catalog.file_names import NamedFile
from quacklake.config import Config
from quacklake.engines.duckdb import DuckDBEngine
from quacklake.errors import AlreadyExistsError, InputError, NotFoundError
from quacklake.format.names import check_tenant_name
from quacklake.operations.stores import open_store
from quacklake.progress import Progress, silent
from quacklake.storage import Store
from quacklake.storage.store_pairs import overlap
from quacklake.tenancy.copying import Moved, move_catalog
from quacklake.tenancy.opening import create_lake, folder_path, new_root, open_metadata
from quacklake.tenancy.tenancy import Tenancy

if TYPE_CHECKING:
    from quacklake.tenancy.tenants import Tenant


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
        to the database file ``to``. An interrupted export leaves no lake. Raises ``NotFoundError``,
        ``AlreadyExistsError``, ``InputError`` for a data path inside that of the shared lake, or
        ``UnsupportedFeatureError``.
        """
        url = parse_url(to)
        if data_path is None and url.path is not None:
            data_path = f"{url.path}.files"
        target = open_store(new_root(url, self._config, None if data_path is None else str(data_path)), self._config)
        if overlap(target, open_store(self._root, self._config)):
            raise InputError(f"{target.root} is not apart from {self._root}, where the shared lake is")
        row = self._tenancy.get(name)
        with _closing(open_catalog(url)) as lake, self._open(row.name) as (source, store):
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

        Raises ``NotFoundError`` when none are kept for it.
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
        catalog. Raises ``NotFoundError``, ``AlreadyExistsError``, ``UnsupportedVersionError``, or ``InputError`` for a
        lake whose files are among those of catalogs.
        """
        parsed = parse_url(url)
        if parsed.catalog is not None:
            raise InputError("only a plain lake can be adopted", hint="fork a catalog of this shared lake instead")
        check_tenant_name(as_)
        with _closing(open_catalog(parsed, read_only=True)) as source:
            source.load()
            store = open_store(source.metadata["data_path"], self._config)
            row = self._tenancy.reserve(as_)
            self._check_apart(source, store)
            target = open_store(self._path(row.folder), self._config, tenant=as_)
            with _closing(self._metadata(as_)) as catalog:
                catalog.reserved = replace(row, borrows=(store.root,))
                self._move(source, store, catalog, target, progress=progress)
        return self._tenant(self._tenancy.get(as_))

    def fork(self, name: str, as_: str) -> Tenant:
        """Create a copy of a catalog that is the same at every snapshot and then develops on its own.

        No file is copied: the fork names the files of the other catalog, which keeps them while the fork needs them,
        even if dropped and purged. Stream positions stay behind. Raises ``NotFoundError`` or ``AlreadyExistsError``.
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
    ) -> Moved:
        engine = DuckDBEngine(new_store, threads=self._config.duckdb_threads)
        try:
            return move_catalog(source, store, target, new_store, engine.texts, copy_data=copy_data, progress=progress)
        finally:
            engine.close()

    def _check_apart(self, source: Catalog, store: Store) -> None:
        """Raise ``InputError`` if files of a plain lake are, or could later be, among those of catalogs.

        The error does not name the other catalogs.
        """
        ours = [open_store(path, self._config) for path in (self._root, *self._tenancy.whole_folders())]
        if any(overlap(store, mine) for mine in ours):
            raise InputError(
                f"the data path of the lake, {store.root}, is not apart from the files of this shared lake",
                hint="move the files of the lake to a folder of their own first",
            )
        with source.read() as reader:
            for page in file_names.absolute_files(reader):
                if any(_is_among(file, mine) for file in page for mine in ours):
                    raise InputError(
                        "the lake names files that are not apart from those of this shared lake",
                        hint="adopt a lake that has copies of all its files, as export(copy_data=True) makes",
                    )

    def _metadata(self, name: str) -> Catalog:
        return open_metadata(parse_url(self._url), self._config, read_only=False, catalog=name)

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[Catalog, Store]]:
        """Open a catalog and the store of its files."""
        with _closing(self._metadata(name)) as catalog:
            catalog.load()
            assert catalog.tenant_row is not None
            row = catalog.tenant_row
            yield catalog, open_store(catalog.metadata["data_path"], self._config, row.borrows, tenant=row.name)


def _is_among(file: NamedFile, store: Store) -> bool:
    path = f"{file.folder.rstrip('/')}/{file.path}" if file.is_relative else file.path
    return store.locate(path) is not None


@contextmanager
def _closing(catalog: Catalog) -> Iterator[Catalog]:
    try:
        yield catalog
    finally:
        catalog.close()


def reserve_catalog(url: str, name: str, data_path: str, config: Config) -> tuple[CatalogRow, str]:
    """Reserve a catalog in the shared lake at a URL, which is created if missing; also return its data path."""
    parsed = parse_url(url)
    tenancy = Tenancy(open_metadata(parsed, config, read_only=False, whole=True))
    try:
        facts = tenancy.facts()
        if facts is None:
            facts = create_lake(tenancy, parsed, config, data_path)
        row = tenancy.reserve(name)
        return row, folder_path(facts.data_path, row.folder)
    finally:
        tenancy.close()
