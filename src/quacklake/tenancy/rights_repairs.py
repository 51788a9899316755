"""Upgrade the rights on a shared lake that an older version secured or exposed.

Older versions gave a role that readers also belong to the right to change rows; with it, a reader could lock tables.
The oldest let PostgreSQL collect statistics about the values of all catalogs. These repairs touch no rows and do not
wait for readers or writers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy.engine import Connection

from quacklake.catalog.scoped import CATALOG_ID
from quacklake.catalog.shared_lake import SharedPlace, rows_of
from quacklake.catalog.shared_tables import SharedTables
from quacklake.format.names import literal, quote
from quacklake.tenancy import granting
from quacklake.tenancy.role_limits import without_statistics
from quacklake.tenancy.row_security import grant_writes, writers

_WRITES = ("INSERT", "DELETE")


def missing_rights(connection: Connection, place: SharedPlace, tables: SharedTables) -> list[str]:
    """Return statements that revoke write access from readers of a secured lake, and grant it to writers.

    They also let writers change columns that were added after the lake was secured. Returns none for an unsecured lake.
    """
    names = [name for name in tables.definitions if name in place.secured]
    if not names:
        return []
    have = _rights(connection, place, names)
    columns = _columns(connection, place, names)
    weak = [name for name in names if any(role == place.group and right != "SELECT" for role, right, _ in have[name])]
    moving = bool(weak) or not place.writers_exist
    statements = writers(place) if moving else []
    for name in names:
        mine = {(right, column) for role, right, column in have[name] if role == place.writers}
        rights = [right for right in _WRITES if (right, None) not in mine]
        changed = [column for column in columns[name] if ("UPDATE", column) not in mine]
        statements += grant_writes(place, name, rights, changed)
    if moving:
        for role, writes in granting.written_by(connection, place).items():
            statements += granting.belong(connection, place, role, reads=True, writes=writes)
    # Revoke on whole tables, which includes their columns.
    return statements + [f"REVOKE INSERT, UPDATE, DELETE ON {place.name(n)} FROM {quote(place.group)}" for n in weak]


def open_statistics(connection: Connection, place: SharedPlace, names: Iterable[str]) -> list[str]:
    """Return statements that stop collecting statistics about values in tables, where it has not stopped."""
    found = _columns(connection, place, names, "AND coalesce(a.attstattarget, -1) <> 0")
    return [line for name, columns in found.items() for line in without_statistics(place.name(name), columns)]


def _rights(
    connection: Connection, place: SharedPlace, names: Iterable[str]
) -> Mapping[str, list[tuple[str, str, str | None]]]:
    """Return, for each table, the rights of the two roles, with the column if a right is not on the whole table."""
    of_table = f"c.relnamespace = {literal(quote(place.schema))}::regnamespace AND c.relname IN ({_list(names)})"
    role = f"JOIN pg_roles r ON r.oid = x.grantee AND r.rolname IN ({_list([place.group, place.writers])})"
    query = (
        f"SELECT c.relname, r.rolname, x.privilege_type, NULL::name FROM pg_class c, aclexplode(c.relacl) x {role}"
        f" WHERE {of_table} UNION ALL SELECT c.relname, r.rolname, x.privilege_type, a.attname FROM pg_class c"
        f" JOIN pg_attribute a ON a.attrelid = c.oid, aclexplode(a.attacl) x {role} WHERE {of_table}"
    )
    found: dict[str, list[tuple[str, str, str | None]]] = {name: [] for name in names}
    for table, *right in rows_of(connection, query):
        found[table].append((right[0], right[1], right[2]))
    return found


def _columns(connection: Connection, place: SharedPlace, names: Iterable[str], where: str = "") -> dict[str, list[str]]:
    """Return the columns of tables without the catalog id."""
    query = (
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        f" WHERE c.relnamespace = {literal(quote(place.schema))}::regnamespace AND c.relname IN ({_list(names)})"
        f" AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> {literal(CATALOG_ID)} {where} ORDER BY 1, a.attnum"
    )
    found: dict[str, list[str]] = {}
    for table, column in rows_of(connection, query):
        found.setdefault(str(table), []).append(str(column))
    return found


def _list(names: Iterable[Any]) -> str:
    return ", ".join(literal(name) for name in names)
