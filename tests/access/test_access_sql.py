"""Users, roles, grants and policies in SQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake import Lake
from quacklake.core.sql.safety import Safety
from quacklake.errors import QuacklakeError, SqlError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path / 'lake.db'}", data_path=str(tmp_path / "data")) as found:
        found.sql(
            "CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END AS team FROM range(10) r(i)"
        )
        found.sql("CREATE SCHEMA s; CREATE TABLE s.u AS SELECT 1 AS id; CREATE VIEW v AS SELECT id FROM t")
        yield found


def test_a_whole_set_of_rules_can_be_made_and_undone_in_sql(lake: Lake) -> None:
    lake.sql('CREATE ROLE analyst; CREATE USER ann ROLE analyst; CREATE USER IF NOT EXISTS "bob@example.org"')
    lake.sql(
        "GRANT SELECT (id, team) ON t TO analyst; GRANT SELECT, INSERT ON SCHEMA s TO ann; GRANT SELECT ON v TO ann"
    )
    lake.sql("CREATE POLICY own ON t TO analyst USING (team = 'a' AND (id > 1)); CREATE MASK ON t(team) USING ('?')")
    ann = lake.as_principal("ann")
    assert ann.sql("SELECT * FROM t ORDER BY id").fetchall() == [(2, "?"), (4, "?"), (6, "?"), (8, "?")]
    assert ann.sql("SELECT count(*) FROM v").fetchall() == [(4,)]
    assert ann.sql("FROM s.u").fetchall() == [(1,)]
    assert lake.sql("SHOW GRANTS FOR ann").fetchall() == [
        ("ann", "INSERT", "schema", "s", None, "current"),
        ("ann", "SELECT", "schema", "s", None, "current"),
        ("ann", "SELECT", "table", "main.v", None, "current"),
    ]
    assert lake.sql("SHOW ACCESS USERS").fetchall() == [("ann", "enabled"), ("bob@example.org", "enabled")]
    assert ("analyst", "ann") in lake.sql("SHOW ACCESS ROLES").fetchall()
    shown = lake.sql("SHOW ACCESS POLICIES").fetchall()
    assert [row[:5] for row in shown] == [
        ("own", "filter", "main.t", None, "analyst"),
        (None, "mask", "main.t", "team", None),
    ]
    lake.sql('GRANT analyst TO "bob@example.org"')
    assert lake.as_principal("bob@example.org").table("t").count() == 4
    lake.sql("ALTER USER ann DISABLE")
    with pytest.raises(QuacklakeError):
        ann.sql("FROM t")
    lake.sql("ALTER USER ann ENABLE; DROP POLICY own ON t; DROP MASK ON t(team); DROP POLICY IF EXISTS own ON t")
    assert ann.table("t").count() == 10
    lake.sql("REVOKE analyst FROM ann; REVOKE ALL PRIVILEGES ON SCHEMA s FROM ann; REVOKE SELECT ON VIEW v FROM ann")
    assert ann.tables() == [] and lake.sql("SHOW GRANTS FOR ann").fetchall() == []
    lake.sql("DROP USER ann; DROP ROLE analyst; DROP USER IF EXISTS ann")
    assert lake.sql("SHOW GRANTS").fetchall() == []


def test_show_of_a_table_with_such_a_name_is_as_before(lake: Lake) -> None:
    lake.sql("CREATE TABLE users (id BIGINT); CREATE TABLE roles (id BIGINT)")
    assert lake.sql("SHOW users").fetchall()[0][0] == "id"
    assert lake.sql("DESCRIBE roles").fetchall()[0][0] == "id"


@pytest.mark.parametrize(
    "sql",
    [
        "GRANT SELECT ON t",
        "GRANT SELECT t TO ann",
        "GRANT FLY ON t TO ann",
        "GRANT SELECT (id) ON LAKE TO ann",
        "CREATE POLICY ON t USING (true)",
        "CREATE POLICY p ON t USING true",
        "CREATE POLICY p ON t USING (true) OR (true)",
        "CREATE POLICY p ON t TO nobody USING (true)",
        "CREATE MASK ON t USING (1)",
        "CREATE MASK ON t(nope) USING (1)",
        "CREATE USER",
        "CREATE USER ?",
        "ALTER USER ann",
        "DROP ROLE admin",
        "REVOKE SELECT ON t TO ann",
    ],
)
def test_a_statement_that_is_not_right_changes_nothing(lake: Lake, sql: str) -> None:
    lake.sql("CREATE USER ann")
    with pytest.raises(QuacklakeError):
        lake.sql(sql)
    assert lake.access.grants() == [] and lake.access.policies() == [] and len(lake.access.users()) == 1


def test_nobody_else_runs_them(lake: Lake) -> None:
    lake.sql("CREATE USER ann; GRANT writer TO ann")
    with pytest.raises(SqlError, match="transaction"):
        lake.sql("BEGIN; CREATE USER eve")
    lake.sql("ROLLBACK")
    for sql in ("GRANT admin TO ann", "CREATE USER eve", "SHOW GRANTS", "DROP USER ann", "SHOW ACCESS POLICIES"):
        with pytest.raises(QuacklakeError):
            lake.as_principal("ann").sql(sql)
        with quacklake.session(safety=Safety(read_only=False)) as session:
            session.attach(lake)
            session.use("lake")
            with pytest.raises(QuacklakeError):
                session.sql(sql)
    assert [user.name for user in lake.access.users()] == ["ann"]
