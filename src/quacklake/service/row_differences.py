"""The rows that differ between two snapshots of a table, by its key, from the change feed: other rows are not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quacklake.errors import InputError
from quacklake.extend.names import TableRef, literal, quote
from quacklake.service.differences import columns_changed

if TYPE_CHECKING:
    from quacklake.core.format.objects import TableInfo
    from quacklake.service.identity import Identity
    from quacklake.service.state import Service

__all__ = ["row_differences"]

_FACTS = ("snapshot_id", "rowid", "change_type")
"""The columns of the feed beside those of the table."""
KINDS = ("added", "changed", "removed")


def row_differences(
    service: Service, identity: Identity, table: str, first: int, last: int, offset: int, most: int
) -> dict[str, Any]:
    """Return the columns and rows of a table that differ after one snapshot up to another, for the principal.

    A row is known by the primary key, or by its row id in a table without one. One that was changed several times is
    told once, and not at all if it is as it was. Values are texts. Rows come by kind and key.
    """
    if first > last:
        raise InputError("the range ends before it begins", hint="swap from and to")
    ref = TableRef.parse(table)
    view = identity.lake.at(version=last).handle.view()
    info = view.find_table(ref.schema, ref.name)
    names = ", ".join(literal(name) for name in ("lake", info.schema_name, info.name))
    facts: dict[str, Any] = {
        "table": info.qualified_name,
        "from": first,
        "to": last,
        "columns": columns_changed(_before(identity, info, first), info, defaults=not identity.lake.handle.restricted),
    }
    if first == last:
        return {**facts, "key": [], "counts": dict.fromkeys(KINDS, 0), "rows": [], "next": None}
    feed = f"ducklake_table_changes({names}, {first + 1:d}, {last:d})"
    lent = service.sessions.lend(identity.lake, writes=False, version=last)
    try:
        found = [name for name in lent.session.sql(f"SELECT * FROM {feed} LIMIT 0").schema.names if name not in _FACTS]
        wanted = view.objects.primary_key(info)
        key = list(wanted) if set(wanted) <= set(found) else []
        changes = _changes(feed, found, key)
        counted = lent.session.sql(f"{changes} SELECT kind, count(*) AS n FROM paired GROUP BY ALL").to_arrow()
        text = f"{changes} SELECT * FROM paired ORDER BY kind, place, number LIMIT {most + 1:d} OFFSET {offset:d}"
        rows = lent.session.sql(text).to_arrow().to_pylist()
    finally:
        lent.give_back()
    counts = dict.fromkeys(KINDS, 0) | {row["kind"]: row["n"] for row in counted.to_pylist()}
    return {
        **facts,
        "key": key,
        "counts": counts,
        "rows": [_show_row(row, found) for row in rows[:most]],
        "next": offset + most if len(rows) > most else None,
    }


def _before(identity: Identity, info: TableInfo, first: int) -> TableInfo | None:
    """Return a table as it was, whatever it was called; None if it was not yet there."""
    tables = identity.lake.at(version=first).handle.view().tables()
    return next((table for table in tables if table.id == info.id), None)


def _changes(feed: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """Return the start of a query: ``paired`` has the rows that differ, as they were and as they are.

    The state of a row before is that of its first change, if that is no insertion, and the state after is that of its
    last change, if that is no deletion.
    """
    texts = ", ".join(f"CAST({quote(name)} AS VARCHAR) AS {_column(index)}" for index, name in enumerate(columns))
    place = f"row({', '.join(quote(name) for name in key)})" if key else "row(rowid)"
    picked = f"SELECT {place} AS place, rowid AS row_id, {texts} FROM {feed}"

    def side(end: str, kinds: str) -> str:
        mine = f"snapshot_id = {end}(snapshot_id) OVER (PARTITION BY rowid)"
        found = f"SELECT * FROM ({picked} QUALIFY {mine} AND change_type IN {kinds})"
        # nothing keeps a key from being there twice: the first of one side belongs to the first of the other
        return f"(SELECT *, row_number() OVER (PARTITION BY place ORDER BY row_id) AS number FROM ({found}))"

    pairs = ", ".join(f"o.{_column(i)} AS o{i}, n.{_column(i)} AS n{i}" for i in range(len(columns)))
    same = " AND ".join(f"o.{_column(i)} IS NOT DISTINCT FROM n.{_column(i)}" for i in range(len(columns)))
    both = "coalesce(o.place, n.place) AS place, coalesce(o.number, n.number) AS number"
    return (
        f"WITH o AS {side('min', _OLD)}, n AS {side('max', _NEW)}, paired AS ("
        "SELECT CASE WHEN o.place IS NULL THEN 'added' WHEN n.place IS NULL THEN 'removed' ELSE 'changed' END AS kind,"
        f" {both}, {pairs} FROM o FULL JOIN n ON o.place = n.place AND o.number = n.number"
        f" WHERE o.place IS NULL OR n.place IS NULL OR NOT ({same}))"
    )


_OLD = "('delete', 'update_preimage')"
_NEW = "('insert', 'update_postimage')"


def _column(index: int) -> str:
    return f"v{index}"


def _show_row(row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    def side(mark: str) -> dict[str, str | None]:
        return {name: row[f"{mark}{index}"] for index, name in enumerate(columns)}

    return {
        "change": row["kind"],
        "before": None if row["kind"] == "added" else side("o"),
        "after": None if row["kind"] == "removed" else side("n"),
    }
