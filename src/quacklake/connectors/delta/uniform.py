"""Keep Iceberg metadata beside a Delta table, so that readers of Iceberg see the same rows in the same files.

The folder ``metadata/`` of the table has a ``v<version of Delta>.metadata.json`` and a ``version-hint.text`` that names
the newest, as tables without a catalog have. A call compares the files of both and adds what is missing, so it makes
good whatever a crash, or a writer that does not do this, has left behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromByteStream
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.table.update.snapshot import ExpireSnapshots, _MergeAppendFiles, _OverwriteFiles
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from quacklake.connectors.delta.tables import arrow_schema
from quacklake.connectors.iceberg.catalogs import failing
from quacklake.connectors.iceberg.files import ReplaceFiles, data_file
from quacklake.connectors.iceberg.partitions import raw_value
from quacklake.connectors.iceberg.schemas import is_same_schema, with_ids
from quacklake.errors import CorruptFileError
from quacklake.extend.reporting import reach
from quacklake.extend.stores import Store

HINT = "metadata/version-hint.text"
_VERSION, _ID, _MAPPING = "delta-version", "delta-table-id", "schema.name-mapping.default"
_THREADS = 8
_REMEMBERED = 10
"""The number of snapshots that the metadata keeps besides a new one."""
_FOLLOWED = 20
"""The most commits that are looked at one by one; behind more, all files are compared."""


def check_types(table: DeltaTable) -> None:
    """Raise ``SchemaMismatchError`` for a table with a type that Iceberg does not have."""
    _schema(table)


def write_metadata(table: DeltaTable, store: Store) -> bool:
    """Bring the Iceberg metadata to the version of a Delta table; return False when it is there already.

    Raise ``SchemaMismatchError`` for a type that Iceberg does not have.
    """
    version, identity = table.version(), str(table.metadata().id)
    mirror = _load(store)
    if mirror is not None and (mirror.properties.get(_ID) != identity or not _fits(mirror, table)):
        mirror = None  # of a table that was here before, or of columns that were
    if mirror is not None and int(mirror.properties[_VERSION]) >= version:
        return False
    mirror = mirror or _new(table, store)
    reach("connector.delta.uniform.before")
    store.make_parent(HINT)
    with failing("the Iceberg metadata of the Delta table cannot be written"), mirror.transaction() as transaction:
        _forget(transaction, mirror.snapshots())
        _evolve(transaction, table)
        names = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({_VERSION: str(version), _ID: identity, _MAPPING: names})
        _change_files(transaction, table, store)
    reach("connector.delta.uniform.after")
    return True


def prune_metadata(store: Store, before: datetime) -> int:
    """Forget the snapshots before a time, remove the files that only they needed, and return how many those were."""
    mirror = _load(store)
    if mirror is None:
        return 0
    if any(snapshot.timestamp_ms < before.timestamp() * 1000 for snapshot in mirror.snapshots()):
        mirror.maintenance.expire_snapshots().older_than(before).commit()
    needed = {HINT, _below(mirror, mirror.metadata_location)}
    for snapshot in mirror.snapshots():
        needed |= {_below(mirror, snapshot.manifest_list)}
        needed |= {_below(mirror, manifest.manifest_path) for manifest in snapshot.manifests(mirror.io)}
    return store.delete(
        entry.path
        for entry in store.list("metadata/")
        if entry.path not in needed and entry.mtime is not None and entry.mtime < before
    )


class _Folder(NoopCatalog):
    """The catalog of one table, which is a folder."""

    def __init__(self, store: Store) -> None:
        super().__init__("uniform")
        self._store = store

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the metadata, then the hint that makes it the newest."""
        for requirement in requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location or None)
        version = int(metadata.properties[_VERSION])
        path = f"metadata/v{version}.metadata.json"
        self._store.write(path, metadata.model_dump_json().encode())
        reach("connector.delta.uniform.hint")
        is_new = not table.metadata_location
        if is_new or _hint(self._store) <= version:  # another writer may have been quicker with a later version
            self._store.write(HINT, str(version).encode())
        return CommitTableResponse.model_validate(
            {"metadata": metadata, "metadata-location": f"{metadata.location}/{path}"}
        )


def _hint(store: Store) -> int:
    if not store.exists(HINT):
        return -1
    text = store.read(HINT).decode(errors="replace").strip()
    return int(text) if text.isdecimal() else -1


def _load(store: Store) -> Table | None:
    version = _hint(store)
    if version < 0:
        return None
    path = f"metadata/v{version}.metadata.json"
    try:
        with store.open_input(path) as source:
            metadata = FromByteStream.table_metadata(source)
    except CorruptFileError:
        return None
    return None if _VERSION not in metadata.properties else _open(store, metadata, f"{metadata.location}/{path}")


def _open(store: Store, metadata: TableMetadata, place: str) -> Table:
    io = PyArrowFileIO()
    io.fs_by_scheme = lambda scheme, netloc: store.filesystem  # with the credentials of the sink
    return Table(("uniform",), metadata, place, io, _Folder(store))


