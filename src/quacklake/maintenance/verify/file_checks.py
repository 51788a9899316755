"""Checks that files exist and match the catalog. They read footers, not rows."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from quacklake.catalog import Catalog
from quacklake.catalog.checks.audit_rows import RowAudit
from quacklake.errors import CorruptFileError, PathError, StorageUnavailableError, UnsupportedFeatureError
from quacklake.format.objects import FIELD_ROW_ID, RESERVED_FIELDS, DataFile, DeleteFile
from quacklake.format.vectors import blobs_of, decode
from quacklake.maintenance.verify.context import Collector, Known
from quacklake.maintenance.verify.findings import Finding, finding
from quacklake.progress import Progress
from quacklake.storage import Store
from quacklake.storage.parquet import Glance, glance

PAGE = 2_000
_THREADS = 8
_KEY_LENGTHS = (16, 24, 32)


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
            self._columns = _column_ids(audit)

    def run(self, progress: Progress) -> None:
        """Check all files. Files that leave the catalog meanwhile are not reported."""
        with ThreadPoolExecutor(_THREADS, "quacklake-verify") as pool:
            for page in self._pages(lambda audit, after: audit.data_files(after, PAGE)):
                self._tell(pool.map(self._data_file, page), progress, len(page))
            for pairs in self._pages(lambda audit, after: audit.delete_files(after, PAGE)):
                self._tell(pool.map(self._delete_file, pairs), progress, len(pairs))

    def _pages(self, read: Callable[[RowAudit, int], Sequence[object]]) -> Iterator[Sequence[object]]:
        after = -(1 << 62)
        while True:
            with self._catalog.read() as reader:
                page = read(RowAudit.of(reader), after)
            if not page:
                return
            yield page
            last = page[-1]
            after = last[0].id if isinstance(last, tuple) else last.id  # type: ignore[attr-defined]

    def _tell(self, found: Iterator[list[Finding]], progress: Progress, count: int) -> None:
        findings = [each for part in found for each in part]
        if findings:
            with self._catalog.read() as reader:
                there = RowAudit.of(reader).still_there([each.file_id for each in findings if each.file_id is not None])
            self._collector.take(each for each in findings if each.file_id in there)
        self._collector.files += count
        progress("looking at files", self._collector.files, None)

    # -- one file ----------------------------------------------------------------------------------------------------

    def _data_file(self, file: DataFile) -> list[Finding]:
        tell = partial(finding, table=self._known.name(file.table_id), file_id=file.id)
        found = self._numbers(tell, file.record_count, file.file_size_bytes)
        found += self._key(tell, file.encryption_key, foreign=file.mapping_id is not None)
        path = self._resolve(tell, file, found)
        seen = None if path is None else self._glance(tell, path, file, found)
        if seen is not None:
            if seen.rows is not None and seen.rows != file.record_count:
                found.append(tell("V074", f"{seen.rows} instead of {file.record_count}"))
            found += self._fields(tell, file, seen)
        return found

    def _fields(self, tell: Callable[..., Finding], file: DataFile, seen: Glance) -> list[Finding]:
        if seen.field_ids is None or file.mapping_id is not None:
            return []
        strange = seen.field_ids - self._columns.get(file.table_id, frozenset()) - RESERVED_FIELDS.keys()
        return [tell("V075", f"field ids {sorted(strange)}")] if strange else []

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

    def _resolve(self, tell: Callable[..., Finding], file: DataFile | DeleteFile, found: list[Finding]) -> str | None:
        base, relative = self._locations.get(file.table_id, ("", True))
        try:
            base = base if relative else self._store.resolve(base, False)
            return self._store.resolve(file.path, bool(file.path_is_relative), base)
        except PathError as error:
            if file.path_is_relative and relative:
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
            found.append(tell("V072" if self._exists(path) else "V070", error.message))
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

    def _exists(self, path: str) -> bool:
        return self._store.exists(path)

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
        return [] if length in _KEY_LENGTHS else [tell("V063", "what there is, is no key")]

    # -- row ids -----------------------------------------------------------------------------------------------------

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


_MAX_PAIRS = 10_000


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


def _column_ids(audit: RowAudit) -> dict[int, frozenset[int]]:
    """Return every column id that each table ever had."""
    found: dict[int, set[int]] = {}
    for table_id, column_id in audit.column_ids():
        found.setdefault(table_id, set()).add(column_id)
    return {id_: frozenset(ids) for id_, ids in found.items()}
