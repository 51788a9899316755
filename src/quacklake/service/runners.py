"""Pipelines that this process runs, and what is known of any pipeline of a lake."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quacklake.config import redact
from quacklake.errors import InputError, LeaseHeldError, QuacklakeError, UnsupportedFeatureError
from quacklake.service.problems import TooBusyError

if TYPE_CHECKING:
    from quacklake.lake import Lake
    from quacklake.pipelines import BatchReport, Pipeline

__all__ = ["Runners"]

_Key = tuple[str, str | None, str]


@dataclass
class _Runner:
    """A pipeline in a thread of this process."""

    pipeline: Pipeline
    began: float = field(default_factory=time.monotonic)
    last: BatchReport | None = None

    def shown(self) -> dict[str, Any]:
        """Return what the run has done so far."""
        report, last = self.pipeline.report, self.last
        seconds = max(time.monotonic() - self.began, 1e-9)
        return {
            "batches": report.batches,
            "rows": report.rows,
            "rejected": report.rejected,
            "restarts": report.restarts,
            "rows_per_second": round(report.rows / seconds, 1) if self.pipeline.is_active else None,
            "last_batch": None if last is None else batch_facts(last),
            "error": _error(self.pipeline.error),
        }


def batch_facts(batch: BatchReport) -> dict[str, Any]:
    """Return a batch as JSON has it."""
    return {
        "checkpoint": batch.checkpoint_id,
        "rows": batch.rows,
        "rejected": batch.rejected,
        "sinks": dict(batch.sinks),
        "milliseconds": round(batch.milliseconds, 1),
    }


def _error(error: BaseException | None) -> dict[str, Any] | None:
    if error is None:
        return None
    if isinstance(error, QuacklakeError):
        return {"code": error.code, "detail": redact(error.message), "hint": error.hint}
    return {"code": "internal", "detail": type(error).__name__, "hint": None}


class Runners:
    """The pipelines of this process, by lake and name. Safe to share between threads."""

    def __init__(self, most: int, told: Callable[[Lake, str, dict[str, Any]], None]) -> None:
        self._most = most
        self._told = told
        self._lock = threading.Lock()
        self._running: dict[_Key, _Runner] = {}
        self._closed = False

    def start(self, lake: Lake, name: str, *, restart: bool = False, accept: bool = False) -> Pipeline:
        """Run a pipeline in a thread until it is stopped.

        Raises ``LeaseHeldError`` when it runs already, here or elsewhere, ``UnsupportedFeatureError`` for a pipeline on
        Spark, and ``TooBusyError`` when too many run here.
        """
        from quacklake.pipelines.definitions import CREATED, Definitions

        definitions = Definitions(lake)
        pipeline = definitions.pipeline(name)
        if pipeline.engine == "spark":
            raise UnsupportedFeatureError(
                f"the pipeline {pipeline.name} needs Spark, which the service does not start",
                hint=f"quacklake pipeline start {pipeline.name}",
            )
        with self._lock:
            if self._closed:
                raise InputError("the service stops")
            self._running = {key: each for key, each in self._running.items() if each.pipeline.is_active}
            known = self._running.get(_key(lake, pipeline.name))
            if known is not None or pipeline.is_running_somewhere():
                raise LeaseHeldError(f"the pipeline {pipeline.name} runs already", hint="stop it first")
            if len(self._running) >= self._most:
                raise TooBusyError("too many pipelines run in this process")
            definitions.set_state(pipeline.name, CREATED)
            runner = self._running[_key(lake, pipeline.name)] = _Runner(pipeline)

            def on_batch(batch: BatchReport) -> None:
                runner.last = batch
                self._told(lake, pipeline.name, batch_facts(batch))

            pipeline.start(restart=restart, accept=accept, on_batch=on_batch)
        return pipeline

    def stop(self, lake: Lake, name: str) -> Pipeline:
        """Ask whoever runs a pipeline to stop after its batch: this process at once, another when it looks."""
        from quacklake.pipelines.definitions import STOPPED, Definitions

        definitions = Definitions(lake)
        pipeline = definitions.pipeline(name)
        definitions.set_state(pipeline.name, STOPPED)
        runner = self.find(lake, pipeline.name)
        if runner is not None:
            runner.pipeline.request_stop()
        return pipeline

    def find(self, lake: Lake, name: str) -> _Runner | None:
        """Return the last run of a pipeline in this process, also when it has ended; None without one."""
        with self._lock:
            return self._running.get(_key(lake, name))

    def close(self) -> None:
        """Stop all pipelines after their batches, and wait for them."""
        with self._lock:
            self._closed = True
            runners = list(self._running.values())
        for each in runners:
            each.pipeline.request_stop()
        for each in runners:
            each.pipeline.wait()


def _key(lake: Lake, name: str) -> _Key:
    return str(lake.handle.context.catalog.url), lake.catalog, name.lower()


@dataclass(frozen=True)
class Stand:
    """Figures of a pipeline; None for what is not known."""

    name: str
    running: bool
    checkpoint_age: float | None
    lag: int | None


def stands(lake: Lake, runners: Runners | None, most: int) -> Iterator[Stand]:
    """Yield the figures of the pipelines of a lake, of so many at most."""
    from quacklake.pipelines.definitions import Definitions

    definitions = Definitions(lake)
    now = dt.datetime.now(dt.UTC)
    for each in definitions.list("pipeline")[:most]:
        pipeline = definitions.pipeline(each.name)
        checkpoints = pipeline.checkpoints.list()
        age = (now - checkpoints[-1].created).total_seconds() if checkpoints else None
        runner = None if runners is None else runners.find(lake, pipeline.name)
        here = runner is not None and runner.pipeline.is_active
        yield Stand(pipeline.name, pipeline.is_running_somewhere(), age, pipeline.behind() if here else None)


def listed(lake: Lake) -> list[dict[str, Any]]:
    """Return the pipelines of a lake, without asking their sources."""
    from quacklake.pipelines.definitions import Definitions

    definitions = Definitions(lake)
    found = []
    for each in definitions.list("pipeline"):
        pipeline = definitions.pipeline(each.name)
        found.append({**_facts(pipeline), "state": each.state, "running": pipeline.is_running_somewhere()})
    return found


def described(lake: Lake, name: str, runners: Runners) -> dict[str, Any]:
    """Return what is known of a pipeline: what it does, where it stands, its lag, and its run in this process."""
    from quacklake.pipelines.definitions import Definitions

    definitions = Definitions(lake)
    pipeline = definitions.pipeline(name)
    made, runner = pipeline.definition, runners.find(lake, pipeline.name)
    checkpoints = pipeline.status()
    last = checkpoints[-1] if checkpoints else None
    return {
        **_facts(pipeline),
        "state": definitions.state(pipeline.name),
        "running": pipeline.is_running_somewhere(),
        "here": runner is not None and runner.pipeline.is_active,
        "query": made.query,
        "every_seconds": made.every.total_seconds(),
        "dead_letters": made.dead_letters,
        "sinks": [
            {"name": sink.name, "type": sink.type, "mode": sink.options.get("mode", "append"), "where": sink.where}
            for sink in made.sinks
        ],
        "checkpoint": last and last["checkpoint_id"],
        "checkpoint_time": last and last["created"],
        "finished": last and last["state"] == "finished",
        "position": last and redact(str(last["position"])),
        "lag": pipeline.behind(),
        "run": None if runner is None else runner.shown(),
    }


def _facts(pipeline: Pipeline) -> dict[str, Any]:
    made = pipeline.definition
    return {
        "name": made.name,
        "engine": pipeline.engine,
        "source": made.source.type,
        "sinks": [sink.name for sink in made.sinks],
    }
