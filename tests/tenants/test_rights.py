"""Every right that a role of PostgreSQL has on what we make there, against a table of what is allowed.

What the table does not name fails the test: whoever makes an object there says here who may do what with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import quacklake
from services import PostgresServer

#: The tables of the format, each of which is in the shared schema, and is a view or a table of an exposed catalog.
FORMAT = frozenset(
    """
    column column_mapping column_tag data_file delete_file file_column_stats file_partition_value file_variant_stats
    files_scheduled_for_deletion inlined_data_tables macro macro_impl macro_parameters metadata name_mapping
    partition_column partition_info schema schema_versions snapshot snapshot_changes sort_expression sort_info table
    table_column_stats table_stats tag view
    """.split()  # noqa: SIM905
)
#: Those that exposed catalogs do not have.
SHARED = frozenset(
    """
    ducklake_inlined_deletes ducklake_inlined_rows ducklake_view_column_tag quacklake_checkpoints quacklake_commits
    quacklake_definitions quacklake_leases quacklake_policies quacklake_principals quacklake_privileges
    quacklake_retention quacklake_roles quacklake_snapshot_tags quacklake_streams quacklake_tokens
    """.split()  # noqa: SIM905
)
CHANGED = "SELECT INSERT DELETE UPDATE(*)"
GIVEN = "SELECT DELETE INSERT(*) UPDATE(*)"
#: Views over all catalogs, which are read with the rights of whoever looks.
VIEWS = frozenset(["catalogs", "manifests", "partitions", "schemas", "snapshots", "tables"])
#: By schema and relation: what it is, and what a role may do that may write acme, read beta, or neither.
#: ``(*)`` are all columns but the number of the catalog and ``ctid``, which tell rows of catalogs apart.
RELATIONS: dict[tuple[str, str], tuple[str, str, str, str]] = {
    **{("public", f"ducklake_{name}"): ("r", CHANGED, "SELECT", "") for name in FORMAT},
    **{("public", name): ("r", CHANGED, "SELECT", "") for name in SHARED},
    ("public", "ducklake_catalog"): ("r", "SELECT", "SELECT", ""),
    ("public", "quacklake_exposed"): ("r", "", "", ""),
    ("public", "quacklake_grants"): ("r", "", "", ""),
    ("public", "quacklake_shared"): (
        "r",
        "SELECT(id,layout,data_path,encrypted,limits)",
        "SELECT(id,layout,data_path,encrypted,limits)",
        "",
    ),
    ("public", "quacklake_shares"): ("r", "SELECT(owner_id,below_file_id)", "SELECT(owner_id,below_file_id)", ""),
    **{("tenant_0", f"ducklake_{name}"): ("v", GIVEN, "", "") for name in FORMAT},
    ("tenant_0", "ducklake_metadata"): ("r", GIVEN, "", ""),
    ("tenant_0", "ducklake_files_scheduled_for_deletion"): ("r", GIVEN, "", ""),
    **{("tenant_1", f"ducklake_{name}"): ("v", "", "SELECT", "") for name in FORMAT},
    **{("lakehouse", name): ("v", "SELECT", "SELECT", "") for name in VIEWS},
}
#: Tables without row-level security: nobody but the owner has any right on them.
UNGUARDED = {"quacklake_exposed", "quacklake_grants"}
READ_BY_ALL = {"ducklake_catalog", "quacklake_shared", "quacklake_shares"}
#: By schema and function: whether it runs as its owner, and which of the three roles may call it.
FUNCTIONS = {
    ("public", "quacklake_my_catalogs"): (True, True, True, False),
    ("public", "quacklake_no_inlining"): (True, False, False, False),
    ("public", "quacklake_mirror_metadata"): (True, False, False, False),
    ("public", "quacklake_mirror_files_scheduled_for_deletion"): (True, False, False, False),
    ("tenant_0", "quacklake_mirror_metadata"): (True, False, False, False),
    ("tenant_0", "quacklake_mirror_files_scheduled_for_deletion"): (True, False, False, False),
    ("tenant_0", "quacklake_mirror_limit"): (False, False, False, False),
}
TRIGGERS = {
    ("public", "ducklake_inlined_rows", "quacklake_no_inlining"),
    ("public", "ducklake_inlined_deletes", "quacklake_no_inlining"),
    ("public", "ducklake_metadata", "quacklake_mirror"),
    ("public", "ducklake_files_scheduled_for_deletion", "quacklake_mirror"),
    ("tenant_0", "ducklake_metadata", "quacklake_mirror_out"),
    ("tenant_0", "ducklake_metadata", "quacklake_mirror_limit"),
    ("tenant_0", "ducklake_files_scheduled_for_deletion", "quacklake_mirror_out"),
}
#: By schema: which of the roles may use it; none may make anything in it.
SCHEMAS = {
    "lakehouse": (True, True, False),
    "public": (True, True, True),
    "tenant_0": (True, False, False),
    "tenant_1": (False, True, False),
}

_OURS = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
_RELATIONS = f"""
    SELECT n.nspname, c.relname, c.relkind::text,
        array_to_string(ARRAY(
            SELECT p FROM unnest(ARRAY['SELECT','INSERT','UPDATE','DELETE','TRUNCATE','REFERENCES','TRIGGER']) p
            WHERE has_table_privilege(%(role)s, c.oid, p)), ' '),
        ARRAY(
            SELECT p || '(' || string_agg(a.attname, ',' ORDER BY a.attnum) || ')'
            FROM unnest(ARRAY['SELECT','INSERT','UPDATE','REFERENCES']) p, pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT has_table_privilege(%(role)s, c.oid, p)
                AND has_column_privilege(%(role)s, c.oid, a.attnum, p)
            GROUP BY p ORDER BY p),
        (SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0
            AND attname NOT IN ('catalog_id', 'ctid'))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE {_OURS} AND c.relkind NOT IN ('i', 'I', 't')
