"""Access of PostgreSQL roles to the catalogs of a shared lake: row-level security, grants, timeouts, and upgrades.

Policies of row-level security call a function that returns the catalogs granted to the *session's* user, which no
statement can change. All rights on tables belong to two group roles, so that a table's list of rights does not grow
with the catalogs: one reads, and the other, a member of the first, writes. A role that may only read a table cannot
lock it against others. Timeouts are defaults, which a session may change: they prevent accidents, not abuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake.core.catalog.scoped import CATALOG_ID
from quacklake.core.catalog.shared_lake import READ_POLICY, SharedPlace, rows_of
from quacklake.core.catalog.shared_tables import SharedTables
from quacklake.core.format.names import literal, quote
from quacklake.errors import InputError, NotFoundError

_TIMEOUTS = {
    "lock_timeout": "1min",
    "statement_timeout": "10min",
    # Stock DuckDB keeps its transaction open for as long as the user's.
    "idle_in_transaction_session_timeout": "1h",
}
_PLANNED = ("_id", "_snapshot", "_version", "_index", "_order")
"""The endings of column names used to look up rows; plans need their statistics."""
GRANTS = "quacklake_grants"
"""The table of grants: which role may use which catalog."""
_MINE = "quacklake_my_catalogs"
_WRITE, _OWNER = "quacklake_write", "quacklake_owner"
_SHARED_COLUMNS = ("id", "layout", "data_path", "encrypted", "limits")
"""The columns that a role may read about the whole lake; they do not reveal how many catalogs there were."""


def timeouts(role: str) -> str:
    """Return the statement that gives a role timeouts in this database, if it has none and we have the right."""
    given = "".join(
        " IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_db_role_setting s, unnest(s.setconfig) c"
        f" WHERE s.setrole = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = {literal(role)})"
        f" AND c LIKE {literal(f'{name}=%')}) THEN"
        f" EXECUTE format('ALTER ROLE %I IN DATABASE %I SET {name} = %L', {literal(role)}, current_database(),"
        f" {literal(value)}); END IF;"
        for name, value in _TIMEOUTS.items()
    )
    refused = "EXCEPTION WHEN insufficient_privilege THEN RAISE NOTICE 'the role keeps its timeouts';"
    return f"DO {literal(f'BEGIN{given} {refused} END')}"


def without_statistics(table: str, columns: Iterable[str]) -> list[str]:
    """Return statements that stop PostgreSQL from collecting statistics about values of a table shared by catalogs.

    A role sees the planner's row estimates, which would reveal how often a value occurs in rows of others.
    """
    chosen = [name for name in columns if not name.endswith(_PLANNED)]
    changes = ", ".join(f"ALTER COLUMN {quote(name)} SET STATISTICS 0" for name in chosen)
    return [f"ALTER TABLE {table} {changes}"] if changes else []


# -- policies ----------------------------------------------------------------------------------------------------------


def secure_rows(place: SharedPlace, tables: SharedTables) -> list[str]:
    """Return statements that enable row-level security on the tables that do not have it yet."""
    statements = [] if place.secured else _foundation(place)
    for name, table in (*tables.definitions.items(), ("ducklake_catalog", tables.catalog)):
        if name not in place.secured:
            statements += _lock(place, name, _of_mine(place, writing=False))
            if table is tables.catalog:
                statements.append(f"GRANT SELECT ON {place.name(name)} TO {quote(place.group)}")
            else:
                statements += _writable(place, name, table)
                statements += without_statistics(place.name(name), [column.name for column in table.c])
    if "quacklake_shares" not in place.secured:
        statements += _lock(place, "quacklake_shares", _of_mine(place, writing=False, column="owner_id"))
        # Do not reveal for whom files are kept.
        columns = "owner_id, below_file_id"
        statements.append(f"GRANT SELECT ({columns}) ON {place.name('quacklake_shares')} TO {quote(place.group)}")
    if "quacklake_shared" not in place.secured:
        statements += _lock(place, "quacklake_shared", "true")
        columns = ", ".join(_SHARED_COLUMNS)
        statements.append(f"GRANT SELECT ({columns}) ON {place.name('quacklake_shared')} TO {quote(place.group)}")
    for part in place.open_parts:  # partitions use the policies of the whole table; only the owner may bypass it
        statements.append(f"ALTER TABLE {place.name(part)} ENABLE ROW LEVEL SECURITY")
        statements.append(f"REVOKE ALL ON {place.name(part)} FROM PUBLIC")
    return statements


def _foundation(place: SharedPlace) -> list[str]:
    group, owner, schema = quote(place.group), quote(place.owner), quote(place.schema)
    grants, mine = place.name(GRANTS), f"{place.name(_MINE)}(boolean)"
    return [
        *([] if place.group_exists else [f"CREATE ROLE {group} NOLOGIN"]),
        *_writers(place),
        f"CREATE TABLE {grants} (role_name text NOT NULL, role_id oid NOT NULL, catalog_id bigint NOT NULL,"
        " writable boolean NOT NULL, PRIMARY KEY (role_name, role_id, catalog_id))",
        f"ALTER TABLE {grants} OWNER TO {owner}",
        f"REVOKE ALL ON {grants} FROM PUBLIC",
        # Match name and id: a later role with the same name is another role.
        f"CREATE FUNCTION {place.name(_MINE)}(writing boolean) RETURNS bigint[] LANGUAGE sql STABLE SECURITY DEFINER"
        " SET search_path = pg_catalog, pg_temp"
        " AS $$ SELECT coalesce(array_agg(g.catalog_id), '{}'::bigint[])"
        f" FROM {grants} g JOIN pg_catalog.pg_roles r ON r.oid = g.role_id AND r.rolname = g.role_name"
        " WHERE r.rolname = session_user AND (g.writable OR NOT writing) $$",
        f"ALTER FUNCTION {mine} OWNER TO {owner}",
        f"REVOKE ALL ON FUNCTION {mine} FROM PUBLIC",
        f"GRANT EXECUTE ON FUNCTION {mine} TO {group}",
        f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC",
        f"GRANT USAGE ON SCHEMA {schema} TO {group}",
    ]


def _writers(place: SharedPlace) -> list[str]:
    """Return statements that create the role of writers."""
    create = [] if place.writers_exist else [f"CREATE ROLE {quote(place.writers)} NOLOGIN"]
    return [*create, f"GRANT {quote(place.group)} TO {quote(place.writers)}"]


def _of_mine(place: SharedPlace, *, writing: bool, column: str = CATALOG_ID) -> str:
    # As a subquery, it runs once per statement, not once per row.
    return f"{column} = ANY ((SELECT {place.name(_MINE)}({str(writing).lower()}))::bigint[])"


def _lock(place: SharedPlace, table: str, readable: str) -> list[str]:
    name = place.name(table)
    return [
        f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY",
        f"REVOKE ALL ON {name} FROM PUBLIC",
        f"CREATE POLICY {_OWNER} ON {name} TO {quote(place.owner)} USING (true) WITH CHECK (true)",
        f"CREATE POLICY {READ_POLICY} ON {name} FOR SELECT TO {quote(place.group)} USING ({readable})",
    ]


def _writable(place: SharedPlace, table: str, definition: sa.Table) -> list[str]:
    name, group, mine = place.name(table), quote(place.group), _of_mine(place, writing=True)
    columns = [column.name for column in definition.c]
    return [
        f"CREATE POLICY {_WRITE} ON {name} TO {group} USING ({mine}) WITH CHECK ({mine})",
        f"GRANT SELECT ON {name} TO {group}",
        *_grant_writes(place, table, ["INSERT", "DELETE"], columns),
    ]


def _grant_writes(place: SharedPlace, table: str, rights: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return statements that give writers rights on a table and let them update columns, except the catalog id."""
    name, role = place.name(table), quote(place.writers)
    changed = ", ".join(quote(column) for column in columns if column != CATALOG_ID)
    return [
        *([f"GRANT {', '.join(rights)} ON {name} TO {role}"] if rights else []),
        *([f"GRANT UPDATE ({changed}) ON {name} TO {role}"] if changed else []),
    ]


