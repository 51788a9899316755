"""Views: queries over the lake's tables that live in the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import (
    AlreadyExistsError,
    CommitConflict,
    InputError,
    InvalidNameError,
    NotFoundError,
    ReadOnlyError,
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as lake:
        lake.create_table("t", [{"a": i, "b": f"n{i % 3}"} for i in range(30)])
        yield lake


def test_a_view_reads_its_tables_as_they_are(lake: quacklake.Lake) -> None:
    view = lake.create_view("v", "SELECT b, count(*) AS n FROM t GROUP BY b ORDER BY b")
    assert view.to_pylist() == [{"b": f"n{i}", "n": 10} for i in range(3)]
    lake.table("t").delete("b = 'n0'")
    lake.table("t").append([{"a": 100, "b": "n9"}])
    assert view.to_pylist() == [{"b": "n1", "n": 10}, {"b": "n2", "n": 10}, {"b": "n9", "n": 1}]
    assert view.columns == ["b", "n"]
    assert view.schema.field("n").type == pa.int64()
    assert view.count() == 3
    assert view.to_pandas()["n"].sum() == 21
    assert view.to_polars()["n"].sum() == 21
    assert view.name == "main.v"
    assert "GROUP BY" in view.sql
    assert "main.v" in repr(view)


def test_views_stand_on_views_to_a_limit(lake: quacklake.Lake) -> None:
    lake.create_view("v0", "SELECT a FROM t WHERE a < 3")
    for depth in range(1, 10):
        lake.create_view(f"v{depth}", f"SELECT a + 1 AS a FROM v{depth - 1}")
    assert [row["a"] for row in lake.view("v9").to_pylist()] == [9, 10, 11]
    for depth in range(10, 16):
        lake.create_view(f"v{depth}", f"SELECT a + 1 AS a FROM v{depth - 1}")
    with pytest.raises(InputError, match="depends on more than"):
        lake.create_view("v16", "SELECT a FROM v15")
        lake.view("v16").to_arrow()


def test_a_view_that_stands_on_itself_is_an_error_not_the_end(lake: quacklake.Lake) -> None:
    lake.create_view("a", "SELECT 1 AS i")
    lake.create_view("b", "SELECT i FROM a")
    lake.drop_view("a")
    with pytest.raises(NotFoundError, match='"a"'):
        lake.view("b").to_arrow()
    with lake.transaction() as tx:
        tx.create_view("a", "SELECT 1 AS i")
    lake.rename_view("b", "c")
    lake.drop_view("a")
    lake.rename_view("c", "a")
    with pytest.raises(InputError, match="itself"):
        lake.view("a").to_arrow()


def test_a_transaction_sees_its_own_views_and_nobody_else_does(lake: quacklake.Lake) -> None:
    before = lake.current_snapshot()
    with lake.transaction() as tx:
        tx.create_table("new", [{"i": 1}])
        tx.create_view("v", "SELECT i FROM new")
        tx.table("new").append([{"i": 2}])
        assert tx.view("v").to_pylist() == [{"i": 1}, {"i": 2}]
        tx.rename_view("v", "w")
        assert tx.views() == ["main.w"]
        assert lake.views() == []
    assert lake.current_snapshot() == before + 1
    assert lake.view("w").count() == 2
    with pytest.raises(RuntimeError, match="stop"), lake.transaction() as tx:
        tx.drop_view("w")
        tx.create_view("other", "SELECT 1 AS i")
        raise RuntimeError("stop")
    assert lake.views() == ["main.w"]
    with lake.transaction() as tx:
        tx.create_view("gone", "SELECT 1 AS i")
        tx.drop_view("gone")
    assert lake.current_snapshot() == before + 1


def test_older_snapshots_keep_their_views(lake: quacklake.Lake) -> None:
    lake.create_view("v", "SELECT 1 AS i")
    first = lake.current_snapshot()
    lake.create_view("v", "SELECT 2 AS j", replace=True)
    lake.rename_view("v", "w")
    lake.drop_view("w")
    views = [lake.at(version=first + n).views() for n in range(4)]
    assert views == [["main.v"], ["main.v"], ["main.w"], []]
    assert lake.at(version=first).view("v").to_pylist() == [{"i": 1}]
    assert lake.at(version=first + 1).view("v").to_pylist() == [{"j": 2}]
    with pytest.raises(ReadOnlyError):
        lake.at(version=first).view("v").set_comment("no")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("DROP TABLE t", InputError),
        ("SELECT 1; SELECT 2", InputError),
        ("SELECT", InputError),
        ("INSERT INTO t VALUES (1)", InputError),
        ("SELECT * FROM missing", NotFoundError),
        ("SELECT missing FROM t", InputError),
        ("SELECT * FROM other.main.t", InputError),
        ("SELECT * FROM read_csv('/etc/passwd')", InputError),
        ("SELECT * FROM '/etc/passwd'", NotFoundError),
        ("SELECT * FROM query('SELECT 1')", InputError),
        ("SELECT * FROM (SELECT * FROM read_text('x'))", InputError),
    ],
)
def test_what_is_no_query_over_the_lake_is_refused(lake: quacklake.Lake, sql: str, error: type[Exception]) -> None:
    before = lake.current_snapshot()
    with pytest.raises(error):
        lake.create_view("v", sql)
    assert lake.current_snapshot() == before


def test_names_are_shared_with_tables(lake: quacklake.Lake) -> None:
    lake.create_view("v", "SELECT 1 AS i")
    with pytest.raises(AlreadyExistsError, match="table"):
        lake.create_view("T", "SELECT 1 AS i")
    with pytest.raises(AlreadyExistsError, match="exists already"):
        lake.create_view("V", "SELECT 1 AS i")
    with pytest.raises(AlreadyExistsError, match="table"):
        lake.rename_view("v", "t")
    with pytest.raises(AlreadyExistsError, match="view"):
        lake.create_table("v", [{"i": 1}])
    with pytest.raises(AlreadyExistsError, match="view"):
        lake.rename_table("t", "v")
    lake.create_view("w", "SELECT 1 AS i")
    with pytest.raises(AlreadyExistsError, match="exists already"):
        lake.rename_view("v", "w")
    with pytest.raises(NotFoundError) as missing:
        lake.table("v").to_arrow()
    assert 'lake.view("main.v")' in str(missing.value.hint)
    with pytest.raises(NotFoundError) as near:
        lake.view("vv").to_arrow()
    assert "main.v" in str(near.value.hint)
    with pytest.raises(InputError, match="another schema"):
        lake.rename_view("v", "s.v")
    with pytest.raises(InvalidNameError):
        lake.create_view('""', "SELECT 1 AS i")
    lake.drop_view("nothing", if_exists=True)
    with pytest.raises(NotFoundError):
        lake.drop_view("nothing")


def test_two_transactions_that_make_one_view_conflict(lake: quacklake.Lake) -> None:
    lake.create_view("v", "SELECT 1 AS i")
    with pytest.raises(CommitConflict), lake.transaction() as one:
        one.create_view("x", "SELECT 1 AS i")
        lake.create_view("x", "SELECT 2 AS i")
    with pytest.raises(CommitConflict), lake.transaction() as one:
        one.rename_view("v", "y")
        lake.rename_view("v", "z")
    with pytest.raises(CommitConflict), lake.transaction() as one:
        one.view("z").set_comment("mine")
        lake.drop_view("z")


def test_a_schema_with_a_view_is_not_empty(lake: quacklake.Lake) -> None:
    lake.create_schema("s")
    lake.create_view("s.v", "SELECT a FROM t")
    lake.create_macro("s.m", ["x"], "x")
    with pytest.raises(InputError, match="entries that depend on it: v, m"):
        lake.drop_schema("s")
    with lake.transaction() as tx:
        tx.create_schema("fresh")
        tx.create_view("fresh.v", "SELECT 1 AS i")
        tx.drop_schema("fresh", cascade=True)
    lake.drop_schema("s", cascade=True)
    assert (lake.views(), lake.macros()) == ([], [])
