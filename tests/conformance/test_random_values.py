"""Random types with hostile values: whatever is done to a table, its rows are those of a plain DuckDB table."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import duckdb
import pytest

import quacklake
from quacklake.errors import ConstraintError
from tests.catalog.stock import Stock
from tests.layout import LAYOUT
from tests.seeds import SEED

from .random_values import Type, random_type, random_value

DATABASES = ("sqlite", "duckdb", "postgres", "mysql", "tenant", "next")
LIMIT = 6
TURNS = range(int(os.environ.get("QUACKLAKE_VALUE_TURNS", "2")))
"""The random tables of each database; a long run sets their number."""
_TEXT_IN_ARROW = {"INTERVAL", "TIMETZ", "UHUGEINT", "HUGEINT", "VARIANT", "JSON", "UUID"}


@dataclass
class Twins:
    """A table of a lake, and one of plain DuckDB that should have the same rows."""

    url: str
    lake: quacklake.Lake
    plain: duckdb.DuckDBPyConnection
    types: list[Type]
    draw: random.Random
    past: dict[int, list[Any]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    number: int = 0

    def both(self, statement: str) -> bool:
        """Run a statement on both; False where the lake refuses what it cannot store, and says so."""
        self.log.append(statement)
        try:
            self.lake.sql(statement)
        except ConstraintError:
            return False
        self.plain.execute(statement)
        return True

    @property
    def shown(self) -> str:
        columns = ", ".join(f"c{place}::VARCHAR" for place in range(len(self.types)))
        return f"SELECT k, {columns} FROM t ORDER BY ALL"

    def expected(self) -> list[Any]:
        return self.plain.execute(self.shown).fetchall()

    def check(self) -> None:
        expected = self.expected()
        self.compare(self.lake.sql(self.shown).fetchall(), expected)
        self.past[self.lake.current_snapshot()] = expected

    def compare(self, found: list[Any], expected: list[Any], where: str = "now") -> None:
        """Fail with the first row that is another one, and with what was done."""
        if found != expected:
            pairs = zip_longest(found, expected)
            one, two = next((one, two) for one, two in pairs if one != two)
            pytest.fail(f"{where}: {one!r}\n  is not {two!r}\n  after {self.log}")

    def rows(self, count: int) -> str:
        rows = []
        for _ in range(count):
            self.number += 1
            values = ", ".join(random_value(self.draw, type_) for type_ in self.types)
            rows.append(f"({self.number}, {values})")
        return ", ".join(rows)


def _opened(database: str, new_url: Callable[[str], str], path: Path) -> tuple[str, quacklake.Lake]:
    options: dict[str, Any] = {"data_inlining_row_limit": LIMIT, "duckdb_threads": 1}
    url = new_url("sqlite" if database in ("tenant", "next") else database)
    if database == "tenant":
        with quacklake.tenants(url, path) as tenants:
            tenants.create("one")
        return url, quacklake.connect(url, catalog="one", **options)
    lake = quacklake.connect(url, data_path=path, **options)
    if database == "next":
        lake.migrate("1.1")
    return url, lake


def _insert(twins: Twins) -> None:
    twins.both(f"INSERT INTO t VALUES {twins.rows(twins.draw.randrange(1, LIMIT + 1))}")


def _insert_many(twins: Twins) -> None:
    twins.both(f"INSERT INTO t VALUES {twins.rows(LIMIT + twins.draw.randrange(1, 20))}")


def _append(twins: Twins) -> None:
    if any(type_.leaves & _TEXT_IN_ARROW for type_ in twins.types):
        return  # Arrow has other values than DuckDB there
    count = twins.draw.choice((2, LIMIT + 10))
    twins.plain.execute(f"CREATE OR REPLACE TABLE new AS FROM t LIMIT 0; INSERT INTO new VALUES {twins.rows(count)}")
    rows = twins.plain.execute("FROM new").to_arrow_table()
    twins.log.append(f"append {count}")
    source = rows if twins.draw.random() < 0.5 else rows.to_reader()
    try:
        twins.lake.table("t").append(source)
    except ConstraintError:  # a value that no file can hold
        return
    twins.plain.execute("INSERT INTO t FROM new")


def _update(twins: Twins) -> None:
    twins.both(f"UPDATE t SET k = k + 1000 WHERE k % 3 = {twins.draw.randrange(3)}")


def _delete(twins: Twins) -> None:
    twins.both(f"DELETE FROM t WHERE k % 7 = {twins.draw.randrange(7)}")


def _flush(twins: Twins) -> None:
    twins.log.append("flush")
    twins.lake.table("t").flush_inlined_data()


def _merge(twins: Twins) -> None:
    twins.log.append("merge")
    twins.lake.table("t").merge_adjacent_files()


def _rewrite(twins: Twins) -> None:
    twins.log.append("rewrite")
    twins.lake.table("t").rewrite_data_files(delete_threshold=0.0)


def _optimize(twins: Twins) -> None:
    chosen = [f"c{place}" for place, type_ in enumerate(twins.types) if type_.leaves != {"VARIANT"}]
    order = twins.draw.choice([*chosen, "k"])
    twins.log.append(f"optimize by {order}")
    twins.lake.table("t").optimize(order_by=[order])


STEPS: tuple[Callable[[Twins], None], ...] = (
    *(_insert, _insert, _insert_many, _append, _update, _delete, _flush, _merge, _rewrite, _optimize),
)


@pytest.fixture
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect(config={"threads": 1})) as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection


@pytest.mark.daily(0.5)
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("database", DATABASES)
def test_rows_of_random_types_are_those_of_a_plain_table(
    database: str,
    turn: int,
    new_url: Callable[[str], str],
    tmp_path: Path,
    stock: Stock | None,
    plain: duckdb.DuckDBPyConnection,
) -> None:
    draw = random.Random(f"{SEED} values {database} {turn}")
    url, lake = _opened(database, new_url, tmp_path / "data")
    with lake:
        types = [random_type(draw) for _ in range(draw.randrange(1, 4))]
        twins = Twins(url, lake, plain, types, draw)
        twins.both(f"CREATE TABLE t (k INTEGER, {', '.join(f'c{n} {type_.sql}' for n, type_ in enumerate(types))})")
        first = lake.current_snapshot()
        for step in [_insert, *draw.choices(STEPS, k=10), _flush, _merge]:
            step(twins)
            twins.check()
        for version, expected in twins.past.items():
            twins.compare(lake.at(version=version).sql(twins.shown).fetchall(), expected, f"at {version}")
        columns = ", ".join(f"c{place}::VARCHAR" for place in range(len(types)))
        changes = f"ducklake_table_changes('lake', 'main', 't', {first}, {lake.current_snapshot()})"
        came = "change_type IN ('insert', 'update_postimage')"
        fed = lake.sql(f"SELECT k, {columns} FROM {changes} WHERE {came}").fetchall()
        assert set(twins.expected()) <= set(fed), twins.log
        assert not lake.verify(deep=True).errors
    if stock is not None and database in ("sqlite", "duckdb", "postgres"):
        twins.compare(stock.run(url, twins.shown), twins.expected(), "stock")


@pytest.fixture(scope="module")
def stock() -> Iterator[Stock | None]:
    if LAYOUT == "shared":
        yield None
        return
    with Stock() as process:
        yield process


def test_every_type_is_drawn_and_has_values(plain: duckdb.DuckDBPyConnection) -> None:
    draw = random.Random(1)
    seen: set[str] = set()
    for _ in range(400):
        type_ = random_type(draw)
        seen |= {type_.kind} | type_.leaves
        if type_.leaves != {"VARIANT"}:
            plain.execute(f"SELECT ({random_value(draw, type_)})::{type_.sql}")
    from .random_values import LEAVES

    assert seen >= {*LEAVES, "LIST", "MAP", "STRUCT"}