"""


@pytest.fixture(scope="module")
def place(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[psycopg.Connection[Any], list[str]]]:
    """A lake as its owner sees it, and a role that writes one catalog, one that reads another, and a stranger."""
    roles = [postgres_server.create_role(name) for name in ("writer", "reader", "stranger")]
    with (
        postgres_server.new_database() as url,
        quacklake.tenants(url, tmp_path_factory.mktemp("rights")) as tenants,
    ):
        tenants.create_many(["acme", "beta", "gamma"])
        tenants.grant("acme", roles[0])
        tenants.expose("acme", roles[0], writable=True)
        tenants.grant("beta", roles[1], read_only=True)
        tenants.expose("beta", roles[1])
        for name in ("acme", "gamma"):
            with tenants.open(name) as lake:
                lake.create_table("t", [{"a": 1}]).append([{"a": 2}])
                lake.maintain()
        with psycopg.connect(url, autocommit=True) as connection:
            yield connection, roles


def _rights(found: str, columns: list[str], known: str) -> str:
    parts = [part.replace(f"({known})", "(*)") for part in columns]
    return " ".join([*found.split(), *parts])


def test_every_right_on_tables_and_views_is_one_that_was_meant(
    place: tuple[psycopg.Connection[Any], list[str]],
) -> None:
    connection, roles = place
    found: dict[tuple[str, str], list[str]] = {}
    for role in roles:
        for schema, name, kind, table, columns, known in connection.execute(_RELATIONS, {"role": role}).fetchall():
            found.setdefault((schema, name), [kind]).append(_rights(table, columns, known))
    assert {key: tuple(value) for key, value in found.items()} == RELATIONS


def test_every_shared_table_has_its_policies_and_cannot_be_read_past_them(
    place: tuple[psycopg.Connection[Any], list[str]],
) -> None:
    connection, _ = place
    query = f"""
        SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity,
            ARRAY(SELECT polname::text FROM pg_policy WHERE polrelid = c.oid ORDER BY 1)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE {_OURS} AND n.nspname = 'public' AND c.relkind IN ('r', 'p')
    """
    for name, forced, policies in connection.execute(query).fetchall():
        wanted = ["quacklake_owner", "quacklake_read", *([] if name in READ_BY_ALL else ["quacklake_write"])]
        assert (forced, policies) == ((False, []) if name in UNGUARDED else (True, wanted)), name
    views = connection.execute(
        f"SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_OURS}"
        " AND c.relkind = 'v' AND NOT coalesce('security_barrier=true' = ANY(c.reloptions), false)"
    ).fetchall()
    assert views == []
    looked = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'lakehouse'"
        " AND 'security_invoker=true' = ANY(c.reloptions)"
    ).fetchall()
    assert {name for (name,) in looked} == VIEWS


def test_every_function_runs_as_it_was_meant_and_for_whom(place: tuple[psycopg.Connection[Any], list[str]]) -> None:
    connection, roles = place
    query = f"""
        SELECT n.nspname, p.proname, p.prosecdef, p.proconfig, has_function_privilege(%s, p.oid, 'EXECUTE'),
            has_function_privilege(%s, p.oid, 'EXECUTE'), has_function_privilege(%s, p.oid, 'EXECUTE')
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE {_OURS}
    """
    rows = connection.execute(query, roles).fetchall()
    assert {(schema, name): (definer, *may) for schema, name, definer, _, *may in rows} == FUNCTIONS
    assert {tuple(settings) for _, _, _, settings, *_ in rows} == {("search_path=pg_catalog, pg_temp",)}


def test_every_trigger_schema_and_type_is_known(place: tuple[psycopg.Connection[Any], list[str]]) -> None:
    connection, roles = place
    triggers = connection.execute(
        "SELECT n.nspname, c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        f" JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_OURS} AND NOT t.tgisinternal"
    ).fetchall()
    assert set(triggers) == TRIGGERS
    may = "has_schema_privilege(%s, n.oid, 'USAGE')"
    make = "has_schema_privilege(%s, n.oid, 'CREATE')"
    rows = connection.execute(
        f"SELECT n.nspname, {may}, {may}, {may}, {make} OR {make} OR {make} FROM pg_namespace n WHERE {_OURS}",
        [*roles, *roles],
    ).fetchall()
    assert {schema: tuple(using) for schema, *using, _ in rows} == SCHEMAS
    assert not any(making for *_, making in rows)
    # rows of tables have types, and so do arrays of them
    types = f"SELECT typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE {_OURS}"
    assert connection.execute(f"{types} AND t.typtype <> 'c' AND t.typelem = 0").fetchall() == []


def test_no_role_owns_anything_or_gets_more_later(place: tuple[psycopg.Connection[Any], list[str]]) -> None:
    connection, roles = place
    for catalog, owner in (("pg_class", "relowner"), ("pg_proc", "proowner"), ("pg_namespace", "nspowner")):
        query = f"SELECT count(*) FROM {catalog} c JOIN pg_roles r ON r.oid = c.{owner} WHERE r.rolname = ANY(%s)"
        assert connection.execute(query.encode(), [roles]).fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM pg_default_acl").fetchone() == (0,)
    for role in roles:
        rights = "SELECT has_database_privilege(%s, current_database(), 'CREATE')"
        assert connection.execute(rights, [role]).fetchone() == (False,)
        member = connection.execute(
            "SELECT rolsuper OR rolbypassrls OR rolcreaterole FROM pg_roles WHERE rolname = %s", [role]
        )
        assert member.fetchone() == (False,)
