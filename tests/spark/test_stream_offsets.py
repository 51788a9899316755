"""The offsets that Spark keeps give the same batch when it is read again, the first one too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.conformance.clients import LakeSite
from tests.spark.test_stream_source import rows_of

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from tests.conformance.conftest import MakeSite

Offset = dict[str, int]


@pytest.fixture
def site(make_site: MakeSite) -> Iterator[LakeSite]:
    from quacklake.spark.datasource.driver_service import own_desk

    made = make_site("sqlite", 0)
    made.lake().create_table("t", {"id": pa.int64(), "v": pa.string()})
    made.lake().table("t").append(rows_of(0, 20))
    yield made
    for lake in own_desk()._opened.values():
        lake.close()
    own_desk.cache_clear()


class Reader:
    """A stream in Spark's planning process, without our driver; each run starts over."""

    def __init__(self, site: LakeSite, **options: str) -> None:
        from pyspark.sql.types import LongType, StringType, StructType

        from quacklake.spark.datasource.format import source_class

        source = source_class(None, url=site.url)({"table": "t", **options})
        source.schema()
        self.stream = source.streamReader(StructType().add("id", LongType()).add("v", StringType()))

    def rows(self, start: Offset, end: Offset) -> list[Any]:
        start, end = (json.loads(json.dumps(offset)) for offset in (start, end))
        batches = [batch for part in self.stream.partitions(start, end) for batch in self.stream.read(part)]
        return sorted(row["id"] for batch in batches for row in batch.to_pylist())

    def first(self) -> tuple[Offset, list[Any]]:
        """The first batch: where it ends, and its rows."""
        end = self.stream.latestOffset()
        return end, self.rows(self.stream.initialOffset(), end)

    def replay(self, end: Offset) -> list[Any]:
        """The first batch once more, after a restart, as Spark asks for it."""
        assert self.rows(end, end) == []
        return self.rows(self.stream.initialOffset(), end)

    def next(self, last: Offset) -> tuple[Offset, list[Any]]:
        """The batch after one."""
        end = self.stream.latestOffset()
        return end, self.rows(last, end)


@pytest.mark.parametrize("starting", ["earliest", "latest", "2"])
def test_the_first_batch_is_the_same_when_it_is_read_again(site: LakeSite, starting: str) -> None:
    table = site.lake().table("t")
    reader = Reader(site, startingVersion=starting)
    began = reader.stream.initialOffset()
    table.append(rows_of(100, 5))
    end, rows = reader.first()
    assert rows == [*([] if starting == "latest" else range(20)), *range(100, 105)]
    assert reader.stream.initialOffset() == began
    table.append(rows_of(200, 5))
    again = Reader(site, startingVersion=starting)
    assert again.replay(end) == rows
    last, more = again.next(end)
    assert more == [*range(200, 205)]
    assert again.stream.latestOffset() == last, "nothing is new"


def test_the_state_that_a_stream_began_with_is_the_one_of_then_or_an_error(site: LakeSite) -> None:
    lake = site.lake()
    table = lake.table("t")
    table.append(rows_of(100, 5))
    lake.expire_snapshots(versions=[0, 1])
    end, rows = Reader(site).first()
    assert len(rows) == 25
    table.delete("id < 10")
    table.append(rows_of(200, 5))
    assert Reader(site).replay(end) == rows
    lake.expire_snapshots(versions=[2])
    with pytest.raises(RuntimeError, match=r"\[not_found.expired\] .*snapshot 2"):
        Reader(site).replay(end)


def test_offsets_of_a_version_that_did_not_tell_where_a_stream_began_go_on(site: LakeSite) -> None:
    lake = site.lake()
    old = {"table": lake.table("t").info.id, "after": lake.current_snapshot()}
    reader = Reader(site)
    assert reader.rows(old, old) == []
    assert reader.stream.latestOffset() == old
    lake.table("t").append(rows_of(100, 5))
    assert reader.next(old)[1] == [*range(100, 105)]


def test_a_stream_outlives_the_snapshot_that_its_columns_are_of(site: LakeSite) -> None:
    lake = site.lake()
    reader = Reader(site)
    end, _ = reader.first()
    lake.table("t").append(rows_of(100, 5))
    end, rows = reader.next(end)
    assert rows == [*range(100, 105)]
    lake.expire_snapshots("0 seconds")
    lake.table("t").append(rows_of(200, 5))
    assert reader.next(end)[1] == [*range(200, 205)]


def test_a_table_of_another_lake_is_refused(site: LakeSite) -> None:
    options = {"version": str(site.lake().current_snapshot()), "uuid": "00000000-0000-0000-0000-000000000000"}
    with pytest.raises(RuntimeError, match="another table in the lake that the server opened"):
        Reader(site, **options)
