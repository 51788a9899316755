"""Rows as values of a query, and values that Python has no form of inside of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import InputError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE t (r STRUCT(a INTEGER, b VARCHAR))")
        yield lake


def test_a_row_without_names_is_a_tuple(lake: quacklake.Lake) -> None:
    result = lake.sql("SELECT (1, 'a'), [(1, 'b'), NULL], {'x': (1, 2)}, row(7), MAP {'k': (1, 2)}, count(*) FROM t")
    assert result.fetchall() == [
        ((1, "a"), [(1, "b"), None], {"x": (1, 2)}, (7,), [("k", (1, 2))], 0),
    ]
    assert "(1, 'a')" in str(lake.sql("SELECT (1, 'a') AS x, count(*) FROM t"))


def test_rows_without_names_go_into_columns_with_names(lake: quacklake.Lake) -> None:
    lake.sql("INSERT INTO t VALUES ((1, 'a'))")
    lake.sql("INSERT INTO t SELECT row(i, 'b') FROM range(2, 30) r(i)")
    lake.sql("UPDATE t SET r = (0, 'z') WHERE r.a = 1")
    assert lake.sql("SELECT count(*), min(r.a), max(r.b) FROM t").fetchall() == [(29, 0, "z")]


def test_a_table_has_no_rows_without_names(lake: quacklake.Lake) -> None:
    with pytest.raises(InputError, match="unsupported type"):
        lake.sql("CREATE TABLE u AS SELECT (1, 'a') AS r")
    assert "u" not in lake


def test_far_times_inside_of_lists_are_text(lake: quacklake.Lake) -> None:
    rows = lake.sql("SELECT [TIMESTAMP '20000-01-01', TIMESTAMP '2020-01-01'], count(*) FROM t").fetchall()
    assert str(rows[0][0][0]).startswith("20000-01-01")
