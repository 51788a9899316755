"""Tables of a lake as tables of Iceberg: what is read, generated and cached when a reader loads one."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.history import TableHistory
from quacklake.extend.names import quote
from quacklake.extend.schemas import TableSchema
from quacklake.extend.stores import Store
from quacklake.lake import Lake
from quacklake.service.iceberg.avro import Manifest, encode_list, encode_manifest
from quacklake.service.iceberg.cache import Cache, Made
from quacklake.service.iceberg.copies import FileReader, RowCopier
from quacklake.service.iceberg.lives import Chunk, DataFile, Deleted, last_point, states
from quacklake.service.iceberg.manifests import (
    Placed,
    Statistics,
    counts,
    data_entry,
    file_entries,
    position_entry,
    vector_entry,
)
from quacklake.service.iceberg.metadata import ServedSnapshot, table_metadata, unwritable
from quacklake.service.iceberg.names import NameMappings
from quacklake.service.iceberg.puffin import Vector, encode_positions, encode_puffin
from quacklake.service.iceberg.settings import CACHE_FOLDER, IcebergSettings
from quacklake.service.iceberg.source import Source, read_source
from quacklake.service.iceberg.types import READERS, ServedSchema, serve

__all__ = ["LakeTables", "LoadedTable"]

_REMEMBERED = 64
"""Loaded tables that are kept in memory."""


@dataclass(frozen=True)
class LoadedTable:
    """A table as a reader gets it: its metadata, the mark of this state, and what each reader cannot read of it."""

    metadata: Mapping[str, Any]
    etag: str
    readers: Mapping[str, str]


class LakeTables:
    """The tables of one lake. Safe to share between threads."""

    def __init__(self, lake: Lake, settings: IcebergSettings) -> None:
        self._lake = lake
        self._settings = settings
        self._store = lake.handle.context.store
        self._cache = Cache(*_cache_place(lake, self._store, settings), settings)
        self._files = FileReader(self._store)
        self._loaded: OrderedDict[tuple[object, ...], tuple[LoadedTable, float]] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, schema: str, name: str, version: int | None = None, *, lake: Lake | None = None) -> LoadedTable:
        """Return a table of the newest snapshot, with the older ones that are kept; ``lake`` is as a principal sees it.

        Raise ``NotFoundError``, or ``UnsupportedFeatureError`` with the reason why it cannot be served.
        """
        version, lake = version or self._settings.format_version, lake or self._lake
        table = f"{quote(schema)}.{quote(name)}"
        key = (version, *TableHistory.find_key(lake, table))
        with self._cache.making(f"{key[1]}"):
            found = self._find_loaded(key)
            if found is None:
                source = read_source(lake, table, self._settings)
                found = _Build(lake, self._store, self._settings, self._cache, self._files, source, version).load()
                with self._lock:
                    self._loaded[key] = (found, time.monotonic())
                    while len(self._loaded) > _REMEMBERED:
                        self._loaded.popitem(last=False)
        return found

    def readers(self, schema: str, name: str) -> dict[str, str]:
        """Return for each known reader why it cannot read a table, an empty text if it can."""
        try:
            return dict(self.load(schema, name).readers)
        except UnsupportedFeatureError as error:
            return dict.fromkeys(READERS, error.message)

    def _find_loaded(self, key: tuple[object, ...]) -> LoadedTable | None:
        with self._lock:
            known = self._loaded.get(key)
            if known is not None:
                self._loaded.move_to_end(key)
        # its files must have been looked for lately
        return known[0] if known and time.monotonic() - known[1] < self._settings.cache_seconds / 4 else None


def _identity(lake: Lake, store: Store) -> str:
    """Return a text that differs between lakes."""
    return f"{lake.handle.context.catalog.url}\n{lake.catalog}\n{store.root}"  # principals may not ask for it


def _cache_place(lake: Lake, store: Store, settings: IcebergSettings) -> tuple[Store, str]:
    """Return the store of generated files, and the folder of this lake in it."""
    if settings.cache_path is None:
        return store, CACHE_FOLDER
    other = Store.open(settings.cache_path, s3=store.s3, label=store.label)
    return other, f"{hashlib.sha256(_identity(lake, store).encode()).hexdigest()[:24]}/"


class _Build:
    """One load of one table."""

    def __init__(
        self,
        lake: Lake,
        store: Store,
        settings: IcebergSettings,
        cache: Cache,
        files: FileReader,
        source: Source,
        version: int,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._files = files
        self._source = source
        self._history = source.history
        self._version = version
        self._store = store
        self._copier = RowCopier(self._history)
        self._statistics = Statistics(self._history.statistics)
        self._names = NameMappings(self._history.mappings)
        self._manifests: dict[tuple[object, ...], Manifest | None] = {}
        self._placed: dict[tuple[int, int], Placed] = {}
        self._digests: dict[int, str] = {}
        self._decoded: dict[int, pa.Table | None] = {}
        self._lake = _identity(lake, store)

    def load(self) -> LoadedTable:
        history, current = self._history, self._history.schemas[-1]
        served = serve(current[1], self._version)  # what cannot be served now is refused, whatever it was
        times = dict(history.snapshots)
        kept: list[tuple[int, list[int], ServedSchema]] = []
        for point, seen_by in reversed(states(times, self._source.points, self._settings.states)):
            reason = self._refusal(seen_by[0])
            if reason is not None:
                if not kept:
                    raise reason
                break  # the history begins after what cannot be served
            kept.append((point, seen_by, serve(self._schema(seen_by[0])[1], self._version)))
        snapshots = list(self._snapshots(kept[::-1], times))
        schemas = {each.schema_id for each in snapshots} | {current[0]}
        properties = {
            "quacklake.readers": json.dumps(dict(served.readers)),
            "write.metadata.metrics.default": "counts",  # bounds may be wide: nobody answers min and max from them
        }
        if (mapping := self._names.property()) is not None:
            properties["schema.name-mapping.default"] = mapping
        metadata = table_metadata(
            version=self._version,
            table_uuid=self._history.uuid,
            location=unwritable(self._store.scheme, self._history.uuid),
            name=self._history.name,
            schemas=[serve(schema, self._version).json(id_) for id_, schema in history.schemas if id_ in schemas],
            current_schema=current[0],
            last_column_id=history.last_column_id,
            snapshots=snapshots,
            next_row_id=history.next_row_id,
            properties=properties,
        )
        etag = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()
        return LoadedTable(metadata, etag, served.readers)

    def _schema(self, snapshot: int) -> tuple[int, TableSchema]:
        """Return the columns at a snapshot, and the snapshot that made them, which is their id."""
        past = self._history.schemas
        return next((each for each in reversed(past) if each[0] <= snapshot), past[0])

    def _refusal(self, snapshot: int) -> UnsupportedFeatureError | None:
        """Return why a state cannot be served."""
        schema = self._schema(snapshot)[1]
        try:
            reason = serve(schema, self._version).copied
        except UnsupportedFeatureError as error:
            return error
        if reason is None and not self._history.mappings:
            return None
        size = 0
        for chunk in self._source.chunks:
            for file in chunk.live(snapshot):
                reason_of = reason or self._unfit(file, schema)
                if reason_of is not None:
                    size += file.size
                    if size > self._settings.copy_bytes:
                        return UnsupportedFeatureError(
                            f"readers of Iceberg cannot read the files of {self._history.name} as they are:"
                            f" {reason_of}; and they are too large to be copied",
                            hint="raise copy_bytes of the Iceberg catalog, or change the column",
                        )
        return None

    def _unfit(self, file: DataFile, schema: TableSchema) -> str | None:
        if file.mapping_id is None:
            return None
        mapping = self._history.mappings.get(file.mapping_id)
        if mapping is None:
            return "its name mapping is gone"
        return self._files.unfit(file, mapping, schema) or self._names.conflict(mapping)

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def _snapshots(
        self, kept: Sequence[tuple[int, list[int], ServedSchema]], times: Mapping[int, dt.datetime | None]
    ) -> Iterator[ServedSnapshot]:
        parent: int | None = None
        before: dict[str, Manifest] = {}
        clock = 0
        for point, snapshots, served in kept:
            schema_id, schema = self._schema(snapshots[0])
            parts = dict(self._parts(point, schema_id, schema, served))
            manifests = list(parts.values())
            key = self._cache.key("list", self._version, snapshots[0], [repr(each) for each in manifests])
            made = self._cache.once(key, "avro", partial(self._list, manifests, snapshots[0], parent))
            for number, snapshot in enumerate(snapshots):
                clock = max(clock, _millis(times[snapshot]))
                added = sum(each.rows[0] for each in manifests if each.snapshot_id == snapshot and not each.deletes)
                yield ServedSnapshot(
                    id=snapshot,
                    parent=parent,
                    time_ms=clock,
                    schema_id=schema_id,
                    manifest_list=made.url,
                    operation=_operation(before, parts, snapshot) if not number else "replace",
                    first_row_id=0,
                    added_rows=added,
                    summary={"quacklake.snapshot": str(snapshot)},
                )
                parent = snapshot
            before = parts

    def _list(self, manifests: Sequence[Manifest], snapshot: int, parent: int | None) -> tuple[bytes, dict[str, Any]]:
        return encode_list(manifests, version=self._version, snapshot_id=snapshot, parent=parent), {}

    def _parts(
        self, point: int, schema_id: int, schema: TableSchema, served: ServedSchema
    ) -> Iterator[tuple[str, Manifest]]:
        """Yield the manifests of a state, each under a name that it keeps from one state to the next."""
        for number, chunk in enumerate(self._source.chunks):
            at = last_point(chunk.points, point)
            if at is not None:
                data = self._memo(("data", number, at, schema_id), partial(self._data, chunk, at, schema_id, served))
                if data is not None:
                    yield f"data {number}", data
            at = last_point(chunk.delete_points, point)
            if at is not None:
                gone = self._memo(
                    ("gone", number, at, schema_id), partial(self._write_deletes, chunk, at, schema_id, served)
                )
                if gone is not None:
                    yield f"gone {number}", gone
        inlined = self._write_inlined(point, schema_id, schema, served)
        if inlined is not None:
            yield "inlined", inlined

    def _memo(self, key: tuple[object, ...], make: Callable[[], Manifest | None]) -> Manifest | None:
        if key not in self._manifests:
            self._manifests[key] = make()
        return self._manifests[key]

    # -- manifests ---------------------------------------------------------------------------------------------------

    def _data(self, chunk: Chunk, point: int, schema_id: int, served: ServedSchema) -> Manifest | None:
        """Return the manifest of a chunk as a snapshot left it."""
        schema = self._schema_of(schema_id)
        files = [file for file in chunk.files if file.lives(point) or file.end == point]
        if not files:
            return None
        # one that ended may be gone; nobody opens it
        placed = {
            file.id: self._place(file, schema_id, schema, served) if file.lives(point) else self._in_place(file)
            for file in files
        }
        facts = [
            (file.id, file.records, file.begin, file.end == point, file.row_id_start, placed[file.id].url)
            for file in files
        ]
        statistics = self._statistics.of(chunk)
        key = self._cache.key(
            "data", self._version, point, schema_id, repr(schema.columns), facts, self._digest(chunk, statistics)
        )

        def make() -> tuple[bytes, dict[str, Any]]:
            entries = file_entries(chunk, point, schema, statistics, placed, self._version)
            content = encode_manifest(entries, version=self._version, schema=served.json(schema_id), deletes=False)
            numbers, rows = counts(entries)
            return content, {"files": numbers, "rows": rows}

        made = self._cache.once(key, "avro", make)
        return _manifest(made, False, point, min(file.begin for file in files), self._version)

    def _digest(self, chunk: Chunk, statistics: pa.Table) -> str:
        known = self._digests.get(id(chunk))
        if known is None:
            known = self._digests[id(chunk)] = _digest(statistics)
        return known

    def _write_deletes(self, chunk: Chunk, point: int, schema_id: int, served: ServedSchema) -> Manifest | None:
        """Return the manifest of what is deleted of the files of a chunk at a snapshot."""
        deleted = chunk.deleted(point)
        if not deleted:
            return None
        schema = self._schema_of(schema_id)
        files = {file.id: file for file in chunk.files if file.id in deleted}
        placed = {id_: self._place(file, schema_id, schema, served) for id_, file in files.items()}
        facts = [[id_, placed[id_].url, repr(each.key)] for id_, each in deleted.items()]
        vectors = self._vectors(files, deleted, placed, facts)
        if not vectors.facts["rows"]:
            return None
        generated = Placed(vectors.url, vectors.size)

        def make() -> tuple[bytes, dict[str, Any]]:
            found: dict[str, list[int]] = vectors.facts["vectors"]
            if self._version >= 3:
                entries = [
                    vector_entry(point, files[int(id_)], placed[int(id_)], generated, Vector(*place))
                    for id_, place in found.items()
                ]
            else:
                urls = [placed[int(id_)].url for id_ in found]
                entries = [position_entry(point, generated, vectors.facts["rows"], urls)]
            content = encode_manifest(entries, version=self._version, schema=served.json(schema_id), deletes=True)
            numbers, rows = counts(entries)
            return content, {"files": numbers, "rows": rows}

        key = self._cache.key("gone", self._version, point, schema_id, repr(schema.columns), vectors.url, facts)
        return _manifest(self._cache.once(key, "avro", make), True, point, point, self._version)

    def _vectors(
        self,
        files: Mapping[int, DataFile],
        deleted: Mapping[int, Deleted],
        placed: Mapping[int, Placed],
        facts: Sequence[object],
    ) -> Made:
        """Return the file with the deleted positions of some data files."""

        def make() -> tuple[bytes, dict[str, Any]]:
            found = {id_: self._files.deleted(files[id_], each) for id_, each in deleted.items()}
            found = {id_: positions for id_, positions in found.items() if len(positions)}
            told: dict[str, Any] = {"rows": sum(map(len, found.values()))}
            by_url = {placed[id_].url: positions for id_, positions in found.items()}
            if self._version < 3:
                return encode_positions(by_url), told | {"vectors": {str(id_): [] for id_ in found}}
            content, vectors = encode_puffin(by_url)
            places = {str(id_): vectors[placed[id_].url] for id_ in found}
            return content, told | {"vectors": {id_: [v.offset, v.length, v.rows] for id_, v in places.items()}}

        key = self._cache.key("deleted", self._version, self._lake, self._history.uuid, facts)
        return self._cache.once(key, "puffin" if self._version >= 3 else "parquet", make)

    def _place(self, file: DataFile, schema_id: int, schema: TableSchema, served: ServedSchema) -> Placed:
        """Return the file that readers open for a data file."""
        known = self._placed.get((file.id, schema_id))
        if known is None:
            if served.copied is None and self._unfit(file, schema) is None:
                if file.mapping_id is not None:
                    self._names.use(self._history.mappings[file.mapping_id])
                known = self._in_place(file)
            else:
                known = self._copy_file(file, schema)
            self._placed[file.id, schema_id] = known
        return known

    def _in_place(self, file: DataFile) -> Placed:
        return Placed(self._store.url(file.path), file.size)

    def _copy_file(self, file: DataFile, schema: TableSchema) -> Placed:
        def make() -> tuple[pa.Buffer, dict[str, Any]]:
            copy = self._copier.copy_file(file, schema)
            return copy, {}

        facts = (file.id, file.path, file.size, file.records, file.row_id_start, file.mapping_id)
        key = self._cache.key("copy", self._lake, self._history.uuid, facts, repr(schema.columns))
        made = self._cache.once(key, "parquet", make)
        return Placed(made.url, made.size)

    def _schema_of(self, schema_id: int) -> TableSchema:
        return next(schema for id_, schema in self._history.schemas if id_ == schema_id)

    # -- inlined rows ------------------------------------------------------------------------------------------------

    def _write_inlined(self, point: int, schema_id: int, schema: TableSchema, served: ServedSchema) -> Manifest | None:
        """Return the manifest of the rows that are in the catalog at a snapshot: one small file."""
        rows = self._rows(point, schema_id, schema)
        if rows is None or not rows.num_rows:
            return None
        digest = _digest(rows)
        key = self._cache.key("rows", self._lake, self._history.uuid, digest, repr(schema.columns))
        made = self._cache.once(key, "parquet", lambda: (self._copier.copy_inlined(schema, rows), {}))
        begin = max(rows.column("begin_snapshot").to_pylist())
        file = DataFile(-1, "", rows.num_rows, made.size, begin)
        entries = [data_entry(1, begin, file, Placed(made.url, made.size), {}, self._version)]
        key = self._cache.key("inlined", self._version, schema_id, repr(schema.columns), begin, made.url, rows.num_rows)
        numbers, counted = counts(entries)
        manifest = self._cache.once(
            key,
            "avro",
            lambda: (
                encode_manifest(entries, version=self._version, schema=served.json(schema_id), deletes=False),
                {"files": numbers, "rows": counted},
            ),
        )
        return _manifest(manifest, False, begin, begin, self._version)

    def _rows(self, point: int, schema_id: int, schema: TableSchema) -> pa.Table | None:
        if schema_id not in self._decoded:
            self._decoded[schema_id] = self._history.read_catalog_rows(schema_id)
        rows = self._decoded[schema_id]
        if rows is None:
            return None
        ends = rows.column("end_snapshot")
        lasting = pc.or_kleene(pc.is_null(ends), pc.fill_null(pc.greater(ends, point), False))
        seen = pc.and_(pc.less_equal(rows.column("begin_snapshot"), point), lasting)
        chosen = rows.filter(seen).drop_columns(["end_snapshot"])
        return chosen.sort_by([("row_id", "ascending"), ("begin_snapshot", "ascending")])


def _manifest(made: Made, deletes: bool, point: int, oldest: int, version: int) -> Manifest:
    files, rows = made.facts["files"], made.facts["rows"]
    first = 0 if version >= 3 and not deletes else None
    return Manifest(made.url, made.size, deletes, point, oldest, tuple(files), tuple(rows), first)


def _operation(before: Mapping[str, Manifest], after: Mapping[str, Manifest], snapshot: int) -> str:
    """Return what a snapshot did to the table: an append adds files and changes nothing else.

    Readers of appends take the files that a snapshot added and pass over every other operation.
    """
    changed = [name for name in {*before, *after} if before.get(name) != after.get(name)]
    if not changed:
        return "replace"
    added = all(name.startswith("data") and name in after and not after[name].files[2] for name in changed)
    return "append" if added and all(after[name].snapshot_id == snapshot for name in changed) else "overwrite"


def _digest(rows: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _millis(time_: dt.datetime | None) -> int:
    if time_ is None:
        return 0
    aware = time_ if time_.tzinfo else time_.replace(tzinfo=dt.UTC)
    return int(aware.timestamp() * 1000)
