"""Users, roles, grants and policies: what they allow, when they hold, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from quacklake.errors import (
    AlreadyExistsError,
    InputError,
    InvalidNameError,
    NotFoundError,
    NotPermittedError,
    QuacklakeError,
)

NewUrl = Callable[[str], str]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path / 'lake.db'}", data_path=str(tmp_path / "data")) as found:
        _fill(found)
        yield found


def _fill(lake: Lake) -> None:
    lake.create_table("t", pa.table({"id": range(30), "team": ["a", "b", "c"] * 10, "pay": [100] * 30}))
    lake.access.create_user("ann")


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgres", pytest.param("mysql", marks=pytest.mark.mysql)])
def test_grants_filters_and_masks_hold_on_every_database(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url(database)
    with quacklake.connect(url, data_path=str(tmp_path / "data")) as lake:
        _fill(lake)
        lake.access.grant("SELECT", "ann", table="t", columns=["id", "team"])
        lake.access.create_policy("own", "t", "team = left(current_principal(), 1)")
        lake.access.create_mask("t", "id", "-id")
    with quacklake.connect(url) as again:
        assert again.as_principal("ann").sql("SELECT min(id), count(*), max(team) FROM t").fetchall() == [
            (-27, 10, "a")
        ]
        assert [user.name for user in again.access.users()] == ["ann"]
        assert len(again.access.policies()) == 2


def test_tenants_have_users_of_their_own(tmp_path: Path) -> None:
    url, data = f"sqlite:///{tmp_path / 'lakes.db'}", str(tmp_path / "data")
    with quacklake.connect(url, data, catalog="acme", create=True) as acme:
        _fill(acme)
        acme.access.grant("SELECT", "ann")
        token = acme.access.tokens.create("ann")
        with quacklake.connect(url, data, catalog="beta", create=True) as beta:
            assert beta.access.users() == []
            with pytest.raises(NotFoundError):
                beta.as_principal("ann")
            with pytest.raises(quacklake.errors.UnauthenticatedError):
                beta.access.tokens.verify(token)
        assert acme.as_principal("ann").table("t").count() == 30


def test_a_user_without_grants_finds_an_empty_lake(lake: Lake) -> None:
    ann = lake.as_principal("ann")
    assert ann.tables() == [] and ann.schemas() == [] and "t" not in ann
    with pytest.raises(NotFoundError):
        ann.table("t").count()


def test_a_revoked_grant_ends_with_the_next_statement(lake: Lake) -> None:
    lake.access.grant("SELECT", "ann", table="t")
    ann = lake.as_principal("ann")
    past, scan = ann.at(ann.current_snapshot()), ann.table("t").scan()
    assert ann.table("t").count() == past.table("t").count() == scan.count() == 30
    ann.sql("BEGIN")
    assert ann.sql("SELECT count(*) FROM t").fetchall() == [(30,)]
    lake.access.revoke("SELECT", "ann", table="t")
    for read in (ann.table("t").count, past.table("t").count, scan.count, lambda: ann.sql("FROM t")):
        with pytest.raises(QuacklakeError):
            read()
    ann.sql("ROLLBACK")
    lake.access.grant("SELECT", "ann", table="t")
    assert ann.sql("SELECT count(*) FROM t").fetchall() == [(30,)]
    lake.access.disable_user("ann")
    with pytest.raises(QuacklakeError):
        ann.sql("FROM t")


def test_a_new_filter_holds_for_the_next_statement_of_a_transaction(lake: Lake) -> None:
    lake.access.grant("SELECT", "ann")
    ann = lake.as_principal("ann")
    with ann.transaction() as tx:
        assert tx.table("t").count() == 30
        lake.access.create_policy("p", "t", "team = 'a'")
        assert tx.table("t").count() == 10
        assert tx.sql("SELECT count(*) FROM t").fetchall() == [(10,)]


def test_a_statement_that_fails_in_a_transaction_leaves_nothing_in_the_way(lake: Lake) -> None:
    lake.access.grant("SELECT", "ann")
    lake.access.create_policy("p", "t", "team = 'a'")
    ann = lake.as_principal("ann")
    for _ in range(3):
        ann.sql("BEGIN")
        assert ann.sql("SELECT count(*) FROM t").fetchall() == [(10,)]
        with pytest.raises(QuacklakeError):
            ann.sql("SELECT error(team) FROM t").fetchall()
        with pytest.raises(QuacklakeError):
            ann.sql("SELECT count(*) FROM t").fetchall()
        ann.sql("ROLLBACK")
    reader = ann.sql("SELECT id FROM t ORDER BY id")
    assert ann.sql("SELECT count(*) FROM t").fetchall() == [(10,)]
    assert [row[0] for row in reader.fetchall()] == list(range(0, 30, 3))


def test_a_grant_that_is_revoked_before_the_commit_commits_nothing(lake: Lake) -> None:
    lake.access.grant(["SELECT", "INSERT"], "ann")
    ann = lake.as_principal("ann")
    with pytest.raises(NotPermittedError), ann.transaction() as tx:
        tx.table("t").append(pa.table({"id": [99], "team": ["a"], "pay": [1]}))
        lake.access.revoke("INSERT", "ann")
    assert lake.table("t").count() == 30


def test_each_privilege_allows_just_what_it_says(lake: Lake) -> None:
    ann = lake.as_principal("ann")
    changes = {
        "INSERT": "INSERT INTO t VALUES (50, 'a', 1)",
        "UPDATE": "UPDATE t SET pay = 7 WHERE id = 1",
        "DELETE": "DELETE FROM t WHERE id = 2",
    }
    lake.access.grant("SELECT", "ann", table="t")
    for granted in changes:
        lake.access.grant(granted, "ann", table="t")
        for needed, sql in changes.items():
            if needed == granted:
                assert ann.sql(sql).fetchall() == [(1,)]
            else:
                with pytest.raises(NotPermittedError):
                    ann.sql(sql)
        with pytest.raises(NotPermittedError):
            ann.sql("MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET pay = 1")
        lake.access.revoke(granted, "ann", table="t")
    with pytest.raises(NotPermittedError):
        ann.create_table("mine", {"id": "BIGINT"})
    lake.access.grant("CREATE", "ann", schema="main")
    ann.create_table("mine", {"id": "BIGINT"})
    with pytest.raises(AlreadyExistsError):
        ann.create_table("t", {"id": "BIGINT"})


def test_one_who_only_inserts_cannot_read(lake: Lake) -> None:
    lake.access.grant("INSERT", "ann", table="t")
    ann = lake.as_principal("ann")
    assert ann.table("t").append(pa.table({"id": [77], "team": ["z"], "pay": [1]})) == 1
    for sql in ("FROM t", "SELECT count(*) FROM t", "INSERT INTO t SELECT * FROM t", "FROM table_changes('t', 0, 1)"):
        with pytest.raises(NotPermittedError):
            ann.sql(sql)
    with pytest.raises(NotPermittedError):
        ann.table("t").append(pa.table({"id": [1], "team": ["z"], "pay": [1], "more": [1]}), evolve=True)
    assert lake.table("t").count() == 31


def test_writes_see_and_make_visible_rows_only(lake: Lake) -> None:
    lake.access.add_member("writer", "ann")
    lake.access.create_policy("p", "t", "team = 'a'")
    ann = lake.as_principal("ann")
    hidden = lake.sql("SELECT * FROM t WHERE team <> 'a' ORDER BY id").fetchall()
    assert ann.table("t").update({"pay": 5}) == 10
    assert ann.sql("UPDATE t SET pay = 6 WHERE id < 20").fetchall() == [(7,)]
    for sql in (
        "INSERT INTO t VALUES (100, 'b', 1)",
        "INSERT INTO t VALUES (100, NULL, 1)",
        "UPDATE t SET team = 'b' WHERE id = 0",
        "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (1, 'b', 0)",
        "INSERT INTO t SELECT i, 'b', 0 FROM range(500) r(i)",
    ):
        with pytest.raises(NotPermittedError, match="row filters"):
            ann.sql(sql)
    merged = ann.table("t").merge(pa.table({"id": [0, 1], "team": ["a", "a"], "pay": [9, 9]}), on="id")
    assert (merged.updated, merged.inserted) == (1, 1)  # the row 1 of the team b is not there for ann
    assert ann.table("t").overwrite(pa.table({"id": [500], "team": ["a"], "pay": [1]})) == 1
    assert ann.sql("FROM t").fetchall() == [(500, "a", 1)]
    assert ann.sql("TRUNCATE t").fetchall() == [(1,)]
    assert lake.sql("SELECT * FROM t ORDER BY id").fetchall() == hidden


def test_rows_with_masked_values_are_not_changed(lake: Lake) -> None:
    lake.access.add_member("writer", "ann")
    lake.access.create_mask("t", "pay", "0")
    ann = lake.as_principal("ann")
    before = lake.table("t").to_arrow()
    for change in (
        lambda: ann.sql("UPDATE t SET id = id + 1"),
        lambda: ann.table("t").update({"id": 1}),
        lambda: ann.table("t").merge(before.slice(0, 1), on="id"),
    ):
        with pytest.raises(NotPermittedError, match="masked"):
            change()
    assert lake.table("t").to_arrow() == before
    assert ann.table("t").delete("pay = 100") == 0


def test_filters_and_masks_follow_renames_and_stay_when_a_table_is_replaced(lake: Lake) -> None:
    access = lake.access
    access.grant("SELECT", "ann")
    access.create_policy("p", "t", "team = 'a'")
    access.create_mask("t", "pay", "0")
    ann = lake.as_principal("ann")
    version = lake.current_snapshot()
    lake.table("t").rename_column("team", "squad")
    lake.table("t").rename_column("pay", "wage")
    lake.rename_table("t", "u")
    assert ann.sql("SELECT count(*), max(wage) FROM u").fetchall() == [(10, 0)]
    assert ann.sql(f"SELECT count(*), max(pay) FROM t AT (VERSION => {version})").fetchall() == [(10, 0)]
    lake.create_table("t", pa.table({"pay": [5, 6], "team": ["a", "b"]}))
    assert ann.sql("FROM t").fetchall() == [(0, "a")]
    lake.create_table("t", pa.table({"pay": [5, 6]}), replace=True)
    with pytest.raises(NotPermittedError, match="policies"):
        ann.sql("FROM t")
    lake.table("u").drop_column("wage")
    lake.table("u").add_column("pay", "BIGINT", 33)
    assert ann.sql("SELECT max(pay) FROM u").fetchall() == [(0,)]


def test_a_materialized_view_needs_a_grant_of_its_own(lake: Lake) -> None:
    lake.sql("CREATE MATERIALIZED VIEW m REFRESH ON COMMIT AS SELECT team, sum(pay) AS pay FROM t GROUP BY team")
    lake.access.add_member("writer", "ann")
    lake.access.create_policy("p", "t", "team = 'a'")
    ann = lake.as_principal("ann")
    with pytest.raises(QuacklakeError):
        ann.sql("FROM m")
    assert ann.tables() == ["main.t"]
    ann.sql("INSERT INTO t VALUES (900, 'a', 11)")
    # its refresh reads all rows, whoever has caused it
    assert sorted(lake.sql("FROM m").fetchall()) == [("a", 1011), ("b", 1000), ("c", 1000)]
    lake.access.grant("SELECT", "ann", table="m")
    assert len(ann.sql("FROM m").fetchall()) == 3


def test_several_filters_show_what_one_of_them_shows_and_several_masks_nothing(lake: Lake) -> None:
    access = lake.access
    for role in ("as", "bs"):
        access.create_role(role)
        access.create_policy(role, "t", f"team = '{role[0]}'", to=role)
        access.create_mask("t", "pay", "1", to=role)
    access.grant("SELECT", "ann", table="t")
    ann = lake.as_principal("ann")
    assert ann.table("t").count() == 0
    access.add_member("as", "ann")
    assert ann.sql("SELECT count(*), max(pay) FROM t").fetchall() == [(10, 1)]
    access.add_member("bs", "ann")
    assert ann.sql("SELECT count(*), max(pay) FROM t").fetchall() == [(20, None)]
    access.remove_member("bs", "ann")
    access.create_role("chief")
    access.add_member("bs", "chief")  # roles may have roles
    access.add_member("chief", "ann")
    assert ann.table("t").count() == 20


@pytest.mark.parametrize(
    "using",
    [
        "nope = 1",
        "random() > 0.5",
        "now() > TIMESTAMP '2020-01-01'",
        "current_date > DATE '2020-01-01'",
        "id IN (SELECT id FROM t)",
        "count(*) > 1",
        "row_number() OVER () > 1",
        "id = ?",
        "read_text('/etc/passwd') = ''",
        "getvariable('x') = 1",
        "true; DROP TABLE t",
        "error(team)",
        "*",
        "",
        "has_role(team)",
        "current_user = 'ann'",
        "rowid = 1",
        "[1, 2]",
    ],
)
def test_an_expression_reads_nothing_but_its_row_and_principal(lake: Lake, using: str) -> None:
    with pytest.raises(QuacklakeError) as failed:
        lake.access.create_policy("p", "t", using)
    assert isinstance(failed.value, InputError)
    assert lake.access.policies() == []


def test_names_and_twins_are_checked(lake: Lake) -> None:
    access = lake.access
    for name in ("", "a b", "Ä", "x" * 200, "'; DROP TABLE t --"):
        with pytest.raises(InvalidNameError):
            access.create_user(name)
    for taken in ("ann", "ANN", "admin"):
        with pytest.raises(AlreadyExistsError):
            access.create_user(taken)
    access.create_role("team")
    with pytest.raises(NotFoundError):
        access.grant("SELECT", "nobody")
    with pytest.raises(InputError):
        access.grant("EVERYTHING", "ann")
    with pytest.raises(InputError):
        access.grant("INSERT", "ann", table="t", columns=["id"])
    access.create_policy("p", "t", "true", to="team")
    with pytest.raises(AlreadyExistsError):
        access.create_policy("p", "t", "false")
    with pytest.raises(InputError, match="policies"):
        access.drop_role("team")
    access.drop_policy("p", "t")
    access.drop_role("team")
    access.drop_user("ann")
    assert access.roles() == {"admin": [], "reader": [], "writer": []} and access.users() == []


def test_a_policy_that_cannot_be_computed_hides_the_row_and_tells_nothing(lake: Lake) -> None:
    lake.access.grant("SELECT", "ann")
    lake.access.create_policy("p", "t", "CAST(team AS INTEGER) > 0")
    lake.access.create_mask("t", "pay", "CAST(team AS BIGINT)")
    ann = lake.as_principal("ann")
    assert ann.sql("SELECT count(*) FROM t").fetchall() == [(0,)]
    assert ann.table("t").to_arrow().num_rows == 0
    lake.access.drop_policy("p", "t")
    assert ann.sql("SELECT DISTINCT pay FROM t").fetchall() == [(None,)]


def test_a_backup_keeps_the_rules(lake: Lake, tmp_path: Path) -> None:
    lake.access.grant("SELECT", "ann")
    lake.access.create_policy("p", "t", "team = 'a'")
    lake.backup(tmp_path / "backups")
    restored = quacklake.restore_backup(
        tmp_path / "backups", url=f"sqlite:///{tmp_path / 'again.db'}", data_path=str(tmp_path / "again")
    )
    with restored as again:
        assert again.as_principal("ann").table("t").count() == 10


def test_no_statement_reads_the_scans_of_an_earlier_one(lake: Lake) -> None:
    lake.access.grant("SELECT", "ann", table="t")
    ann = lake.as_principal("ann")
    assert ann.sql("SELECT count(*) FROM t").fetchall() == lake.sql("SELECT count(*) FROM t").fetchall()
    assert ann.sql("SELECT table_name FROM information_schema.columns WHERE table_name LIKE 'qls%'").fetchall() == []
    lake.access.revoke("SELECT", "ann", table="t")
    for number in range(20):
        with pytest.raises(NotPermittedError):
            ann.sql(f"SELECT * FROM temp.main.qls_{number}")
