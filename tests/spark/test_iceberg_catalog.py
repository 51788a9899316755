"""One set of bytes, five readers, one checksum: the lake itself, stock DuckDB, and three readers of its Iceberg catalog."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import quacklake
from quacklake import Lake
from services.jars import jars
from services.process import Unavailable
from tests.catalog.stock import Stock
from tests.seeds import SEED

pytest.importorskip("fastapi", reason="the package fastapi is not installed")
pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")

from tests.service.iceberg.histories import History
from tests.service.iceberg.serving import TOKEN, Service, checksum, duckdb_reader, pyiceberg_reader, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_spark(since="4.1", before="4.2")


def _attach(session: SparkSession, service: Service, name: str) -> None:
    """Give the session a catalog ``ice`` of the lake."""
    try:
        jars("spark-iceberg")
    except Unavailable as reason:
        pytest.skip(str(reason))
    place = f"spark.sql.catalog.{name}"
    session.conf.set(place, "org.apache.iceberg.spark.SparkCatalog")
    for key, value in {"type": "rest", "uri": service.url, "warehouse": name, "token": TOKEN}.items():
        session.conf.set(f"{place}.{key}", value)


def _spark_checksum(session: SparkSession, query: str) -> str:
    return checksum(session.sql(query).toArrow())


def test_five_readers_print_one_checksum(session: SparkSession, stock: Stock, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, tmp_path / "data", create=True) as lake, served() as service:
        history = History(lake, random.Random(f"five readers {SEED}"))
        for step in ("insert_many", "insert_few", "add_column", "delete", "update", "rename_column", "widen", "flush"):
            getattr(history, step)()
        history.run(8)
        name = service.add(lake, "five")
        _attach(session, service, name)
        snapshots = lake.snapshots().column("snapshot_id").to_pylist()[1:]
        table = pyiceberg_reader(service, name).load_table("main.h")
        chosen = sorted({*random.Random(SEED).sample(snapshots, 3), snapshots[-1]})
        with duckdb_reader(service, name) as reader:
            for snapshot in chosen:
                sums = {
                    "ours": checksum(lake.at(version=snapshot).table("h").to_arrow()),
                    "ducklake": checksum(stock.run(url, f"FROM h AT (VERSION => {snapshot})")),
                    "pyiceberg": checksum(table.scan(snapshot_id=snapshot).to_arrow()),
                    "duckdb": checksum(reader.execute(f"FROM ice.main.h AT (VERSION => {snapshot})").to_arrow_table()),
                    "spark": _spark_checksum(session, f"SELECT * FROM five.main.h VERSION AS OF {snapshot}"),
                }
                assert len(set(sums.values())) == 1, (snapshot, sums, history.done)


def test_spark_knows_the_row_ids_and_refuses_what_it_has_no_type_for(session: SparkSession, tmp_path: Path) -> None:
    with (
        quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True) as lake,
        served() as service,
    ):
        _fill(lake)
        name = service.add(lake, "rowids")
        _attach(session, service, name)
        rows = session.sql("SELECT id, _row_id FROM rowids.main.t").toArrow()
        expected = lake.table("t").scan(row_ids=True).to_arrow()
        assert checksum(rows) == checksum(expected)
        assert _spark_checksum(session, "SELECT u, ms FROM rowids.main.odd WHERE u > 3000000000") == checksum(
            lake.table("odd").to_arrow(columns=["u", "ms"], where="u > 3000000000")
        )
        with pytest.raises(Exception, match=r"(?i)time"):
            session.sql("SELECT * FROM rowids.main.clock").toArrow()
        before = {path for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(Exception, match="does not support endpoint"):
            session.sql("DROP TABLE rowids.main.t")
        with pytest.raises(Exception, match="Failed to create Parquet file"):
            session.sql("INSERT INTO rowids.main.t VALUES (1)")
        assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def _fill(lake: Lake) -> None:
    lake.create_table("t", {"id": "BIGINT"})
    lake.table("t").append([{"id": number} for number in range(40)])
    lake.table("t").append([{"id": 100}])
    lake.table("t").update({"id": 200}, "id = 7")
    lake.table("t").delete("id % 5 = 0")
    lake.create_table("odd", {"u": "UINTEGER", "ms": "TIMESTAMP_MS"})
    lake.sql("INSERT INTO odd SELECT 4000000000 + i, make_timestamp_ms(1700000000000 + i) FROM range(20) r(i)")
    lake.create_table("clock", {"at": "TIME"})
    lake.sql("INSERT INTO clock SELECT TIME '01:02:03' FROM range(20)")
