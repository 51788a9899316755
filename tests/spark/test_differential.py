"""What is translated from DuckDB to Spark gives the same values, of the same types, for every edge value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import quacklake
from tests.seeds import LONG, some

from .differential import aggregates, calls, casts, compare, make_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_spark("4.1", before="4.2")


@pytest.mark.parametrize("kind", ["calls", "casts", "aggregates"])
def test_expressions_give_the_same_values_or_are_refused(kind: str, tmp_path: Path, session: SparkSession) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as lake:
        make_table(lake)
        spark = quacklake.spark(lake, session)
        many = {"calls": lambda: calls(20_000 if LONG else 250), "casts": casts, "aggregates": aggregates}[kind]()
        texts = many if kind == "calls" else some(many, 120, kind)
        found = compare(lake, spark, texts, rows=kind != "aggregates")
    assert found.different == {}
    assert len(found.translated) > 40
