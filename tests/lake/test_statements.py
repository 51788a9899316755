"""A commit has the same number of catalog statements however many rows, files and snapshots there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import telemetry


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as lake:
        table = lake.create_table("t", rows(0, 30))
        table.append(rows(100, 2))
        table.delete("id = 1")  # every table inside the catalog that an operation may need is there from now on
        yield lake


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "name": [f"n{i}" for i in range(count)]})


def statements(work: Callable[[], object]) -> int:
    """Return the number of statements that the catalog ran for some work."""
    before = telemetry.snapshot().counters.get("catalog.statements", 0)
    work()
    return telemetry.snapshot().counters["catalog.statements"] - before


def grow(lake: quacklake.Lake, snapshots: int) -> None:
    """More snapshots, half of them with a file."""
    table = lake.table("t")
    for number in range(snapshots):
        table.append(rows(10_000 + number * 100, 11 if number % 2 else 1))


OPERATIONS: dict[str, Callable[[quacklake.Table, int], object]] = {
    "append few": lambda table, n: table.append(rows(1000 * n, min(n, 10))),
    "append many": lambda table, n: table.append(rows(100_000 * n, 100 * n)),
    "delete from a file": lambda table, n: table.delete(f"id BETWEEN 2 AND {1 + min(n, 9)}"),
    "update in a file": lambda table, n: table.update({"name": "x"}, f"id BETWEEN 12 AND {11 + min(n, 9)}"),
    "update inlined rows": lambda table, n: table.update({"name": "x"}, "id IN (100, 101)"),
    "merge": lambda table, n: table.merge(rows(25, min(n, 10)), on="id"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_rows_cost_no_statements(lake: quacklake.Lake, operation: str, tmp_path: Path) -> None:
    run, table = OPERATIONS[operation], lake.table("t")
    run(table, 1)  # the first of its kind may look up what later ones remember
    few = statements(lambda: run(table, 2))
    assert statements(lambda: run(table, 9)) <= few


@pytest.mark.parametrize("operation", OPERATIONS)
def test_snapshots_and_files_cost_no_statements(lake: quacklake.Lake, operation: str) -> None:
    run, table = OPERATIONS[operation], lake.table("t")
    run(table, 1)
    early = statements(lambda: run(table, 3))
    grow(lake, 20)
    assert statements(lambda: run(table, 4)) <= early


def test_reading_costs_the_same_whatever_the_lake_holds(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    table.to_arrow()
    early = statements(table.to_arrow)
    counted = statements(table.count)
    grow(lake, 20)
    for number in range(8):
        lake.create_table(f"other_{number}", rows(0, 1))
    table.to_arrow()  # the schema has a new version
    assert statements(table.to_arrow) <= early
    assert statements(table.count) <= counted


def test_a_transaction_over_several_tables_costs_a_few_statements_for_each(lake: quacklake.Lake) -> None:
    for number in range(9):
        lake.create_table(f"t{number}", rows(0, 1))

    def load(tables: int, count: int) -> int:
        def work() -> None:
            with lake.transaction() as tx:
                for number in range(tables):
                    tx.table(f"t{number}").append(rows(0, count))

        return statements(work)

    load(9, 1)
    one, nine = load(1, 1), load(9, 1)
    assert nine - one <= 8 * 2, "an inlined insert is one statement, and looking up its table another"
    load(9, 50)
    assert load(9, 50) - load(1, 50) <= 8, "files of many tables are registered together"


def test_listing_tables_is_one_statement(lake: quacklake.Lake) -> None:
    lake.tables()
    early = statements(lake.tables)
    for number in range(15):
        lake.create_table(f"more_{number}", {"id": pa.int64()})
    assert statements(lake.tables) == early
    assert len(lake.tables()) == 16
