"""Chosen columns and rows, row ids, limits, and text in filters that is only ever a filter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import quacklake
from quacklake.errors import InputError, PredicateError, QuacklakeError, ReadOnlyError

LIMITS: dict[str, Any] = {"params": [0, 10], "ids": ["files", "inlined"]}


@pytest.fixture(**LIMITS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quacklake.Lake]:
    with _filled(tmp_path, request.param) as lake:
        yield lake


@pytest.fixture(scope="module", **LIMITS)
def unchanged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Lake]:
    """A lake for tests that only read, made once."""
    with _filled(tmp_path_factory.mktemp("unchanged"), request.param) as lake:
        yield lake


@contextmanager
def _filled(folder: Path, limit: int) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{folder}/lake.db",
        data_path=folder / "data",
        data_inlining_row_limit=limit,
        duckdb_threads=1,
    ) as lake:
        table = lake.create_table(
            "t",
            pa.table(
                {"id": range(20), "Name": [None if i % 5 == 0 else f"it's {i}" for i in range(20)], "v": [0.5] * 20}
            ),
        )
        table.append(pa.table({"id": [100, 101], "Name": ["x", ""], "v": [float("nan"), None]}))
        yield lake


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("id = 3", [3]),
        ("id IN (1, 100)", [1, 100]),
        ("id BETWEEN 18 AND 100", [18, 19, 100]),
        ("name IS NULL AND id < 10", [0, 5]),
        ("Name = 'it''s 7'", [7]),
        ("name LIKE '%9' OR name = ''", [9, 19, 101]),
        ("v IS NULL OR isnan(v)", [100, 101]),
        ("v > 100", [100]),
        ("NOT (id > 1)", [0, 1]),
        ("id + 1 = 4 -- a comment", [3]),
        ("length(name) = 1", [100]),
        ("id = 99999999999999999999", []),
        ("1 = 1 AND id = 2", [2]),
        ("false", []),
    ],
)
def test_a_filter_is_an_sql_condition(unchanged: quacklake.Lake, where: str, ids: list[int]) -> None:
    table = unchanged.table("t")
    assert sorted(table.to_arrow(columns=["id"], where=where).column("id").to_pylist()) == ids
    assert table.count(where) == len(ids)
    assert sorted(row["id"] for row in table.scan().where(where).select("ID").to_pylist()) == ids


@pytest.mark.parametrize(
    "where",
    [
        "id = ",
        "id = 1; DROP TABLE t",
        "id = 1) OR (1 = 1",
        "1 = 1 LIMIT 1",
        "1 = 1 ORDER BY id",
        "nope = 1",
        "id = 'text'",
        "SELECT 1",
        "",
        "id",
        "id = 1 UNION ALL SELECT 1",
    ],
)
def test_anything_but_one_condition_is_refused(unchanged: quacklake.Lake, where: str) -> None:
    table = unchanged.table("t")
    before = unchanged.current_snapshot()
    if where == "id":
        assert table.count(where) == 21  # as SQL has it: every number but 0 is true
        return
    for work in (table.to_arrow, table.count):
        with pytest.raises(PredicateError):
            work(where=where)
    with pytest.raises(PredicateError):
        table.delete(where)
    assert unchanged.current_snapshot() == before


def test_an_unknown_column_in_a_filter_comes_with_the_nearest_name(lake: quacklake.Lake) -> None:
    with pytest.raises(PredicateError) as caught:
        lake.table("t").to_arrow(where="Nmae = 'x'")
    assert caught.value.hint is not None
    assert "Name" in caught.value.hint


def test_an_arrow_expression_filters_too(lake: quacklake.Lake) -> None:
    condition = (pc.field("id") > 17) & (pc.field("id") != 100)
    assert sorted(lake.table("t").to_arrow(columns=["id"], where=condition).column("id").to_pylist()) == [18, 19, 101]
    assert lake.table("t").count(condition) == 3


def test_rows_without_a_column_are_still_so_many(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/none.db", data_path=tmp_path / "none") as lake:
        table = lake.create_table("t", [{"a": i} for i in range(30)])
        assert (table.to_arrow(columns=[]).num_rows, table.to_arrow(columns=[]).column_names) == (30, [])
        assert table.to_arrow(columns=[], where="a > 3").num_rows == 26
        assert table.to_arrow(columns=[], where=pc.field("a") > 3).num_rows == 26


def test_columns_come_in_the_order_asked_for_with_the_names_of_the_table(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    assert table.to_arrow(columns=["v", "NAME"]).column_names == ["v", "Name"]
    assert table.scan(["id"], row_ids=True).to_arrow().column_names == ["id", "rowid"]
    assert table.to_arrow().schema.names == ["id", "Name", "v"]
    with pytest.raises(InputError, match="nope"):
        table.to_arrow(columns=["nope"])


def test_a_limit_is_the_most_that_comes(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    assert table.scan(limit=5).to_arrow().num_rows == 5
    assert table.scan().limit(0).to_arrow().num_rows == 0
    assert table.scan(limit=1000).count() == 22
    assert table.scan(limit=3).count() == 3
    assert table.scan(where="id > 17", limit=2).count() == 2


def test_a_row_keeps_its_id_through_updates_and_merges(lake: quacklake.Lake) -> None:
    table = lake.table("t")

    def ids() -> dict[int, int]:
        rows = table.scan(["id"], row_ids=True).to_arrow()
        return dict(zip(rows.column("id").to_pylist(), rows.column("rowid").to_pylist(), strict=True))

    before = ids()
    assert len(set(before.values())) == 22
    table.update({"Name": "one"}, "id IN (3, 100)")
    table.update({"Name": "many"})
    table.merge([{"id": 3, "Name": "merged", "v": 1.0}, {"id": 500, "Name": "new", "v": 1.0}], on="id")
    with lake.transaction() as tx:
        tx.table("t").update({"v": 2.0}, "id < 15")
        tx.table("t").update({"v": 3.0}, "id < 4")
    after = ids()
    new = after.pop(500)
    assert after == before
    assert new not in before.values()


def test_streams_give_all_rows_in_small_batches(lake: quacklake.Lake) -> None:
    batches = list(lake.table("t").to_batches(batch_rows=7))
    assert sum(batch.num_rows for batch in batches) == 22
    reader = lake.table("t").scan(["id"]).to_reader()
    assert reader.schema.names == ["id"]
    assert reader.read_all().num_rows == 22


def test_views_in_a_duckdb_connection_show_the_tables_of_their_moment(lake: quacklake.Lake) -> None:
    lake.create_schema("s")
    lake.create_table("s.other", [{"id": 3, "label": "three"}])
    with duckdb.connect() as connection:
        lake.register(connection)
        joined = connection.execute("SELECT t.id, label FROM t JOIN s.other USING (id)").fetchall()
        assert joined == [(3, "three")]
        lake.table("t").delete()
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (22,)
        lake.register(connection)
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_the_past_is_read_only_and_stays_as_it_was(lake: quacklake.Lake) -> None:
    past = lake.at(version=2)
    lake.table("t").delete("id < 10")
    lake.rename_table("t", "renamed")
    assert past.tables() == ["main.t"]
    assert past.table("t").count() == 22
    assert past.snapshot_id == 2
    assert "snapshot 2" in repr(past)
    with pytest.raises(ReadOnlyError):
        past.table("t").append([{"id": 1, "Name": "x", "v": 1.0}])
    with pytest.raises(QuacklakeError):
        lake.at(version=2, timestamp="2024-01-01")
    with pytest.raises(QuacklakeError):
        lake.at()


def test_a_text_is_one_column_and_not_its_letters(unchanged: quacklake.Lake) -> None:
    assert unchanged.table("t").to_arrow("id", where="id < 2").to_pydict() == {"id": [0, 1]}
    with pytest.raises(InputError, match='there is no column "id < 2"'):
        unchanged.table("t").to_arrow("id < 2")
