"""The conflicts of my changes with those of others, committed since my transaction began.

The rules are finer than the reference implementation's where it refuses too much (a blind insert next to a
delete) and stricter where it lets a change get lost (a delete next to a compaction of the same file).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from quacklake.core.format.names import above, fold
from quacklake.core.format.snapshots import Change, ChangeKind


class Check(enum.Enum):
    """The check that two changes of the same object need before both may stand."""

    OK = "ok"
    """They never disturb each other."""
    CONFLICT = "conflict"
    """They always exclude each other."""
    SAME_FILE = "same file"
    """They exclude each other when both touched the same data file or inlined row."""
    READ = "read"
    """They exclude each other when the other's new rows may match what mine has read."""


_K = ChangeKind
_INSERTS = (_K.INSERTED_INTO_TABLE, _K.INLINED_INSERT)
_DELETES = (_K.DELETED_FROM_TABLE, _K.INLINED_DELETE)
_FLUSH = (_K.INLINE_FLUSH,)
_COMPACTIONS = (_K.MERGE_ADJACENT, _K.REWRITE_DELETE, _K.COMPACTED_TABLE)
_ALTER = (_K.ALTERED_TABLE,)
_DROP = (_K.DROPPED_TABLE,)

_GROUPS = (_INSERTS, _DELETES, _FLUSH, _COMPACTIONS, _ALTER, _DROP)

TABLE_KINDS: tuple[ChangeKind, ...] = tuple(kind for group in _GROUPS for kind in group)
"""The kinds that act on an existing table and are compared by its id."""

_OK, _X, _FILE, _READ = Check.OK, Check.CONFLICT, Check.SAME_FILE, Check.READ

# One row for each group of mine; the columns are the groups of the other's, in the order of _GROUPS.
_ROWS: tuple[tuple[tuple[ChangeKind, ...], tuple[Check, ...]], ...] = (
    # mine          inserts deletes flush  compact alter drop
    (_INSERTS, (_OK, _OK, _OK, _OK, _X, _X)),
    (_DELETES, (_READ, _FILE, _FILE, _FILE, _X, _X)),
    (_COMPACTIONS, (_OK, _FILE, _FILE, _FILE, _OK, _X)),
    (_ALTER, (_OK, _OK, _OK, _OK, _X, _X)),
    (_DROP, (_OK, _OK, _OK, _OK, _OK, _X)),
    # A flush also writes delete files for data files whose deletes were inlined: those must still be there.
    (_FLUSH, (_OK, _FILE, _FILE, _FILE, _OK, _X)),
)


MATRIX: Mapping[tuple[ChangeKind, ChangeKind], Check] = MappingProxyType(
    {
        (mine, other): check
        for mine_group, checks in _ROWS
        for mine in mine_group
        for other_group, check in zip(_GROUPS, checks, strict=True)
        for other in other_group
    }
)
"""The check for (mine, other) on the same table, for every pair of :data:`TABLE_KINDS`."""

READ_MATRIX: Mapping[tuple[ChangeKind, ChangeKind], Check] = MappingProxyType(
    {(mine, other): _READ for mine in (*_INSERTS, *_ALTER) for other in _INSERTS}
    | {(mine, other): _FILE for mine in _INSERTS for other in _DELETES}
)
"""The checks in place of :data:`MATRIX` when my rows, or a constraint I set, depend on what I have read."""

_CREATED_RELATION = (_K.CREATED_TABLE, _K.CREATED_VIEW)  # tables and views share their names
_CREATED = (*_CREATED_RELATION, _K.CREATED_SCALAR_MACRO, _K.CREATED_TABLE_MACRO)
_CREATED_ANYTHING = (*_CREATED, _K.CREATED_SCHEMA)
_SAME_ID: frozenset[tuple[ChangeKind, ChangeKind]] = frozenset(
    [(kind, kind) for kind in (_K.DROPPED_SCHEMA, _K.DROPPED_VIEW, _K.DROPPED_SCALAR_MACRO, _K.DROPPED_TABLE_MACRO)]
    + [(_K.ALTERED_VIEW, _K.ALTERED_VIEW), (_K.ALTERED_VIEW, _K.DROPPED_VIEW)]
)
"""Pairs that conflict when both name the same id."""


