"""Import a folder of Parquet, CSV or JSON files: a table for each folder of them, a unit for each file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import cast

import pyarrow as pa

from quacklake import CsvOptions, Lake, LakeTransaction, open_files
from quacklake.errors import InputError
from quacklake.extend.inputs import InputFiles
from quacklake.extend.names import DEFAULT_SCHEMA, TableRef
from quacklake.extend.schemas import TableSchema, to_schema
from quacklake.extend.stores import find_store
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.tables import Selection, SourceTable, SourceView, Unit


class FolderSource:
    """A folder. With a name, all of its files are one table; otherwise their places say which table they are of."""

    def __init__(
        self,
        lake: Lake,
        place: str,
        kind: str,
        named: TableRef | None,
        *,
        in_place: bool,
        map_types: Mapping[str, str],
        csv: CsvOptions | None = None,
    ) -> None:
        if map_types:
            raise InputError("types of files are not mapped", hint="cast the columns afterwards, or before")
        self._lake, self._kind, self._named, self._in_place = lake, kind, named, in_place
        self._place = place if "://" in place else str(Path(place).expanduser().absolute())
        self._store = find_store(lake)
        if "://" in place and self._store.is_local:  # a lake of an object store reads with its own keys
            self._store = find_store(lake, place)
        self._files = open_files(self._place, kind, store=self._store, csv=csv)
        self._remote = self._list_contents() if "://" in place else {}

    @property
    def origin(self) -> str:
        """The format and the folder."""
        return f"{self._kind}:{self._place}"

    def tables(self, wanted: Selection) -> list[SourceTable]:
        """Return a table for each place; see :func:`table_of`."""
        groups: dict[tuple[str, str], list[str]] = {}
        start = len(self._place.rstrip("/")) + 1
        for path in self._files.found.paths:
            below = path[start:] if path != self._place else PurePosixPath(path).name
            found = (self._named.schema, self._named.name) if self._named is not None else table_of(below)
            if found is None:
                raise InputError(
                    f"the folder {self._place} says no name for the table of {below}", hint="pass the name of the table"
                )
            if self._named is not None or wanted.has(*found):
                groups.setdefault(found, []).append(path)
        return [self._table(*name, paths) for name, paths in sorted(groups.items())]

    def views(self, wanted: Selection) -> list[SourceView]:
        """Return none: files are no views."""
        return []

    def left_out(self) -> list[LeftOut]:
        """Return nothing: everything in files is rows."""
        return []

    def close(self) -> None:
        """Do nothing: files are opened to be read."""

    def _table(self, schema: str, name: str, paths: Sequence[str]) -> SourceTable:
        files = self._of(paths, name)
        columns = to_schema(files.read(counted=not self._in_place).schema)
        units = [Unit(self._identity(path), _reader(self._of([path], name, files), columns)) for path in paths]
        return SourceTable(
            schema,
            name,
            columns,
            units,
            version="" if files.csv == CsvOptions() else repr(files.csv),
            rows=files.total,
            add=_adder(paths, hive=bool(files.found.folders)) if self._in_place else None,
        )

    def _of(self, paths: Sequence[str], name: str, like: InputFiles | None = None) -> InputFiles:
        """Return some of the files, with the columns that the folders of their table add."""
        found = self._files.found
        start = len(self._place.rstrip("/")) + 1
        keys = {tuple(part.partition("=")[0] for part in path[start:].split("/")[:-1] if "=" in part) for path in paths}
        folders = like.found.folders if like is not None else next(iter(keys)) if len(keys) == 1 else ()
        label = paths[0] if len(paths) == 1 else f"the files of {name}"
        return InputFiles(
            replace(found, name=label, paths=tuple(paths), folders=folders), self._files.store, self._files.csv
        )

    def _list_contents(self) -> dict[str, str]:
        """Return what tells contents of files of an object store apart: their sizes and times, by their URLs."""
        paths, store = self._files.found.paths, self._store
        inside = [path.partition("://")[2] for path in paths]
        found = store.attempts.run("find", self._place, lambda: store.filesystem.get_file_info(inside))
        return {path: f"{info.size}\0{info.mtime_ns}" for path, info in zip(paths, found, strict=True)}

    def _identity(self, path: str) -> str:
        """Return a name of a file that another content does not have."""
        if "://" in path:
            return f"{path}\0{self._remote[path]}"
        found = Path(path).stat()
        return f"{path}\0{found.st_size}\0{found.st_mtime_ns}"


def table_of(path: str) -> tuple[str, str] | None:
    """Return the schema and the table of a file by its place below the folder; None when nothing names it.

    Folders such as ``year=2024`` are values. Of the others, one is a table and two are a schema and a table, which may
    have more folders inside; a file that is in none is a table of its own.

    >>> table_of("orders.parquet"), table_of("orders/1.parquet"), table_of("orders/year=2024/1.parquet")
    (('main', 'orders'), ('main', 'orders'), ('main', 'orders'))
    >>> table_of("shop/orders/1.parquet"), table_of("shop/orders/old/1.parquet"), table_of("year=2024/1.parquet")
    (('shop', 'orders'), ('shop', 'orders'), None)
    """
    *folders, file = path.split("/")
    names = [part for part in folders if "=" not in part]
    if len(names) > 1:
        return names[0], names[1]
    if names:
        return DEFAULT_SCHEMA, names[0]
    return None if folders else (DEFAULT_SCHEMA, file.partition(".")[0] or file)


def _reader(files: InputFiles, columns: TableSchema) -> Callable[[], Iterable[pa.RecordBatch]]:
    def read() -> Iterable[pa.RecordBatch]:
        return cast(Iterable[pa.RecordBatch], files.read(columns))

    return read


def _adder(paths: Sequence[str], *, hive: bool) -> Callable[[LakeTransaction, str, Sequence[Unit]], int]:
    def add(transaction: LakeTransaction, table: str, units: Sequence[Unit]) -> int:
        return transaction.table(table).add_files(
            list(paths[len(paths) - len(units) :]), allow_missing=True, hive_partitioning=hive
        )

    return add
