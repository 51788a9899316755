"""The maintenance functions: methods of the lake, with the result columns of DuckDB's functions.

They commit snapshots of their own. In a transaction that has changed the lake they therefore run after COMMIT. Only a
flush is part of the transaction, where possible.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from quacklake.errors import SqlError, UnsupportedFeatureError
from quacklake.format.names import quote
from quacklake.operations.reference import DEFAULT_SCHEMA, TableRef
from quacklake.sql.lake_calls import LakeCall, snapshot_rows

#: The steps of CHECKPOINT, in order.
_STEPS = (
    "flush_inlined_data",
    "expire_snapshots",
    "merge_adjacent_files",
    "rewrite_data_files",
    "cleanup_old_files",
    "delete_orphaned_files",
)
_ORDERS = ("order_by", "zorder")


def _run(call: LakeCall, name: str, owner: Any = None, **arguments: Any) -> Any:
    """Call a method of the lake, or of ``owner``, with the arguments that are given."""
    _check_given(call, name)
    method = getattr(owner or call.maintenance, name, None)
    if method is None:
        raise UnsupportedFeatureError(f"{name} is not there yet", hint="stock DuckDB can do it on the same lake")
    given = {key: float(value) if isinstance(value, Decimal) else value for key, value in arguments.items()}
    chosen = {key: value for key, value in given.items() if value is not None}
    if _changed(call):
        call.session.work.afterwards.append(lambda: method(**chosen))
        return None
    return method(**chosen)


def _check_given(call: LakeCall, name: str) -> None:
    empty = next((key for key, value in call.given.items() if value is None), None)
    if empty == "max_compacted_files":
        raise SqlError("The max_compacted_files option must be a non-null integer")
    if empty is not None:
        raise SqlError(f'the argument "{empty}" of {name} must not be NULL')


def _changed(call: LakeCall) -> bool:
    """Return True in a transaction that has changed the lake."""
    work = call.session.work
    return work.explicit and work.wrote is call.attached


def _scope(call: LakeCall, schema: str) -> dict[str, str | None]:
    """Return the schema and the table to work on. A table may be given as ``schema.table``."""
    owner, name = call.given.get(schema), call.given.get("table_name")
    tx = call.session.view(call.attached)
    if name is None:
        return {"schema": None if owner is None else tx.find_schema(str(owner)).name}
    info = call.table(tx, schema=schema)
    return {"table": f"{quote(info.schema_name)}.{quote(info.name)}"}


def _reports(found: Any) -> list[Any]:
    """Return the reports of the work; none when the work waits for COMMIT."""
    reports: Iterable[Any] = found if isinstance(found, list | tuple) else [] if found is None else [found]
    return [report for report in reports if report.snapshot is not None]


def _named(names: tuple[str, ...], rows: Iterable[tuple[Any, tuple[int, ...]]]) -> pa.Table:
    """Return the numbers of reports, with the tables that they are about."""
    columns: dict[str, list[Any]] = {name: [] for name in ("schema_name", "table_name", *names)}
    for report, numbers in rows:
        ref = TableRef.parse(report.table)
        columns["schema_name"].append(ref.schema or DEFAULT_SCHEMA)
        columns["table_name"].append(ref.name)
        for name, number in zip(names, numbers, strict=True):
            columns[name].append(number)
    types = {name: pa.int64() if name in names else pa.string() for name in columns}
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


def groups(found: Any) -> pa.Table:
    """Return one row for each group of files that was rewritten."""
    rows = [(report, group) for report in _reports(found) for group in report.groups]
    return _named(("files_processed", "files_created"), rows)


def flush_inlined_data(call: LakeCall) -> pa.Table:
    """Move rows from the catalog into files."""
    _check_given(call, "flush_inlined_data")
    scope = _scope(call, "schema_name")
    found = _flush_within(call) if _changed(call) else _run(call, "flush_inlined_data", **scope)
    return _named(("rows_flushed",), [(report, (report.rows,)) for report in _reports(found)])


def _flush_within(call: LakeCall) -> list[Any]:
    """Flush in the open transaction. Flush the rest after its commit."""
    maintenance, work = call.maintenance, call.session.work
    tx = call.session.view(call.attached)
    if call.given.get("table_name") is not None:
        tables = [call.table(tx, schema="schema_name")]
    else:
        owner = call.given.get("schema_name")
        schema = None if owner is None else tx.find_schema(str(owner)).id
        tables = [
            info
            for info in tx.tables()
            if schema in (None, info.schema_id) and call.attached.context.option("auto_compact", info)
        ]
    reports, waiting = maintenance.flush_within(tx, tables)
    if waiting:
        work.afterwards.append(lambda: maintenance.flush_tables(waiting))
    return reports


def merge_adjacent_files(call: LakeCall) -> pa.Table:
    """Merge many small files into a few large ones."""
    limits = {name: call.given.get(name) for name in ("max_compacted_files", "min_file_size", "max_file_size")}
    found = _run(call, "merge_adjacent_files", **_scope(call, "schema"), **limits, where=_filter(call))
    return groups(found)


def _filter(call: LakeCall) -> str | None:
    """Return the filter that chooses files. ``filter`` is an alias of ``where``, which SQL requires to be quoted."""
    found = call.given.get("where", call.given.get("filter"))
    return None if found is None else str(found)


def rewrite_data_files(call: LakeCall) -> pa.Table:
    """Rewrite files that have many deleted rows."""
    threshold = call.given.get("delete_threshold")
    scope = _scope(call, "schema")
    found = _run(call, "rewrite_data_files", **scope, delete_threshold=threshold, where=_filter(call))
    return groups(found)


def optimize(call: LakeCall) -> pa.Table:
    """Rewrite all files of a table, sorted or along a z-order curve."""
    info = call.table(call.session.view(call.attached))
    table = call.maintenance.table(f"{quote(info.schema_name)}.{quote(info.name)}")
    orders = {key: call.given.get(key) for key in _ORDERS}
    return groups(_run(call, "optimize", table, **orders, where=_filter(call)))


def _age(value: Any) -> Any:
    """Return an age or a time. An INTERVAL counts as an age."""
    if isinstance(value, pa.MonthDayNano):
        return dt.timedelta(days=value.months * 30 + value.days, microseconds=value.nanoseconds // 1000)
    return value


def expire_snapshots(call: LakeCall) -> pa.Table:
    """Expire old snapshots, and return them."""
    with call.attached.context.catalog.read() as reader:
        before = reader.snapshots.all()
    given = {name: _age(call.given.get(name)) for name in ("older_than", "versions", "dry_run")}
    if given["versions"] is not None:  # snapshots that are gone already are no error
        there = {info.id for info in before}
        given["versions"] = [version for version in given["versions"] if version in there]
    report = _run(call, "expire_snapshots", **given)
    gone = set() if report is None else set(report.snapshots)
    return snapshot_rows([info for info in before if info.id in gone])


def cleanup_old_files(call: LakeCall) -> pa.Table:
    """Remove files that no snapshot uses any more, and return their paths."""
    return _removed(call, "cleanup_old_files")


def delete_orphaned_files(call: LakeCall) -> pa.Table:
    """Remove files that the catalog never knew, and return their paths."""
    return _removed(call, "delete_orphaned_files")


def _removed(call: LakeCall, name: str) -> pa.Table:
    given = {key: _age(call.given.get(key)) for key in ("cleanup_all", "older_than", "dry_run")}
    paths: list[str] = []
    _run(call, name, **given, on_path=paths.append)
    return pa.table({"path": pa.array(call.attached.context.store.urls(paths), pa.string())})


def checkpoint(call: LakeCall) -> None:
    """Run all maintenance that the lake's options ask for."""
    for name in _STEPS:
        _run(call, name)
