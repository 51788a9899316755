"""Compaction by Spark: the same rows, row ids, history and reports as by our own engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.maintenance.policy import JobKind, Policy
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite

from .agreement import all_agree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.needs_spark("4.0")


def scattered(site: LakeSite) -> quacklake.Lake:
    """Small files of two partitions and two shapes, with deletes of each kind and inlined rows."""
    lake = site.lake()
    lake.create_table("t", {"id": pa.int64(), "k": pa.int32(), "x": pa.float64()}, partition_by="k")
    for start in range(0, 60, 20):
        ids = list(range(start, start + 20))
        lake.table("t").append(pa.table({"id": ids, "k": [i % 2 for i in ids], "x": [float(i * 7 % 60) for i in ids]}))
    lake.table("t").add_column("l", pa.list_(pa.int64()))
    for start in range(60, 120, 20):
        ids = list(range(start, start + 20))
        lake.table("t").append(
            pa.table(
                {"id": ids, "k": [i % 2 for i in ids], "x": [float(i * 7 % 60) for i in ids], "l": [[i] for i in ids]}
            )
        )
    lake.table("t").append(pa.table({"id": [200, 201], "k": [0, 1], "x": [1.0, None], "l": [[1], None]}))
    return lake


def test_spark_merges_flushes_rewrites_and_sorts(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 10)
    lake = scattered(site)
    spark = quacklake.spark(lake, session)
    merged = spark.merge_adjacent_files("t")
    assert (merged.files_before, merged.files_after, merged.rows) == (12, 4, 120)
    assert [waiting.what for waiting in merged.skipped] == ["6 files"]  # those from before a column was added
    flushed = spark.flush_inlined_data("t")
    assert (flushed.files_after, flushed.rows) == (2, 2)
    lake.table("t").delete("id % 20 < 15 AND id < 120 AND k = 0")
    lake.table("t").delete("id IN (1, 3, 5)")
    rewritten = spark.rewrite_data_files("t", delete_threshold=0.5)
    assert (rewritten.files_before, rewritten.rows) == (2, 12)
    first = lake._context.latest().id
    before = all_agree(site, session, versions=range(2, first + 1))
    spark = quacklake.spark(site.lake(), session)
    ordered = spark.optimize("t", order_by="x DESC")
    curved = spark.optimize("t", zorder=["id", "x"])
    assert (ordered.files_after, curved.files_after, curved.rows) == (2, 2, len(before))
    assert spark.merge_adjacent_files("t").snapshot is None
    after = all_agree(site, session, versions=[first, first + 1, first + 2])
    assert after == before
    lake = site.lake()
    assert list(lake.table("t").changes(since=first).to_pylist()) == [], "nobody has changed a row"
    report = lake.verify(deep=True)
    assert report.findings == ()


@pytest.mark.daily(0.22)
def test_maintenance_of_the_lake_lets_spark_compact(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0)
    spark = quacklake.spark(scattered(site), session)
    report = spark.maintain(Policy(small_files=4, small_ratio=1.0, orphans_every=None))
    assert [(job.job.kind, job.error) for job in report.jobs] == [(JobKind.MERGE, None)]
    assert report.jobs[0].report.files_after == 4
    all_agree(site, session)


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("other", ["delete", "drop"])
def test_a_compaction_that_others_overtake_is_planned_again(
    other: str, make_site: MakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quacklake.spark.maintenance import SparkFiles

    site = make_site("sqlite", 0)
    lake = scattered(site)
    rewrite, turns = SparkFiles.rewrite, iter([other])

    def overtaken(self: SparkFiles, *given: object) -> object:
        turn = next(turns, None)
        if turn == "delete":
            lake.table("t").delete("id IN (2, 4)")
        elif turn == "drop":
            lake.drop_table("t")
        return rewrite(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(SparkFiles, "rewrite", overtaken)
    report = quacklake.spark(lake, session).optimize("t")
    if other == "drop":
        assert (report.snapshot, len(report.skipped)) == (None, 2)
        return
    assert (report.skipped, report.rows) == ((), 120)
    assert {row[1] for row in all_agree(site, session)} == {str(i) for i in [*range(120), 200, 201] if i not in (2, 4)}
