"""``Table`` takes DataFrames of Spark as it takes other frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from quacklake.errors import InputError, SchemaMismatchError
from tests.conformance.conftest import MakeSite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_table_takes_frames_of_spark(make_site: MakeSite, session: SparkSession) -> None:
    lake = make_site("sqlite", 10).lake()
    table = lake.create_table("t", pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"]}), primary_key="id")
    assert table.append(session.sql("SELECT id, 'c' AS v FROM range(3, 103)")) == 100
    assert table.append(session.sql("SELECT 103L AS id, 'c' AS v")) == 1
    done = table.merge(session.sql("SELECT id, 'm' AS v FROM range(2, 202)"))
    assert (done.updated, done.inserted) == (102, 98)
    assert table.merge(session.sql("SELECT 2L AS id, 'n' AS v"), on="id").updated == 1
    rows = {1: "a", 2: "n", **dict.fromkeys(range(3, 202), "m")}
    assert {row["id"]: row["v"] for row in table.to_pylist()} == rows
    assert table.overwrite(session.sql("SELECT id, 'o' AS v FROM range(100)"), "id < 100") == 100
    assert table.count("v = 'o'") == 100
    assert table.count() == 202
    assert table.overwrite(session.sql("SELECT 1L AS id, 'p' AS v")) == 1
    assert table.to_pylist() == [{"id": 1, "v": "p"}]
    assert lake.verify(deep=True).ok


def test_what_spark_cannot_do_is_refused_and_nothing_is_changed(make_site: MakeSite, session: SparkSession) -> None:
    lake = make_site("sqlite", 10).lake()
    table = lake.create_table("t", {"id": int})
    version, frame = lake.current_snapshot(), session.sql("SELECT 1L AS id")
    with pytest.raises(InputError, match="evolve= or dedup="):
        table.append(frame, dedup=True)
    with pytest.raises(InputError, match="open transaction"), lake.transaction() as tx:
        tx.table("t").append(frame)
    with pytest.raises(SchemaMismatchError):
        table.append(session.sql("SELECT 'x' AS other"))
    assert lake.current_snapshot() == version
    assert list(lake.handle.context.store.list()) == []
