"""PostgreSQL trigger functions that run with the rights of the lake's owner.

A user who can execute such a function could attach it to his own table, and the owner would then run the code in that
table's columns and casts. So nobody gets the right to execute one; existing triggers fire without it. In case somebody
attached one earlier, each function checks which table it is called for.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from quacklake.catalog.shared_lake import SharedPlace, rows_of
from quacklake.format.names import literal, quote

_FOREIGN = "this function serves the tables of the lake only"


def trigger_function(
    place: SharedPlace, function: str, tables: Sequence[str], body: str, *, declare: str = "", replace: bool = False
) -> list[str]:
    """Return statements that create a trigger function for some tables; all names are qualified and quoted.

    ``replace`` gives an existing function the new body.
    """
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
