"""DELETE, UPDATE and MERGE on Spark: everybody sees the same rows under the same row ids afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake import expr
from quacklake.errors import CommitConflict, ConstraintError, InputError, SchemaMismatchError, UnsupportedFeatureError
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite

from .agreement import all_agree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def furnished(site: LakeSite, *, partitioned: bool = True) -> quacklake.Lake:
    """A table with files of several kinds: with deletes of each kind, of older columns, and inlined rows."""
    stock = site.stock()
    stock.execute("CREATE TABLE t(id BIGINT, k INTEGER, v VARCHAR)")
    if partitioned:
        stock.execute("ALTER TABLE t SET PARTITIONED BY (k)")
    stock.execute("INSERT INTO t SELECT i, i % 2, 'v' || i FROM range(100) r(i)")
    stock.execute("ALTER TABLE t ADD COLUMN d DOUBLE DEFAULT 0.5")
    stock.execute("INSERT INTO t SELECT i, i % 2, 'v' || i, i / 4 FROM range(100, 200) r(i)")
    stock.execute("DELETE FROM t WHERE id < 200 AND id % 5 = 0 AND id % 2 = 0")
    stock.execute("DELETE FROM t WHERE id IN (3, 103)")
    stock.execute("INSERT INTO t SELECT i, i % 2, 'v' || i, i / 4 FROM range(200, 205) r(i)")
    stock.execute("ALTER TABLE t RENAME COLUMN v TO w")
    stock.execute("UPDATE t SET w = 'moved' WHERE id IN (7, 201)")
    stock.execute("INSERT INTO t VALUES (300, NULL, NULL, NULL)")
    return site.lake()


def ids(rows: Any) -> dict[int, str]:
    return {int(row[1]): row[0] for row in rows}


def test_spark_deletes_updates_and_merges_what_stock_and_we_see(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 10)
    lake = furnished(site)
    before = all_agree(site, session)["t"]
    spark = quacklake.spark(site.lake(), session)
    done = spark.delete("t", "id % 3 = 0")
    assert (done.rows_deleted, done.rows_updated, done.files_added) == (
        sum(int(row[1]) % 3 == 0 for row in before),
        0,
        0,
    )
    after = all_agree(site, session)["t"]
    assert set(after) == {row for row in before if int(row[1]) % 3}
