"""``quacklake views``: the commands, for people and for programs."""

from __future__ import annotations

from tests.cli.conftest import Run


def test_views_are_created_refreshed_explained_verified_and_dropped(run: Run) -> None:
    assert run("init").code == 0
    run("sql", "CREATE TABLE t AS SELECT i AS id, i % 3 AS k FROM range(30) r(i)")
    made = run("views", "create", "v", "SELECT k, count(*) AS n FROM t GROUP BY k", "--refresh", "every 1 second")
    assert "main.v: full (it was created), 3 rows in, 0 out" in made.out
    assert "nothing new" in run("views", "refresh", "v").out
    run("sql", "DELETE FROM t WHERE id < 5")
    assert run("views", "explain", "v", "--output", "json").json["way"] == "groups"
    listed = run("views", "list", "--output", "json").json
    assert [(row["name"], row["refresh"], row["way"]) for row in listed] == [("main.v", "every 1 seconds", "full")]
    assert run("views", "describe", "v", "--output", "json").json["lag_rows"] == 5
    assert run("views", "refresh", "--output", "json").json["refreshed"][0]["way"] == "groups"
    assert run("views", "verify").code == 0
    assert run("views", "refresh", "v", "--due").code == 1
    assert run("views", "create", "w", "SELECT id FROM t LIMIT 1").code == 1
    assert "dropped v" in run("views", "drop", "v").out
    assert run("views", "refresh", "v").code == 1


def test_maintain_refreshes_the_views_that_are_due(run: Run) -> None:
    run("init")
    run("sql", "CREATE TABLE t AS SELECT 1 AS k")
    run("views", "create", "v", "SELECT k, count(*) AS n FROM t GROUP BY k", "--refresh", "every 1 ms")
    run("sql", "INSERT INTO t VALUES (2)")
    assert "main.v: merge" in run("maintain").out
    assert run("verify", "--deep").code == 0
