"""What the columns of a table are when it goes back to an older state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from quacklake.format.schema import Column, TableSchema
from quacklake.format.types import can_widen


@dataclass(frozen=True, slots=True)
class OldColumns:
    """The columns to go back to.

    ``kept`` are those, or fields inside them, whose type is wider than it was: files written since hold values that a
    narrower one could not. ``lossy`` tells that some were dropped since, so that files written since lack their values.
    """

    schema: TableSchema
    kept: tuple[str, ...] = ()
    lossy: bool = False


def missing_ids(now: TableSchema, old: TableSchema) -> list[int]:
    """Return the columns and nodes of an older state that there are no more."""
    known = {node.id for node in now.walk()}
    return [node.id for node in old.walk() if node.id not in known]


def old_columns(now: TableSchema, old: TableSchema, newest: Mapping[int, str]) -> OldColumns:
    """Return the columns of ``old`` for a table that has those of ``now``.

    ``newest`` are the last types of those gone.
    """
    types = {**newest, **{node.id: node.type for node in now.walk()}}
    kept: list[str] = []

    def go_back(column: Column, path: str) -> Column:
        children = tuple(go_back(child, f"{path}.{child.name}") for child in column.children)
        latest = types.get(column.id, column.type)
        if latest != column.type and not column.nested and can_widen(column.type, latest):
            kept.append(path)
            return replace(column, type=latest)
        return replace(column, children=children)

    schema = TableSchema(tuple(go_back(column, column.name) for column in old.columns))
    return OldColumns(schema, tuple(kept), bool(missing_ids(now, old)))
