"""Checks that files exist and match the catalog by their footers, and by their rows where that is asked for."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from quacklake.core.catalog import Catalog
from quacklake.core.catalog.checks.audit_rows import ColumnFacts, RowAudit
from quacklake.core.engines.duckdb.audit import DuckDBAudit
from quacklake.core.format import bounds as bound_texts
from quacklake.core.format.objects import FIELD_ROW_ID, RESERVED_FIELDS, DataFile, DeleteFile, TableInfo
from quacklake.core.format.schema import Column
from quacklake.core.format.types import StatsKind, scalar
from quacklake.core.format.vectors import blobs_of, decode
from quacklake.core.maintenance.verify.findings import Collector, Finding, Fix, Known, finding
from quacklake.core.progress import Progress
from quacklake.core.scan import ScanPlan
from quacklake.core.scan.legacy_files import map_by_names
from quacklake.core.scan.plan import FILES, FileMeasure
from quacklake.core.scan.planner import plan_mappings, plan_scan
from quacklake.core.storage import Store
from quacklake.core.storage.parquet import Glance, glance
from quacklake.errors import (
    CorruptFileError,
    PathError,
    QuacklakeError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)

T = TypeVar("T")
PAGE = 2_000
_THREADS = 8
_KEY_LENGTHS = (16, 24, 32)
_MAX_PAIRS = 10_000
_FILES = 200
_ROW_IDS = 8_000_000
_NO_STATS = (StatsKind.NONE, StatsKind.GEOMETRY, StatsKind.VARIANT)


def _pages(catalog: Catalog, read: Callable[[RowAudit, int], Sequence[T]], after: int = -1) -> Iterator[Sequence[T]]:
    """Yield pages of data files, or of delete files with the rows of their data files, each from a separate read."""
    while True:
        with catalog.read() as reader:
            page = read(RowAudit.of(reader), after)
        if not page:
            return
        yield page
        last: Any = page[-1]
        after = (last[0] if isinstance(last, tuple) else last).id


class FileChecks:
    """Checks every file of a lake, in pages and in parallel."""

    def __init__(self, catalog: Catalog, store: Store, known: Known, collector: Collector) -> None:
        self._catalog = catalog
        self._store = store
        self._known = known
        self._collector = collector
        with catalog.read() as reader:
            audit = RowAudit.of(reader)
            self._locations = audit.locations()
            self._columns: dict[int, set[int]] = {}
            for table_id, column_id in audit.column_ids():
                self._columns.setdefault(table_id, set()).add(column_id)

    def run(self, progress: Progress) -> None:
        """Check all files. Files that leave the catalog meanwhile are not reported."""
        with ThreadPoolExecutor(_THREADS, "quacklake-verify") as pool:
            first = -(1 << 62)
            for page in _pages(self._catalog, lambda audit, after: audit.data_files(after, PAGE), first):
                self._tell(pool.map(self._data_file, page), progress, len(page))
            for pairs in _pages(self._catalog, lambda audit, after: audit.delete_files(after, PAGE), first):
                self._tell(pool.map(self._delete_file, pairs), progress, len(pairs))

    def _tell(self, found: Iterator[list[Finding]], progress: Progress, count: int) -> None:
        findings = [each for part in found for each in part]
        if findings:
            with self._catalog.read() as reader:
                there = RowAudit.of(reader).still_there([each.file_id for each in findings if each.file_id is not None])
            self._collector.take(each for each in findings if each.file_id in there)
        self._collector.files += count
        progress("looking at files", self._collector.files, None)

    def _data_file(self, file: DataFile) -> list[Finding]:
        tell = partial(finding, table=self._known.name(file.table_id), file_id=file.id)
        found = self._numbers(tell, file.record_count, file.file_size_bytes)
        found += self._key(tell, file.encryption_key, foreign=file.mapping_id is not None)
        path = self._resolve(tell, file, found)
        seen = None if path is None else self._glance(tell, path, file, found)
        if seen is not None:
            if seen.rows is not None and seen.rows != file.record_count:
                found.append(tell("V074", f"{seen.rows} instead of {file.record_count}"))
            if seen.field_ids is not None and file.mapping_id is None:
                strange = seen.field_ids - self._columns.get(file.table_id, set()) - RESERVED_FIELDS.keys()
                found += [tell("V075", f"field ids {sorted(strange)}")] if strange else []
        return found

    def _delete_file(self, pair: tuple[DeleteFile, int | None]) -> list[Finding]:
        file, rows = pair
        tell = partial(finding, table=self._known.name(file.table_id), file_id=file.id)
        found = self._numbers(tell, file.delete_count, file.file_size_bytes)
        if rows is not None and (file.delete_count or 0) > rows:
            found.append(tell("V031", f"{file.delete_count} deletes of {rows} rows"))
        if file.format == "puffin":
            path = self._resolve(tell, file, found)
            return found if path is None else found + self._vector(tell, path, file, rows)
        if file.format != "parquet":
            return [*found, tell("V072", f'the format "{file.format}" is unknown')]
        found += self._key(tell, file.encryption_key, foreign=False)
        path = self._resolve(tell, file, found)
        seen = None if path is None else self._glance(tell, path, file, found)
        if seen is not None and seen.rows is not None and seen.rows != file.delete_count:
            found.append(tell("V074", f"{seen.rows} instead of {file.delete_count}"))
        return found

    def _vector(self, tell: Callable[..., Finding], path: str, file: DeleteFile, rows: int | None) -> list[Finding]:
        try:
            data = self._store.read(path)
            count = len(decode(blobs_of(data)[-1][1], rows=rows))
        except CorruptFileError as error:
            return [tell("V072" if self._store.exists(path) else "V070", error.message)]
        if len(data) != file.file_size_bytes:
            return [tell("V071", f"{len(data)} bytes instead of {file.file_size_bytes}")]
        return [tell("V074", f"{count} instead of {file.delete_count}")] if count != file.delete_count else []

    def _path(self, file: DataFile | DeleteFile) -> str:
        base, relative = self._locations.get(file.table_id, ("", True))
        base = base if relative else self._store.resolve(base, False)
        return self._store.resolve(file.path, bool(file.path_is_relative), base)

    def _resolve(self, tell: Callable[..., Finding], file: DataFile | DeleteFile, found: list[Finding]) -> str | None:
        try:
            return self._path(file)
        except PathError as error:
            if file.path_is_relative and self._locations.get(file.table_id, ("", True))[1]:
                found.append(tell("V060", error.message))
            else:
                self._collector.skip(f"file {file.id}", error.message)
        return None

    def _glance(
        self, tell: Callable[..., Finding], path: str, file: DataFile | DeleteFile, found: list[Finding]
    ) -> Glance | None:
        try:
            seen = glance(self._store, path)
        except CorruptFileError as error:
            found.append(tell("V072" if self._store.exists(path) else "V070", error.message))
            return None
        except (PathError, UnsupportedFeatureError) as error:
            self._collector.skip(f"file {file.id}", error.message)
            return None
        except StorageUnavailableError as error:
            found.append(tell("V072", error.message))
            return None
        if seen.size_bytes != file.file_size_bytes:
            found.append(tell("V071", f"{seen.size_bytes} bytes instead of {file.file_size_bytes}"))
        elif file.footer_size is not None and seen.footer_size != file.footer_size:
            found.append(tell("V073", f"{seen.footer_size} bytes instead of {file.footer_size}"))
        if seen.encrypted and file.encryption_key is None:
            found.append(tell("V063", "the file is encrypted"))
        return seen

    def _numbers(self, tell: Callable[..., Finding], rows: int | None, size: int | None) -> list[Finding]:
        wrong = rows is None or rows < 0 or size is None or size < 0
        return [tell("V031", f"{rows} rows and {size} bytes")] if wrong else []

    def _key(self, tell: Callable[..., Finding], key: str | None, *, foreign: bool) -> list[Finding]:
        """Check that there is a key where one is required; the key itself is never reported."""
        if key is None:
            return [tell("V063", "there is none")] if self._known.encrypted and not foreign else []
        try:
            length = len(base64.b64decode(key, validate=True))
        except (binascii.Error, ValueError):
            length = 0
        return [] if length in _KEY_LENGTHS else [tell("V063", "it is not a key")]

    def row_ids(self) -> None:
        """Check V032: files of one table with overlapping row ids that live at the same time."""
        with self._catalog.read() as reader:
            pairs = list(_crossing(RowAudit.of(reader), self._known))
        counting: dict[int, bool] = {}
        for table_id, one, two in pairs:
            for file_id in (one, two):
                if file_id not in counting:
                    counting[file_id] = self._counts_rows(file_id)
            if counting[one] and counting[two]:
                self._collector.take(
                    [finding("V032", f"{one} and {two}", table=self._known.name(table_id), file_id=two)]
                )

    def _counts_rows(self, file_id: int) -> bool:
        """Return whether the row ids of a file follow from row positions instead of being stored in it."""
        with self._catalog.read() as reader:
            found = RowAudit.of(reader).data_files(file_id - 1, 1)
        if not found or found[0].id != file_id:
            return False
        ignored: list[Finding] = []
        path = self._resolve(partial(finding), found[0], ignored)
        seen = None if path is None else self._glance(partial(finding), path, found[0], ignored)
        # An encrypted file does not reveal this; a file of several snapshots always stores its row ids.
        return seen is not None and seen.field_ids is not None and FIELD_ROW_ID not in seen.field_ids


def _crossing(audit: RowAudit, known: Known) -> Iterator[tuple[int, int, int]]:
    """Yield files whose row id ranges and lifetimes overlap: table, one file, the other."""
    table, count = None, 0
    active: list[tuple[int, int, int, int]] = []
    for table_id, first, rows, file_id, begin, end in audit.row_ranges():
        if table_id != table:
            table, active = table_id, []
        active = [other for other in active if other[0] > first]
        for _, other_id, other_begin, other_end in active:
            if rows and known.seen(max(begin, other_begin), min(end, other_end)) and count < _MAX_PAIRS:
                count += 1
                yield table_id, other_id, file_id
        if rows:
            active.append((first + rows, file_id, begin, end))


class DeepChecks(FileChecks):
    """Reads the data of every file too, a group of files at a time."""

    def read(self, engine: DuckDBAudit, progress: Progress) -> None:
        self._engine = engine
        with self._catalog.read() as reader:
            tables = RowAudit.of(reader).table_lives()
            following = RowAudit.of(reader).next_row_ids()
        for number, (table_id, end) in enumerate(sorted(tables.items())):
            progress("reading tables", number, len(tables))
            name = self._known.name(table_id)
            try:
                self._table(table_id, end, following.get(table_id))
            except CorruptFileError as error:
                self._unreadable(error, name)
            except QuacklakeError as error:
                self._collector.skip(name, error.message)
        self._delete_files(progress)

    def _unreadable(self, error: CorruptFileError, table: str, file_id: int | None = None) -> None:
        """Report a file that cannot be read, unless a commit may have removed it meanwhile."""
        with self._catalog.read() as reader:
            changed = reader.snapshots.latest().id != self._known.latest.id
        if changed:
            self._collector.skip(table, f"the lake has changed while it was read: {error.message}")
        else:
            self._collector.take([finding("V088", error.message, table=table, file_id=file_id)])

    def _table(self, table_id: int, end: int | None, following: int | None) -> None:
        before = [id_ for id_ in self._known.snapshots if end is not None and id_ < end]
        if end is not None and not before:
            return
        with self._catalog.read() as reader:
            snapshot = self._known.latest if end is None else reader.snapshots.at_version(before[-1])
            info = reader.tables.by_id(snapshot, table_id)
            if info is None:
                return
            plan = plan_scan(reader, self._catalog, self._store, snapshot, info)
        for page in _pages(self._catalog, lambda audit, after: audit.data_files(after, _FILES, table_id)):
            self._files(info, plan, page, following)
        if end is None:
            self._whole(info, plan)

    def _files(self, info: TableInfo, plan: ScanPlan, page: Sequence[DataFile], following: int | None) -> None:
        columns = _measurable(info)
        with self._catalog.read() as reader:
            stats = RowAudit.of(reader).statistics_of(info.id, page[0].id, page[-1].id)
            files = _plan_files(page, info, self._store)
            mappings = plan_mappings(reader, files)
            files, mappings = map_by_names(reader, self._store, self._known.latest, info, files, mappings)
        bounds: dict[int | None, Mapping[int, ColumnFacts]]
        bounds = {file.id: _bounds(stats.get(file.id, {}), columns) for file in page}
        part = replace(
            plan,
            files=files,
            deletes=plan.deletes.slice(0, 0),
            inlined=None,
            mappings=mappings,
            snapshot_id=self._known.latest.id,
        )
        by_id = {file.id: file for file in page}
        for file_id, name in self._engine.beyond_double(part):
            self._collector.take([finding("V089", f'column "{name}"', table=info.qualified_name, file_id=file_id)])
        for measure in self._engine.measure(part, columns, bounds):
            assert measure.file_id is not None
            self._compare_file(info, by_id[measure.file_id], measure, bounds[measure.file_id], following)

    def _compare_file(
        self,
        info: TableInfo,
        file: DataFile,
        measure: FileMeasure,
        bounds: Mapping[int, ColumnFacts],
        following: int | None,
    ) -> None:
        table, id_ = info.qualified_name, file.id
        take = self._collector.take
        if measure.rows != file.record_count:
            take([finding("V074", f"{measure.rows} instead of {file.record_count}", table=table, file_id=id_)])
        last = file.begin_snapshot if file.partial_max is None else file.partial_max
        first = file.begin_snapshot
        # Rows older than all snapshots may be older than the file that they were merged into.
        early = (measure.first_snapshot or first) < first and self._known.seen(0, first)
        if measure.first_snapshot is not None and (early or (measure.last_snapshot or 0) > max(last, first)):
            detail = f"{measure.first_snapshot} to {measure.last_snapshot}, and it lived from {first} to {last}"
            take([finding("V084", detail, table=table, file_id=id_)])
        if measure.last_row_id is not None and (following is None or measure.last_row_id >= following):
            detail = f"{measure.last_row_id}, and the next is {following}"
            fix = Fix("next_row_id", (info.id, measure.last_row_id + 1))
            take([finding("V087", detail, table=table, file_id=id_, fix=fix if following is not None else None)])
        for column_id, seen in measure.columns.items():
            bound, what = bounds.get(column_id, ColumnFacts()), f"of column {column_id}"
            if seen.outside:
                fix = Fix("drop_file_bounds", (id_, column_id))
                take([finding("V080", what, table=table, file_id=id_, fix=fix)])
            if bound.nulls is not None and bound.nulls != seen.nulls:
                fix = Fix("drop_file_counts", (id_, column_id))
                take([finding("V081", f"{what}: {seen.nulls}, not {bound.nulls}", table=table, file_id=id_, fix=fix)])
            if bound.nan is False and seen.nan:
                fix = Fix("drop_file_nan", (id_, column_id))
                take([finding("V082", what, table=table, file_id=id_, fix=fix)])

    def _whole(self, info: TableInfo, plan: ScanPlan) -> None:
        columns = _measurable(info)
        with self._catalog.read() as reader:
            bounds = _bounds(RowAudit.of(reader).table_bounds(info.id), columns)
        for measure in self._engine.measure(plan, columns, {None: bounds}):
            for column_id, seen in measure.columns.items():
                bound = bounds.get(column_id, ColumnFacts())
                wrong = seen.outside or (bound.nan is False and seen.nan) or (bound.nulls == 0 and seen.nulls > 0)
                if wrong:
                    fix = Fix("drop_table_bounds", (info.id, column_id))
                    self._collector.take([finding("V086", f"column {column_id}", table=info.qualified_name, fix=fix)])
            # as many parts as there are rows for, however large their ids are
            parts = -(-measure.rows // _ROW_IDS)
            for part in range(parts):
                twice = self._engine.repeated_row_id(plan, part, parts)
                if twice is not None:
                    self._collector.take([finding("V085", f"row id {twice}", table=info.qualified_name)])

    def _delete_files(self, progress: Progress) -> None:
        done = 0
        for page in _pages(self._catalog, lambda audit, after: audit.delete_files(after, _FILES)):
            for file, rows in page:
                if file.format == "parquet" and file.table_id in self._locations:
                    self._positions(file, rows)
            done += len(page)
            progress("reading delete files", done, None)

    def _positions(self, file: DeleteFile, rows: int | None) -> None:
        table = self._known.name(file.table_id)
        try:
            seen = self._engine.positions(self._path(file), file.encryption_key)
        except CorruptFileError as error:
            self._unreadable(error, table, file.id)
            return
        except QuacklakeError as error:
            self._collector.skip(f"file {file.id}", error.message)
            return
        outside = seen.rows and ((seen.lowest or 0) < 0 or (rows is not None and (seen.highest or 0) >= rows))
        if outside or not seen.ordered:
            detail = f"positions {seen.lowest} to {seen.highest} of {rows} rows"
            self._collector.take([finding("V083", detail, table=table, file_id=file.id)])


def _measurable(info: TableInfo) -> list[Column]:
    """Return the columns whose values have an order that statistics describe."""
    return [
        column for column in info.schema.columns if not column.nested and scalar(column.type).stats not in _NO_STATS
    ]


def _bounds(stats: Mapping[int, ColumnFacts], columns: Sequence[Column]) -> dict[int, ColumnFacts]:
    """Return bounds in the documented encoding; unreadable ones are reported elsewhere and left out."""
    found = {}
    for column in columns:
        bound = stats.get(column.id)
        if bound is not None:
            found[column.id] = replace(
                bound, low=_describe_bound(bound.low, column), high=_describe_bound(bound.high, column)
            )
    return found


def _describe_bound(text: str | None, column: Column) -> str | None:
    value = bound_texts.decode(text, column.type)
    return None if value is None else bound_texts.encode_comparable(value, column.type)


def _plan_files(page: Sequence[DataFile], info: TableInfo, store: Store) -> pa.Table:
    """Return data files as a plan lists them, without deletes."""
    base = info.location
    if not (info.path_is_relative and info.schema_path_is_relative):
        base = store.resolve(base, False)
    rows = [
        {
            "data_file_id": file.id,
            "path": store.resolve(file.path, bool(file.path_is_relative), base),
            "record_count": file.record_count,
            "file_size_bytes": file.file_size_bytes,
            "footer_size": file.footer_size,
            "row_id_start": file.row_id_start,
            "begin_snapshot": file.begin_snapshot,
            "partial_max": file.partial_max,
            "partition_id": file.partition_id,
            "mapping_id": file.mapping_id,
            "encryption_key": file.encryption_key,
        }
        for file in page
    ]
    return pa.Table.from_pylist(rows, schema=FILES)