def _new(table: DeltaTable, store: Store) -> Table:
    schema = _schema(table)
    fields = [
        PartitionField(schema.find_field(name).field_id, 1000 + place, IdentityTransform(), name)
        for place, name in enumerate(table.metadata().partition_columns)
    ]
    properties = {
        "commit.manifest-merge.enabled": "true",
        "commit.manifest.min-count-to-merge": "20",
        "write.metadata.previous-versions-max": "10",
    }
    metadata = new_table_metadata(
        schema, PartitionSpec(*fields), UNSORTED_SORT_ORDER, store.root.rstrip("/"), properties
    )
    return _open(store, metadata, "")


def _schema(table: DeltaTable) -> Schema:
    return with_ids(pa.schema([field.with_nullable(True) for field in arrow_schema(table)]))


def _fits(mirror: Table, table: DeltaTable) -> bool:
    """Return whether the metadata can go on: the partitions are the same, and columns were only added or widened."""
    schema = _schema(table)
    if [field.name for field in mirror.spec().fields] != table.metadata().partition_columns:
        return False
    if is_same_schema(mirror.schema(), schema):
        return True
    try:
        mirror.update_schema().union_by_name(schema)
    except (ValueError, ValidationError):
        return False
    return set(mirror.schema().column_names) <= set(schema.column_names)


def _evolve(transaction: Transaction, table: DeltaTable) -> None:
    schema = _schema(table)
    if not is_same_schema(transaction.table_metadata.schema(), schema):
        with transaction.update_schema() as update:
            update.union_by_name(schema)


def _forget(transaction: Transaction, snapshots: list[Snapshot]) -> None:
    """Leave out old snapshots: the library copies all of them many times in each commit, and Delta has the history."""
    if len(snapshots) > _REMEMBERED:
        old = sorted(snapshots, key=lambda snapshot: snapshot.sequence_number or 0)[:-_REMEMBERED]
        ExpireSnapshots(transaction).by_ids([snapshot.snapshot_id for snapshot in old]).commit()


def _change_files(transaction: Transaction, table: DeltaTable, store: Store) -> None:
    actions = pa.table(table.get_add_actions(flatten=False))
    places = {path: place for place, path in enumerate(map(unquote, actions.column("path").to_pylist()))}
    log = _log_since(transaction, table, store)
    new, removed = log.appended, []
    if new is None or not new <= places.keys():
        root = transaction.table_metadata.location
        there = {file.file_path.removeprefix(f"{root}/"): file for file in _live_files(transaction)}
        new = places.keys() - there.keys()
        removed = [file for path, file in there.items() if path not in places]
    if not new and not removed:
        return
    marks = {_VERSION: str(table.version())}
    snapshot = transaction.update_snapshot(snapshot_properties=marks)
    producer: ReplaceFiles | _OverwriteFiles | _MergeAppendFiles
    if removed:
        producer = ReplaceFiles.of(transaction, marks) if log.moved else snapshot.overwrite()
    else:
        producer = snapshot.merge_append()
    with producer as update:
        for file in removed:
            update.delete_data_file(file)
        for file in _data_files(transaction.table_metadata, store, actions.take(sorted(places[path] for path in new))):
            update.append_data_file(file)


class _Log(NamedTuple):
    """The effect of the log: the files that it added, None if that is not all; and whether all rows are the same."""

    appended: set[str] | None
    moved: bool


def _log_since(transaction: Transaction, table: DeltaTable, store: Store) -> _Log:
    """Return what the log did since the metadata was written. Nearly always it has only added files."""
    last = int(transaction._table.metadata.properties.get(_VERSION, -1))
    if last < 0 or table.version() - last > _FOLLOWED:
        return _Log(None, False)
    actions: list[dict[str, Any]] = []
    for version in range(last + 1, table.version() + 1):
        try:
            actions += map(json.loads, store.read(f"_delta_log/{version:020}.json").splitlines())
        except CorruptFileError:  # the log has been cleaned
            return _Log(None, False)
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    changes = [each.get("dataChange", True) for each in (*adds, *removes)]
    appended = None if removes or not all(changes) else {unquote(add["path"]) for add in adds}
    return _Log(appended, not any(changes))


def _live_files(transaction: Transaction) -> Iterator[DataFile]:
    snapshot = transaction.table_metadata.current_snapshot()
    io = transaction._table.io
    for manifest in snapshot.manifests(io) if snapshot is not None else ():
        for entry in manifest.fetch_manifest_entry(io):
            yield entry.data_file


def _data_files(metadata: TableMetadata, store: Store, actions: pa.Table) -> Iterable[DataFile]:
    def describe(place: int) -> DataFile:
        values = actions.column("partition")[place] if fields else {}
        record = Record(*(raw_value(values[name]) for name in fields))
        path, size = (actions.column(name)[place].as_py() for name in ("path", "size_bytes"))
        return data_file(store, unquote(path), size, record, metadata)

    fields = [field.name for field in metadata.spec().fields]
    with ThreadPoolExecutor(_THREADS) as threads:  # each reads a footer
        yield from threads.map(describe, range(actions.num_rows))


def _below(mirror: Table, path: str) -> str:
    return path.removeprefix(f"{mirror.location()}/")
