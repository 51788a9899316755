"""Lakes that real releases of the reference implementation have made read as those releases read them."""

from __future__ import annotations

from pathlib import Path

import pytest

import quacklake
from quacklake.errors import ReadOnlyError
from tests.golden.lakes import LAKES, GoldenLake

from .clients import LONG, plain_duckdb
from .feeds import check_single_snapshots
from .history import canonical, ours_at

pytestmark = pytest.mark.daily(0.2)

OLD = [lake for lake in LAKES if lake.version != "1.0"]


def opened(golden: GoldenLake, folder: Path) -> quacklake.Lake:
    copy = golden.copy(folder)
    return quacklake.connect(copy.url, data_path=copy.data_path, override_data_path=True, duckdb_threads=1)


@pytest.mark.parametrize("golden", LAKES, ids=lambda lake: lake.name)
def test_f13_1_every_snapshot_reads_as_the_release_that_wrote_it_read_it(golden: GoldenLake, tmp_path: Path) -> None:
    with opened(golden, tmp_path) as lake, plain_duckdb() as scratch:
        assert lake.version == golden.version
        assert lake.snapshots().column("snapshot_id").to_pylist() == sorted(golden.expected)
        for version, expected in golden.expected.items():
            _, tables = ours_at(lake, version, scratch)
            assert {".".join(name) for name in tables} == set(expected), f"tables at {version}"
            for name, table in expected.items():
                found = tables[tuple(name.split("."))]  # type: ignore[index]
                assert found.columns == tuple((c, canonical(t)) for c, t in table.columns), f"{name} at {version}"
                rows = sorted(found.rows, key=lambda row: [(value is not None, value or "") for value in row[1:]])
                assert tuple(row[1:] for row in rows) == table.rows, f"{name} at {version}"
                assert len({row[0] for row in rows}) == len(rows), f"row ids of {name} at {version}"


@pytest.mark.parametrize("golden", LAKES if LONG else LAKES[3:4], ids=lambda lake: lake.name)
def test_the_change_feed_is_the_difference_of_snapshots(golden: GoldenLake, tmp_path: Path) -> None:
    with opened(golden, tmp_path) as lake:
        check_single_snapshots(lake, lake.current_snapshot())


@pytest.mark.parametrize("golden", LAKES, ids=lambda lake: lake.name)
def test_filters_find_the_same_rows_as_reading_everything(golden: GoldenLake, tmp_path: Path) -> None:
    filters = {
        "main.things": [
            "grade = 7",
            "grade IS NULL",
            "title = 'THING 10'",
            "born < '1970-01-01'",
            "price > 1000",
            "id = 305",
        ],
        "main.numbers": ["id = 505", "name = 'changed'", "value < 0", "value IS NULL", "id BETWEEN 95 AND 152"],
        "sales.days": ["region = 'süd'", "day >= '2025-01-01'", "amount > 1010 OR region = 'a b/c'"],
    }
    with opened(golden, tmp_path) as lake, plain_duckdb() as scratch:
        for name, conditions in filters.items():
            table = lake.table(name)
            scratch.register("everything", table.to_arrow())
            for condition in conditions:
                (expected,) = scratch.execute(f"SELECT count(*) FROM everything WHERE {condition}").fetchall()
                assert (table.to_arrow(where=condition).num_rows,) == expected, f"{name}: {condition}"
                assert (table.count(condition),) == expected, f"{name}: {condition}"


@pytest.mark.parametrize("golden", OLD, ids=lambda lake: lake.name)
def test_a_lake_of_an_old_format_refuses_every_write_and_stays_as_it_is(golden: GoldenLake, tmp_path: Path) -> None:
    copy = golden.copy(tmp_path)
    before = sorted(path for path in Path(copy.data_path).rglob("*") if path.is_file())
    with quacklake.connect(copy.url, data_path=copy.data_path, override_data_path=True) as lake:
        things, count = lake.table("main.numbers"), lake.table("main.numbers").count()
        rows = [{"id": 1, "name": "x", "value": 1}]
        attempts = [
            lambda: things.append(rows),
            lambda: things.append(rows * 100),
            lambda: things.delete("id = 3"),
            lambda: things.delete(),
            lambda: things.update({"name": "x"}, "id = 3"),
            lambda: things.merge(rows, on="id"),
            lambda: things.overwrite(rows),
            lambda: lake.create_table("new", rows),
            lambda: lake.drop_table("main.numbers"),
            lambda: lake.rename_table("main.numbers", "other"),
            lambda: lake.create_schema("new"),
            lambda: lake.drop_schema("sales", cascade=True),
        ]
        for attempt in attempts:
            with pytest.raises(ReadOnlyError):
                attempt()
        assert lake.current_snapshot() == max(golden.expected)
        assert things.count() == count
    assert sorted(path for path in Path(copy.data_path).rglob("*") if path.is_file()) == before


@pytest.mark.parametrize("golden", [lake for lake in LAKES if lake.version == "1.0"], ids=lambda lake: lake.name)
def test_a_lake_of_the_current_format_can_be_written(golden: GoldenLake, tmp_path: Path) -> None:
    with opened(golden, tmp_path) as lake:
        numbers, things = lake.table("main.numbers"), lake.table("main.things")
        counts = numbers.count(), things.count()
        assert numbers.delete("id IN (200, 1000)") == 2
        assert numbers.update({"name": "again"}, "id IN (201, 505, 1001)") == 3
        assert numbers.append([{"id": 5000, "name": "new", "value": None}]) == 1
        assert things.delete("id IN (101, 201, 302)") == 3
        assert things.update({"title": "again", "grade": 1}, "id IN (1, 102, 200, 303)") == 4
        assert things.append(things.to_arrow(where="id = 303")) == 1
        assert (numbers.count(), things.count()) == (counts[0] - 1, counts[1] - 2)
        assert numbers.count("name = 'again'") == 3
        assert things.count("title = 'again' AND grade = 1") == 5
        lake.table("sales.days").delete("region = 'north' OR amount >= 1000")
        assert lake.table("sales.days").count("region IN ('north', 'west')") == 0
