"""The difference of two snapshots: what was created, altered and dropped, and how many rows changed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quacklake.errors import InputError, SnapshotExpiredError, StatementTimeoutError
from quacklake.extend.names import literal

if TYPE_CHECKING:
    from quacklake.core.format.objects import TableInfo
    from quacklake.extend.schemas import Column
    from quacklake.lake import Lake
    from quacklake.service.identity import Identity
    from quacklake.service.state import Service

__all__ = ["before", "columns_changed", "difference"]


def difference(service: Service, identity: Identity, first: int, last: int) -> dict[str, Any]:
    """Return what changed after a snapshot, up to another, of what the principal may see.

    Rows are counted in the change feed, for as long as a statement may take and for so many tables as the settings
    say; ``rows`` of the others is None, and ``complete`` false.
    """
    if first > last:
        raise InputError("the range ends before it begins", hint="swap from and to")
    before, after = identity.lake.at(version=first), identity.lake.at(version=last)
    old = {table.id: table for table in before.handle.view().tables()}
    new = {table.id: table for table in after.handle.view().tables()}
    counts, complete = _counts(service, identity, new, first, last)
    defaults = not identity.lake.handle.restricted  # they may tell what masks hide
    tables = []
    for id_ in sorted({*old, *new}, key=lambda id_: (new.get(id_) or old[id_]).qualified_name):
        found = _table(old.get(id_), new.get(id_), counts.get(id_, _NOTHING), defaults=defaults)
        if found is not None:
            tables.append(found)
    return {
        "from": first,
        "to": last,
        "schemas": _names(before.schemas(), after.schemas()),
        "views": _names(before.views(), after.views()),
        "tables": tables,
        "complete": complete,
    }


def before(lake: Lake, snapshot: int) -> int:
    """Return the snapshot before one; the first is its own. Raise ``SnapshotExpiredError`` without one."""
    if not snapshot:
        return snapshot
    with lake.handle.context.catalog.read() as reader:
        found = reader.snapshots.before(snapshot)
    if found is None:
        raise SnapshotExpiredError(f"the snapshots before {snapshot} have expired")
    return found


_NOTHING: Mapping[str, int] = {"inserted": 0, "updated": 0, "deleted": 0}
_Counts = dict[int, Mapping[str, int] | None]


def _names(before: list[str], after: list[str]) -> dict[str, list[str]]:
    return {"created": sorted({*after} - {*before}), "dropped": sorted({*before} - {*after})}


def _table(
    before: TableInfo | None, after: TableInfo | None, rows: Mapping[str, int] | None, *, defaults: bool
) -> dict[str, Any] | None:
    """Return what happened to a table; None for nothing."""
    if after is None:
        assert before is not None
        return {"table": _name(before), "change": "dropped", "columns": [], "rows": None}
    if before is None:
        return {"table": _name(after), "change": "created", "columns": [], "rows": rows}
    columns = columns_changed(before, after, defaults=defaults)
    renamed = _name(before) if _name(before) != _name(after) else None
    if not columns and renamed is None and rows == _NOTHING:
        return None
    altered = "altered" if columns or renamed is not None else "rows"
    found = {"table": _name(after), "change": altered, "columns": columns, "rows": rows}
    return found if renamed is None else {**found, "was": renamed}


def _name(table: TableInfo) -> str:
    return f"{table.schema_name}.{table.name}"


def columns_changed(before: TableInfo | None, after: TableInfo, *, defaults: bool) -> list[dict[str, Any]]:
    """Return the columns of a table that were added, altered and dropped; of a new table, nothing.

    Without ``defaults``, nothing is told of those.
    """
    if before is None:
        return []
    old = {column.id: column for column in before.schema.columns}
    new = {column.id: column for column in after.schema.columns}
    found: list[dict[str, Any]] = []
    for id_ in [*old, *(id_ for id_ in new if id_ not in old)]:
        if id_ not in new:
            found.append({"column": old[id_].name, "change": "dropped"})
        elif id_ not in old:
            found.append({"column": new[id_].name, "change": "added", "type": new[id_].duckdb_type()})
        elif old[id_] != new[id_]:
            altered = _compare_columns(old[id_], new[id_], defaults=defaults)
            if altered or defaults:
                found.append({"column": new[id_].name, "change": "altered", **altered})
    return found


def _compare_columns(before: Column, after: Column, *, defaults: bool) -> dict[str, Any]:
    """Return what of a column has changed, as pairs of before and after."""
    pairs: dict[str, tuple[Any, Any]] = {
        "name": (before.name, after.name),
        "type": (before.duckdb_type(), after.duckdb_type()),
        "nullable": (before.nullable, after.nullable),
    }
    if defaults:
        pairs["default"] = before.default, after.default
    return {name: list(pair) for name, pair in pairs.items() if pair[0] != pair[1]}


def _counts(
    service: Service, identity: Identity, tables: Mapping[int, TableInfo], first: int, last: int
) -> tuple[_Counts, bool]:
    """Return how many rows of each table changed, and whether all were counted."""
    touched = [tables[id_] for id_ in sorted(_find_touched(identity, first, last)) if id_ in tables]
    until = time.monotonic() + service.settings.statement_seconds
    found: _Counts = {}
    for number, table in enumerate(touched):
        late = number >= service.settings.max_counted_tables or time.monotonic() >= until
        found[table.id] = None if late else _count_changes(service, identity, table, first + 1, last)
    return found, None not in found.values()


def _find_touched(identity: Identity, first: int, last: int) -> set[int]:
    """Return the ids of the tables whose rows changed, hidden ones too: it only saves reading the others."""
    with identity.lake.handle.context.catalog.read() as reader:
        changes = reader.snapshots.changes_since(first)
    return {change.id for id_, made in changes if id_ <= last for change in made if change.id is not None}


def _count_changes(
    service: Service, identity: Identity, table: TableInfo, since: int, until: int
) -> Mapping[str, int] | None:
    """Return the numbers of changed rows that the principal may see; None when that takes too long."""
    names = ", ".join(literal(name) for name in ("lake", table.schema_name, table.name))
    text = f"SELECT change_type, count(*) AS n FROM ducklake_table_changes({names}, {since:d}, {until:d}) GROUP BY ALL"
    lent = service.sessions.lend(identity.lake, writes=False, version=until)
    try:
        rows = {row["change_type"]: row["n"] for row in lent.session.sql(text).to_arrow().to_pylist()}
    except StatementTimeoutError:
        return None
    finally:
        lent.give_back()
    kinds = {"inserted": "insert", "updated": "update_postimage", "deleted": "delete"}
    return {name: rows.get(kind, 0) for name, kind in kinds.items()}
