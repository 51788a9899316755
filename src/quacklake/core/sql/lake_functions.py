"""The functions of a lake, in FROM and CALL: ``ducklake_snapshots('lake')`` and ``lake.snapshots()``.

Each is one entry of ``FUNCTIONS``. Maintenance functions are methods of the lake, with the result columns of DuckDB's
functions. They commit snapshots of their own. In a transaction that has changed the lake they therefore run after
COMMIT. Only a flush is part of the transaction, where possible.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.core.format.names import fold, quote
from quacklake.core.operations.reference import DEFAULT_SCHEMA, TableRef
from quacklake.core.sql import lake_calls
from quacklake.core.sql.lake_calls import LakeCall, snapshot_rows
from quacklake.core.sql.tree import Node
from quacklake.errors import NotPermittedError, SqlError, UnsupportedFeatureError, nearest

if TYPE_CHECKING:
    from quacklake.core.sql.attached import Attached
    from quacklake.core.sql.binder import Binder
    from quacklake.core.sql.session import Session

#: The steps of CHECKPOINT, in order.
_STEPS = (
    "flush_inlined_data",
    "expire_snapshots",
    "merge_adjacent_files",
    "rewrite_data_files",
    "cleanup_old_files",
    "delete_orphaned_files",
)


def _run(call: LakeCall, name: str, owner: Any = None, **arguments: Any) -> Any:
    """Call a method of the lake, or of ``owner``, with the arguments that are given."""
    _check_given(call, name)
    method = getattr(owner or call.maintenance, name, None)
    if method is None:
        raise UnsupportedFeatureError(f"{name} is not supported yet", hint="stock DuckDB supports it on the same lake")
    given = {key: float(value) if isinstance(value, Decimal) else value for key, value in arguments.items()}
    chosen = {key: value for key, value in given.items() if value is not None}
    if _has_changed(call):
        call.session.work.afterwards.append(lambda: method(**chosen))
        return None
    return method(**chosen)


def _check_given(call: LakeCall, name: str) -> None:
    empty = next((key for key, value in call.given.items() if value is None), None)
    if empty == "max_compacted_files":
        raise SqlError("The max_compacted_files option must be a non-null integer")
    if empty is not None:
        raise SqlError(f'the argument "{empty}" of {name} must not be NULL')


def _has_changed(call: LakeCall) -> bool:
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


def _name_tables(names: tuple[str, ...], found: Any, numbers: Callable[[Any], Iterable[tuple[int, ...]]]) -> pa.Table:
    """Return the numbers of reports, with the tables that they are about. None is for work that waits for COMMIT."""
    columns: dict[str, list[Any]] = {name: [] for name in ("schema_name", "table_name", *names)}
    for report in found if isinstance(found, list | tuple) else [] if found is None else [found]:
        for row in numbers(report) if report.snapshot is not None else ():
            ref = TableRef.parse(report.table)
            for name, value in zip(columns, (ref.schema or DEFAULT_SCHEMA, ref.name, *row), strict=True):
                columns[name].append(value)
    types = {name: pa.int64() if name in names else pa.string() for name in columns}
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


def groups(found: Any) -> pa.Table:
    """Return one row for each group of files that was rewritten."""
    return _name_tables(("files_processed", "files_created"), found, lambda report: report.groups)


def flush_inlined_data(call: LakeCall) -> pa.Table:
    """Move rows from the catalog into files."""
    _check_given(call, "flush_inlined_data")
    scope = _scope(call, "schema_name")
    found = _flush_within(call) if _has_changed(call) else _run(call, "flush_inlined_data", **scope)
    return _name_tables(("rows_flushed",), found, lambda report: [(report.rows,)])


def _flush_within(call: LakeCall) -> list[Any]:
    """Flush in the open transaction. Flush the rest after its commit."""
    maintenance = call.maintenance
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
        call.session.work.afterwards.append(lambda: maintenance.flush_tables(waiting))
    return reports


def merge_adjacent_files(call: LakeCall) -> pa.Table:
    """Merge many small files into a few large ones."""
    limits = {name: call.given.get(name) for name in ("max_compacted_files", "min_file_size", "max_file_size")}
    return groups(_run(call, "merge_adjacent_files", **_scope(call, "schema"), **limits, where=_filter(call)))


def _filter(call: LakeCall) -> str | None:
    """Return the filter that chooses files. ``filter`` is an alias of ``where``, which SQL requires to be quoted."""
    found = call.given.get("where", call.given.get("filter"))
    return None if found is None else str(found)


def rewrite_data_files(call: LakeCall) -> pa.Table:
    """Rewrite files that have many deleted rows."""
    threshold = call.given.get("delete_threshold")
    scope = _scope(call, "schema")
    return groups(_run(call, "rewrite_data_files", **scope, delete_threshold=threshold, where=_filter(call)))


def _optimize(call: LakeCall) -> pa.Table:
    """Rewrite all files of a table, sorted or along a z-order curve."""
    info = call.table(call.session.view(call.attached))
    table = call.maintenance.table(f"{quote(info.schema_name)}.{quote(info.name)}")
    orders = {key: call.given.get(key) for key in ("order_by", "zorder")}
    return groups(_run(call, "optimize", table, **orders, where=_filter(call)))


def _age(value: Any) -> Any:
    """Return an age or a time. An INTERVAL counts as an age."""
    if isinstance(value, pa.MonthDayNano):
        return dt.timedelta(days=value.months * 30 + value.days, microseconds=value.nanoseconds // 1000)
    return value


def _expire_snapshots(call: LakeCall) -> pa.Table:
    """Expire old snapshots, and return them."""
    with call.attached.context.catalog.read() as reader:
        before = reader.snapshots.all()
    given = {name: _age(call.given.get(name)) for name in ("older_than", "versions", "dry_run")}
    if given["versions"] is not None:  # snapshots that are already gone are not an error
        there = {info.id for info in before}
        given["versions"] = [version for version in given["versions"] if version in there]
    report = _run(call, "expire_snapshots", **given)
    gone = set() if report is None else set(report.snapshots)
    return snapshot_rows([info for info in before if info.id in gone])


def _remove_files(name: str, call: LakeCall) -> pa.Table:
    """Remove files that no snapshot uses any more, or that the catalog never knew. Return their paths."""
    given = {key: _age(call.given.get(key)) for key in ("cleanup_all", "older_than", "dry_run")}
    paths: list[str] = []
    _run(call, name, **given, on_path=paths.append)
    return pa.table({"path": pa.array(call.attached.context.store.urls(paths), pa.string())})


def checkpoint(call: LakeCall) -> None:
    """Run all maintenance that the lake's options ask for."""
    for name in _STEPS:
        _run(call, name)


