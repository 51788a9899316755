"""Whole numbers of 128 bits: exact in the catalog, and never rounded by a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import ConstraintError
from tests.catalog.stock import Stock

KEPT = [0, -1, 2**53, 2**70, -(2**100), 3 * 2**60]
LOST = [2**53 + 1, 2**70 + 1, -(2**64) - 1, 2**127 - 1]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as found:
        yield found


def values(lake: quacklake.Lake, table: str = "h") -> list[int]:
    return sorted(int(row[0]) for row in lake.sql(f"SELECT DISTINCT a FROM {table} WHERE a IS NOT NULL").fetchall())


def test_numbers_that_a_double_holds_go_through_files(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE h (a HUGEINT)")
    for number in KEPT:
        lake.sql(f"INSERT INTO h SELECT {number}::HUGEINT FROM range(20)")
    lake.sql("INSERT INTO h VALUES (NULL)")
    lake.table("h").flush_inlined_data()
    lake.table("h").merge_adjacent_files()
    assert values(lake) == sorted(KEPT)
    assert lake.table("h").count("a IS NULL") == 1


@pytest.mark.parametrize("kind", ["HUGEINT", "UHUGEINT"])
def test_a_number_that_would_be_rounded_is_refused_by_files_and_kept_by_the_catalog(
    kind: str, lake: quacklake.Lake
) -> None:
    lake.sql(f"CREATE TABLE h (a {kind})")
    lost = [number for number in LOST if number > 0] if kind == "UHUGEINT" else LOST
    for number in lost:
        with pytest.raises(ConstraintError, match="rounded"):
            lake.sql(f"INSERT INTO h SELECT {number}::{kind} FROM range(20)")
        lake.sql(f"INSERT INTO h VALUES ({number})")
    lake.sql("INSERT INTO h VALUES (5), (7)")
    (skipped,) = lake.table("h").flush_inlined_data().skipped
    assert (skipped.what, "a file would change" in skipped.reason) == (f"{len(lost)} rows", True)
    assert sum(file["record_count"] for file in lake.table("h").files().to_pylist()) == 2
    assert lake.sql("SELECT count(*) FROM h").fetchall() == [(len(lost) + 2,)]
    assert [report.skipped for report in lake.maintenance.flush_inlined_data()] == [(skipped,)]
    assert values(lake) == sorted([*lost, 5, 7])
    assert not lake.verify(deep=True).errors


@pytest.mark.parametrize("column", ["HUGEINT[]", "STRUCT(x HUGEINT)", "MAP(VARCHAR, HUGEINT)"])
def test_nested_numbers_are_looked_at_too(column: str, lake: quacklake.Lake) -> None:
    lake.sql(f"CREATE TABLE h (a {column})")
    texts = {"HUGEINT[]": "[{0}]", "STRUCT(x HUGEINT)": "{{'x': {0}}}", "MAP(VARCHAR, HUGEINT)": "MAP {{'k': {0}}}"}
    lake.sql(f"INSERT INTO h SELECT {texts[column].format('7::HUGEINT')} FROM range(20)")
    with pytest.raises(ConstraintError, match="rounded"):
        lake.sql(f"INSERT INTO h SELECT {texts[column].format(f'{2**70 + 1}::HUGEINT')} FROM range(20)")
    assert lake.table("h").count() == 20


def test_a_deep_verification_tells_of_numbers_that_stock_may_have_rounded(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE h (a HUGEINT, b HUGEINT)")
        assert lake.verify(deep=True).ok
    with Stock() as stock:
        stock.run(url, f"INSERT INTO h VALUES ({2**70 + 1}, 5)", "CALL ducklake_flush_inlined_data('l')")
    with quacklake.connect(url) as lake:
        assert values(lake) == [2**70]
        assert [(each.code, each.severity) for each in lake.verify(deep=True).findings] == [("V089", "warning")]
