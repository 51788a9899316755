"""A mistake in a user's rows or expressions is a user's error, and an outage is an error of storage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

import quacklake
from quacklake.errors import InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from quacklake.spark.lake import SparkLake

pytestmark = pytest.mark.needs_spark("4.0")

#: Expressions over ``id`` that fail for a row, and what is said of them.
WRONG = {
    "1 DIV (id - 50)": "DIVIDE_BY_ZERO",
    "CAST(concat('x', id) AS INT)": "CAST_INVALID_INPUT",
    "9223372036854775807 + id": "OVERFLOW",
    "array(1, 2)[CAST(id AS INT)]": "INVALID_ARRAY_INDEX",
    "raise_error('mine')": "mine",
}


@pytest.fixture
def spark(tmp_path: Path, session: SparkSession) -> SparkLake:
    lake = quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data"), data_inlining_row_limit=0
    )
    lake.sql("CREATE TABLE t(id BIGINT, v BIGINT)")
    lake.sql("INSERT INTO t SELECT i, i FROM range(100) r(i)")
    return quacklake.spark(lake, session)


def test_an_expression_that_fails_is_an_error_of_the_user(spark: SparkLake, session: SparkSession) -> None:
    version = spark.handle.context.latest().id
    for text, said in WRONG.items():
        with pytest.raises(InputError, match=said):
            spark.append("t", session.range(100).selectExpr("id", f"CAST({text} AS BIGINT) AS v"))
    assert spark.handle.context.latest().id == version


def test_so_it_is_in_every_statement(spark: SparkLake, session: SparkSession) -> None:
    text, said = next(iter(WRONG.items()))
    source = session.range(100).selectExpr("id", f"CAST({text} AS BIGINT) AS v")
    works: list[Callable[[], Any]] = [
        lambda: spark.sql(f"DELETE FROM t WHERE {text} = 1"),
        lambda: spark.sql(f"UPDATE t SET v = {text}"),
        lambda: spark.merge("t", source, on="id").when_matched_update_all().execute(),
        lambda: spark.create_table("u", source),
    ]
    version = spark.handle.context.latest().id
    for work in works:
        with pytest.raises(InputError, match=said):
            work()
    assert spark.handle.context.latest().id == version


def test_a_function_of_the_user_that_raises_is_an_error_of_the_user(spark: SparkLake, session: SparkSession) -> None:
    @f.udf("bigint")
    def fails(value):  # type: ignore[no-untyped-def]  # Spark would read types as those of Arrow
        raise OSError(f"no {value}")

    frame: DataFrame = session.range(10).select("id", fails("id").alias("v"))
    with pytest.raises(InputError, match="OSError: no"):
        spark.append("t", frame)
    with pytest.raises(InputError, match="OSError: no"):
        spark.merge("t", frame, on="id").when_matched_update_all().execute()


def test_a_store_that_fails_is_one_of_storage(spark: SparkLake, session: SparkSession) -> None:
    folder = Path(str(spark.handle.context.store.root))
    files = list(folder.rglob("*.parquet"))
    copy = session.createDataFrame(session.range(100).selectExpr("id", "id AS v").collect())
    for file in files:
        file.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(StorageError):
        spark.sql("UPDATE t SET v = 1 WHERE v > 3")
    shutil.rmtree(folder)
    folder.write_text("a file where the folder was")
    with pytest.raises(StorageError):
        spark.append("t", copy)