# -- grants ------------------------------------------------------------------------------------------------------------


def need_role(connection: Connection, role: str) -> None:
    """Raise ``NotFoundError`` for a missing role."""
    if not _has_role(connection, role):
        raise NotFoundError(f"the database has no role '{role}'", hint="create it with CREATE ROLE … LOGIN")


def _has_role(connection: Connection, role: str) -> bool:
    return bool(rows_of(connection, f"SELECT 1 FROM pg_roles WHERE rolname = {literal(role)}"))


def check_role(connection: Connection, place: SharedPlace, role: str) -> None:
    """Like ``need_role``, and raise ``InputError`` for a role that bypasses policies."""
    need_role(connection, role)
    above = f"rolsuper OR rolbypassrls OR pg_has_role(oid, {literal(place.owner)}, 'MEMBER')"
    if rows_of(connection, f"SELECT 1 FROM pg_roles WHERE rolname = {literal(role)} AND ({above})"):
        raise InputError(
            f"the role '{role}' sees every catalog: it is a superuser, bypasses row-level security or owns the tables",
            hint="use a role without such rights for each catalog",
        )


def grant(connection: Connection, place: SharedPlace, role: str, catalog_id: int, *, writable: bool) -> list[str]:
    """Return statements that let a role read the rows of a catalog, and write them if ``writable``."""
    writes = writable or bool(_others(connection, place, role, catalog_id, writable=True))
    return [
        *_belong(connection, place, role, reads=True, writes=writes),
        f"INSERT INTO {place.name(GRANTS)} (role_name, role_id, catalog_id, writable)"
        f" SELECT rolname, oid, {catalog_id:d}, {str(writable).lower()} FROM pg_roles WHERE rolname = {literal(role)}"
        " ON CONFLICT (role_name, role_id, catalog_id) DO UPDATE SET writable = excluded.writable",
        timeouts(role),
    ]


