"""Our own tables of access control: principals, tokens, roles, privileges and policies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from typing import TypeVar

import sqlalchemy as sa

from quacklake.core.catalog.own_tables import needed, rows_of
from quacklake.core.catalog.policy_names import policy_names
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.writing.writer import Writer
from quacklake.core.format.access import Grant, Member, PolicyRow, Principal, TokenRow

Row = TypeVar("Row", Principal, TokenRow, Member, Grant, PolicyRow)

_TABLES: dict[type, str] = {
    Principal: "principals",
    TokenRow: "tokens",
    Member: "roles",
    Grant: "privileges",
    PolicyRow: "policies",
}
NAMES = tuple(_TABLES.values())


def complete(reader: Reader) -> bool:
    """Return whether the catalog has all tables of access control; otherwise nothing is granted to anybody."""
    return all(reader.has_table(reader.meta.own[name].name) for name in NAMES)


def entries(reader: Reader, kind: type[Row], **where: object) -> list[Row]:
    """Return the rows of a kind, those with the values that are given; none in a catalog without the table."""
    names = [each.name for each in fields(kind)]
    make: Callable[..., Row] = kind
    return [make(*row) for row in rows_of(reader, _TABLES[kind], names, **where)]


def keep_names(writer: Writer, tables: Sequence[int]) -> None:
    """Write the last names of tables, which are about to be forgotten, into their policies."""
    gone = set(tables)
    policies = [policy for policy in entries(writer, PolicyRow) if policy.table_id in gone]
    if not policies:
        return
    names, table = policy_names(writer, policies), needed(writer, _TABLES[PolicyRow])
    for policy in policies:
        schema_name, table_name = names.tables[policy.policy_id].last
        values = {"schema_name": schema_name, "table_name": table_name}
        if policy.policy_id in names.columns:
            values["column_name"] = names.columns[policy.policy_id].last
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
