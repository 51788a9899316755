"""Expose one catalog of a shared lake to stock DuckDB on PostgreSQL, as a schema of views over its rows.

No view can show the packed inlined rows of shared lakes. So an exposed catalog has none: they are flushed first, and a
trigger rejects new ones from any client. The views are security barriers; otherwise the reader's own condition could be
evaluated on other catalogs' rows first.

Stock DuckDB's commits insert by position, so an extra column with a default does no harm. Statements through DuckDB's
planner need ``ctid``, which a view can provide as a column. Stock DuckDB fills two tables by COPY: these are real
tables, and triggers keep them equal to the shared ones in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from quacklake.core.catalog.shared_lake import SharedPlace, is_exposure, rows_of
from quacklake.core.catalog.statements import DELETES, ROWS
from quacklake.core.catalog.tables import SPEC, WIDE_SPEC, ColumnSpec, Spec
from quacklake.core.format.names import literal, quote
from quacklake.core.format.options import EXPOSED
from quacklake.core.tenancy.roles import timeouts, without_statistics

_EXPOSED = "quacklake_exposed"
_REFUSE = "quacklake_no_inlining"
_LEAST = "the catalog is exposed to other clients by now and keeps no rows in the database: try again in some seconds"
_FOREIGN = "this function serves the tables of the lake only"
_REAL = ("metadata", "files_scheduled_for_deletion")
"""The tables, without prefix, of which a writable exposed catalog has its own."""
_LIMIT = "data_inlining_row_limit"
_MIRROR = "quacklake_mirror"
"""The prefix of the function names."""


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
        *_mirror_functions(place, table),
        *(_trigger(place.name(f"ducklake_{name}"), _MIRROR, f"{_mirror(place, name)}()") for name in _REAL),
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
    return _trigger_function(place, place.name(_REFUSE), tables, body, replace=replace)


def mend(connection: Connection, place: SharedPlace) -> list[str]:
    """Return statements that update the functions of an older version and revoke their execution from everybody."""
    written = f"SELECT catalog_id, schema_name FROM {place.name(_EXPOSED)} WHERE schema_name IS NOT NULL"
    statements = [*_refusal(place, replace=True), *_mirror_functions(place, place.name(_EXPOSED), True)]
    for catalog_id, schema in rows_of(connection, written):
        for table in _REAL:
            statements += _mirror_out(place, schema, table, catalog_id, replace=True)
    return statements


def views(place: SharedPlace, schema: str, catalog_id: int, spec: Spec, *, writable: bool) -> list[str]:
    """Return statements for the schema and a view per table of the format; with ``writable``, two are real tables."""
    statements = [f"CREATE SCHEMA {quote(schema)}", f"REVOKE ALL ON SCHEMA {quote(schema)} FROM PUBLIC"]
    for table, columns in spec.items():
        name = f"{quote(schema)}.ducklake_{table}"
        chosen = [*_quote_columns(columns), *(["catalog_id", "ctid"] if writable else [])]
        select = (
            f"SELECT {', '.join(chosen)} FROM {place.name(f'ducklake_{table}')}"
            f" WHERE catalog_id = {catalog_id:d}{_further(place, table, catalog_id)}"
        )
        if writable and table in _REAL:
            statements += _real_table(place, schema, table, catalog_id)
        elif writable:  # it also accepts inserts into the catalog
            statements += [
                f"CREATE VIEW {name} WITH (security_barrier) AS {select} WITH CASCADED CHECK OPTION",
                f"ALTER VIEW {name} ALTER COLUMN catalog_id SET DEFAULT {catalog_id:d}",
            ]
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
        *(_give_writes(schema, role, spec) if writable else []),
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
    made = [name for (name,) in functions if name.startswith(_MIRROR)]
    others = len(ours) < sum(kind in "vrmSfp" for _, kind in relations) or len(made) < len(functions)
    return [
        *(f"DROP {kind} {quote(schema)}.{quote(name)} CASCADE" for name, kind in sorted(ours)),
        *(f"DROP FUNCTION {quote(schema)}.{quote(name)}()" for name in sorted(made)),
        *([] if others else [f"DROP SCHEMA {quote(schema)}"]),
    ]


# -- writing -----------------------------------------------------------------------------------------------------------


def _quote_columns(columns: Sequence[ColumnSpec]) -> list[str]:
    return [quote(column.name) for column in columns]


def _real_table(place: SharedPlace, schema: str, table: str, catalog_id: int) -> list[str]:
    """Return statements for the catalog's own table, and the trigger that copies its changes to the shared one."""
    name, shared, columns = (
        f"{quote(schema)}.ducklake_{table}",
        place.name(f"ducklake_{table}"),
        _quote_columns(SPEC[table]),
    )
    hidden = f" AND key NOT IN ({literal(EXPOSED)}, {literal(_LIMIT)})" if table == "metadata" else ""
    statements = [
        f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM {shared} WHERE catalog_id = {catalog_id:d}{hidden}",
        *_mirror_out(place, schema, table, catalog_id),
        _trigger(name, f"{_MIRROR}_out", f"{quote(schema)}.{_MIRROR}_{table}()"),
    ]
    return [*statements, *(_no_inlining(place, schema, name) if table == "metadata" else [])]


