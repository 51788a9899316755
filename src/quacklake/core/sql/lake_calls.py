"""The functions of a lake that report on it or change a small setting."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from quacklake.core.duckdb_versions import arrow_table, connect
from quacklake.core.engines.duckdb.visible import barrier_name
from quacklake.core.format.inline import is_reserved
from quacklake.core.format.names import fold, quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.options import OPTIONS
from quacklake.core.format.snapshots import Change, ChangeKind, SnapshotInfo
from quacklake.core.operations.add_files import AddOptions, add_files, to_patterns
from quacklake.core.operations.change_feed import ChangeScan
from quacklake.core.operations.handles import LakeHandle, TransactionHandle
from quacklake.core.operations.options import LakeOptions
from quacklake.core.operations.reference import DEFAULT_SCHEMA, TableRef
from quacklake.core.sql import metadata
from quacklake.core.sql.attached import Attached, Target, missing
from quacklake.core.transaction import Transaction
from quacklake.errors import SqlError

if TYPE_CHECKING:
    from quacklake.core.maintenance.lake_maintenance import LakeMaintenance
    from quacklake.core.sql.binder import Binder
    from quacklake.core.sql.session import Session

_TIME = pa.timestamp("us", tz="UTC")
_SNAPSHOTS = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("snapshot_time", _TIME),
        ("schema_version", pa.int64()),
        ("changes", pa.map_(pa.string(), pa.list_(pa.string()))),
        ("author", pa.string()),
        ("commit_message", pa.string()),
        ("commit_extra_info", pa.string()),
    ]
)
_FILES = pa.schema(
    [
        (f"{kind}_file{suffix}", type_)
        for kind in ("data", "delete")
        for suffix, type_ in (
            ("", pa.string()),
            ("_size_bytes", pa.uint64()),
            ("_footer_size", pa.uint64()),
            ("_encryption_key", pa.binary()),
        )
    ]
)
#: The name that the listing has for each kind of change, in the order of the listing.
_WORDS = {
    ChangeKind.CREATED_SCHEMA: "schemas_created",
    ChangeKind.DROPPED_SCHEMA: "schemas_dropped",
    ChangeKind.CREATED_TABLE: "tables_created",
    ChangeKind.CREATED_VIEW: "views_created",
    ChangeKind.CREATED_SCALAR_MACRO: "scalar_macros_created",
    ChangeKind.CREATED_TABLE_MACRO: "table_macros_created",
    ChangeKind.DROPPED_TABLE: "tables_dropped",
    ChangeKind.ALTERED_TABLE: "tables_altered",
    ChangeKind.INSERTED_INTO_TABLE: "tables_inserted_into",
    ChangeKind.DELETED_FROM_TABLE: "tables_deleted_from",
    ChangeKind.DROPPED_VIEW: "views_dropped",
    ChangeKind.DROPPED_SCALAR_MACRO: "scalar_macros_dropped",
    ChangeKind.DROPPED_TABLE_MACRO: "table_macros_dropped",
    ChangeKind.ALTERED_VIEW: "views_altered",
    ChangeKind.INLINED_INSERT: "inlined_insert",
    ChangeKind.INLINED_DELETE: "inlined_delete",
    ChangeKind.INLINE_FLUSH: "flushed_inlined",
    ChangeKind.MERGE_ADJACENT: "merge_adjacent",
    ChangeKind.REWRITE_DELETE: "rewrite_delete",
}
#: Facts about the lake that are listed beside its options.
_FACTS = {
    "created_by": "what made the lake",
    "data_path": "where the files are",
    "encrypted": "whether files are encrypted",
    "version": "version of the format",
}
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class LakeCall:
    """A call of a lake function, with its arguments by name."""

    session: Session
    binder: Binder
    attached: Attached
    given: dict[str, Any]

    @property
    def lake(self) -> LakeHandle:
        """The whole lake. Raise ``SqlError`` at a single snapshot."""
        if self.attached.lake is None:
            raise SqlError(f'"{self.attached.alias}" is attached at one snapshot')
        return self.attached.lake

    @property
    def maintenance(self) -> LakeMaintenance:
        """The maintenance of the lake."""
        from quacklake.core.maintenance.lake_maintenance import LakeMaintenance

        return self.session.keeper or LakeMaintenance(self.lake)

    def need(self, name: str) -> Any:
        """Return an argument. Raise ``SqlError`` when it is missing."""
        if self.given.get(name) is None:
            raise SqlError(f'Binder Error: the argument "{name}" is missing')
        return self.given[name]

    def table(self, tx: Transaction, name: str = "table_name", schema: str = "schema") -> TableInfo:
        """Return the table that the arguments name. Raise ``NotFoundError`` when it does not exist."""
        text, owner = str(self.need(name)), self.given.get(schema)
        ref = TableRef(str(owner), text) if owner is not None else TableRef(DEFAULT_SCHEMA, text)
        found = tx.get_table(ref.schema, ref.name)
        if found is None and owner is None and "." in text:
            ref = TableRef.parse(text)
            found = tx.get_table(ref.schema, ref.name)
        if found is None:
            raise missing(Target(self.attached, ref.schema, ref.name), tx)
        return found


def snapshots(call: LakeCall) -> pa.Table:
    """Return all snapshots."""
    tx = call.session.view(call.attached)
    with call.attached.context.catalog.read() as reader:
        found = [info for info in reader.snapshots.all() if info.id <= tx.base.id]
    return snapshot_rows(found) if tx.rules is None else _bare_rows(found)


def _bare_rows(found: Sequence[SnapshotInfo]) -> pa.Table:
    """Return when snapshots were made, and not what they changed: tables may be hidden, and texts name them."""
    return _table(_SNAPSHOTS, [(info.id, info.time, None, [], None, None, None) for info in found])


def snapshot_rows(found: Sequence[SnapshotInfo]) -> pa.Table:
    """Return snapshots as rows."""
    return _table(
        _SNAPSHOTS,
        [
            (info.id, info.time, info.schema_version, _changes(info.changes), info.author, info.message, info.extra)
            for info in found
        ],
    )


def _table(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def _changes(changes: Sequence[Change]) -> list[tuple[str, list[str]]]:
    found = ((word, [_change(change) for change in changes if change.kind is kind]) for kind, word in _WORDS.items())
    return [(word, mine) for word, mine in found if mine]


def _change(change: Change) -> str:
    if change.id is not None:
        return str(change.id)
    parts = [part for part in (change.schema, change.name) if part is not None]
    shown = [part if _PLAIN.fullmatch(part) else quote(part) for part in parts]
    if change.kind in (ChangeKind.CREATED_SCALAR_MACRO, ChangeKind.CREATED_TABLE_MACRO) and parts:
        shown[-1] = quote(parts[-1])  # quoted as in stock DuckLake's listing
    return ".".join(shown)


def table_info(call: LakeCall) -> pa.Table:
    """Return the tables, with the number and size of their files."""
    tx = call.session.view(call.attached)
    tables = pa.Table.from_pylist(
        [{"n": t.name, "s": t.schema_id, "t": t.id, "u": t.uuid} for t in tx.tables() if t.id >= 0],
        schema=pa.schema([("n", pa.string()), ("s", pa.int64()), ("t", pa.int64()), ("u", pa.string())]),
    )
    with connect(":memory:") as connection:
        connection.register("tables", tables)
        for name in ("data_file", "delete_file"):
            connection.register(name, metadata.rows(call.attached, f"ducklake_{name}"))
        alive = "begin_snapshot <= $1 AND (end_snapshot IS NULL OR end_snapshot > $1)"
        counted = "SELECT table_id, count(*) AS n, sum(file_size_bytes)::BIGINT AS size"
        query = f"""
            SELECT t.n AS table_name, t.s AS schema_id, t.t AS table_id, t.u::UUID AS table_uuid,
                coalesce(f.n, 0) AS file_count, coalesce(f.size, 0) AS file_size_bytes,
                coalesce(d.n, 0) AS delete_file_count, coalesce(d.size, 0) AS delete_file_size_bytes
            FROM tables t
            LEFT JOIN ({counted} FROM data_file WHERE {alive} GROUP BY ALL) f ON f.table_id = t.t
            LEFT JOIN ({counted} FROM delete_file WHERE {alive} GROUP BY ALL) d ON d.table_id = t.t
            ORDER BY t.t
        """
        return arrow_table(connection, query, [tx.base.id])


def list_files(call: LakeCall) -> pa.Table:
    """Return the data files of a table with their delete files, at a snapshot or time."""
    tx = call.session.view(call.attached)
    if None not in (call.given.get("snapshot_version"), call.given.get("snapshot_time")):
        raise SqlError("give snapshot_version or snapshot_time, not both")
    for unit, name in (("VERSION", "snapshot_version"), ("TIMESTAMP", "snapshot_time")):
        if call.given.get(name) is not None:
            tx = call.session.at(call.attached, unit, call.given[name])
    stored = metadata.rows(call.attached, "ducklake_delete_file").to_pylist()
    deletes = {row["delete_file_id"]: row for row in stored}
    store = call.attached.context.store
    rows = []
    for file in tx.plan(call.table(tx)).files.to_pylist():
        known = deletes.get(file["delete_file_id"], {})
        keys = [
            None if key is None else key.encode() for key in (file["encryption_key"], file["delete_encryption_key"])
        ]
        own = (store.urls([file["path"]])[0], file["file_size_bytes"], file["footer_size"], keys[0])
        path = None if file["delete_path"] is None else store.urls([file["delete_path"]])[0]
        rows.append((*own, path, known.get("file_size_bytes"), known.get("footer_size"), keys[1]))
    return _table(_FILES, rows)


def current_snapshot(call: LakeCall) -> pa.Table:
    """Return the snapshot that this connection reads."""
    return pa.table({"id": pa.array([call.session.view(call.attached).base.id], pa.uint64())})


def last_committed_snapshot(call: LakeCall) -> pa.Table:
    """Return the last snapshot that a connection of the session committed, or NULL when there is none."""
    return pa.table({"id": pa.array([call.session.work.committed.get(fold(call.attached.alias))], pa.uint64())})


def settings(call: LakeCall) -> pa.Table:
    """Return where the catalog and the files of the lake are kept."""
    context = call.attached.context
    found = {"catalog_type": context.catalog.database, "extension_version": "quacklake"}
    return pa.table({name: [value] for name, value in {**found, "data_path": context.store.root}.items()})


def feed(call: LakeCall, *, inserts: bool = True, deletes: bool = True) -> str:
    """Return the changes that snapshots made to the rows of a table, or only one kind of them."""
    tx = call.session.view(call.attached)
    name, owner = str(call.need("table_name")), str(call.given.get("schema_name") or DEFAULT_SCHEMA)
    if tx.objects.get_view(owner, name) is not None:
        raise SqlError(f'"{name}" is a View, not a table. Data change feed functions only support tables.')
    table = call.table(tx, schema="schema_name")
    bounds = [
        dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime)
        else value
        for value in (call.need("start_snapshot"), call.need("end_snapshot"))
    ]
    context = call.attached.context
    handle, ref = TransactionHandle(context, tx), TableRef(table.schema_name, table.name)
    plan = ChangeScan(handle, ref, bounds[0], bounds[1], _inserts=inserts, _deletes=deletes).plan()
    name = call.session.fresh_name()
    # one kind of change has the columns of the table; further columns are there for queries that name them
    own = {"change_type", *({"rowid", "snapshot_id"} - call.binder.wanted)} if not (inserts and deletes) else set()
    hidden = f"* EXCLUDE ({', '.join(sorted(own))})" if own else "*"
    columns = [column for column in plan.schema.columns if column.name not in own]
    if not (inserts and deletes):
        call.binder.hidden[name] = tuple(sorted({"rowid", "snapshot_id"} - own))

    def make(connection: duckdb.DuckDBPyConnection, empty: bool) -> None:
        if empty:
            listed = ", ".join(f"{quote(column.name)} {column.duckdb_type()}" for column in columns)
            connection.execute(f"CREATE TEMP TABLE {name} ({listed})")
            return
        query = context.engine.bind_feed(
            connection,
            plan,
            inserts=inserts,
            deletes=deletes,
            prefix=name,
            guarded=call.binder.guarded,
            compared=call.binder.equalities.names(),
        )
        if plan.whole is not None:
            call.session.copied(barrier_name(name))
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {hidden} FROM ({query})")

    call.binder.made.append(make)
    return name


# -- options and small changes -----------------------------------------------------------------------------------------


def options(call: LakeCall) -> pa.Table:
    """Return the options that are set, with the scope of each."""
    tx = call.session.view(call.attached)
    with call.attached.context.catalog.read() as reader:
        rows = reader.options()
    schemas = {info.id: info.name for info in tx.schemas()}
    tables = {info.id: info.qualified_name for info in tx.tables()}
    found = []
    for row in rows:
        entry = None
        if row.scope is not None and row.scope_id is not None:
            entry = (schemas if row.scope == "schema" else tables).get(row.scope_id)
        known = OPTIONS.get(row.key)
        told = known.help if known is not None else _FACTS.get(row.key)
        found.append((row.key, told, row.value, (row.scope or "global").upper(), entry))
    names = ("option_name", "description", "value", "scope", "scope_entry")
    return _table(pa.schema([(name, pa.string()) for name in names]), found)


def set_option(call: LakeCall) -> pa.Table:
    """Set an option of the lake, a schema or a table."""
    option, value = str(call.need("option")), call.given.get("value")
    schema, table = call.given.get("schema"), None
    if call.given.get("table_name") is not None:
        info = call.table(call.session.view(call.attached))
        schema, table = None, f"{quote(info.schema_name)}.{quote(info.name)}"
    if fold(option) == "data_inlining_row_limit" and str(value) != "0":
        _check_inlining(call, table)
    LakeOptions(call.lake).set(option, value, schema=None if schema is None else str(schema), table=table)
    return _nothing()


def _check_inlining(call: LakeCall, only: str | None) -> None:
    """Raise ``SqlError`` when a table has columns that prevent its rows from living in the catalog."""
    with call.attached.context.catalog.read() as reader:
        rows = reader.options()
    settled = {row.scope_id for row in rows if row.key == "data_inlining_row_limit" and row.scope == "table"}
    for info in call.session.view(call.attached).tables():
        named = f"{quote(info.schema_name)}.{quote(info.name)}"
        if named != only if only is not None else info.id in settled:
            continue
        names = () if call.attached.context.catalog.is_next else info.schema.names
        reserved = next((column for column in names if is_reserved(column)), None)
        if reserved is not None:
            raise SqlError(
                f'Cannot enable data inlining for table "{info.name}". Column "{reserved}" conflicts with a reserved'
                " DuckLake internal column name used for inlining. To enable inlining for this table, rename or drop"
                f' column "{reserved}".'
            )


def _nothing() -> pa.Table:
    """Return the empty result of a function that only has an effect."""
    return pa.table({"Success": pa.array([], pa.bool_())})


def set_commit_message(call: LakeCall) -> pa.Table:
    """Set the author and message of the next snapshot."""
    given = call.given
    call.session.work.sign(given.get("author"), given.get("message"), given.get("extra_info"))
    return _nothing()


def add_data_files(call: LakeCall) -> pa.Table:
    """Add Parquet files to a table without moving them."""
    patterns = to_patterns(call.need("path"))
    hive = call.given.get("hive_partitioning")
    flags = [bool(call.given.get(name) or False) for name in ("allow_missing", "ignore_extra_columns")]
    chosen = AddOptions(flags[0], flags[1], None if hive is None else bool(hive))

    def work(tx: Transaction) -> list[str]:
        table = call.table(tx)
        pending = tx.pending(table)
        before = len(pending.files)
        add_files(call.attached.context, tx, table, patterns, chosen)
        return [str(file.location or file.path) for file in pending.files[before:]]

    found = call.session.write(call.attached, work)
    return pa.table({"filename": pa.array(found, pa.string())})
