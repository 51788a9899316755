"""Expose one catalog of a shared lake to stock DuckDB on PostgreSQL, as a schema of views over its rows.

Shared lakes pack inlined rows in a form that no view can show. So an exposed catalog has none: they are flushed first,
and a trigger rejects new ones from any client. The views are security barriers; otherwise the reader's own condition
could be evaluated on other catalogs' rows first.
"""

from __future__ import annotations

from sqlalchemy.engine import Connection

from quacklake.catalog.shared_lake import SharedPlace, is_exposure, rows_of
from quacklake.catalog.statements import DELETES, ROWS
from quacklake.catalog.tables import SPEC, WIDE_SPEC, Spec
from quacklake.format.names import literal, quote
from quacklake.format.options import EXPOSED
from quacklake.tenancy import exposed_writes
from quacklake.tenancy.definer_functions import trigger_function
from quacklake.tenancy.role_limits import timeouts, without_statistics

_EXPOSED = "quacklake_exposed"
_REFUSE = "quacklake_no_inlining"
_LEAST = "the catalog is exposed to other clients by now and keeps no rows in the database: try again in some seconds"


def exposed(connection: Connection, place: SharedPlace, catalog_id: int) -> bool | None:
    """Return whether an exposed catalog is writable; None if it is not exposed."""
    if not is_used(connection, place):
        return None
    mine = f"SELECT schema_name IS NOT NULL FROM {place.name(_EXPOSED)} WHERE catalog_id = {catalog_id:d}"
    found = rows_of(connection, mine)
    return bool(found[0][0]) if found else None


def is_used(connection: Connection, place: SharedPlace) -> bool:
    """Return whether a catalog of the lake is or was exposed."""
    return rows_of(connection, f"SELECT to_regclass({literal(place.name(_EXPOSED))})")[0][0] is not None


def leftovers(connection: Connection, place: SharedPlace, catalog_id: int) -> bool:
    """Return whether a catalog still has inlined rows or deletes."""
    each = (f"SELECT 1 FROM {place.name(table)} WHERE catalog_id = {catalog_id:d}" for table in (ROWS, DELETES))
    return bool(rows_of(connection, f"{' UNION ALL '.join(each)} LIMIT 1"))


def begin(connection: Connection, place: SharedPlace, catalog_id: int) -> list[str]:
    """Return statements that prevent new inlined rows: an option tells clients, and a trigger enforces it."""
    return [
        *([] if is_used(connection, place) else _foundation(place)),
        f"INSERT INTO {place.name(_EXPOSED)} (catalog_id) VALUES ({catalog_id:d})",
        f"INSERT INTO {place.name('ducklake_metadata')} (catalog_id, key, value)"
        f" VALUES ({catalog_id:d}, {literal(EXPOSED)}, 'true')",
    ]


def _foundation(place: SharedPlace) -> list[str]:
    owner, table = quote(place.owner), place.name(_EXPOSED)
    return [
        f"CREATE TABLE {table} (catalog_id bigint PRIMARY KEY, schema_name text)",
        f"ALTER TABLE {table} OWNER TO {owner}",
        f"REVOKE ALL ON {table} FROM PUBLIC",
        *_refusal(place),
        *(
            f"CREATE TRIGGER {_REFUSE} AFTER INSERT ON {place.name(name)} REFERENCING NEW TABLE AS added"
            f" FOR EACH STATEMENT EXECUTE FUNCTION {place.name(_REFUSE)}()"
            for name in (ROWS, DELETES)
        ),
        *exposed_writes.mirrors(place, table),
        *(
            statement
            for name, columns in SPEC.items()
            for statement in without_statistics(place.name(f"ducklake_{name}"), [column.name for column in columns])
        ),
    ]


def _refusal(place: SharedPlace, *, replace: bool = False) -> list[str]:
    body = (
        f"IF EXISTS (SELECT 1 FROM added a JOIN {place.name(_EXPOSED)} e USING (catalog_id)) THEN"
        f" RAISE EXCEPTION {literal(_LEAST)} USING ERRCODE = '55000'; END IF; RETURN NULL;"
    )
    tables = [place.name(name) for name in (ROWS, DELETES)]
    return trigger_function(place, place.name(_REFUSE), tables, body, replace=replace)


def mend(connection: Connection, place: SharedPlace) -> list[str]:
    """Return statements that update the functions of an older version and revoke their execution from everybody."""
    written = f"SELECT catalog_id, schema_name FROM {place.name(_EXPOSED)} WHERE schema_name IS NOT NULL"
    statements = [*_refusal(place, replace=True), *exposed_writes.mirror_functions(place, place.name(_EXPOSED), True)]
    for catalog_id, schema in rows_of(connection, written):
        for table in exposed_writes.REAL:
            statements += exposed_writes.mirror_out(place, schema, table, catalog_id, replace=True)
    return statements


