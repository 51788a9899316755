"""Users of a lake come in over HTTP, and see what they may see."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
import sqlalchemy as sa

from quacklake import Lake
from quacklake.core.format.names import quote
from quacklake.service.access_gate import AccessGate
from quacklake.service.app import create_app
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from tests.access.secrets import CANARY, MARKS, USERS, fill
from tests.service.serving import client

_SQL = (
    "SELECT * FROM people ORDER BY id",
    "SELECT count(*), min(note), max(region), max(salary) FROM people",
    "SELECT * FROM vault",
    "SELECT * FROM people AT (VERSION => 2)",
    "SELECT * FROM table_changes('people', 0, 9)",
    "SELECT * FROM snapshots()",
    "SELECT * FROM everybody",
    "SELECT * FROM vault_view",
    "SELECT * FROM telling",
    "SELECT * FROM totals",
    "SELECT * FROM information_schema.columns",
    "SELECT * FROM duckdb_views()",
    "EXPLAIN ANALYZE SELECT * FROM people WHERE note LIKE 'C%'",
    "SELECT 1 / (salary - 987654321) FROM people",
    "SELECT error(note) FROM people",
    "SUMMARIZE people",
    "DESCRIBE vault",
)
_PARTS = (
    "",
    "/rows",
    "/files",
    "/history",
    "/changes?since=0",
    "/rows?version=2",
    "/statistics",
    "/statistics?version=4",
    "/partitions",
    "/series",
    "/series?time=note&columns=salary",
)
_PATHS = (
    "/api/v1/lake",
    "/api/v1/schemas",
    "/api/v1/tables",
    "/api/v1/snapshots",
    "/api/v1/snapshots/3",
    "/api/v1/snapshots/3/changes",
    "/api/v1/lakes",
    "/api/v1/diff?from=0",
    "/api/v1/diff?from=1&to=4",
    "/api/v1/tags",
    "/api/v1/care",
    "/api/v1/pipelines",
    "/api/v1/pipelines/none",
    "/api/v1/pond/nodes",
    "/api/v1/pond/node?path=/",
    "/api/v1/pond/series?path=/x",
    "/api/v1/materialized-views",
    "/api/v1/materialized-views/totals",
    "/api/v1/materialized-views/totals?version=9",
    *(
        f"/api/v1/tables/{table}{part}"
        for table in ("people", "vault", "deep.well", "totals", "everybody")
        for part in _PARTS
    ),
    "/metrics",
    "/health/ready",
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return fill(tmp_path_factory.mktemp("secrets"))


@pytest.fixture(scope="module")
def clients(lake: Lake) -> Iterator[dict[str, httpx.Client]]:
    settings = ServiceSettings(port=0)
    tokens = {name: lake.access.tokens.create(name) for name in (*USERS, "root")}
    with BackgroundService(create_app(AccessGate(lake), settings), settings) as url:
        found = {name: client(url, token) for name, token in tokens.items()}
        yield found
        for each in found.values():
            each.close()


@pytest.mark.parametrize("user", USERS)
def test_nothing_hidden_is_in_any_answer(clients: dict[str, httpx.Client], user: str) -> None:
    told = 0
    for path in _PATHS:
        answer = clients[user].get(path)
        assert answer.status_code in (200, 400, 401, 403, 404, 422), (path, answer.text)
        told += answer.status_code == 200
        assert not any(mark in answer.text for mark in MARKS), path
    for sql in _SQL:
        for accept in ("application/json", "text/csv"):
            answer = clients[user].post("/api/v1/sql", json={"sql": sql}, headers={"Accept": accept})
            assert answer.status_code < 500, (sql, answer.text)
            assert not any(mark in answer.text.replace(sql, "") for mark in MARKS if mark not in sql), sql
    assert told >= 5


def test_statistics_are_told_to_those_who_read_the_whole_table_only(
    clients: dict[str, httpx.Client], lake: Lake
) -> None:
    lake.sql("CREATE TABLE open_to_all AS SELECT i AS x, i AS y FROM range(7) r(i)")
    path = "/api/v1/tables/open_to_all/statistics"
    [x, _] = clients["rea"].get(path).json()["columns"]
    assert (x["min"], x["max"]) == (0, 6)
    assert clients["bob"].get(path).status_code == 404
    lake.access.grant("SELECT", "bob", table="open_to_all", columns=["x"])
    assert clients["bob"].get(path).status_code == 403
    lake.access.create_policy("few", "open_to_all", "x < 3")
    for part in ("statistics", "partitions"):
        assert clients["rea"].get(f"/api/v1/tables/open_to_all/{part}").status_code == 403
        assert clients["root"].get(f"/api/v1/tables/open_to_all/{part}").status_code == 200


def test_a_picture_shows_the_rows_and_values_that_are_visible(clients: dict[str, httpx.Client], lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE readings AS SELECT TIMESTAMPTZ '2026-01-01 00:00:00+00' + INTERVAL (i) MINUTE AS ts,"
        " i::DOUBLE AS v, 987654321.0 AS secret, if(i < 50, 'EU', 'US') AS region FROM range(100) r(i)"
    )
    lake.access.create_policy("europe", "readings", "region = 'EU'")
    lake.access.create_mask("readings", "secret", "0")
    found = clients["rea"].get("/api/v1/tables/readings/series?width=500").json()
    assert max(value for value in found["lines"]["v"]["values"] if value is not None) == 49
    assert {*found["lines"]["secret"]["values"]} == {0}
    assert found["to"].startswith("2026-01-01T00:49")
    whole = clients["root"].get("/api/v1/tables/readings/series?width=500").json()
    assert max(value for value in whole["lines"]["v"]["values"] if value is not None) == 99
    assert clients["bob"].get("/api/v1/tables/readings/series").status_code == 404


def test_the_difference_of_snapshots_counts_visible_rows(clients: dict[str, httpx.Client], lake: Lake) -> None:
    first = lake.current_snapshot()
    lake.sql("INSERT INTO people SELECT 100 + i, if(i < 3, 'EU', 'US'), '', 0, '' FROM range(10) r(i)")
    counted = {}
    for user in ("ann", "root", "bob"):
        answer = clients[user].get("/api/v1/diff", params={"from": first, "to": first + 1}).json()
        counted[user] = [(table["table"], table["rows"]["inserted"]) for table in answer["tables"]]
    assert counted == {"ann": [("main.people", 3)], "root": [("main.people", 10)], "bob": []}


def test_the_difference_of_snapshots_tells_no_default_and_no_hidden_column(
    clients: dict[str, httpx.Client], lake: Lake
) -> None:
    """Defaults of masked columns, columns that are not granted, and a table that takes the name of another."""
    lake.sql("CREATE TABLE posts (id BIGINT, mail VARCHAR, hidden VARCHAR)")
    lake.access.grant("SELECT", "ann", table="posts", columns=["id", "mail"])
    lake.access.create_mask("posts", "mail", "'***'")
    first = lake.current_snapshot()
    lake.sql(f"ALTER TABLE posts ALTER mail SET DEFAULT '{CANARY}'")
    lake.sql(
        f"ALTER TABLE posts RENAME hidden TO {CANARY}; ALTER TABLE posts ADD COLUMN more VARCHAR DEFAULT '{CANARY}'"
    )
    lake.table("posts").rename_column("mail", "post")
    lake.rename_table("posts", "letters")
    lake.sql(f"CREATE TABLE posts AS SELECT '{CANARY}' AS mail")
    last = lake.current_snapshot()
    paths = [f"/api/v1/diff?from={first}", f"/api/v1/diff?from={first}&to={last - 1}"]
    paths += [f"/api/v1/snapshots/{number}/changes" for number in range(first + 1, last + 1)]
    seen = [clients["ann"].get(path) for path in paths]
    assert {answer.status_code for answer in seen} == {200}
    assert not any(mark in answer.text for answer in seen for mark in MARKS)
    [letters] = seen[0].json()["tables"]
    assert (letters["table"], letters["was"]) == ("main.letters", "main.posts")
    assert letters["columns"] == [{"column": "post", "change": "altered", "name": ["mail", "post"]}]
    assert CANARY in clients["root"].get(paths[0]).text
    for name in ("letters", "posts"):  # readers of the whole lake may see the columns, and another test looks for them
        lake.drop_table(name)


def test_a_user_reads_the_rows_that_are_visible(clients: dict[str, httpx.Client], lake: Lake) -> None:
    expected = [row for (row,) in lake.sql("SELECT id FROM people WHERE region = 'EU' ORDER BY id").fetchall()]
    answer = clients["ann"].get("/api/v1/tables/people/rows?limit=1000")
    assert [row["id"] for row in answer.json()["rows"]] == expected
    assert {row["ssn"] for row in answer.json()["rows"]} == {"***"}
    described = clients["ann"].get("/api/v1/tables/people").json()
    assert [column["name"] for column in described["columns"]] == ["id", "region", "ssn", "note"]
    assert described["rows"] == len(expected)
    assert len(clients["root"].get("/api/v1/tables/people/rows?limit=1000").json()["rows"]) > len(expected)


def test_rows_are_added_only_where_they_are_visible_and_once_for_a_key(
    clients: dict[str, httpx.Client], lake: Lake
) -> None:
    lake.sql("CREATE TABLE notes (region VARCHAR, text VARCHAR)")
    lake.access.create_policy("europe", "notes", "region = 'EU'")
    before = lake.table("notes").count()
    headers = {"Idempotency-Key": "one"}
    for repeated in (False, True):
        answer = clients["wil"].post("/api/v1/tables/notes/rows", json=[{"region": "EU", "text": "x"}], headers=headers)
        assert answer.status_code == 201, answer.text
        assert answer.json()["repeated"] is repeated
    assert clients["wil"].post("/api/v1/tables/notes/rows", json=[{"region": "US", "text": "x"}]).status_code == 403
    for user in ("ann", "bob", "rea"):
        answer = clients[user].post("/api/v1/tables/notes/rows", json=[{"region": "EU", "text": "x"}])
        assert answer.status_code in (403, 404)
    assert lake.table("notes").count() == before + 1


def test_a_revoked_grant_and_a_revoked_token_hold_for_the_next_request(
    clients: dict[str, httpx.Client], lake: Lake
) -> None:
    lake.sql("CREATE TABLE shown AS SELECT 1 AS x")
    lake.access.grant("SELECT", "bob", table="shown")
    path = "/api/v1/tables/shown/rows"
    answer = clients["bob"].get(path)
    assert answer.status_code == 200
    lake.access.revoke("SELECT", "bob", table="shown")
    again = clients["bob"].get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 404
    assert json.loads(again.text)["code"] == "not_found"


@pytest.mark.parametrize("user", USERS)
def test_sqlalchemy_shows_users_what_they_may_see(clients: dict[str, httpx.Client], lake: Lake, user: str) -> None:
    token = clients[user].headers["authorization"].removeprefix("Bearer ")
    url = str(clients[user].base_url).replace("http://", f"quacklake+http://{token}@")
    engine = sa.create_engine(url)
    try:
        inspector = sa.inspect(engine)
        shown: list[object] = [inspector.get_schema_names()]
        for schema in inspector.get_schema_names():
            shown += [inspector.get_multi_columns(schema), inspector.get_multi_table_comment(schema)]
            for view in inspector.get_view_names(schema):
                shown.append(inspector.get_view_definition(view, schema))
            for name in inspector.get_table_names(schema):
                shown.append(inspector.get_pk_constraint(name, schema))
                with engine.connect() as connection:
                    rows = connection.execute(
                        sa.select(sa.Table(name, sa.MetaData(schema), autoload_with=engine))
                    ).all()
                query = f"FROM {quote(schema)}.{quote(name)}"
                assert sorted(map(repr, rows)) == sorted(map(repr, lake.as_principal(user).sql(query).fetchall()))
                shown.append(rows)
        assert not any(mark in repr(shown) for mark in MARKS)
    finally:
        engine.dispose()