@dataclass(frozen=True, slots=True)
class Function:
    """A lake function: its parameters in order, those by name only, and the ``first`` ones after the lake's name."""

    run: Callable[[LakeCall], Any]
    parameters: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


_PREFIX = "ducklake_"
_FEED = ("table_name", "start_snapshot", "end_snapshot")
_OWNER = ("schema_name",)
_FILTER = ("where", "filter")
_COMPACTING = ("schema", "max_compacted_files", "min_file_size", "max_file_size", *_FILTER)
_REWRITING = ("schema", "delete_threshold", *_FILTER)
_REMOVING = ("cleanup_all", "older_than", "dry_run")
_ADDING = ("schema", "allow_missing", "ignore_extra_columns", "hive_partitioning")

FUNCTIONS: Mapping[str, Function] = {
    "snapshots": Function(lake_calls.snapshots),
    "table_info": Function(lake_calls.table_info),
    "list_files": Function(lake_calls.list_files, ("table_name",), ("schema", "snapshot_version", "snapshot_time")),
    "table_changes": Function(lake_calls.feed, _FEED, first=_OWNER),
    "table_insertions": Function(partial(lake_calls.feed, deletes=False), _FEED, first=_OWNER),
    "table_deletions": Function(partial(lake_calls.feed, inserts=False), _FEED, first=_OWNER),
    "current_snapshot": Function(lake_calls.current_snapshot),
    "last_committed_snapshot": Function(lake_calls.last_committed_snapshot),
    "options": Function(lake_calls.options),
    "settings": Function(lake_calls.settings),
    "set_option": Function(lake_calls.set_option, ("option", "value"), ("schema", "table_name")),
    "set_commit_message": Function(lake_calls.set_commit_message, ("author", "message"), ("extra_info",)),
    "add_data_files": Function(lake_calls.add_data_files, ("table_name", "path"), _ADDING),
    "flush_inlined_data": Function(flush_inlined_data, (), ("schema_name", "table_name")),
    "merge_adjacent_files": Function(merge_adjacent_files, ("table_name",), _COMPACTING),
    "rewrite_data_files": Function(rewrite_data_files, ("table_name",), _REWRITING),
    "optimize": Function(_optimize, ("table_name",), ("schema", "order_by", "zorder", *_FILTER)),
    "expire_snapshots": Function(_expire_snapshots, (), ("versions", "older_than", "dry_run")),
    "cleanup_old_files": Function(partial(_remove_files, "cleanup_old_files"), (), _REMOVING),
    "delete_orphaned_files": Function(partial(_remove_files, "delete_orphaned_files"), (), _REMOVING),
}


