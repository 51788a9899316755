"""Let stock DuckDB write an exposed catalog on PostgreSQL.

Stock DuckDB's commits insert by position, so an extra column with a default does no harm. Statements through DuckDB's
planner need ``ctid``, which a view can provide as a column. Stock DuckDB fills two tables by COPY: these are real
tables, and triggers keep them equal to the shared ones in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence

from quacklake.catalog.shared_lake import SharedPlace
from quacklake.catalog.tables import SPEC, ColumnSpec, Spec
from quacklake.format.names import literal, quote
from quacklake.format.options import EXPOSED
from quacklake.tenancy.definer_functions import trigger_function

REAL = ("metadata", "files_scheduled_for_deletion")
"""The tables, without prefix, of which a writable exposed catalog has its own."""
_LIMIT = "data_inlining_row_limit"
MIRROR = "quacklake_mirror"
"""The prefix of the function names."""


def columns_of(table: str) -> list[str]:
    """Return the quoted columns of a table of ``REAL``."""
    return quoted(SPEC[table])


def quoted(columns: Sequence[ColumnSpec]) -> list[str]:
    """Return quoted column names."""
    return [quote(column.name) for column in columns]


def writable_view(view: str, catalog_id: int, select: str) -> list[str]:
    """Return statements for a view that also accepts inserts into the catalog; ``select`` ends with its condition."""
    return [
        f"CREATE VIEW {view} WITH (security_barrier) AS {select} WITH CASCADED CHECK OPTION",
        f"ALTER VIEW {view} ALTER COLUMN catalog_id SET DEFAULT {catalog_id:d}",
    ]


def real_table(place: SharedPlace, schema: str, table: str, catalog_id: int) -> list[str]:
    """Return statements for the catalog's own table, and the trigger that copies its changes to the shared one."""
    name, shared, columns = f"{quote(schema)}.ducklake_{table}", place.name(f"ducklake_{table}"), columns_of(table)
    hidden = f" AND key NOT IN ({literal(EXPOSED)}, {literal(_LIMIT)})" if table == "metadata" else ""
    statements = [
        f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM {shared} WHERE catalog_id = {catalog_id:d}{hidden}",
        *mirror_out(place, schema, table, catalog_id),
        _trigger(name, f"{MIRROR}_out", f"{quote(schema)}.{MIRROR}_{table}()"),
    ]
    return [*statements, *(_no_inlining(place, schema, name) if table == "metadata" else [])]


def mirror_out(place: SharedPlace, schema: str, table: str, catalog_id: int, *, replace: bool = False) -> list[str]:
    """Return the function that copies changes of a catalog's own table to the shared one."""
    name, shared, columns = f"{quote(schema)}.ducklake_{table}", place.name(f"ducklake_{table}"), columns_of(table)
    # This limit applies to DuckDB only.
    only = f"IF coalesce(NEW.key, OLD.key) = {literal(_LIMIT)} THEN RETURN NULL; END IF; "
    body = (
        f"{only if table == 'metadata' else ''}"
        f"IF TG_OP <> 'INSERT' THEN {_delete_one(shared, columns, 'OLD', f'catalog_id = {catalog_id:d} AND ')};"
        f" END IF; IF TG_OP <> 'DELETE' THEN INSERT INTO {shared} (catalog_id, {', '.join(columns)})"
        f" VALUES ({catalog_id:d}, {', '.join(f'NEW.{column}' for column in columns)}); END IF; RETURN NULL;"
    )
    return trigger_function(place, f"{quote(schema)}.{MIRROR}_{table}", [name], body, replace=replace)


def _no_inlining(place: SharedPlace, schema: str, table: str) -> list[str]:
    """Keep DuckDB's inlining limit at 0, because our clients do not see rows that it inlines."""
    function = f"{quote(schema)}.{MIRROR}_limit()"
    return [
        f"CREATE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql"
        f" SET search_path = pg_catalog, pg_temp AS $$ BEGIN"
        f" IF NEW.key = {literal(_LIMIT)} THEN NEW.value := '0'; END IF; RETURN NEW; END $$",
        f"ALTER FUNCTION {function} OWNER TO {quote(place.owner)}",
        f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC",
        f"CREATE TRIGGER {MIRROR}_limit BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {function}",
        f"INSERT INTO {table} (key, value) VALUES ({literal(_LIMIT)}, '0')",
    ]


def mirrors(place: SharedPlace, registry: str) -> list[str]:
    """Return triggers that copy changes of the shared tables to those of the catalogs with a schema in ``registry``."""
    triggers = [_trigger(place.name(f"ducklake_{table}"), MIRROR, f"{_mirror(place, table)}()") for table in REAL]
    return [*mirror_functions(place, registry), *triggers]


def _mirror(place: SharedPlace, table: str) -> str:
    return place.name(f"{MIRROR}_{table}")


def mirror_functions(place: SharedPlace, registry: str, replace: bool = False) -> list[str]:
    """Return the functions of these triggers."""
    statements = []
    for table in REAL:
        columns, shared = columns_of(table), place.name(f"ducklake_{table}")
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
        statements += trigger_function(place, _mirror(place, table), [shared], body, declare=declare, replace=replace)
    return statements


def _trigger(table: str, name: str, function: str) -> str:
    # Ignore changes made by the other trigger of the pair.
    return (
        f"CREATE TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW"
        f" WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION {function}"
    )


def _delete_one(table: str, columns: list[str], row: str, condition: str) -> str:
    """Return SQL that deletes one of several equal rows, as there is no key; a ctid is unique only per partition."""
    alike = f"ROW({', '.join(columns)}) IS NOT DISTINCT FROM ROW({', '.join(f'{row}.{name}' for name in columns)})"
    return f"DELETE FROM {table} WHERE {condition}ctid = (SELECT ctid FROM {table} WHERE {condition}{alike} LIMIT 1)"


def give_writes(schema: str, role: str, spec: Spec) -> list[str]:
    """Return statements that let a role write, but not change the catalog id or create a table."""
    statements = []
    for table, parts in spec.items():
        name, columns = f"{quote(schema)}.ducklake_{table}", ", ".join(quoted(parts))
        statements.append(f"GRANT INSERT ({columns}), UPDATE ({columns}), DELETE ON {name} TO {quote(role)}")
    return statements
