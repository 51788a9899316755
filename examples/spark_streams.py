"""Spark in a minute: a session, a table, a look back, a stream in and a stream out.

python examples/spark_streams.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import quacklake


def main(session: SparkSession, directory: Path) -> None:
    with quacklake.connect(f"sqlite:///{directory / 'lake.db'}", data_path=directory / "data") as lake:
        spark = quacklake.spark(lake, session)

        # A table from a DataFrame, and back.
        spark.create_table("trips", session.range(1000).selectExpr("id", "id % 5 AS driver", "id / 10 AS km"))
        longest = spark.table("trips").groupBy("driver").max("km").orderBy("driver").collect()
        print(f"{len(longest)} drivers, longest trip {max(row[1] for row in longest)} km")

        # Every commit is a snapshot that stays readable.
        lake.table("trips").delete("km < 1")
        print(f"now {spark.table('trips').count()} trips, before {spark.table('trips', at=1).count()}")

        # A stream in: files arrive in a folder, each becomes part of the table once.
        inbox = directory / "inbox"
        inbox.mkdir()
        (inbox / "1.json").write_text('{"id": 5000, "driver": 1, "km": 42.5}\n{"id": 5001, "driver": 9, "km": 7.5}\n')
        arriving = session.readStream.schema("id BIGINT, driver BIGINT, km DOUBLE").json(str(inbox))
        options = {"name": "trips", "checkpoint": str(directory / "checkpoint"), "trigger": "availableNow"}
        for _ in range(2):  # the second time there is nothing new
            stream = spark.write_stream("trips", arriving, **options)
            stream.awaitTermination()
            print(f"stream in: {sum(report.rows for report in stream.reports)} rows")

        # A stream out, through SQL, into another table.
        lake.sql("CREATE TABLE drivers (driver BIGINT, total DOUBLE)")
        sql = "SELECT driver, sum(km) AS total FROM source GROUP BY driver"
        flow = spark.pipeline("trips", sql, "drivers", name="drivers", starting=3)
        print(f"stream out: {sum(report.rows for report in flow.run())} drivers")
        spark.table("drivers").orderBy("driver").show()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory() as name:
        settings = {
            "spark.ui.enabled": "false",
            "spark.log.level": "OFF",
            "spark.sql.warehouse.dir": f"{name}/warehouse",
        }
        main(SparkSession.builder.master("local[2]").config(map=settings).getOrCreate(), Path(name))
