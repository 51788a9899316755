"""Expressions translated from DuckDB to Spark give the same values, of the same types, for every edge value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import quacklake
from tests.seeds import LONG, chance, some

from .differential import compare, expressions, make_table, shared_aggregates
from .expressions import aggregates, casts
from .view_differential import views_of_lake, views_of_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from .view_differential import ViewTally

pytestmark = pytest.mark.needs_spark("4.1", before="4.2")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Lake]:
    home = tmp_path_factory.mktemp("differential")
    with quacklake.connect(f"sqlite:///{home}/lake.db", data_path=str(home / "data")) as lake:
        make_table(lake)
        yield lake


@pytest.mark.parametrize("kind", ["calls", "casts", "aggregates"])
def test_expressions_give_the_same_values_or_are_refused(
    kind: str, lake: quacklake.Lake, session: SparkSession
) -> None:
    spark = quacklake.spark(lake, session)
    texts = {
        "calls": lambda: expressions(session, chance("calls")).some(20_000 if LONG else 250),
        "casts": lambda: some(casts(), 120, "expressions in Spark", kind),
        "aggregates": lambda: some(aggregates(shared_aggregates(session)), 300, "expressions in Spark", kind),
    }[kind]()
    found = compare(lake, spark, texts, rows=kind != "aggregates")
    assert found.different == {}
    assert len(found.translated) > 3


@pytest.mark.parametrize("compared", [views_of_lake, views_of_spark])
def test_views_give_the_same_rows_to_duckdb_and_spark(
    compared: Callable[..., ViewTally], lake: quacklake.Lake, session: SparkSession
) -> None:
    dice = chance(compared.__name__)
    made = expressions(session, dice)
    found = compared(lake, quacklake.spark(lake, session), made, dice, 1000 if LONG else 8)
    assert found.different == {}
    assert found.given > 0


#: Expressions that once gave Spark another value or type than DuckDB, and whether they are translated now.
MENDED = {
    "ceil(h64)": True,  # -0.5 is -0.0
    "ceiling(f64)": True,
    "floor(f64)": True,
    "list_value()": True,  # a list of INTEGER
    "CASE WHEN bo THEN lv ELSE [] END": True,
    "CASE WHEN bo THEN [1] ELSE [2.5] END": False,
    "(u64 / f32)": True,  # a FLOAT
    "list_contains(li, g64)": False,  # DuckDB casts the list, not what it looks for
    "list_contains(li, 2.5)": False,
    "list_contains(li, 3)": True,
}


def test_expressions_that_once_differed_do_not(lake: quacklake.Lake, session: SparkSession) -> None:
    found = compare(lake, quacklake.spark(lake, session), list(MENDED))
    assert found.different == {}
    assert {text: text in found.translated for text in MENDED} == MENDED
