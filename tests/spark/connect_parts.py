"""Streams out of a table where the server of Spark Connect opens the lake, which need no server for a part of it."""

from __future__ import annotations

import datetime as dt
import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import ConfigError, UnsupportedFeatureError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["encrypted_streams_out", "streams_out", "table_to_table", "wrong_urls"]

CLOCK = dt.time(12, 30)


class Copy:
    """A folder that Spark itself streams changes of a table into."""

    def __init__(self, lake: quacklake.Lake, session: SparkSession, url: str) -> None:
        self.lake, self.session, self.url = lake, session, url
        self.folder = Path(lake.data_path).parent / "copy"
        self.checkpoint = self.folder / "checkpoint"

    def frame(self, **options: Any) -> DataFrame:
        spark = quacklake.spark(self.lake, self.session)
        return spark.read_stream("events", changes=True, lake_url=self.url, **options)

    def run(self, **options: Any) -> None:
        writer = self.frame(**options).writeStream.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start(str(self.folder / "rows"), format="parquet")
        query.awaitTermination()

    def forget(self, batch: int) -> None:
        """As if the server had been killed just before it wrote down that a batch was done."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def check(self) -> int:
        """Assert that the rows are those of the change feed, each once; return their number."""
        own = self.lake.table("events").changes(0).to_arrow().to_pylist()
        names = ("id", "clock", "change_type", "snapshot_id")
        expected = sorted([str(row[name]) for name in names] for row in own)
        rows = self.session.read.parquet(str(self.folder / "rows"))
        found = rows.select("id", "clock", "_change_type", "_commit_version").collect()
        assert sorted([*map(str, row)] for row in found) == expected
        return len(expected)

    def hides(self, *secrets: str) -> None:
        """Neither what Spark keeps nor what it shows has the URL, or anything else."""
        shown = io.StringIO()
        with redirect_stdout(shown):
            self.frame().explain(True)
        assert "table=" in shown.getvalue()
        kept = b"".join(path.read_bytes() for path in self.checkpoint.rglob("*") if path.is_file())
        assert b'"after"' in kept
        for secret in (self.url, self.url.rpartition("/")[2], *secrets):
            assert secret.encode() not in kept and secret not in shown.getvalue()


def _events(lake: quacklake.Lake) -> quacklake.Table:
    lake.sql("CREATE TABLE events (id BIGINT, clock TIME)")  # a type that does not come as it is
    table = lake.table("events")
    table.append([{"id": number, "clock": CLOCK} for number in range(20)])
    return table


def streams_out(lake: quacklake.Lake, session: SparkSession) -> None:
    """Changes stream once: over restarts, with limits, until what they need has expired."""
    table = _events(lake)
    copy = Copy(lake, session, lake.url)
    copy.run()
    assert copy.check() == 20
    copy.forget(0)
    table.update({"id": 500}, "id = 3")
    table.delete("id = 4")
    copy.run()  # the first batch once more
    for number in range(2):
        table.append([{"id": 1000 + number, "clock": CLOCK}])
    copy.run(max_files=1)
    copy.run()
    assert copy.check() == 20 + 3 + 2
    assert len(list((copy.checkpoint / "offsets").glob("[0-9]*"))) == 3
    copy.hides()
    table.append([{"id": 2000, "clock": CLOCK}])
    lake.expire_snapshots("0 seconds")
    with pytest.raises(Exception, match=r"not_found\.expired"):
        copy.run()


def encrypted_streams_out(lake: quacklake.Lake, session: SparkSession) -> None:
    """The same of an encrypted lake: the tasks of the server get keys, and nobody else does."""
    folder = Path(lake.data_path).parent / "encrypted"
    folder.mkdir()
    url = f"sqlite:///{folder}/secret.db"
    with quacklake.connect(url, data_path=folder / "data", encrypted=True, data_inlining_row_limit=0) as secret:
        table = _events(secret)
        copy = Copy(secret, session, url)
        copy.run()
        table.delete("id < 5")
        copy.run()
        assert copy.check() == 25
        copy.hides(*table.plan().files.column("encryption_key").to_pylist())
        quacklake.register_spark(session)
        assert session.read.format("quacklake").option("lake", url).load("events").count() == 15


def table_to_table(lake: quacklake.Lake, session: SparkSession) -> None:
    """A stream out of a table that goes into another one, each row once."""
    table = _events(lake)
    lake.sql("CREATE TABLE made (id BIGINT, twice BIGINT)")
    spark = quacklake.spark(lake, session)
    checkpoint = Path(lake.data_path).parent / "flow"

    def run() -> list[int]:
        rows = spark.read_stream("events", lake_url=lake.url).selectExpr("id", "2 * id AS twice")
        handle = spark.write_stream("made", rows, name="flow", checkpoint=str(checkpoint), trigger="availableNow")
        assert handle.awaitTermination(200)
        return [report.rows for report in handle.reports]

    assert run() == [20]
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    assert run() == [0], "the batch comes again, whole, and is known"
    table.append([{"id": 100, "clock": CLOCK}])
    assert run() == [1]
    assert lake.table("made").count() == 21


def wrong_urls(lake: quacklake.Lake, session: SparkSession) -> None:
    """Assert that a stream that could not be read is refused, with the reason."""
    table = _events(lake)
    spark = quacklake.spark(lake, session)
    with pytest.raises(UnsupportedFeatureError, match="lake_url"):
        spark.read_stream("events")
    with pytest.raises(UnsupportedFeatureError, match="only one process"):
        spark.read_stream("events", lake_url="duckdb:///lake.duckdb")
    with pytest.raises(ConfigError):
        spark.read_stream("events", lake_url="lake.db")
    url = f"sqlite:///{Path(lake.data_path).parent}/other.db"
    with pytest.raises(Exception, match="there is no lake"):
        _ = spark.read_stream("events", lake_url=url).schema  # on Connect nobody has asked before
    with quacklake.connect(url, data_path=Path(lake.data_path).parent / "other") as other:
        while other.current_snapshot() < lake.current_snapshot():
            other.create_table(f"t{other.current_snapshot()}", {"id": pa.int64()})
        _events(other)
    table.append([{"id": 1, "clock": CLOCK}])
    with pytest.raises(Exception, match="another table in the lake that the server opened"):
        _ = spark.read_stream("events", lake_url=url).schema  # on Connect nobody has asked before