def revoke(connection: Connection, place: SharedPlace, role: str, catalog_id: int) -> list[str]:
    """Return statements that undo a grant; none if nothing was ever granted on this lake."""
    if not place.secured:
        return []
    reads = bool(_others(connection, place, role, catalog_id, writable=False))
    writes = bool(_others(connection, place, role, catalog_id, writable=True))
    mine = f"role_name = {literal(role)} AND catalog_id = {catalog_id:d}"
    statements = [f"DELETE FROM {place.name(GRANTS)} WHERE {mine}"]
    if _has_role(connection, role):
        statements += _belong(connection, place, role, reads=reads, writes=writes)
    return statements


def _written_by(connection: Connection, place: SharedPlace) -> dict[str, bool]:
    """Return the roles with a grant on any catalog, and whether they may write one."""
    query = (
        f"SELECT g.role_name, bool_or(g.writable) FROM {place.name(GRANTS)} g JOIN pg_roles r ON r.oid = g.role_id"
        " AND r.rolname = g.role_name GROUP BY 1 ORDER BY 1"
    )
    return {str(role): bool(writes) for role, writes in rows_of(connection, query)}


def _others(connection: Connection, place: SharedPlace, role: str, catalog_id: int, *, writable: bool) -> list[Any]:
    """Return a row if a role has a grant on another catalog; with ``writable``, a grant to write."""
    if not place.secured:
        return []
    mine = f"g.role_name = {literal(role)} AND g.catalog_id <> {catalog_id:d} AND (g.writable OR {not writable})"
    same = "r.oid = g.role_id AND r.rolname = g.role_name"
    return rows_of(connection, f"SELECT 1 FROM {place.name(GRANTS)} g JOIN pg_roles r ON {same} WHERE {mine} LIMIT 1")


def _belong(connection: Connection, place: SharedPlace, role: str, *, reads: bool, writes: bool) -> list[str]:
    """Return statements that make a role a member of the reading or writing group, and of no other."""
    query = (
        "SELECT g.rolname FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid JOIN pg_roles r"
        f" ON r.oid = m.member WHERE r.rolname = {literal(role)}"
    )
    have = {name for (name,) in rows_of(connection, query)}
    wanted = {place.group: reads and not writes, place.writers: writes}
    return [
        *(f"GRANT {quote(name)} TO {quote(role)}" for name, is_wanted in wanted.items() if is_wanted),
        *(f"REVOKE {quote(n)} FROM {quote(role)}" for n, is_wanted in wanted.items() if n in have and not is_wanted),
    ]


# -- repairs -----------------------------------------------------------------------------------------------------------


# Older versions gave a role that readers also belong to the right to change rows; with it, a reader could lock tables.
# The oldest let PostgreSQL collect statistics about the values of all catalogs. These repairs touch no rows and do not
# wait for readers or writers.


def missing_rights(connection: Connection, place: SharedPlace, tables: SharedTables) -> list[str]:
    """Return statements that move write access on a secured lake from readers to writers, to new columns too."""
    names = [name for name in tables.definitions if name in place.secured]
    if not names:
        return []
    have = _rights(connection, place, names)
    columns = _columns(connection, place, names)
    weak = [name for name in names if any(role == place.group and right != "SELECT" for role, right, _ in have[name])]
    moving = bool(weak) or not place.writers_exist
    statements = _writers(place) if moving else []
    for name in names:
        mine = {(right, column) for role, right, column in have[name] if role == place.writers}
        rights = [right for right in ("INSERT", "DELETE") if (right, None) not in mine]
        changed = [column for column in columns[name] if ("UPDATE", column) not in mine]
        statements += _grant_writes(place, name, rights, changed)
    if moving:
        for role, writes in _written_by(connection, place).items():
            statements += _belong(connection, place, role, reads=True, writes=writes)
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
