"""The objects a user holds: lakes by key, tables at a glance, results as DuckDB users know them, rows under a name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.errors import AlreadyExistsError, InputError, NotFoundError, SchemaMismatchError, SqlError

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "<c>"}]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.create_table("t", ROWS)
        lake.create_schema("s")
        lake.create_table("s.u", {"x": int})
        lake.create_view("v", "SELECT * FROM t")
        yield lake


# -- lakes -------------------------------------------------------------------------------------------------------------


def test_tables_are_had_by_key(lake: quacklake.Lake) -> None:
    assert lake["t"].count() == 3
    assert lake["s.u"].count() == 0
    assert lake["T"].count() == 3
    assert lake.at(version=1)["t"].count() == 3
    with pytest.raises(NotFoundError):
        lake["nope"]
    with pytest.raises(NotFoundError) as caught:
        lake["v"]
    assert caught.value.hint == 'use lake.view("v")'


def test_a_lake_knows_what_is_in_it(lake: quacklake.Lake) -> None:
    assert "t" in lake
    assert "main.t" in lake
    assert "s.u" in lake
    assert "nope" not in lake
    assert 5 not in lake
    assert list(lake) == ["main.t", "s.u"]
    assert lake._ipython_key_completions_() == ["t", "s.u"]
    with lake.transaction() as tx:
        tx.create_table("new", {"a": int})
        assert "new" in tx
        assert "new" not in lake


def test_objects_show_themselves_in_notebooks(lake: quacklake.Lake) -> None:
    html = lake._repr_html_()
    assert "<td>main.t</td><td>id, name</td>" in html
    assert "sqlite:///" in html
    table = lake["t"]._repr_html_()
    assert table.startswith("<p>main.t: 3 rows, 0 files, snapshot ")
    assert "<td>name</td><td>VARCHAR</td>" in table
    assert "2 columns" in table
    assert "&lt;c&gt;" in lake["t"].scan()._repr_html_()
    assert "0 files" in lake["t"].plan()._repr_html_()
    result = lake.sql("SELECT * FROM t ORDER BY id")
    assert "&lt;c&gt;" in result._repr_html_()
    assert lake.sql("CREATE SCHEMA z")._repr_html_() == "<p>no rows</p>"
    assert repr(lake.table("nope")) == "<Table main.nope>"
    assert "main.nope" in lake.table("nope")._repr_html_()
    assert lake["t"].head(2).num_rows == 2


# -- results -----------------------------------------------------------------------------------------------------------


def test_results_have_the_names_of_duckdb(lake: quacklake.Lake) -> None:
    query = "SELECT * FROM t ORDER BY id"
    assert lake.sql(query).df()["id"].tolist() == [1, 2, 3]
    assert lake.sql(query).pl().get_column("id").to_list() == [1, 2, 3]
    assert lake.sql(query).arrow().to_pylist() == ROWS
    assert lake["t"].scan().df()["id"].tolist() == [1, 2, 3]
    with quacklake.session() as session:
        assert session.sql("SELECT 1 AS a").df()["a"].tolist() == [1]


def test_a_result_can_be_had_as_a_frame_again_and_again(lake: quacklake.Lake) -> None:
    result = lake.sql("SELECT * FROM t ORDER BY id")
    for _ in range(2):
        assert result.df()["id"].tolist() == [1, 2, 3]
        assert "3 rows" in repr(result)
        assert result.to_pylist() == ROWS
    assert result.fetchone() == (1, "a")


def test_what_was_fetched_is_not_in_a_frame_and_what_was_not_is(lake: quacklake.Lake) -> None:
    result = lake.sql("SELECT * FROM t ORDER BY id")
    assert result.fetchone() == (1, "a")
    assert result.to_arrow().to_pylist() == ROWS[1:]
    assert result.fetchmany(1) == [(2, "b")]
    assert [batch.to_pylist() for batch in result.to_batches()] == [ROWS[2:]]
    assert result.fetchone() is None
    assert result.fetchall() == []


def test_rows_go_on_when_another_statement_runs_in_between(lake: quacklake.Lake) -> None:
    lake.create_table("big", pa.table({"id": range(300_000)}))
    seen = []
    for (id_,) in lake.sql("SELECT id FROM big ORDER BY id"):
        if id_ in (1, 150_000):
            assert lake.sql("SELECT 42").fetchone() == (42,)
        seen.append(id_)
    assert seen == list(range(300_000))


# -- rows under a name -------------------------------------------------------------------------------------------------


def _frames(folder: Path) -> dict[str, Any]:
    table = pa.table({"id": [2, 3]})
    pq.write_table(table, folder / "wanted.parquet")
    return {
        "pandas": pd.DataFrame({"id": [2, 3]}),
        "polars": pl.DataFrame({"id": [2, 3]}),
        "lazy": pl.LazyFrame({"id": [2, 3]}),
        "arrow": table,
        "batch": table.to_batches()[0],
        "stream": table.to_reader(),
        "dataset": ds.dataset(folder / "wanted.parquet"),
        "rows": [{"id": 2}, {"id": 3}],
        "columns": {"id": [2, 3]},
    }


@pytest.mark.parametrize("form", ["pandas", "polars", "lazy", "arrow", "batch", "stream", "dataset", "rows", "columns"])
def test_rows_are_known_to_sql_by_a_name(lake: quacklake.Lake, tmp_path: Path, form: str) -> None:
    lake.register("wanted", _frames(tmp_path)[form])
    for _ in range(2):
        assert lake.sql("SELECT name FROM t JOIN wanted USING (id) ORDER BY id").fetchall() == [("b",), ("<c>",)]
    lake.sql("INSERT INTO s.u SELECT id FROM WANTED")
    assert lake["s.u"].count() == 2
    lake.unregister("wanted")
    with pytest.raises(SqlError):
        lake.sql("SELECT * FROM wanted")


def test_lazy_frames_and_datasets_in_variables_are_known_to_sql(lake: quacklake.Lake, tmp_path: Path) -> None:
    lazy, dataset = _frames(tmp_path)["lazy"], _frames(tmp_path)["dataset"]
    query = "SELECT count(*) FROM t JOIN lazy USING (id) JOIN dataset USING (id)"
    assert lake.sql(query).fetchall() == [(2,)]
    assert (lazy.collect().height, dataset.count_rows()) == (2, 2)


def test_rows_under_a_name_are_seen_by_other_threads_and_cursors(lake: quacklake.Lake) -> None:
    lake.register("wanted", [{"id": 2}])
    found = []
    thread = threading.Thread(target=lambda: found.append(lake.sql("SELECT count(*) FROM wanted").fetchone()))
    thread.start()
    thread.join()
    assert found == [(1,)]
    with quacklake.session() as session:
        session.register("x", [{"a": 1}])
        with session.cursor() as cursor:
            assert cursor.sql("FROM x").fetchall() == [(1,)]


def test_what_cannot_be_registered_is_told(lake: quacklake.Lake) -> None:
    with pytest.raises(AlreadyExistsError, match=r"main\.t is a table of a lake"):
        lake.register("t", ROWS)
    with pytest.raises(InputError) as caught:
        lake.register("x", "a.csv")
    assert caught.value.hint == "SQL reads files itself: FROM 'a.csv'"
    with pytest.raises(SchemaMismatchError):
        lake.register("x", 42)
    lake.register("wanted", ROWS)
    with pytest.raises(NotFoundError) as missing:
        lake.unregister("wnated")
    assert missing.value.hint == 'did you mean "wanted"?'


# -- relations ---------------------------------------------------------------------------------------------------------


def test_a_relation_reads_the_newest_snapshot_each_time(lake: quacklake.Lake) -> None:
    with duckdb.connect() as connection:
        relation = lake["t"].to_duckdb(connection=connection)
        counted = relation.filter("id > 1").aggregate("count(*)")
        assert counted.fetchall() == [(2,)]
        lake["t"].append([{"id": 4, "name": "d"}])
        assert counted.fetchall() == [(3,)]
        past = lake.at(version=1)["t"].to_duckdb(connection=connection)
        lake["t"].delete()
        assert relation.fetchall() == []
        assert len(past.fetchall()) == 3
        narrow = lake.at(version=1)["t"].to_duckdb(["name"], "id = 2", connection=connection)
        assert narrow.fetchall() == [("b",)]


def test_a_relation_keeps_its_columns_or_fails(lake: quacklake.Lake) -> None:
    table = lake.create_table("w", pa.table({"id": pa.array([1], pa.int32()), "name": ["x"]}))
    with duckdb.connect() as connection:
        relation = table.to_duckdb(connection=connection)
        table.add_column("more", int)
        assert relation.fetchall() == [(1, "x")]
        table.alter_column("id", "BIGINT")
        with pytest.raises(Exception, match="other types than when the relation was created"):
            relation.fetchall()
        relation = table.to_duckdb(connection=connection)
        table.drop_column("name")
        with pytest.raises(Exception, match="name"):
            relation.fetchall()


def test_a_relation_of_duckdbs_own_connection_joins_frames(lake: quacklake.Lake) -> None:
    table = lake["t"].to_duckdb()
    other = duckdb.from_arrow(pa.table({"id": [2]}))
    assert table.join(other, "id").fetchall() == [(2, "b")]


def test_names_of_tables_are_the_same_whether_their_columns_are_read_or_not(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/names.db", data_path=tmp_path / "data", format_version="1.1") as lake:
        lake.create_schema("B")
        lake.create_schema('"B"."inner"')
        for name in ("z", "a", "B.a", "B.inner.t", "B.Z"):
            lake.create_table(name, {"id": pa.int64()})
        lake.drop_table("B.a")
        tx = lake.handle.begin()
        named = tx.table_names()
        assert named == [(info.schema_name, info.name) for info in tx.tables()]
        assert len(named) == 4
        assert tx.table_names() == named
        tx.drop_table(tx.find_table("main", "a"))
        assert ("main", "a") not in tx.table_names()
        assert len(tx.table_names()) == 3
