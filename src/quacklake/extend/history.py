"""A table through time, for catalogs of other formats: the files that its snapshots saw, deletes, and columns.

The history is read in one transaction. It is data: no file is opened, and no row is read but those in the catalog.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.catalog import InlinedRows
from quacklake.core.catalog.reading.lifetimes import TableLives, newest_snapshots, snapshot_range
from quacklake.core.engines.duckdb.connections import reading
from quacklake.core.format.mappings import NameMapping
from quacklake.core.format.objects import TableInfo
from quacklake.core.operations.context import LakeContext
from quacklake.core.scan import ScanPlan
from quacklake.core.scan.inlined_rows import decode_inlined
from quacklake.core.scan.plan import FILES
from quacklake.core.storage import Store
from quacklake.errors import LimitError, NotFoundError, NotPermittedError
from quacklake.extend.duckdbs import Connection
from quacklake.extend.reads import find_table
from quacklake.extend.schemas import TableSchema
from quacklake.lake.lake import Lake

__all__ = ["TableHistory"]


@dataclass(frozen=True)
class TableHistory:
    """A table at the newest snapshots of its lake: ``snapshots`` are their ids and times, oldest first.

    ``schemas`` are its columns, each with the snapshot since which they are so. ``files`` and ``delete_files`` are
    those that any of the snapshots saw, with paths that ``Store`` takes; ``deleted`` are the deletes in the catalog,
    and ``statistics`` those of columns by file. A file without column ids has a ``mapping_id``, one of ``mappings``.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     history = TableHistory.read(lake, "events", snapshots=100)
    ...     history.newest, history.files.column("record_count").to_pylist(), history.catalog_points
    (4, [5], [3])
    """

    name: str
    id: int
    uuid: str
    snapshots: Sequence[tuple[int, dt.datetime | None]]
    schemas: Sequence[tuple[int, TableSchema]]
    last_column_id: int
    next_row_id: int
    files: pa.Table
    delete_files: pa.Table
    deleted: pa.Table
    statistics: pa.Table
    mappings: Mapping[int, NameMapping]
    _table: TableInfo = field(repr=False)
    _inlined: Sequence[InlinedRows] = field(repr=False)
    _context: LakeContext = field(repr=False)

    @staticmethod
    def find_key(lake: Lake, table: str) -> tuple[object, ...]:
        """Return what the history of a table depends on: while that is the same, so is the history.

        Raise ``NotFoundError`` for a table that is not there.
        """
        tx = lake.handle.view()
        info = find_table(tx, table)
        with lake.handle.context.catalog.read() as reader:
            return (info.id, info.uuid, info.schema_name, info.name, *snapshot_range(reader))

    @classmethod
    def read(
        cls,
        lake: Lake,
        table: str,
        *,
        snapshots: int,
        max_files: int | None = None,
        max_catalog_rows: int | None = None,
    ) -> TableHistory:
        """Return the history of a table of the newest snapshot, for at most so many ``snapshots``.

        Raise ``NotFoundError`` for a table that is not there, ``NotPermittedError`` for the lake of a principal who may
        not read all of it, ``LimitError`` for more files or rows, ``PathError`` for a file outside of the lake.
        """
        view, context = lake.handle.view(), lake.handle.context
        wanted = find_table(view, table)
        if view.rules is not None and not view.rules.shows_files(view.whole(wanted), derived=view.is_derived(wanted)):
            raise NotPermittedError(f"the files of {wanted.qualified_name} may not be read")
        with context.catalog.read() as reader:
            latest = reader.snapshots.latest()
            info = reader.tables.find(latest, wanted.schema_name, wanted.name)
            if info is None:
                raise NotFoundError(f"there is no table {wanted.qualified_name}")
            listed = newest_snapshots(reader, snapshots)
            lives = TableLives(reader, info, listed[0][0], listed[-1][0])
            birth = lives.birth()
            files, deletes, inlined = lives.data_files(), lives.delete_files(), lives.inlined_rows()
            _check_count(files.num_rows, max_files, f"the table {info.qualified_name} had", "files in these snapshots")
            rows = sum(part.rows.num_rows for part in inlined)
            _check_count(rows, max_catalog_rows, "the catalog holds", f"rows of {info.qualified_name} itself")
            past = reader.tables.past_columns(latest, info)
            if not past or past[-1][1] != info.schema:
                past = (*past, (latest.id, info.schema))
            scalars = {column.id for _, schema in past for column in schema.columns if not column.nested}
            mapped = sorted(set(files.column("mapping_id").drop_null().to_pylist()))
            return cls(
                name=info.qualified_name,
                id=info.id,
                uuid=info.uuid,
                snapshots=[each for each in listed if each[0] >= birth],
                schemas=past,
                last_column_id=reader.tables.last_column_id(info.id),
                next_row_id=lives.next_row_id(),
                files=_with_paths(files, info, context.store),
                delete_files=_with_paths(deletes, info, context.store),
                deleted=lives.inlined_deletes(),
                statistics=lives.statistics(sorted(scalars)),
                mappings={each.id: each for each in reader.files.name_mappings(mapped)} if mapped else {},
                _table=info,
                _inlined=inlined,
                _context=context,
            )

    @property
    def newest(self) -> int:
        """The newest snapshot."""
        return self.snapshots[-1][0]

    @property
    def catalog_points(self) -> list[int]:
        """The snapshots at which rows came into the catalog or left it, in order."""
        columns = (part.rows.column(name) for part in self._inlined for name in ("begin_snapshot", "end_snapshot"))
        return sorted({each for column in columns for each in column.unique().to_pylist() if each is not None})

    def read_catalog_rows(self, since: int) -> pa.Table | None:
        """Return the rows that were in the catalog while the columns were those ``since`` a snapshot; None for none.

        A column is called ``c`` and its id. ``row_id``, ``begin_snapshot`` and ``end_snapshot`` say which row it is
        and when it was there. Rows that came later are left out: earlier columns may not hold their values.
        """
        later = min((point for point, _ in self.schemas if point > since), default=None)
        parts = [_before(part, later) for part in self._inlined]
        schema = next(schema for point, schema in self.schemas if point == since)
        some = [part for part in parts if part.rows.num_rows]
        return decode_inlined(some, schema, self._context.catalog.encoding, ends=True)

    @contextmanager
    def open_rows(
        self, schema: TableSchema, *, file: int | None = None, rows: pa.Table | None = None
    ) -> Iterator[tuple[Connection, str]]:
        """Yield a connection of DuckDB, and the query of all rows of a file, or of ``rows`` of the catalog, in columns.

        Deleted rows of the file are there, too. ``_ql_row_id`` is the id of a row, ``_ql_position`` its place.
        """
        plan = ScanPlan(
            table_id=self.id,
            schema_name=self._table.schema_name,
            table_name=self._table.name,
            snapshot_id=self.newest,
            root=self._context.store.root,
            schema=schema,
            files=self._plan_file(file),
            inlined=rows,
            # nothing is assumed of the fields inside nested columns: each file is asked
            shaped_at=self.newest,
            reshaped=True,
            mappings=tuple(self.mappings.values()),
        )
        with self._context.engine.connection() as connection, reading():
            yield connection, self._context.engine.bind(connection, plan, rows=True)

    def _plan_file(self, file: int | None) -> pa.Table:
        if file is None:
            return FILES.empty_table()
        (known,) = self.files.filter(pc.equal(self.files.column("data_file_id"), file)).to_pylist()
        row: dict[str, Any] = {**dict.fromkeys(FILES.names), **{name: known[name] for name in _PLANNED}}
        return pa.Table.from_pylist([row], FILES)


_PLANNED = ("data_file_id", "path", "record_count", "file_size_bytes", "row_id_start", "begin_snapshot", "mapping_id")


def _check_count(count: int, most: int | None, what: str, of: str) -> None:
    if most is not None and count > most:
        raise LimitError(f"{what} {count:,} {of}", hint="merge or flush them, expire snapshots, or raise the limit")


def _with_paths(files: pa.Table, table: TableInfo, store: Store) -> pa.Table:
    """Return files with where they are: in the lake, or in a folder that it may read; links are followed."""
    relative = table.path_is_relative and table.schema_path_is_relative
    base = table.location if relative else store.resolve(table.location, False)
    texts, own = files.column("path").to_pylist(), files.column("path_is_relative").to_pylist()
    paths = [store.resolve(text, bool(flag), base) for text, flag in zip(texts, own, strict=True)]
    store.readable_urls(paths)
    place = files.schema.get_field_index("path")
    return files.set_column(place, "path", pa.array(paths, pa.string())).drop_columns(["path_is_relative"])


def _before(part: InlinedRows, snapshot: int | None) -> InlinedRows:
    """Return the rows that came before a snapshot."""
    if snapshot is None:
        return part
    chosen = part.rows.filter(pc.less(part.rows.column("begin_snapshot"), snapshot))
    return InlinedRows(part.schema, part.schema_version, chosen)
