"""Our own tables of access control: principals, tokens, roles, privileges and policies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import TypeVar

import sqlalchemy as sa

from quacklake.catalog.own_tables import needed, rows_of
from quacklake.catalog.reading.reader import Reader
from quacklake.catalog.statements import SOME, parts
from quacklake.catalog.writing.writer import Writer
from quacklake.format.access import Grant, Member, PolicyRow, Principal, TokenRow

Row = TypeVar("Row", Principal, TokenRow, Member, Grant, PolicyRow)

_TABLES: dict[type, str] = {
    Principal: "principals",
    TokenRow: "tokens",
    Member: "roles",
    Grant: "privileges",
    PolicyRow: "policies",
}
NAMES = tuple(_TABLES.values())


@dataclass(frozen=True)
class LastNames:
    """The names of tables by id, and of columns by the ids of table and column, as they are or were at last."""

    tables: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    columns: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def table(self, policy: PolicyRow) -> tuple[str, str]:
        """Return the schema and the name of the table of a policy."""
        return self.tables.get(policy.table_id, (policy.schema_name, policy.table_name))

    def column(self, policy: PolicyRow) -> str | None:
        """Return the name of the column of a mask."""
        if policy.column_id is None:
            return None
        return self.columns.get((policy.table_id, policy.column_id), policy.column_name)


def complete(reader: Reader) -> bool:
    """Return whether the catalog has all tables of access control; otherwise nothing is granted to anybody."""
    return all(reader.has_table(reader.meta.own[name].name) for name in NAMES)


def entries(reader: Reader, kind: type[Row], **where: object) -> list[Row]:
    """Return the rows of a kind, those with the values that are given; none in a catalog without the table."""
    names = [each.name for each in fields(kind)]
    make: Callable[..., Row] = kind
    return [make(*row) for row in rows_of(reader, _TABLES[kind], names, **where)]


def last_names(reader: Reader, policies: Sequence[PolicyRow]) -> LastNames:
    """Return the names that the tables of policies have now, or had when they were dropped, and so of masked columns.

    A policy has those of the time when it was made, and any client may rename a table or a column.
    """
    ids = sorted({policy.table_id for policy in policies})
    masked = sorted({policy.table_id for policy in policies if policy.column_id is not None})
    tables: dict[int, tuple[str, str]] = {}
    t, s, c = reader.meta["table"], reader.meta["schema"], reader.meta["column"]
    for some in parts(ids, SOME):
        named = sa.select(t.c.table_id, s.c.schema_name, t.c.table_name).join_from(t, s, s.c.schema_id == t.c.schema_id)
        named = named.where(t.c.table_id.in_(some)).order_by(t.c.begin_snapshot, s.c.begin_snapshot)
        tables |= {row[0]: (row[1], row[2]) for row in reader.run("policy_tables", named)}
    columns: dict[tuple[int, int], str] = {}
    for some in parts(masked, SOME):
        called = sa.select(c.c.table_id, c.c.column_id, c.c.column_name).where(c.c.table_id.in_(some))
        rows = reader.run("policy_columns", called.order_by(c.c.begin_snapshot))
        columns |= {(row[0], row[1]): row[2] for row in rows}
    return LastNames(tables, columns)


def keep_names(writer: Writer, tables: Sequence[int]) -> None:
    """Write the last names of tables, which are about to be forgotten, into their policies."""
    gone = set(tables)
    policies = [policy for policy in entries(writer, PolicyRow) if policy.table_id in gone]
    if not policies:
        return
    names, table = last_names(writer, policies), needed(writer, _TABLES[PolicyRow])
    for policy in policies:
        schema_name, table_name = names.table(policy)
        values = {"schema_name": schema_name, "table_name": table_name, "column_name": names.column(policy)}
        writer.run("update_policies", sa.update(table).where(table.c.policy_id == policy.policy_id).values(values))


def add(writer: Writer, entry: Row) -> None:
    """Write a new row."""
    name = _TABLES[type(entry)]
    table = needed(writer, name)
    values = dict(zip((each.name for each in fields(entry)), astuple(entry), strict=True))
    writer.run(f"insert_{name}", sa.insert(table), [values])


def remove(writer: Writer, kind: type[Row], **where: object) -> None:
    """Remove the rows of a kind with the values that are given."""
    name = _TABLES[kind]
    table = needed(writer, name)
    mine = [table.c[key].is_(None) if value is None else table.c[key] == value for key, value in where.items()]
    writer.run(f"delete_{name}_{'_'.join(sorted(where))}", sa.delete(table).where(*mine))


def now(reader: Reader) -> tuple[dt.datetime, int]:
    """Return the time, and in milliseconds by the clock of the database."""
    clock = int(reader.run("clock", sa.select(reader.backend.now_ms())).scalar_one())
    return dt.datetime.fromtimestamp(clock / 1000, dt.UTC), clock
