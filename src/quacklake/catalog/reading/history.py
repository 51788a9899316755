"""What the history of a lake is told from: what commits were asked, and what things were called."""

from __future__ import annotations

import sqlalchemy as sa

from quacklake.catalog.reading.reader import Reader
from quacklake.format.operations import Operation, operations_of

__all__ = ["asked", "names"]

_NAMED = ("table", "view", "macro")


def asked(reader: Reader) -> dict[int, Operation]:
    """Return what the commits of snapshots were asked, where their tokens say it; by snapshot."""
    tokens = reader._t.own["commits"]
    if not (reader._t.shared or reader.has_table(tokens.name)):
        return {}
    found: dict[int, Operation] = {}
    for snapshot, token in reader.run("tokens", sa.select(tokens.c.snapshot_id, tokens.c.token)):
        found[snapshot] = found.get(snapshot, Operation.NONE) | operations_of(str(token))
    return found


def names(reader: Reader) -> dict[int, list[tuple[int, str]]]:
    """Return every name that schemas, tables, views and macros have had, by id: since which snapshot, oldest first."""
    schema = reader._t["schema"]
    schemas = {row[0]: str(row[1]) for row in reader.run("names", sa.select(schema.c.schema_id, schema.c.schema_name))}
    found = {id_: [(0, name)] for id_, name in schemas.items()}
    for kind in _NAMED:
        table = reader._t.get(kind)
        if table is None:
            continue
        columns = (table.c[f"{kind}_id"], table.c.begin_snapshot, table.c.schema_id, table.c[f"{kind}_name"])
        for id_, begin, schema_id, name in reader.run("names", sa.select(*columns).order_by(columns[1])):
            found.setdefault(id_, []).append((begin, f"{schemas.get(schema_id, '?')}.{name}"))
    return found