def _mirror_out(place: SharedPlace, schema: str, table: str, catalog_id: int, *, replace: bool = False) -> list[str]:
    """Return the function that copies changes of a catalog's own table to the shared one."""
    name, shared, columns = (
        f"{quote(schema)}.ducklake_{table}",
        place.name(f"ducklake_{table}"),
        _quote_columns(SPEC[table]),
    )
    # This limit applies to DuckDB only.
    only = f"IF coalesce(NEW.key, OLD.key) = {literal(_LIMIT)} THEN RETURN NULL; END IF; "
    body = (
        f"{only if table == 'metadata' else ''}"
        f"IF TG_OP <> 'INSERT' THEN {_delete_one(shared, columns, 'OLD', f'catalog_id = {catalog_id:d} AND ')};"
        f" END IF; IF TG_OP <> 'DELETE' THEN INSERT INTO {shared} (catalog_id, {', '.join(columns)})"
        f" VALUES ({catalog_id:d}, {', '.join(f'NEW.{column}' for column in columns)}); END IF; RETURN NULL;"
    )
    return _trigger_function(place, f"{quote(schema)}.{_MIRROR}_{table}", [name], body, replace=replace)


def _no_inlining(place: SharedPlace, schema: str, table: str) -> list[str]:
    """Keep DuckDB's inlining limit at 0, because our clients do not see rows that it inlines."""
    function = f"{quote(schema)}.{_MIRROR}_limit()"
    return [
        f"CREATE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql"
        f" SET search_path = pg_catalog, pg_temp AS $$ BEGIN"
        f" IF NEW.key = {literal(_LIMIT)} THEN NEW.value := '0'; END IF; RETURN NEW; END $$",
        f"ALTER FUNCTION {function} OWNER TO {quote(place.owner)}",
        f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC",
        f"CREATE TRIGGER {_MIRROR}_limit BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {function}",
        f"INSERT INTO {table} (key, value) VALUES ({literal(_LIMIT)}, '0')",
    ]


def _mirror(place: SharedPlace, table: str) -> str:
    return place.name(f"{_MIRROR}_{table}")