#: The functions whose results show nothing that is hidden from a principal.
FOR_EVERYBODY = frozenset(
    """
    current_snapshot last_committed_snapshot snapshots table_changes table_deletions table_insertions
    """.split()  # noqa: SIM905
)


def _check_allowed(attached: Attached, name: str) -> None:
    if attached.handle.restricted and name not in FOR_EVERYBODY:
        raise NotPermittedError(f'only administrators call the function "{name}" of a lake')


def relation(session: Session, binder: Binder, names: Sequence[str], arguments: list[Node]) -> Any:
    """Return the result of a call in FROM: rows or the name of a relation. None for any other function."""
    name, default = fold(names[-1]), session.names.default
    if len(names) == 1 and name.startswith(_PREFIX) and name.removeprefix(_PREFIX) in FUNCTIONS:
        function = FUNCTIONS[name.removeprefix(_PREFIX)]
        positional, named = _values(binder, arguments)
        if not positional and "catalog" not in named:
            raise SqlError(f"{name} needs the name of a lake first")
        alias = named.pop("catalog", None) or positional.pop(0)
        attached = session.attachments.find(str(alias))
        given = bind(name, positional, named, (*function.first, *function.parameters), function.named)
        _check_allowed(attached, name.removeprefix(_PREFIX))
        return function.run(LakeCall(session, binder, attached, given))
    if len(names) == 1:
        found = default if name in FUNCTIONS else None
    else:
        found = session.attachments.get(names[0])
        short = found is None and len(names) == 2 and name in FUNCTIONS
        if short and default is not None and session.names.has_schema(default, names[0]):
            found, names = default, [default.alias, *names]
    if found is None:
        return None
    if name not in FUNCTIONS:
        raise SqlError(f'Catalog Error: a lake has no function "{names[-1]}"', hint=nearest(name, FUNCTIONS))
    function = FUNCTIONS[name]
    positional, named = _values(binder, arguments)
    given = bind(names[-1], positional, named, function.parameters, (*function.named, *function.first))
    if "schema_name" in function.first:
        given.setdefault("schema_name", names[1] if len(names) == 3 else DEFAULT_SCHEMA)
    _check_allowed(found, name)
    return function.run(LakeCall(session, binder, found, given))


def _values(binder: Binder, arguments: list[Node]) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument in arguments:
        name, value = argument.get("alias") or "", argument
        if argument.get("type") == "COMPARE_EQUAL" and argument["left"].get("class") == "COLUMN_REF":
            name, value = argument["left"]["column_names"][-1], argument["right"]
        if name:
            named[fold(name)] = binder.evaluate(value)
        else:
            positional.append(binder.evaluate(value))
    return positional, named


def bind(
    name: str, positional: Sequence[Any], named: dict[str, Any], parameters: Sequence[str], others: Sequence[str]
) -> dict[str, Any]:
    """Return the arguments of a call by name. Raise ``SqlError`` for arguments that the function does not have."""
    if len(positional) > len(parameters):
        raise SqlError(f"Binder Error: {name} takes at most {len(parameters)} arguments, {len(positional)} were given")
    found = dict(zip(parameters, positional, strict=False))
    for key, value in named.items():
        if key not in (*parameters, *others):
            known = nearest(key, (*parameters, *others))
            raise SqlError(f'Binder Error: Invalid named parameter "{key}" for function {name}', hint=known)
        found[key] = value
    return found
