"""The functions of a lake, in FROM and CALL: ``ducklake_snapshots('lake')`` and ``lake.snapshots()``.

Each is one entry of ``FUNCTIONS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quacklake.errors import SqlError, nearest
from quacklake.format.names import fold
from quacklake.operations.reference import DEFAULT_SCHEMA
from quacklake.sql import lake_calls, maintenance_calls
from quacklake.sql.attached import Attached
from quacklake.sql.lake_calls import LakeCall
from quacklake.sql.tree import Node

if TYPE_CHECKING:
    from quacklake.sql.binder import Binder
    from quacklake.sql.session_connection import SessionConnection

_PREFIX = "ducklake_"


@dataclass(frozen=True, slots=True)
class Function:
    """A lake function: its implementation, its parameters in order, and its parameters that are given by name only.

    ``first`` are the parameters before them when the lake is named as an argument.
    """

    run: Callable[[LakeCall], Any]
    parameters: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


_FEED = ("table_name", "start_snapshot", "end_snapshot")
_FILTER = ("where", "filter")
_COMPACTING = ("schema", "max_compacted_files", "min_file_size", "max_file_size", *_FILTER)
_REWRITING = ("schema", "delete_threshold", *_FILTER)
_REMOVING = ("cleanup_all", "older_than", "dry_run")

FUNCTIONS: Mapping[str, Function] = {
    "snapshots": Function(lake_calls.snapshots),
    "table_info": Function(lake_calls.table_info),
    "list_files": Function(lake_calls.list_files, ("table_name",), ("schema", "snapshot_version", "snapshot_time")),
    "table_changes": Function(lake_calls.table_changes, _FEED, first=("schema_name",)),
    "table_insertions": Function(lake_calls.table_insertions, _FEED, first=("schema_name",)),
    "table_deletions": Function(lake_calls.table_deletions, _FEED, first=("schema_name",)),
    "current_snapshot": Function(lake_calls.current_snapshot),
    "last_committed_snapshot": Function(lake_calls.last_committed_snapshot),
    "options": Function(lake_calls.options),
    "settings": Function(lake_calls.settings),
    "set_option": Function(lake_calls.set_option, ("option", "value"), ("schema", "table_name")),
    "set_commit_message": Function(lake_calls.set_commit_message, ("author", "message"), ("extra_info",)),
    "add_data_files": Function(
        lake_calls.add_data_files,
        ("table_name", "path"),
        ("schema", "allow_missing", "ignore_extra_columns", "hive_partitioning"),
    ),
    **{
        name: Function(run, parameters, named)
        for name, run, parameters, named in (
            ("flush_inlined_data", maintenance_calls.flush_inlined_data, (), ("schema_name", "table_name")),
            ("merge_adjacent_files", maintenance_calls.merge_adjacent_files, ("table_name",), _COMPACTING),
            ("rewrite_data_files", maintenance_calls.rewrite_data_files, ("table_name",), _REWRITING),
            ("optimize", maintenance_calls.optimize, ("table_name",), ("schema", "order_by", "zorder", *_FILTER)),
            ("expire_snapshots", maintenance_calls.expire_snapshots, (), ("versions", "older_than", "dry_run")),
            ("cleanup_old_files", maintenance_calls.cleanup_old_files, (), _REMOVING),
            ("delete_orphaned_files", maintenance_calls.delete_orphaned_files, (), _REMOVING),
        )
    },
}


def relation(session: SessionConnection, binder: Binder, names: Sequence[str], arguments: list[Node]) -> Any:
    """Return the result of a call in FROM: rows or the name of a relation. None for any other function."""
    name = fold(names[-1])
    if len(names) == 1:
        function = FUNCTIONS.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
        if function is not None:
            return _named_lake(session, binder, name, function, arguments)
        default = session.names.default
        function = FUNCTIONS.get(name)
        return None if function is None or default is None else _of_lake(session, binder, default, names, arguments)
    attached = session.attachments.get(names[0])
    if attached is None and session.names.default is not None and len(names) == 2:
        default = session.names.default
        if session.names.has_schema(default, names[0]) and name in FUNCTIONS:
            return _of_lake(session, binder, default, [default.alias, *names], arguments)
    if attached is None:
        return None
    if name not in FUNCTIONS:
        raise SqlError(f'Catalog Error: a lake has no function "{names[-1]}"', hint=nearest(name, FUNCTIONS))
    return _of_lake(session, binder, attached, names, arguments)


def _named_lake(
    session: SessionConnection, binder: Binder, name: str, function: Function, arguments: list[Node]
) -> Any:
    positional, named = _values(binder, arguments)
    if not positional and "catalog" not in named:
        raise SqlError(f"{name} needs the name of a lake first")
    alias = named.pop("catalog", None) or positional.pop(0)
    attached = session.attachments.find(str(alias))
    given = bind(name, positional, named, (*function.first, *function.parameters), function.named)
    return function.run(LakeCall(session, binder, attached, given))


def _of_lake(
    session: SessionConnection, binder: Binder, attached: Attached, names: Sequence[str], arguments: list[Node]
) -> Any:
    function = FUNCTIONS[fold(names[-1])]
    positional, named = _values(binder, arguments)
    given = bind(names[-1], positional, named, function.parameters, (*function.named, *function.first))
    if "schema_name" in function.first:
        given.setdefault("schema_name", names[1] if len(names) == 3 else DEFAULT_SCHEMA)
    return function.run(LakeCall(session, binder, attached, given))


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
    """Return the arguments of a call by name. Raises ``SqlError`` for arguments that the function does not have."""
    if len(positional) > len(parameters):
        raise SqlError(f"Binder Error: {name} takes at most {len(parameters)} arguments, {len(positional)} were given")
    found = dict(zip(parameters, positional, strict=False))
    for key, value in named.items():
        if key not in (*parameters, *others):
            known = nearest(key, (*parameters, *others))
            raise SqlError(f'Binder Error: Invalid named parameter "{key}" for function {name}', hint=known)
        found[key] = value
    return found