def _mirror_functions(place: SharedPlace, registry: str, replace: bool = False) -> list[str]:
    """Return the functions that copy changes of the shared tables to those of the catalogs in ``registry``."""
    statements = []
    for table in _REAL:
        columns, shared = _quote_columns(SPEC[table]), place.name(f"ducklake_{table}")
        own = literal(f"ducklake_{table}")
        only = f" OR r.key IN ({literal(EXPOSED)}, {literal(_LIMIT)})" if table == "metadata" else ""
        gone = _delete_one("%1$I.%2$I", columns, "($1)", "")
        values = ", ".join(f"($1).{column}" for column in columns)
        added = f"INSERT INTO %1$I.%2$I ({', '.join(columns)}) VALUES ({values})"
        body = (
            "IF TG_OP = 'DELETE' THEN r := OLD; ELSE r := NEW; END IF;"
            f" SELECT e.schema_name INTO target FROM {registry} e WHERE e.catalog_id = r.catalog_id;"
            f" IF target IS NULL{only} THEN RETURN NULL; END IF;"
            f" IF TG_OP <> 'INSERT' THEN EXECUTE format({literal(gone)}, target, {own}) USING OLD; END IF;"
            f" IF TG_OP <> 'DELETE' THEN EXECUTE format({literal(added)}, target, {own}) USING NEW; END IF;"
            " RETURN NULL;"
        )
        declare = f"DECLARE r {shared}; target text; "
        statements += _trigger_function(place, _mirror(place, table), [shared], body, declare=declare, replace=replace)
    return statements


def _trigger(table: str, name: str, function: str) -> str:
    # Ignore changes made by the other trigger of the pair.
    return (
        f"CREATE TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW"
        f" WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION {function}"
    )


def _delete_one(table: str, columns: list[str], row: str, condition: str) -> str:
    """Return SQL that deletes one of several equal rows, without a key; a ctid is unique only per partition."""
    alike = f"ROW({', '.join(columns)}) IS NOT DISTINCT FROM ROW({', '.join(f'{row}.{name}' for name in columns)})"
    return f"DELETE FROM {table} WHERE {condition}ctid = (SELECT ctid FROM {table} WHERE {condition}{alike} LIMIT 1)"


def _give_writes(schema: str, role: str, spec: Spec) -> list[str]:
    """Return statements that let a role write, but not change the catalog id or create a table."""
    statements = []
    for table, parts in spec.items():
        name, columns = f"{quote(schema)}.ducklake_{table}", ", ".join(_quote_columns(parts))
        statements.append(f"GRANT INSERT ({columns}), UPDATE ({columns}), DELETE ON {name} TO {quote(role)}")
    return statements


# -- trigger functions that run with the rights of the lake's owner ----------------------------------------------------


# A user who can execute such a function could attach it to a table of their own, and the owner would then run the code
# in that table's columns and casts. So nobody gets the right to execute one; existing triggers fire without it. In case
# somebody attached one earlier, each function checks which table it is called for.


def _trigger_function(
    place: SharedPlace, function: str, tables: Sequence[str], body: str, *, declare: str = "", replace: bool = False
) -> list[str]:
    """Return statements that create a trigger function for some tables, or ``replace`` it; all names are quoted."""
    # The trigger of a partitioned table fires for its partitions.
    here = "coalesce(pg_partition_root(TG_RELID)::oid, TG_RELID)"
    allowed = ", ".join(f"{literal(table)}::regclass::oid" for table in tables)
    guard = f"IF {here} NOT IN ({allowed}) THEN RAISE EXCEPTION {literal(_FOREIGN)} USING ERRCODE = '42501'; END IF;"
    create = "CREATE OR REPLACE FUNCTION" if replace else "CREATE FUNCTION"
    return [
        f"{create} {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        f" SET search_path = pg_catalog, pg_temp AS $$ {declare}BEGIN {guard} {body} END $$",
        f"ALTER FUNCTION {function}() OWNER TO {quote(place.owner)}",
        f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC",
    ]


def has_open_functions(connection: Connection, place: SharedPlace) -> bool:
    """Return whether everybody may execute a function that runs as the lake's owner, as in older versions."""
    everybody = "p.proacl IS NULL OR EXISTS (SELECT 1 FROM aclexplode(p.proacl) a WHERE a.grantee = 0)"
    query = (
        "SELECT 1 FROM pg_proc p WHERE p.prosecdef AND p.prorettype = 'trigger'::regtype AND p.proname ~ '^quacklake_'"
        f" AND pg_get_userbyid(p.proowner) = {literal(place.owner)} AND ({everybody}) LIMIT 1"
    )
    return bool(rows_of(connection, query))