def views(place: SharedPlace, schema: str, catalog_id: int, spec: Spec, *, writable: bool) -> list[str]:
    """Return statements for the schema and a view per table of the format; with ``writable``, two are real tables."""
    statements = [f"CREATE SCHEMA {quote(schema)}", f"REVOKE ALL ON SCHEMA {quote(schema)} FROM PUBLIC"]
    for table, columns in spec.items():
        name = f"{quote(schema)}.ducklake_{table}"
        chosen = [*exposed_writes.quoted(columns), *(["catalog_id", "ctid"] if writable else [])]
        select = (
            f"SELECT {', '.join(chosen)} FROM {place.name(f'ducklake_{table}')}"
            f" WHERE catalog_id = {catalog_id:d}{_further(place, table, catalog_id)}"
        )
        if writable and table in exposed_writes.REAL:
            statements += exposed_writes.real_table(place, schema, table, catalog_id)
        elif writable:
            statements += exposed_writes.writable_view(name, catalog_id, select)
        else:
            statements.append(f"CREATE VIEW {name} WITH (security_barrier) AS {select}")
        statements.append(f"ALTER TABLE {name} OWNER TO {quote(place.owner)}")
    if writable:
        named = f"UPDATE {place.name(_EXPOSED)} SET schema_name = {literal(schema)}"
        statements.append(f"{named} WHERE catalog_id = {catalog_id:d}")
    return statements


def _further(place: SharedPlace, table: str, catalog_id: int) -> str:
    if table == "metadata":
        return f" AND key <> {literal(EXPOSED)}"
    if table == "inlined_data_tables":
        return " AND false"  # such tables may exist, without rows
    if table == "snapshot":  # a dropped catalog has none
        here = f"SELECT 1 FROM {place.name('ducklake_catalog')} c WHERE c.catalog_id = {catalog_id:d}"
        return f" AND EXISTS ({here} AND c.dropped_ms IS NULL)"
    return ""


def give(schema: str, role: str, spec: Spec, *, writable: bool) -> list[str]:
    """Return statements that let a role read an exposed catalog, and write it if ``writable``."""
    return [
        f"GRANT USAGE ON SCHEMA {quote(schema)} TO {quote(role)}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {quote(schema)} TO {quote(role)}",
        *(exposed_writes.give_writes(schema, role, spec) if writable else []),
        timeouts(role),
    ]


def is_taken(connection: Connection, schema: str) -> bool:
    """Return whether the database has a schema of this name."""
    return bool(rows_of(connection, f"SELECT 1 FROM pg_namespace WHERE nspname = {literal(schema)}"))


def unexpose(connection: Connection, place: SharedPlace, schema: str, catalog_id: int) -> list[str]:
    """Return statements that remove an exposure and the views that depend on it; the rest of a schema stays."""
    mine = f"catalog_id = {catalog_id:d}"
    return [
        *(_without(connection, schema) if is_exposure(connection, place.schema, schema) else []),
        f"DELETE FROM {place.name(_EXPOSED)} WHERE {mine}",
        f"DELETE FROM {place.name('ducklake_metadata')} WHERE {mine} AND key = {literal(EXPOSED)}",
    ]


def _without(connection: Connection, schema: str) -> list[str]:
    """Return statements that drop our objects in a schema, and the schema if nothing else is in it."""
    of_schema = f"{literal(quote(schema))}::regnamespace"
    relations = rows_of(connection, f"SELECT relname, relkind::text FROM pg_class WHERE relnamespace = {of_schema}")
    functions = rows_of(connection, f"SELECT proname FROM pg_proc WHERE pronamespace = {of_schema}")
    kinds = {"v": "VIEW", "r": "TABLE"}
    ours = [
        (name, kinds[kind]) for name, kind in relations if name.removeprefix("ducklake_") in WIDE_SPEC and kind in kinds
    ]
    made = [name for (name,) in functions if name.startswith(exposed_writes.MIRROR)]
    others = len(ours) < sum(kind in "vrmSfp" for _, kind in relations) or len(made) < len(functions)
    return [
        *(f"DROP {kind} {quote(schema)}.{quote(name)} CASCADE" for name, kind in sorted(ours)),
        *(f"DROP FUNCTION {quote(schema)}.{quote(name)}()" for name in sorted(made)),
        *([] if others else [f"DROP SCHEMA {quote(schema)}"]),
    ]
