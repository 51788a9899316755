"""Write a Hudi table in a separate process: ``python -m tests.connectors.hudi_writer JOB``, a job as JSON.

A job has the ``options`` of the sink and its ``steps``; the file ``kept`` gets each prepared commit before it is
finalized. The process prints the versions that it finalized.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from quacklake.connectors import PreparedCommit, Sink, connector
from tests.connectors.hudi_spark import hudi_session
from tests.jvm import attached_session

QUICK = {
    "hoodie.metadata.enable": "false",
    "hoodie.index.bloom.num_entries": "10",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.embed.timeline.server": "false",
}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.int16()),
        ("s", pa.string()),
        ("t", pa.timestamp("ns", "UTC")),
        ("v", pa.float64()),
    ]
)
START = datetime(2024, 1, 1, tzinfo=UTC)


def rows(first: int, end: int, text: str = "s") -> pa.RecordBatch:
    """Return rows; every eleventh has no partition."""
    numbers = range(first, end)
    return pa.record_batch(
        {
            "id": list(numbers),
            "part": [None if n % 11 == 10 else n % 2 for n in numbers],
            "s": [f"{text}{n}" for n in numbers],
            "t": [START + timedelta(hours=n, microseconds=n) for n in numbers],
            "v": [float("nan") if n % 7 == 6 else n / 2 for n in numbers],
        },
        schema=SCHEMA,
    )


def new(options: dict[str, Any]) -> Sink:
    """Return a new sink."""
    made: Sink = connector("hudi", "sink")({**QUICK, **options})
    return made


def run(job: dict[str, Any]) -> list[int]:
    """Take the steps of a job: rows for a checkpoint, or a commit that was kept before."""
    versions = []
    kept = Path(job["kept"])
    for step in job["steps"]:
        sink = new({**job["options"], **step.get("options", {})})
        if "checkpoint" in step:
            sink.initialize(SCHEMA)
            for batch in step.get("batches", []):
                sink.write_batch(rows(*batch))
            kept.write_text(sink.prepare_commit(step["checkpoint"]).to_json())
        versions.append(sink.finalize_commit(PreparedCommit.from_json(kept.read_text())).version)
    return versions


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    session = hudi_session() if asked.get("own") else attached_session()
    print(json.dumps(run(asked)))
