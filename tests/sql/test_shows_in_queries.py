"""SHOW as a part of a query, and comments on columns of views in listings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import QuacklakeError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as opened:
        opened.sql("CREATE TABLE t (a INTEGER); CREATE VIEW v AS SELECT a, a + 1 AS b FROM t")
        opened.sql("CREATE SCHEMA s; CREATE TABLE s.u (x INTEGER); CREATE TABLE s.hidden (y INTEGER)")
        opened.sql("CREATE USER ann; GRANT SELECT ON s.u TO ann")
        yield opened


@pytest.mark.parametrize("show", ["SHOW TABLES", "SHOW TABLES FROM s", "SHOW ALL TABLES", "SHOW GRANTS", "SHOW t"])
def test_a_show_in_a_query_gives_the_rows_of_the_statement(lake: quacklake.Lake, show: str) -> None:
    wanted = lake.sql(show).fetchall()
    assert wanted
    assert lake.sql(f"FROM ({show})").fetchall() == wanted
    assert lake.sql(f"WITH x AS (FROM ({show})) SELECT count(*) FROM x AS y").fetchall() == [(len(wanted),)]
    assert "qls_" not in repr(lake.sql(f"FROM ({show}) AS z").fetchall())


def test_a_table_that_is_called_grants_is_described(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE grants (z INTEGER)")
    assert [row[0] for row in lake.sql("FROM (DESCRIBE grants)").fetchall()] == ["z"]


def test_a_show_in_a_view_shows_no_more_than_its_reader_may_see(lake: quacklake.Lake) -> None:
    lake.sql("CREATE VIEW names AS SELECT name FROM (SHOW ALL TABLES)")
    lake.sql("CREATE VIEW rules AS FROM (SHOW GRANTS)")
    lake.sql("GRANT SELECT ON names TO ann; GRANT SELECT ON rules TO ann")
    assert "hidden" in repr(lake.sql("FROM names").fetchall())
    assert lake.sql("SELECT count(*) FROM rules").fetchall() == [(3,)]
    ann = lake.as_principal("ann")
    lake.sql("CREATE VIEW mine AS FROM (SHOW TABLES FROM lake.s); GRANT SELECT ON mine TO ann")
    assert lake.sql("FROM mine").fetchall() == [("hidden",), ("u",)]
    for query in ("FROM mine", "FROM (SHOW TABLES FROM lake.s)"):
        assert ann.sql(query).fetchall() == [("u",)]
    for query in ("FROM names", "SELECT name FROM (SHOW ALL TABLES)"):
        assert ann.sql(query).fetchall() == [("mine",), ("names",), ("u",)]  # she may not read rules
    for query in ("FROM rules", "FROM (SHOW GRANTS)"):
        with pytest.raises(QuacklakeError):
            ann.sql(query).fetchall()


def test_comments_on_columns_of_views_are_in_the_listings(lake: quacklake.Lake) -> None:
    lake.migrate("1.1")
    lake.sql("COMMENT ON COLUMN v.b IS 'it''s more'; COMMENT ON COLUMN t.a IS 'a number'")
    for listing, column in (("duckdb_columns()", "comment"), ("information_schema.columns", '"COLUMN_COMMENT"')):
        query = f"SELECT table_name, column_name, {column} FROM {listing} WHERE {column} IS NOT NULL ORDER BY ALL"
        assert lake.sql(query).fetchall() == [("t", "a", "a number"), ("v", "b", "it's more")]
    lake.sql("BEGIN; COMMENT ON COLUMN v.b IS NULL")
    assert lake.sql(query).fetchall() == [("t", "a", "a number")]
    lake.sql("ROLLBACK")
    assert len(lake.sql(query).fetchall()) == 2
