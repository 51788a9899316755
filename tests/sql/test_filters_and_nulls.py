"""Filters that databases, Arrow or DuckDB's own readers have trouble with: the rows are right all the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.core.format.bounds import Bounds as _Bounds
from quacklake.core.format.bounds import Compare, IsNull, Some, coarse, every, may_match, some

_WHERE = "s = 'a' OR s IS DISTINCT FROM '9'"


@pytest.fixture(scope="module", params=["sqlite:///{}/l.db", "duckdb:///{}/l.duckdb"], ids=["sqlite", "duckdb"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Lake]:
    folder = tmp_path_factory.mktemp("filters")
    with quacklake.connect(request.param.format(folder), data_path=f"{folder}/data/") as found:
        found.sql("CREATE TABLE many (id INT, v VARCHAR)")
        for first in range(0, 400, 100):
            found.sql(f"INSERT INTO many SELECT i, 'v' || i FROM range({first}, {first + 100}) r(i)")
        yield found


@pytest.mark.parametrize("number", [65, 990, 1001])
def test_long_lists_of_values_are_quick_and_exact(lake: quacklake.Lake, number: int) -> None:
    numbers = [1000 + 7 * i if i % 2 else i for i in range(number)]
    expected = sum(1 for value in numbers if value < 400)
    began = time.process_time()
    for where in (f"id IN ({', '.join(map(str, numbers))})", f"v IN ({', '.join(map(repr, _texts(numbers)))})"):
        assert lake.sql(f"SELECT count(*) FROM many WHERE {where}").fetchone() == (expected,)
    if number < 1001:
        chain = " OR ".join(f"id = {value}" for value in numbers[:400])
        assert lake.sql(f"SELECT count(*) FROM many WHERE {chain} OR v = 'none'").fetchone() == (
            sum(1 for value in numbers[:400] if value < 400),
        )
    assert time.process_time() - began < 8


def _texts(numbers: list[int]) -> list[str]:
    return [f"v{number}" for number in numbers]


def test_a_coarse_predicate_holds_wherever_the_fine_one_does() -> None:
    equal = [Compare(1, "int32", "=", value * value, str(value * value)) for value in range(500)]
    found = coarse(Some(tuple(equal)))
    assert isinstance(found, Some)
    assert len(found.parts) <= 64
    assert all(may_match(found, {1: _Bounds(part.value, part.value, 0, 1)}) for part in equal)
    assert not may_match(found, {1: _Bounds(500_000, 600_000, 0, 1)})
    assert coarse(every(equal[:3])) == every(equal[:3])
    mixed = some([*equal[:40], *(IsNull(column) for column in range(2, 90))])
    assert coarse(mixed) == every(())


@pytest.mark.parametrize(
    "where",
    [
        "a = 7 OR a IS NOT DISTINCT FROM 1",
        "a IS NOT DISTINCT FROM 1",
        "a IS DISTINCT FROM 1",
        "tz = TIMESTAMPTZ '2020-01-01 00:00:00+00'",
        "tz IN (TIMESTAMPTZ '2020-01-01 00:00:00+00', TIMESTAMPTZ '2021-01-01 00:00:00+00')",
        "d > 5 AND a < 100",
    ],
)
def test_inlined_rows_can_be_filtered_in_every_way(tmp_path: Path, where: str) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=f"{tmp_path}/data/") as lake:
        lake.sql("CREATE TABLE i (a INT, tz TIMESTAMPTZ, d DOUBLE)")
        rows = "(1, TIMESTAMPTZ '2020-01-01 00:00:00+00', 'NaN'::DOUBLE), (7, NULL, 1), (NULL, NULL, NULL)"
        lake.sql(f"INSERT INTO i VALUES {rows}")
        assert lake.table("i").plan().inlined is not None
        expected = lake.sql(f"SELECT count(*) FROM (VALUES {rows}) i(a, tz, d) WHERE {where}").fetchall()
        assert lake.sql(f"SELECT count(*) FROM i WHERE {where}").fetchall() == expected
        assert lake.table("i").count(where) == expected[0][0]
        joined = "SELECT count(*) FROM i JOIN i j USING (tz) WHERE i.a = 1"
        assert lake.sql(joined).fetchall() == [(1,)]


@pytest.mark.parametrize("rows", [3, 40])
def test_rows_with_null_are_distinct_from_every_value(tmp_path: Path, rows: int) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=f"{tmp_path}/data/") as lake:

        def fresh() -> quacklake.Table:
            lake.sql("CREATE OR REPLACE TABLE n (s VARCHAR, i INT)")
            lake.sql(f"INSERT INTO n SELECT NULL, i FROM range({rows}) r(i)")
            return lake.table("n")

        table = fresh()
        assert lake.sql(f"SELECT count(*) FROM n WHERE {_WHERE}").fetchall() == [(rows,)]
        assert lake.sql("SELECT count(*) FROM n WHERE NOT (s IS NOT DISTINCT FROM '9') OR s = 'a'").fetchall() == [
            (rows,)
        ]
        assert table.count(_WHERE) == rows
        assert table.scan(where=_WHERE).to_arrow().num_rows == rows
        assert lake.sql(f"UPDATE n SET i = -1 WHERE {_WHERE}").fetchall() == [(rows,)]
        assert lake.sql(f"DELETE FROM n WHERE {_WHERE}").fetchall() == [(rows,)]
        table = fresh()
        assert table.update({"i": -1}, where=_WHERE) == rows
        assert table.delete(_WHERE) == rows
        lake.sql("CREATE VIEW v AS SELECT * FROM n WHERE " + _WHERE)
        fresh()
        assert lake.sql("SELECT count(*) FROM v").fetchall() == [(rows,)]
        assert lake.sql(f"MERGE INTO n USING (SELECT 1 AS one) ON {_WHERE} WHEN MATCHED THEN DELETE").fetchall() == [
            (rows,)
        ]


@pytest.mark.parametrize("rows", [3, 40])
def test_so_they_are_in_relations_of_duckdb_and_in_change_feeds(tmp_path: Path, rows: int) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=f"{tmp_path}/data/") as lake:
        lake.sql("CREATE TABLE n (s VARCHAR, i INT)")
        lake.sql(f"INSERT INTO n SELECT NULL, i FROM range({rows}) r(i)")
        table = lake.table("n")
        relation = table.to_duckdb(push_filters=False)
        assert (relation.columns, [str(kind) for kind in relation.types]) == (["s", "i"], ["VARCHAR", "INTEGER"])
        assert len(relation.filter(_WHERE).fetchall()) == len(table.to_duckdb(where=_WHERE).fetchall()) == rows
        table.delete()
        for feed, number in ((table.changes(0), 2 * rows), (table.insertions(0), rows), (table.deletions(0), rows)):
            assert feed.where(_WHERE).count() == feed.where(_WHERE).to_arrow().num_rows == number
        for name, number in (("changes", 2 * rows), ("insertions", rows), ("deletions", rows)):
            query = f"SELECT count(*) FROM table_{name}('n', 0, 3) WHERE {_WHERE}"
            assert lake.sql(query).fetchall() == [(number,)]
