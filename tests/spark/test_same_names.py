"""Tables of one name in several schemas, in one query of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import quacklake
from quacklake.errors import SqlError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

#: Queries, and what they give: the tables have the ids 1 and 2, and the names n.
QUERIES = {
    "SELECT main.t.id, s1.t.id FROM main.t, s1.t": [(1, 2)],
    "SELECT lake.main.t.id, s1.t.id FROM t, s1.t WHERE main.t.id < s1.t.id": [(1, 2)],
    "SELECT s1.t.id AS a, lake.t.id AS b FROM lake.t JOIN lake.s1.t ON lake.t.id + 1 = lake.s1.t.id": [(2, 1)],
    "SELECT * FROM main.t, s1.t": [(1, "main", 2, "s1")],
    "SELECT x.id, main.t.id FROM s1.t AS x, main.t": [(2, 1)],
    "SELECT main.t.n FROM main.t WHERE EXISTS (SELECT 1 FROM s1.t WHERE s1.t.id > main.t.id)": [("main",)],
    "SELECT t.n FROM s1.t UNION ALL SELECT n FROM s1.t WHERE t.id = 2": [("s1",), ("s1",)],
}


def test_tables_of_one_name_in_two_schemas_are_told_apart(tmp_path: Path, session: SparkSession) -> None:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data"))
    lake.sql("CREATE SCHEMA s1")
    lake.sql("CREATE TABLE t AS SELECT 1 AS id, 'main' AS n")
    lake.sql("CREATE TABLE s1.t AS SELECT 2 AS id, 's1' AS n")
    spark = quacklake.spark(lake, session)
    for text, rows in QUERIES.items():
        assert [tuple(row) for row in spark.sql(text).collect()] == rows, text
    with pytest.raises(SqlError, match="id"):
        spark.sql("SELECT id FROM main.t, s1.t")
