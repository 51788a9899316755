"""Views, macros, comments and tags: both clients write the same rows, and each uses what the other has made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import quacklake
from quacklake.errors import AlreadyExistsError, CommitConflict

from .clients import LakeSite
from .conftest import MakeSite, kinds

pytestmark = pytest.mark.daily(0.45)

Step = tuple[str, Callable[[quacklake.Lake], Any]]

STEPS: list[Step] = [
    ("CREATE SCHEMA s", lambda lake: lake.create_schema("s")),
    (
        "CREATE VIEW v AS SELECT a, b FROM t WHERE a > 1",
        lambda lake: lake.create_view("v", "select a,b from t where a>1"),
    ),
    (
        """CREATE VIEW s.w(x, "y ""z") AS SELECT a, b || 'it''s' FROM main.t""",
        lambda lake: lake.create_view("s.w", "SELECT a, b || 'it''s' FROM main.t", columns=["x", 'y "z']),
    ),
    (
        "CREATE OR REPLACE VIEW v AS SELECT a FROM t",
        lambda lake: lake.create_view("v", "SELECT a FROM t", replace=True),
    ),
    ("ALTER VIEW v RENAME TO v2", lambda lake: lake.rename_view("v", "v2")),
    ("COMMENT ON VIEW v2 IS 'a view'", lambda lake: lake.view("v2").set_comment("a view")),
    ("COMMENT ON VIEW v2 IS 'it''s a view'", lambda lake: lake.view("v2").set_comment("it's a view")),
    ("COMMENT ON VIEW v2 IS NULL", lambda lake: lake.view("v2").set_comment(None)),
    ("COMMENT ON TABLE t IS 'a table'", lambda lake: lake.table("t").set_comment("a table")),
    ("COMMENT ON TABLE t IS 'another'", lambda lake: lake.table("t").set_comment("another")),
    ("COMMENT ON COLUMN t.b IS 'a column'", lambda lake: lake.table("t").set_column_comment("b", "a column")),
    ("COMMENT ON COLUMN t.b IS NULL", lambda lake: lake.table("t").set_column_comment("b", None)),
    ("CREATE MACRO one(x) AS x + 1", lambda lake: lake.create_macro("one", ["x"], "x + 1")),
    (
        "CREATE MACRO s.two(x, y := 5, z := 'it''s') AS x + y",
        lambda lake: lake.create_macro("s.two", {"x": None, "y": 5, "z": "it's"}, "x+y"),
    ),
    (
        "CREATE MACRO many(n) AS TABLE SELECT * FROM t WHERE a > n",
        lambda lake: lake.create_macro("many", ["n"], "SELECT * FROM t WHERE a > n", table=True),
    ),
    ("CREATE OR REPLACE MACRO one(x) AS x + 2", lambda lake: lake.create_macro("one", ["x"], "x + 2", replace=True)),
    ("DROP MACRO TABLE many", lambda lake: lake.drop_macro("many", table=True)),
    ("DROP MACRO one", lambda lake: lake.drop_macro("one")),
    ("DROP VIEW v2", lambda lake: lake.drop_view("v2")),
    ("CREATE VIEW v2 AS SELECT 1 AS i", lambda lake: lake.create_view("v2", "SELECT 1 AS i")),
    ("DROP SCHEMA s CASCADE", lambda lake: lake.drop_schema("s", cascade=True)),
    ("DROP TABLE t", lambda lake: lake.drop_table("t")),
]
TABLES = {
    "view": "view_id, begin_snapshot, end_snapshot, schema_id, view_name, dialect, sql, column_aliases",
    "tag": "object_id, begin_snapshot, end_snapshot, key, value",
    "column_tag": "table_id, column_id, begin_snapshot, end_snapshot, key, value",
    "macro": "schema_id, macro_id, macro_name, begin_snapshot, end_snapshot",
    "macro_impl": "macro_id, impl_id, dialect, sql, type",
    "macro_parameters": "macro_id, impl_id, column_id, parameter_name, parameter_type, default_value,"
    " default_value_type",
    "snapshot": "snapshot_id, schema_version, next_catalog_id",
    "snapshot_changes": "snapshot_id, changes_made",
    "schema_versions": "begin_snapshot, schema_version, table_id",
}


def metadata(site: LakeSite) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: sorted(site.metadata(f"SELECT {columns} FROM {{m}}.ducklake_{name}"), key=repr)
        for name, columns in TABLES.items()
    }


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
def test_both_clients_write_the_same_rows(kind: str, make_site: MakeSite) -> None:
    ours, theirs = make_site(kind, inlining=0), make_site(kind, inlining=0)
    for site in (ours, theirs):
        site.stock().execute("CREATE TABLE t(a INTEGER, b VARCHAR)")
    for statement, _ in STEPS:
        theirs.stock().execute(statement)
    expected = metadata(theirs)
    for _, operation in STEPS:
        operation(ours.lake())
    found = metadata(ours)
    for name in TABLES:
        assert found[name] == expected[name], name


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
def test_stock_uses_what_we_have_made(kind: str, make_site: MakeSite) -> None:
    site = make_site(kind)
    lake = site.lake()
    table = lake.create_table("t", [{"a": i, "b": f"n{i}"} for i in range(5)])
    lake.create_schema("s")
    with lake.transaction() as tx:
        tx.create_view("v", "SELECT a, b FROM t WHERE a > 2")
        tx.create_view("s.twice", "SELECT a * 2, b FROM v", columns=["double"])
        tx.create_macro("s.plus", {"x": None, "y": 5, "f": 0.5, "z": "it's", "yes": True}, "x + y + f + length(z)")
        tx.create_macro("above", ["n"], "SELECT a FROM main.t WHERE a > n", table=True)
        tx.table("t").set_comment("it's a table")
        tx.table("t").set_column_comment("b", "a column")
        tx.table("t").set_tags({"owner": "me"})
        tx.view("v").set_comment("a view")
        tx.view("v").set_tags({"stage": "gold"})
    stock = site.stock()
    assert stock.execute("SELECT * FROM v ORDER BY ALL").fetchall() == [(3, "n3"), (4, "n4")]
    assert stock.execute("SELECT double, b FROM s.twice ORDER BY ALL").fetchall() == [(6, "n3"), (8, "n4")]
    assert stock.execute("SELECT s.plus(1), s.plus(1, 2, 3, '')").fetchone() == (10.5, 6)
    assert stock.execute("SELECT * FROM above(3)").fetchall() == [(4,)]
    known = "database_name = 'l' AND NOT internal"
    assert stock.execute(f"SELECT comment, tags FROM duckdb_tables() WHERE {known}").fetchall() == [
        ("it's a table", {"owner": "me"})
    ]
    comments = f"SELECT column_name, comment FROM duckdb_columns() WHERE {known} AND table_name = 't' ORDER BY ALL"
    assert stock.execute(comments).fetchall() == [("a", None), ("b", "a column")]
    assert stock.execute(f"SELECT comment, tags FROM duckdb_views() WHERE {known} AND view_name = 'v'").fetchall() == [
        ("a view", {"stage": "gold"})
    ]
    # and goes on from there
    stock.execute("COMMENT ON TABLE t IS 'theirs'; COMMENT ON VIEW v IS NULL; ALTER VIEW v RENAME TO v9")
    stock.execute("DROP MACRO s.plus; ALTER TABLE t RENAME COLUMN b TO c")
    lake = site.lake()
    table = lake.table("t")
    assert (table.comment, table.tags, table.column_comments) == ("theirs", {"owner": "me"}, {"c": "a column"})
    assert lake.views() == ["main.v9", "s.twice"]
    assert (lake.view("v9").comment, lake.view("v9").tags) == (None, {"stage": "gold"})
    assert [macro.qualified_name for macro in lake.macros()] == ["main.above"]


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
def test_we_read_views_of_stock_at_every_snapshot(kind: str, make_site: MakeSite) -> None:
    site = make_site(kind)
    stock = site.stock()
    stock.execute("CREATE TABLE t AS SELECT i AS a FROM range(10) r(i); CREATE SCHEMA s; CREATE TABLE s.t(a INTEGER)")
    stock.execute("INSERT INTO s.t VALUES (100)")
    stock.execute("CREATE VIEW v AS SELECT sum(a) AS total FROM l.t")
    stock.execute("CREATE VIEW s.v AS WITH c AS (SELECT * FROM t) SELECT a, total FROM c, main.v")
    stock.execute("CREATE MACRO m(x, y := 2) AS x * y; CREATE MACRO r(n) AS TABLE SELECT a FROM t WHERE a < n")
    stock.execute("CREATE MACRO over(x INTEGER) AS x, (x, y := 'it''s') AS m(x) + length(y)")
    stock.execute("CREATE VIEW macros AS SELECT m(a) AS double, over(a), over(a, 'xyz') AS added FROM r(3) WHERE a > 1")
    expected = stock.execute("SELECT * FROM macros").fetchall()
    lake = site.lake()
    first = lake.current_snapshot()
    assert [tuple(row.values()) for row in lake.view("macros").to_pylist()] == expected == [(4, 8, 7)]
    lake.drop_view("macros")
    lake.drop_macro("over")
    assert lake.views() == ["main.v", "s.v"]
    assert lake.view("v").to_pylist() == [{"total": 45}]
    # a name without a schema means the view's own
    assert lake.view("s.v").to_pylist() == [{"a": 100, "total": 45}]
    assert [(macro.name, macro.is_table) for macro in lake.macros()] == [("m", False), ("r", True)]
    (variant,) = lake.macros()[0].variants
    assert [(p.name, p.default, p.default_type) for p in variant.parameters] == [
        ("x", None, "unknown"),
        ("y", "2", "int32"),
    ]
    stock = site.stock()
    stock.execute(
        "INSERT INTO t VALUES (1000); CREATE OR REPLACE VIEW v AS SELECT max(a) AS most FROM t; DROP VIEW s.v"
    )
    lake = site.lake()
    assert lake.view("v").to_pylist() == [{"most": 1000}]
    assert lake.views() == ["main.v"]
    assert lake.at(version=first).view("v").to_pylist() == [{"total": 45}]
    assert lake.at(version=first).views() == ["main.macros", "main.v", "s.v"]


@pytest.mark.postgres
def test_commits_of_both_clients_exclude_each_other_where_they_must(make_site: MakeSite) -> None:
    site = make_site("postgres")
    lake = site.lake()
    lake.create_table("t", [{"a": 1}])
    lake.create_view("v", "SELECT a FROM t")
    lake.create_view("w", "SELECT a FROM t")

    def clash(ours: Callable[[quacklake.LakeTransaction], Any], theirs: str) -> None:
        with pytest.raises(CommitConflict), lake.transaction() as tx:
            ours(tx)
            site.stock().execute(theirs)

    clash(lambda tx: tx.create_view("x", "SELECT 1 AS i"), "CREATE TABLE x(i INTEGER)")
    clash(lambda tx: tx.drop_view("v"), "DROP VIEW v")
    clash(lambda tx: tx.rename_view("w", "w1"), "ALTER VIEW w RENAME TO w2")
    clash(lambda tx: tx.view("w2").set_comment("ours"), "COMMENT ON VIEW w2 IS 'theirs'")
    clash(lambda tx: tx.table("t").set_comment("ours"), "COMMENT ON TABLE t IS 'theirs'")
    clash(lambda tx: tx.create_macro("m", ["x"], "x"), "CREATE MACRO m(x) AS x + 1")
    assert (lake.views(), lake.tables()) == (["main.w2"], ["main.t", "main.x"])
    assert (lake.view("w2").comment, lake.table("t").comment) == ("theirs", "theirs")
    with pytest.raises(AlreadyExistsError):
        lake.create_view("x", "SELECT 1 AS i")
