"""Row-level security of a shared lake on PostgreSQL: database roles that see only the rows of their catalogs.

Row-level security is forced on every shared table. Its policies call a function that returns the catalogs granted to
the *session's* user, which no statement can change; a setting of the session could be changed by its user. All rights
on tables belong to two group roles, so that a table's list of rights does not grow with the catalogs: one reads, and
the other, a member of the first, writes. A role that may only read a table cannot lock it against others.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from quacklake.catalog.scoped import CATALOG_ID
from quacklake.catalog.shared_lake import READ_POLICY, SharedPlace
from quacklake.catalog.shared_tables import SharedTables
from quacklake.format.names import quote
from quacklake.tenancy.role_limits import without_statistics

GRANTS = "quacklake_grants"
"""The table of grants: which role may use which catalog."""
_MINE = "quacklake_my_catalogs"
_WRITE, _OWNER = "quacklake_write", "quacklake_owner"
_SHARED_COLUMNS = ("id", "layout", "data_path", "encrypted", "limits")
"""The columns that a role may read about the whole lake; they do not reveal how many catalogs there were."""


# -- policies ----------------------------------------------------------------------------------------------------------


def secure(place: SharedPlace, tables: SharedTables) -> list[str]:
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
        *writers(place),
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


def writers(place: SharedPlace) -> list[str]:
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
        *grant_writes(place, table, ["INSERT", "DELETE"], columns),
    ]


def grant_writes(place: SharedPlace, table: str, rights: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return statements that give writers rights on a table and let them update columns, except the catalog id."""
    name, role = place.name(table), quote(place.writers)
    changed = ", ".join(quote(column) for column in columns if column != CATALOG_ID)
    return [
        *([f"GRANT {', '.join(rights)} ON {name} TO {role}"] if rights else []),
        *([f"GRANT UPDATE ({changed}) ON {name} TO {role}"] if changed else []),
    ]
