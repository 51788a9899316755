"""The tables and columns that a policy is for, whatever they are called: those that it was made for, and their heirs.

A table inherits the policies of another by taking a name that it had when they were made, or had at last. It keeps them
through renames, and hands them on in the same way. Any client can rename and replace tables, so this is read from the
names in the catalog, which remember every one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from quacklake.core.catalog.name_keys import is_called
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.statements import SOME, parts
from quacklake.core.format.access import PolicyRow
from quacklake.core.format.names import fold

__all__ = ["Heirs", "PolicyNames", "policy_names"]

K = TypeVar("K", bound=Hashable)
_MAX_ROUNDS = 20

_Named = tuple[K, Any, int]
"""A thing by its id, a name that it had, and the snapshot in which it got it."""


@dataclass(frozen=True)
class Heirs(Generic[K]):
    """The ids that a policy is for, the names that hand it on, and the last name of what it was made for."""

    ids: frozenset[K]
    names: frozenset[Any]
    last: Any

    @classmethod
    def of(cls, id_: K, made: Any, rows: Iterable[_Named[K]]) -> Heirs[K]:
        """Return the heirs of something that was called ``made``. ``rows`` are by their snapshots."""
        known = list(rows)
        first = min((begin for key, _, begin in known if key == id_), default=-1)
        last = {key: name for key, name, _ in known}
        ids, names = {id_}, {made}
        for _ in range(_MAX_ROUNDS):
            names |= {last[key] for key in ids if key in last}
            heirs = {key for key, name, begin in known if name in names and begin > first}
            if heirs <= ids:
                break
            ids |= heirs
        return cls(frozenset(ids), frozenset(names), last.get(id_, made))


@dataclass(frozen=True)
class PolicyNames:
    """The heirs of the tables of policies and of the columns of masks, by the ids of policies. Names are folded."""

    tables: Mapping[str, Heirs[int]] = field(default_factory=dict)
    columns: Mapping[str, Heirs[tuple[int, int]]] = field(default_factory=dict)

    def is_for(self, policy: PolicyRow, id_: int | None, schema: str, name: str) -> bool:
        """Return whether a policy is for a table, which may be none of the catalog's yet."""
        heirs = self.tables[policy.policy_id]
        return id_ in heirs.ids or (fold(schema), fold(name)) in heirs.names

    def masks(self, policy: PolicyRow, table_id: int | None, column_id: int | None, name: str) -> bool:
        """Return whether a mask is for a column of a table that it is for."""
        heirs = self.columns.get(policy.policy_id)
        return heirs is not None and ((table_id, column_id) in heirs.ids or fold(name) in heirs.names)


def policy_names(reader: Reader, policies: Sequence[PolicyRow]) -> PolicyNames:
    """Return the tables and columns that policies are for: one statement, or two with masks, and more with heirs."""
    ids, rows = {policy.table_id for policy in policies}, list[_Named[int]]()
    texts = {policy.table_name for policy in policies}
    tables: dict[str, Heirs[int]] = {}
    for _ in range(_MAX_ROUNDS if policies else 0):
        rows = _table_rows(reader, ids, texts)
        tables = {policy.policy_id: Heirs.of(policy.table_id, _table(policy), rows) for policy in policies}
        heirs = {id_ for found in tables.values() for id_ in found.ids}
        names = {name for found in tables.values() for _, name in found.names}
        if heirs <= ids and names <= {fold(text) for text in texts}:
            break
        ids, texts = ids | heirs, texts | names
    masks = [policy for policy in policies if policy.column_id is not None]
    columns: dict[str, Heirs[tuple[int, int]]] = {}
    if masks:
        wanted = {id_ for policy in masks for id_ in tables[policy.policy_id].ids}
        found = _column_rows(reader, wanted)
        for policy in masks:
            own = tables[policy.policy_id].ids
            mine = [row for row in found if row[0][0] in own]
            key = (policy.table_id, policy.column_id or 0)
            columns[policy.policy_id] = Heirs.of(key, fold(policy.column_name or ""), mine)
    return PolicyNames(tables, columns)


def _table(policy: PolicyRow) -> tuple[str, str]:
    return fold(policy.schema_name), fold(policy.table_name)


def _table_rows(reader: Reader, ids: Iterable[int], texts: Iterable[str]) -> list[_Named[int]]:
    """Return the names of tables with some ids, and of those that had some names."""
    t, s = reader.meta["table"], reader.meta["schema"]
    known = sorted(set(map(fold, texts)))
    found: set[_Named[int]] = set()
    wheres: list[sa.ColumnElement[bool]] = [t.c.table_id.in_(some) for some in parts(sorted(ids), SOME)]
    wheres += [
        is_called(t.c.table_name, list(map(sa.literal, some)), reader.backend.name) for some in parts(known, SOME)
    ]
    for where in [sa.or_(*wheres)] if len(wheres) == 2 else wheres:
        names = sa.select(t.c.table_id, s.c.schema_name, t.c.table_name, t.c.begin_snapshot, s.c.begin_snapshot)
        names = names.join_from(t, s, s.c.schema_id == t.c.schema_id).where(where)
        for id_, schema, name, begin, since in reader.run("policy_tables", names):
            found.add((id_, (fold(schema), fold(name)), max(begin or 0, since or 0)))
    return sorted(found, key=lambda row: row[2])


def _column_rows(reader: Reader, ids: Iterable[int]) -> list[_Named[tuple[int, int]]]:
    c = reader.meta["column"]
    found: list[_Named[tuple[int, int]]] = []
    for some in parts(sorted(ids), SOME):
        names = sa.select(c.c.table_id, c.c.column_id, c.c.column_name, c.c.begin_snapshot).where(
            c.c.table_id.in_(some)
        )
        found += [((row[0], row[1]), fold(row[2]), row[3] or 0) for row in reader.run("policy_columns", names)]
    return sorted(found, key=lambda row: row[2])
