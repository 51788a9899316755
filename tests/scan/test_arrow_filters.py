"""Filters as expressions of ``pyarrow.compute``, on columns of every type."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import quacklake
from quacklake.core.format.bounds import ANYTHING
from quacklake.core.format.schema import from_arrow
from quacklake.core.scan import to_predicate
from quacklake.errors import PredicateError

_DAY = dt.datetime(2020, 1, 1)
_VALUES: dict[str, tuple[pa.DataType, Any, Any]] = {
    **{f"uint{bits}": (getattr(pa, f"uint{bits}")(), 3, 4) for bits in (8, 16, 32)},
    "uint64": (pa.uint64(), 2**63 + 1, 2**63 + 2),
    **{f"int{bits}": (getattr(pa, f"int{bits}")(), -3, 4) for bits in (8, 16, 32, 64)},
    "float32": (pa.float32(), 0.1, 2.5),
    "float64": (pa.float64(), 0.1, 2.5),
    "decimal": (pa.decimal128(10, 2), Decimal("1.50"), Decimal("2.00")),
    "string": (pa.string(), "a", "b"),
    "binary": (pa.binary(), b"a", b"b"),
    "boolean": (pa.bool_(), False, True),
    "date": (pa.date32(), dt.date(2020, 1, 1), dt.date(2020, 1, 2)),
    **{unit: (pa.timestamp(unit), _DAY, _DAY + dt.timedelta(1)) for unit in ("s", "ms", "us", "ns")},
    "tz": (pa.timestamp("us", "UTC"), _DAY.replace(tzinfo=dt.UTC), _DAY.replace(tzinfo=dt.UTC) + dt.timedelta(1)),
    "time": (pa.time64("us"), dt.time(1), dt.time(2)),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Table]:
    folder = tmp_path_factory.mktemp("filters")
    with quacklake.connect(f"sqlite:///{folder}/l.db", data_path=folder / "data", data_inlining_row_limit=0) as lake:
        table = lake.create_table("t", pa.schema([(name, type_) for name, (type_, _, _) in _VALUES.items()]))
        for which in (1, 2):  # a file each
            table.append(pa.table({name: pa.array([found[which]], found[0]) for name, found in _VALUES.items()}))
        table.append(pa.table({name: pa.array([None], type_) for name, (type_, _, _) in _VALUES.items()}))
        yield table


@pytest.mark.parametrize("name", _VALUES)
def test_a_column_is_compared_with_plain_and_with_typed_values(name: str, table: quacklake.Table) -> None:
    type_, low, high = _VALUES[name]
    column = pc.field(name)
    typed = pa.scalar(low, type_)
    for expression, expected in (
        (column == typed, 1),
        (typed == column, 1),
        (column >= typed, 2),
        (column > typed, 1),
        (column.isin(pa.array([low, high], type_)), 2),
        (column.is_valid(), 2),
        (column.is_null(), 1),
        (~(column == typed), 1),
        (column.cast(type_) == typed, 1),
        ((column > typed) | column.is_null(), 2),
    ):
        assert table.to_arrow(columns=[name], where=expression).num_rows == expected, str(expression)
    if name not in ("float32", "uint64"):  # 0.1 is another number there, and Arrow takes plain numbers for signed ones
        assert table.to_arrow(columns=[name], where=column == low).num_rows == 1
        assert table.to_arrow(columns=[name], where=column >= high).num_rows == 1


@pytest.mark.parametrize(
    "name", [name for name in _VALUES if name.startswith(("int", "uint", "float")) and name != "uint64"]
)
def test_numbers_are_compared_with_numbers_of_other_types(name: str, table: quacklake.Table) -> None:
    for one in (1, 1.0, pa.scalar(1, pa.int8()), pa.scalar(1, pa.uint8()), pa.scalar(1.0, pa.float32())):
        expected = sum(float(value) > 1 for value in _VALUES[name][1:])
        assert table.to_arrow(columns=[name], where=pc.field(name) > one).num_rows == expected, repr(one)


def test_files_are_ruled_out_by_unsigned_columns(table: quacklake.Table) -> None:
    for name in ("uint8", "uint16", "uint32"):
        assert table.plan(pc.field(name) == 4).files.num_rows < 3


def test_a_cast_that_has_no_open_form_rules_nothing_out() -> None:
    schema = from_arrow(pa.schema([("a", pa.int64())]))
    assert to_predicate(pc.field("a").cast(pa.int8()) == 3, schema) is ANYTHING


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("string") == 5,
        pc.field("string") == pa.scalar(uuid.UUID(int=5), pa.uuid()),
        pc.field("date") > "x",
        pc.field("nowhere") == 1,
        pc.field("int8") + 1,
        pc.field("int8").isin(["a"]),
    ],
    ids=str,
)
def test_an_expression_that_does_not_fit_is_an_error_with_a_hint(
    expression: pc.Expression, table: quacklake.Table
) -> None:
    with pytest.raises(PredicateError) as caught:
        table.to_arrow(where=expression)
    assert caught.value.hint


def test_what_arrow_cannot_compare_is_an_error_with_a_hint(table: quacklake.Table) -> None:
    for name in ("uint64", "decimal"):
        with pytest.raises(PredicateError) as caught:
            table.to_arrow(where=pc.field(name) > 1)
        assert "own types" in (caught.value.hint or "")


def test_an_expression_that_fails_on_a_row_is_an_error(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", [{"a": 300}])
        with pytest.raises(PredicateError, match="fails on a row"):
            table.to_arrow(where=pc.field("a").cast(pa.int8()) == 3)