def compare(mine: Change, other: Change, *, reads: bool, schema_ids: Mapping[str, int]) -> Check:
    """Return what to check before ``mine`` may be committed after ``other``; a READ only if mine ``reads`` rows.

    ``schema_ids`` are the ids of the schemas by folded name, as of the snapshot my transaction began at.
    """
    pair = (mine.kind, other.kind)
    check = MATRIX.get(pair)
    if check is not None:
        if mine.id != other.id:
            return Check.OK
        if reads:
            return READ_MATRIX.get(pair, check)
        return Check.OK if check is Check.READ else check
    return Check.CONFLICT if _objects_clash(mine, other, schema_ids) else Check.OK


def _objects_clash(mine: Change, other: Change, schema_ids: Mapping[str, int]) -> bool:
    if (mine.kind, other.kind) in _SAME_ID:
        return mine.id == other.id
    if mine.kind is other.kind is ChangeKind.CREATED_SCHEMA:
        return _same_name(mine.schema, other.schema)
    if mine.kind in _CREATED_ANYTHING and other.kind is ChangeKind.DROPPED_SCHEMA:
        return other.id in _schemas_above(mine, schema_ids)
    if mine.kind is ChangeKind.DROPPED_SCHEMA and other.kind in _CREATED_ANYTHING:
        return mine.id in _schemas_above(other, schema_ids)
    if mine.kind in _CREATED and other.kind in _CREATED:
        same_space = mine.kind is other.kind or (mine.kind in _CREATED_RELATION and other.kind in _CREATED_RELATION)
        return same_space and _same_name(mine.schema, other.schema) and _same_name(mine.name, other.name)
    return False


def _same_name(one: str | None, two: str | None) -> bool:
    return one is not None and two is not None and fold(one) == fold(two)


def _schemas_above(change: Change, schema_ids: Mapping[str, int]) -> set[int]:
    """Return the ids of the schemas in which something was made."""
    if change.schema is None:
        return set()
    names = [*above(change.schema), *([] if change.kind is ChangeKind.CREATED_SCHEMA else [change.schema])]
    # A schema unknown to my snapshot was made since, so it is not one that existed then and was dropped.
    return {schema_ids[fold(name)] for name in names if fold(name) in schema_ids}


#: The words for my change, which is not made yet, and for another's, which is.
_WORDS: Mapping[ChangeKind, tuple[str, str]] = {
    **dict.fromkeys(_INSERTS, ("insert into", "has inserted into it")),
    **dict.fromkeys(_DELETES, ("delete from", "has deleted from it")),
    **dict.fromkeys(_FLUSH, ("flush the inlined data of", "has flushed its inlined data")),
    **dict.fromkeys(_COMPACTIONS, ("compact", "has compacted it")),
    **dict.fromkeys((*_ALTER, _K.ALTERED_VIEW), ("alter", "has altered it")),
}


def explain(mine: Change, other: Change) -> str:
    """Return a sentence that says which of my changes conflicts with another's change."""
    if other.kind is ChangeKind.DROPPED_SCHEMA and mine.kind in _CREATED_ANYTHING:
        did = "has dropped this schema"
    elif mine.kind is ChangeKind.DROPPED_SCHEMA and other.kind in _CREATED_ANYTHING:
        did = f"has created {_thing(other)} in it"
    elif other.kind in _WORDS:
        did = _WORDS[other.kind][1]
    else:
        did = f"has {other.kind.value.partition('_')[0]} it already"
    verb = "create" if mine.kind.value.startswith("created") else "drop"
    if mine.kind in _WORDS:
        verb = _WORDS[mine.kind][0]
    return f"cannot {verb} {_thing(mine)}: another transaction {did}"


def _thing(change: Change) -> str:
    words = change.kind.value.split("_")
    what = " ".join(words[1:]) if words[0] in ("created", "dropped") else "view" if "view" in words else "table"
    if change.name is not None:
        return f'{what} "{change.schema}"."{change.name}"'
    return f'{what} "{change.schema}"' if change.schema is not None else f"{what} {change.id}"
