"""A pipeline of two tables that kills itself at a place: ``python -m tests.killed FOLDER PLACE``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
from dlt.destinations.impl.ducklake.configuration import DuckLakeCredentials
from dlt.destinations.impl.ducklake.ducklake import DuckLakeCopyJob
from dlt_quacklake import client
from dlt_quacklake import quacklake as destination
from dlt_quacklake.sql_client import QuacklakeSqlClient

OWN = "after dlt's own destination has committed"


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _after(kind: type, name: str, table: str | None = None) -> None:
    """Kill the process when a method is done, of the job of a table where one is named."""
    work = getattr(kind, name)

    def doomed(self: Any, *values: Any) -> None:
        work(self, *values)
        if table is None or self.load_table_name == table:
            _die()

    setattr(kind, name, doomed)


def _prepare(place: str) -> None:
    if place == "before an append is committed":
        work = client.QuacklakeLoadJob.run

        def doomed(self: Any) -> None:
            QuacklakeSqlClient.commit_transaction = _die  # type: ignore[method-assign, assignment]
            work(self)

        client.QuacklakeLoadJob.run = doomed  # type: ignore[method-assign]
    elif place == "after an append is committed":
        _after(client.QuacklakeLoadJob, "run")
    elif place == "after a merge is committed":
        _after(client.QuacklakeSqlJob, "run")
    elif place == "before a load is complete":
        QuacklakeSqlClient.forget = _die  # type: ignore[method-assign, assignment]
    else:
        _after(client.QuacklakeClient, "complete_load")


@dlt.source
def shop() -> Any:
    @dlt.resource(write_disposition="append")
    def events() -> Iterator[Any]:
        yield [{"id": number} for number in range(20)]

    @dlt.resource(write_disposition="merge", primary_key="id")
    def items() -> Iterator[Any]:
        yield [{"id": number, "n": 1, "lines": [1, 2]} for number in range(10)]

    return events, items


def pipeline_of(folder: str | Path) -> dlt.Pipeline:
    """Return the pipeline, which goes on with what a process that was killed has left in the folder."""
    lake = destination(f"sqlite:///{folder}/lake.db", data_path=f"{folder}/data")
    return dlt.pipeline("shop", destination=lake, dataset_name="shop", pipelines_dir=f"{folder}/pipelines")


def pipeline_of_ducklake(folder: str | Path) -> dlt.Pipeline:
    """Return a pipeline with dlt's own destination, which writes with DuckDB's extension."""
    credentials = DuckLakeCredentials("lake", catalog=f"sqlite:///{folder}/lake.db", storage=f"{folder}/data/")
    theirs = dlt.destinations.ducklake(credentials=credentials)
    return dlt.pipeline("shop", destination=theirs, dataset_name="shop", pipelines_dir=f"{folder}/pipelines")


if __name__ == "__main__":
    folder, place = sys.argv[1:]
    if place == OWN:
        import duckdb_extensions

        for extension in ("ducklake", "sqlite_scanner"):
            duckdb_extensions.import_extension(extension)
        _after(DuckLakeCopyJob, "run", "events")
        pipeline_of_ducklake(folder).run([{"id": number} for number in range(20)], table_name="events")
    else:
        _prepare(place)
        pipeline_of(folder).run(shop())
