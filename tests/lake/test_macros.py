"""Macros: expressions and queries with parameters, for DuckDB clients to call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import AlreadyExistsError, CommitConflict, InputError, NotFoundError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as lake:
        yield lake


def test_macros_are_listed_with_parameters_and_defaults(lake: quacklake.Lake) -> None:
    lake.create_macro("m", {"x": None, "n": 7, "big": 1 << 40, "f": 1.5, "s": "it's", "yes": True}, "x+n")
    (macro,) = lake.macros()
    assert (macro.qualified_name, macro.is_table) == ("main.m", False)
    (variant,) = macro.variants
    assert variant.sql == "(x + n)"
    assert [(p.name, p.default, p.default_type) for p in variant.parameters] == [
        ("x", None, "unknown"),
        ("n", "7", "int32"),
        ("big", str(1 << 40), "int64"),
        ("f", "1.5", "float64"),
        ("s", "it's", "varchar"),
        ("yes", "true", "boolean"),
    ]


def test_macros_are_replaced_dropped_and_kept_by_older_snapshots(lake: quacklake.Lake) -> None:
    lake.create_macro("m", ["x"], "x + 1")
    first = lake.current_snapshot()
    with pytest.raises(AlreadyExistsError):
        lake.create_macro("M", ["x"], "x")
    lake.create_macro("m", [], "SELECT 1 AS i", table=True)  # those with rows have names of their own
    lake.create_macro("m", ["x", "y"], "x + y", replace=True)
    assert sorted((m.is_table, m.variants[0].sql) for m in lake.macros()) == [
        (False, "(x + y)"),
        (True, "SELECT 1 AS i"),
    ]
    lake.drop_macro("m")
    assert [m.is_table for m in lake.macros()] == [True]
    with pytest.raises(NotFoundError):
        lake.drop_macro("m")
    lake.drop_macro("m", if_exists=True)
    lake.drop_macro("m", table=True)
    assert lake.macros() == []
    assert [m.variants[0].sql for m in lake.at(version=first).macros()] == ["(x + 1)"]


@pytest.mark.parametrize(
    ("parameters", "sql", "table"),
    [
        (["x"], "x; DROP TABLE t", False),
        (["x"], "x, 1", False),
        (["x"], "x AS y", False),
        (["x"], "x FROM t", False),
        (["x"], "", False),
        (["x"], "x +", False),
        (["x"], "DELETE FROM t", True),
        (["x"], "SELECT * FROM read_csv('f')", True),
        (["x", "X"], "x", False),
        ({"x": 1, "y": None}, "x", False),
        ({"x": b"bytes"}, "x", False),
        ("xy", "x", False),
    ],
)
def test_what_is_no_macro_is_refused(lake: quacklake.Lake, parameters: Any, sql: str, table: bool) -> None:
    with pytest.raises(InputError):
        lake.create_macro("m", parameters, sql, table=table)
    assert (lake.macros(), lake.current_snapshot()) == ([], 0)


def test_two_transactions_that_make_one_macro_conflict(lake: quacklake.Lake) -> None:
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.create_macro("m", ["x"], "x")
        lake.create_macro("m", ["x"], "x + 1")
    with lake.transaction() as tx:
        tx.create_macro("n", ["x"], "x")
        tx.drop_macro("n")
        assert len(tx.macros()) == 1


def test_a_view_may_use_macros_of_the_lake(lake: quacklake.Lake) -> None:
    lake.create_schema("s")
    lake.create_table("t", [{"a": i} for i in range(10)])
    lake.create_macro("plus", {"x": None, "y": 5, "word": "it's"}, "x + y + length(word)")
    lake.create_macro("s.plus", {"x": None}, "main.plus(x, y := 100)")
    lake.create_macro("above", ["n"], "SELECT a FROM t WHERE a > n", table=True)
    view = lake.create_view("s.v", "SELECT plus(a) AS own, main.plus(a) AS mains FROM above(7)")
    assert view.to_pylist() == [{"own": 112, "mains": 17}, {"own": 113, "mains": 18}]
    lake.create_macro("more", ["n"], "SELECT a + 1 AS a FROM above(n)", table=True)
    assert lake.create_view("w", "SELECT sum(a) AS total FROM more(7)").to_pylist() == [{"total": 19}]
    lake.drop_macro("above", table=True)
    with pytest.raises(InputError, match="above"):
        lake.view("w").to_arrow()
    lake.create_macro("above", ["n"], "SELECT a FROM more(n)", table=True)
    with pytest.raises(InputError, match="itself"):
        lake.view("w").to_arrow()
