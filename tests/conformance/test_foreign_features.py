"""Features that only the reference implementation writes so far: kept whole, read if possible, else refused by name."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from quacklake.errors import AlreadyExistsError, InputError, NotFoundError

from .clients import LakeSite
from .conftest import MakeSite
from .history import History, compare
from .steps import Append, Create, Delete, Stock, Update

_MANY = "INSERT INTO p SELECT 'r' || (i % 3), DATE '2023-01-01' + (i * 20)::INTEGER, i FROM range(60) r(i)"


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite")


def views(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = connection.execute(
        "SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = 'l' AND NOT internal ORDER BY ALL"
    ).fetchall()
    return found


def test_a_schema_with_views_and_macros_is_dropped_whole_or_not_at_all(site: LakeSite) -> None:
    stock = site.stock()
    stock.execute("CREATE SCHEMA s; CREATE VIEW s.v AS SELECT 1 AS x; CREATE MACRO s.m(x) AS x + 1")
    stock.execute("CREATE MACRO s.tm(x) AS TABLE SELECT x AS y; CREATE VIEW kept AS SELECT 2 AS y")
    lake = site.lake()
    with pytest.raises(InputError, match="entries that depend on it"):
        lake.drop_schema("s")
    lake.drop_schema("s", cascade=True)
    stock = site.stock()
    assert views(stock) == [("main", "kept")]
    stock.execute("CREATE SCHEMA s; CREATE TABLE s.v(i INTEGER); CREATE MACRO s.m(x) AS x + 2")
    assert stock.execute("SELECT s.m(1)").fetchone() == (3,)
    assert site.lake().tables() == ["s.v"]


def test_a_table_cannot_take_the_name_of_a_view(site: LakeSite) -> None:
    site.stock().execute("CREATE VIEW v AS SELECT 1 AS x; CREATE TABLE t(i INTEGER)")
    lake = site.lake()
    before = lake.current_snapshot()
    with pytest.raises(AlreadyExistsError, match="view"):
        lake.create_table("V", {"i": pa.int32()})
    with pytest.raises(AlreadyExistsError, match="view"):
        lake.rename_table("t", "v")
    with pytest.raises(NotFoundError):
        lake.table("v").to_arrow()
    assert lake.current_snapshot() == before


def test_views_macros_comments_and_tags_survive_our_commits(site: LakeSite) -> None:
    stock = site.stock()
    stock.execute(
        "CREATE TABLE t(i INTEGER, s VARCHAR); CREATE VIEW v AS SELECT i * 2 AS d FROM t; CREATE MACRO m(x) AS x + 1"
    )
    stock.execute("COMMENT ON TABLE t IS 'a table'; COMMENT ON COLUMN t.s IS 'a column'; COMMENT ON VIEW v IS 'a view'")
    table = site.lake().table("t")
    table.append([{"i": 1, "s": "x"}])
    table.append(pa.table({"i": pa.array(range(20), pa.int32()), "s": ["y"] * 20}))
    table.update({"i": 100}, "s = 'x'")
    site.lake().create_table("other", [{"i": 1}])
    stock = site.stock()
    assert stock.execute("SELECT max(d) FROM v").fetchone() == (200,)
    assert stock.execute("SELECT m(1)").fetchone() == (2,)
    assert stock.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 't'").fetchone() == ("a table",)
    assert stock.execute(
        "SELECT comment FROM duckdb_columns() WHERE column_name = 's' AND table_name = 't'"
    ).fetchone() == ("a column",)
    assert views(stock) == [("main", "v")]
    site.lake().drop_table("t")
    assert site.stock().execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'l'").fetchone() == (1,)


def test_a_partitioned_or_sorted_table_stays_right_for_both_after_our_writes(site: LakeSite) -> None:
    history = History(site)
    history.play(
        [
            Create("p", "region VARCHAR, day DATE, v INTEGER"),
            Stock("ALTER TABLE p SET PARTITIONED BY (region, year(day))"),
            Stock("ALTER TABLE p SET SORTED BY (v DESC)"),
            Stock(_MANY, [_MANY]),
            Append("p", "SELECT 'r' || (i % 4), DATE '2025-01-01', (1000 + i)::INTEGER FROM range(40) r(i)"),
            Append("p", "SELECT NULL::VARCHAR, NULL::DATE, 5000"),
            Update("p", {"v": "-1"}, "region = 'r2' AND v < 30"),
            Update("p", {"region": "'moved'"}, "v BETWEEN 1000 AND 1019"),
            Delete("p", "region = 'r0' AND v < 40"),
            Stock("CALL ducklake_flush_inlined_data('l')"),
            Stock("CALL ducklake_merge_adjacent_files('l')"),
            Delete("p", "region = 'moved' AND v > 1010"),
        ],
        ("ours",),
    )
    compare(history)
    assert history.model is not None
    for condition in ("region = 'r1'", "region = 'moved'", "day >= '2025-01-01'", "v = -1", "region IS NULL"):
        expected = history.model.execute(f"SELECT count(*) FROM p WHERE {condition}").fetchone()
        assert (site.lake().table("p").count(condition),) == expected
        assert site.stock().execute(f"SELECT count(*) FROM p WHERE {condition}").fetchone() == expected


def test_files_added_from_elsewhere_are_read(site: LakeSite) -> None:
    stock = site.stock()
    stock.execute("CREATE TABLE t(i BIGINT, s VARCHAR)")
    site.data_path.mkdir()
    stock.execute(f"COPY (SELECT i, 's' || i AS s FROM range(30) r(i)) TO '{site.data_path}/added.parquet'")
    stock.execute(f"CALL ducklake_add_data_files('l', 't', '{site.data_path}/added.parquet')")
    assert site.lake().table("t").count("i >= 0") == 30
