"""The stored query of a view reads nothing but its tables."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import quacklake
from quacklake import Lake
from quacklake.errors import InputError, StaleViewError

OUTSIDE = "what is outside"
READ = "(SELECT content FROM read_text('{}'))"
HOSTILE = (
    f"SELECT t.id AS id, {READ} AS s FROM main.t AS t",
    f'SELECT "{READ} AS s, t".* FROM main.t AS t',
    f'SELECT "t".*, "{READ}, t".* FROM main.t AS t',
    "SELECT t.id AS id, content AS s FROM main.t AS t, read_text('{}')",
    "SELECT t.id AS id, f.column0 AS s FROM main.t AS t, '{}' AS f",
    'SELECT t.id AS id, f.column0 AS s FROM main.t AS t, main."{}" AS f',
    "SELECT t.id AS id, current_setting('temp_directory') AS s FROM main.t AS t",
    "SELECT t.id AS id, getvariable('x') AS s FROM main.t AS t",
    "SELECT t.id AS id, setting() AS s FROM main.t AS t",
    "SELECT id, s FROM settings",
    "SELECT id, s FROM main.settings",
    "COPY (SELECT 1) TO '{}.new'",
    "SELECT t.id AS id, t.v AS s FROM main.t AS t; COPY (SELECT 1) TO '{}.new'",
    "",
    "\0",
)


def opened(folder: Path) -> Lake:
    return quacklake.connect(f"sqlite:///{folder / 'lake.db'}", data_path=folder / "data")


def test_a_refresh_runs_no_hostile_query(tmp_path: Path) -> None:
    place = tmp_path / "outside.csv"
    place.write_text(OUTSIDE)
    with opened(tmp_path) as lake:
        lake.sql("CREATE TABLE t (id BIGINT, v VARCHAR)")
        lake.sql("INSERT INTO t VALUES (1, 'a')")
        lake.sql("CREATE VIEW settings AS SELECT id, current_setting('temp_directory') AS s FROM t")
        lake.sql("CREATE MACRO setting() AS current_setting('temp_directory')")
        lake.sql("CREATE MATERIALIZED VIEW m WITH (full = true) AS SELECT id, v AS s FROM t")
    for query in HOSTILE:
        with closing(sqlite3.connect(tmp_path / "lake.db")) as connection, connection:
            key = "key = 'quacklake_materialized_view'"
            (stored,) = connection.execute(f"SELECT value FROM ducklake_tag WHERE {key}").fetchone()
            changed = json.dumps(json.loads(stored) | {"query": query.replace("{}", str(place))})
            connection.execute(f"UPDATE ducklake_tag SET value = ? WHERE {key}", (changed,))
        with opened(tmp_path) as lake:
            lake.sql("INSERT INTO t VALUES (2, 'b')")
            with pytest.raises(StaleViewError) as failed:
                lake.sql("REFRESH MATERIALIZED VIEW m")
            assert OUTSIDE not in str(failed.value)
            assert lake.sql("FROM m").fetchall() == [(1, "a")], query
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize("query", [query for query in HOSTILE if "settings" not in query and "\0" not in query])
def test_no_hostile_query_becomes_a_view(query: str, tmp_path: Path) -> None:
    (tmp_path / "outside.csv").write_text(OUTSIDE)
    with opened(tmp_path) as lake:
        lake.sql("CREATE TABLE t (id BIGINT, v VARCHAR)")
        with pytest.raises((InputError, quacklake.errors.NotFoundError)):
            lake.create_materialized_view("m", query.replace("{}", str(tmp_path / "outside.csv")), full=True)
        assert lake.tables() == ["main.t"]
    assert not list(tmp_path.glob("*.new"))
