"""Run the pipeline of a test in a separate process, which a fault may kill: ``python -m … FOLDER [FIRST END]``.

With numbers, messages come first: rows of the table ``orders``, or where the source is Kafka, messages of its topic. In
the JVM of other processes, if the environment names one (:mod:`tests.jvm`).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from quacklake.pipelines import Pipeline
from tests.jvm import attached_session
from tests.pipelines.tables import connect, end_lease


def add(lake: Any, source: dict[str, Any], session: Any, first: int, end: int) -> None:
    """Give the source of a pipeline messages."""
    if source["type"] == "lake":
        lake.table("orders").append(pa.table({"id": range(first, end), "v": range(first, end)}))
        return
    frame = session.range(first, end).selectExpr("CAST(id AS STRING) AS key", "to_json(struct(id, id AS v)) AS value")
    place = {"kafka.bootstrap.servers": source["kafka.bootstrap.servers"], "topic": source["subscribe"]}
    frame.write.format("kafka").options(**place).save()


def main(folder: Path, *numbers: int) -> None:
    """Run until nothing is new."""
    definition = json.loads((folder / "definition.json").read_text())
    session: Any = attached_session() if "PYSPARK_GATEWAY_PORT" in os.environ else None
    if session is not None:
        for query in session.streams.active:  # of a driver that is dead
            query.stop()
    with connect(folder) as lake:
        if numbers:
            add(lake, definition["source"], session, *numbers)
            end_lease(lake)
        Pipeline(lake, definition).run(until_caught_up=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
