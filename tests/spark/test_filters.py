"""A filter may be SQL text, a pyarrow.compute expression or a Spark column, for local methods and on Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as f

import quacklake
from quacklake.errors import PredicateError, UnsupportedFeatureError
from tests.conformance.conftest import MakeSite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_spark("4.0")

DAY = dt.date(2024, 5, 17)
SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("cost", pa.decimal128(8, 2)), ("on", pa.bool_())]
)
ROWS = [
    {"id": n, "name": None if n == 3 else f"n'{n}", "day": DAY + dt.timedelta(n), "cost": Decimal(n) / 4, "on": n > 4}
    for n in range(8)
]

#: The same filter as SQL text, as an Arrow expression and as a column.
ALIKE: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
    "range": (
        "id >= 2 AND id < 5",
        lambda: (pc.field("id") >= 2) & (pc.field("id") < 5),
        lambda: f.col("id").between(2, 4),
    ),
    "text": ("name = 'n''1'", lambda: pc.field("name") == "n'1", lambda: f.col("name") == "n'1"),
    "null": (
        'name IS NULL OR "on"',
        lambda: pc.field("name").is_null() | pc.field("on"),
        lambda: f.col("name").isNull() | f.col("on"),
    ),
    "not": ("NOT id = 1", lambda: ~(pc.field("id") == 1), lambda: f.col("id") != 1),
    "list": ("id IN (1, 6)", lambda: pc.field("id").isin([1, 6]), lambda: f.col("id").isin(1, 6)),
    "day": (
        "day > DATE '2024-05-20'",
        lambda: pc.field("day") > pa.scalar(dt.date(2024, 5, 20)),
        lambda: f.col("day") > dt.date(2024, 5, 20),
    ),
    "cost": (
        "cost < 0.75",
        lambda: pc.field("cost") < pa.scalar(Decimal("0.75"), pa.decimal128(8, 2)),
        lambda: f.col("cost") < Decimal("0.75"),
    ),
}


@pytest.fixture
def lake(make_site: MakeSite) -> quacklake.Lake:
    lake = make_site("sqlite", 0).lake()
    lake.create_table("t", SCHEMA).append(pa.Table.from_pylist(ROWS, SCHEMA))
    return lake


def ids(table: quacklake.Table, where: Any = None) -> list[int]:
    return sorted(table.to_arrow(["id"], where).column("id").to_pylist())


@pytest.mark.parametrize("name", ALIKE)
def test_every_form_of_a_filter_finds_the_same_rows(lake: quacklake.Lake, session: SparkSession, name: str) -> None:
    text, *others = ALIKE[name][0], ALIKE[name][1](), ALIKE[name][2]()
    table, spark = lake.table("t"), quacklake.spark(lake, session)
    wanted = ids(table, text)
    assert 0 < len(wanted) < len(ROWS)
    for where in (text, *others):
        assert ids(table, where) == wanted
        assert table.scan().where(where).count() == table.count(where) == len(wanted)
        assert sorted(row.id for row in spark.table("t", where=where).collect()) == wanted


def test_rows_are_changed_by_every_form_of_a_filter(lake: quacklake.Lake, session: SparkSession) -> None:
    table, spark = lake.table("t"), quacklake.spark(lake, session)
    assert table.delete(f.col("id") == 0) == 1
    assert table.update({"name": "x"}, f.col("id") == 1) == 1
    assert spark.delete("t", pc.field("id") == 2).rows_deleted == 1
    assert spark.update("t", {"name": "y"}, (pc.field("id") == 4) & ~pc.field("on")).rows_updated == 1
    assert table.overwrite(pa.Table.from_pylist([ROWS[7]], SCHEMA), f.col("id") >= 6) == 1
    spark.overwrite("t", spark.table("t", where="id = 5"), where=pc.field("id") == 5)
    assert ids(table) == [1, 3, 4, 5, 7]
    assert ids(table, "name IN ('x', 'y')") == [1, 4]
    assert lake.verify().ok


def test_what_only_one_side_can_compute_is_refused(lake: quacklake.Lake, session: SparkSession) -> None:
    table, spark = lake.table("t"), quacklake.spark(lake, session)
    for column in (f.lower(f.col("name")) == "x", f.expr("id > 1"), f.udf(lambda _: True, "boolean")(f.col("id"))):
        with pytest.raises(UnsupportedFeatureError, match="SQL of the lake"):
            table.delete(column)
    with pytest.raises(UnsupportedFeatureError, match="same meaning"):
        spark.delete("t", pc.utf8_lower(pc.field("name")) == "x")
    with pytest.raises(PredicateError, match="Spark column"):
        table.delete(5)  # type: ignore[arg-type]
    assert len(ids(table)) == len(ROWS)
