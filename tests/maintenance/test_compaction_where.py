"""Compaction of some files: those that may have rows which satisfy a filter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import InputError, PredicateError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    """Two days of three files each, and two files of one day more with deleted rows."""
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as found:
        found.options.set("data_inlining_row_limit", 0)
        table = found.create_table("t", [{"day": 0, "id": 0}])
        table.delete()
        table.set_partitioned_by("day")
        for number in range(6):
            table.append([{"day": 1 + number % 2, "id": 10 * number + at} for at in range(5)])
        yield found


def files(lake: quacklake.Lake, day: int) -> int:
    return int(lake.table("t").plan(f"day = {day}").files.num_rows)


def rows(lake: quacklake.Lake) -> list[int]:
    return sorted(row["id"] for row in lake.table("t").to_pylist())


def test_a_merge_takes_only_the_files_of_a_partition(lake: quacklake.Lake) -> None:
    before = rows(lake)
    report = lake.table("t").merge_adjacent_files(where="day = 1")
    assert (report.files_before, report.files_after) == (3, 1)
    assert (files(lake, 1), files(lake, 2)) == (1, 3)
    assert rows(lake) == before


def test_a_rewrite_takes_only_the_files_that_may_have_such_rows(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    table.delete("id % 10 = 0")
    report = table.rewrite_data_files(0.1, where="id BETWEEN 0 AND 4")
    assert (report.files_before, report.files_after, report.rows) == (1, 1, 4)
    assert table.rewrite_data_files(0.1).files_before == 5


def test_an_optimize_takes_only_the_files_of_a_partition(lake: quacklake.Lake) -> None:
    report = lake.table("t").optimize(order_by="id DESC", where="day = 2")
    assert (report.files_before, report.files_after) == (3, 1)
    assert (files(lake, 1), files(lake, 2)) == (3, 1)


def test_a_filter_that_nothing_satisfies_leaves_all_as_it_is(lake: quacklake.Lake) -> None:
    assert lake.table("t").merge_adjacent_files(where="day = 7").snapshot is None


def test_a_filter_makes_sense_for_one_table(lake: quacklake.Lake) -> None:
    table, before = lake.table("t"), lake.current_snapshot()
    for where in ("dya = 1", "day = ", "day = 1; DROP TABLE t"):
        with pytest.raises(PredicateError):
            table.merge_adjacent_files(where=where)
        with pytest.raises(PredicateError):
            table.optimize(where=where)
    for run in (lake.maintenance.merge_adjacent_files, lake.maintenance.rewrite_data_files):
        with pytest.raises(InputError, match="one table"):
            run(where="day = 1")
    assert lake.current_snapshot() == before


def test_sql_takes_a_filter(lake: quacklake.Lake) -> None:
    found = lake.sql("SELECT files_processed, files_created FROM lake.merge_adjacent_files('t', filter => 'day = 1')")
    assert found.fetchall() == [(3, 1)]
    lake.table("t").delete("id = 11")
    call = "FROM ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.1, \"where\" => 'day = 2')"
    assert lake.sql(f"SELECT files_processed {call}").fetchall() == [(1,)]
    lake.sql("CALL lake.optimize('t', order_by => 'id DESC', filter => 'day = 2')")
    assert (files(lake, 1), files(lake, 2)) == (1, 1)
    with pytest.raises(InputError, match="one table"):
        lake.sql("CALL lake.merge_adjacent_files(filter => 'day = 1')")
