"""Predicates that an engine makes of values, and the files that they rule out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import quacklake
from quacklake.extend.predicates import ANYTHING, compare, every, to_predicate
from quacklake.extend.reads import plan_read


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    """A table of three files, whose numbers are 0 to 9, 10 to 19 and 20 to 29."""
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", data_inlining_row_limit=0) as made:
        made.create_table("t", {"n": pa.int32(), "s": pa.string()})
        for first in (0, 10, 20):
            names = [f"{number:03}" * 200 for number in range(first, first + 10)]
            made.table("t").append(pa.table({"n": pa.array(range(first, first + 10), pa.int32()), "s": names}))
        yield made


def planned(lake: quacklake.Lake, operator: Literal["<=", ">="], value: pa.Scalar, column: str = "n") -> int:
    table = lake.table("t").info
    return lake.handle.view().plan(table, compare(table.schema.find(column), operator, value)).files.num_rows


@pytest.mark.parametrize(
    ("operator", "value", "files"),
    [(">=", 10, 2), (">=", 20, 1), (">=", 30, 0), ("<=", 9, 1), ("<=", 10, 2), ("<=", -1, 0)],
)
def test_files_without_a_value_on_that_side_are_left_out(
    lake: quacklake.Lake, operator: Literal["<=", ">="], value: int, files: int
) -> None:
    assert planned(lake, operator, pa.scalar(value, pa.int64())) == files
    assert len(plan_read(lake, "t", f"n {operator} {value}").files) == files


@pytest.mark.parametrize("value", [pa.scalar(None, pa.int64()), pa.scalar(1 << 40), pa.scalar("ten")])
def test_a_value_that_the_column_cannot_hold_rules_nothing_out(lake: quacklake.Lake, value: pa.Scalar) -> None:
    assert planned(lake, ">=", value) == 3


def test_a_text_that_is_longer_than_bounds_are_rules_out_no_file_that_has_it(lake: quacklake.Lake) -> None:
    for number, files in ((0, 3), (19, 2), (29, 1)):
        assert planned(lake, ">=", pa.scalar(f"{number:03}" * 200), "s") == files
    for number, files in ((0, 1), (19, 2), (29, 3)):
        assert planned(lake, "<=", pa.scalar(f"{number:03}" * 200), "s") == files


def test_no_conditions_say_nothing(lake: quacklake.Lake) -> None:
    schema = lake.table("t").info.schema
    assert every([]) == every([ANYTHING, to_predicate(None, schema)]) == ANYTHING
