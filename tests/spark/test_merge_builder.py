"""One script of the merge builder changes the same rows in this process and on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake import Table, expr
from quacklake.core.operations.statements import MergeBuilder, MergeResult
from tests.conformance.conftest import MakeSite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = (
    "SELECT * FROM VALUES (2L, 200, 'B'), (3L, 300, 'C'), (4L, NULL, 'D'), (90L, 9, 'Z'), (100L, 0, 'Y') AS s(id, n, s)"
)


def _script(builder: MergeBuilder) -> MergeResult:
    return (
        builder.when_matched_delete("target.n IS NULL")
        .when_matched_update({"n": expr("target.n + source.n")}, "source.n > 100")
        .when_matched_update_all()
        .when_not_matched_insert({"id": expr("source.id"), "s": expr("lower(source.s)")}, "source.n > 5")
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"s": expr("target.s || '!'"), "n": 7}, "target.id = 1")
        .when_not_matched_by_source_delete()
        .execute()
    )


def test_one_script_changes_the_same_rows_on_both_engines(make_site: MakeSite, session: SparkSession) -> None:
    lake = make_site("sqlite", 10).lake()
    frame = session.sql(_SOURCE)

    def filled(name: str) -> Table:
        columns = {"id": pa.array(range(1, 31), pa.int64()), "n": pa.array([10, 20, None, *range(27)], pa.int32())}
        return lake.create_table(name, pa.table({**columns, "s": ["a", "b", "c"] * 10}))

    def rows(table: Table) -> list[tuple[object, ...]]:
        return sorted(tuple(row.values()) for row in table.scan(row_ids=True).to_pylist() if row["id"] < 9)

    here, there = filled("here"), filled("there")
    done = _script(here.merge_builder([row.asDict() for row in frame.collect()], "id"))
    on_spark = _script(there.merge_builder(frame, "id"))
    assert done == MergeResult(updated=3, inserted=2, deleted=27)
    assert (on_spark.updated, on_spark.inserted, on_spark.deleted) == (done.updated, done.inserted, done.deleted)
    assert rows(here) == rows(there) == [(1, 7, "a!", 0), (2, 220, "b", 1), (4, None, "D", 3)]
    fresh = [sorted(tuple(row.values()) for row in table.to_pylist() if row["id"] >= 9) for table in (here, there)]
    assert fresh[0] == fresh[1] == [(90, None, "z"), (100, 0, "Y")]
