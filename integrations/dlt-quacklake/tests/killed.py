"""A pipeline of two tables that kills itself at a place, if one is named: ``python -m tests.killed FOLDER [PLACE]``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import dlt
from dlt_quacklake import client
from dlt_quacklake import quacklake as destination
from dlt_quacklake.sql_client import QuacklakeSqlClient


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _after(kind: type, name: str) -> None:
    """Kill the process when a method is done."""
    work = getattr(kind, name)

    def doomed(self: Any, *values: Any) -> None:
        work(self, *values)
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


if __name__ == "__main__":
    folder, *places = sys.argv[1:]
    lake = destination(f"sqlite:///{folder}/lake.db", data_path=f"{folder}/data")
    pipeline = dlt.pipeline("shop", destination=lake, dataset_name="shop", pipelines_dir=f"{folder}/pipelines")
    if places:
        _prepare(places[0])
        pipeline.run(shop())
    else:
        pipeline.load()  # what the process that was killed has left
