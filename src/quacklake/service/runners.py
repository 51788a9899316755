"""Pipelines that this process runs, and what is known of any pipeline of a lake."""

from __future__ import annotations

import base64
import datetime as dt
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quacklake.config import redact
from quacklake.errors import InputError, LeaseHeldError, NotPermittedError, QuacklakeError, UnsupportedFeatureError
from quacklake.service.problems import TooBusyError

if TYPE_CHECKING:
    from quacklake.lake import Lake
    from quacklake.pipelines import BatchReport, Pipeline
    from quacklake.pipelines.dead_letters import Letter

__all__ = ["Runners"]

_Key = tuple[str, str | None, str]
_RECENT = 60
"""The batches of a run that are remembered."""
_LETTER_BYTES = 64 * 1024
"""The most bytes of a message in an answer."""
_MAX_CHARACTER = 3
_NAMES = ("stream", "table", "location", "table_name", "subscribe")
"""The options that say what a source reads, or a sink writes."""


@dataclass
class _Runner:
    """A pipeline in a thread of this process."""

    pipeline: Pipeline
    began: float = field(default_factory=time.monotonic)
    recent: deque[tuple[float, BatchReport]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """The last batches, each with the time of its end."""

    def done(self, batch: BatchReport) -> None:
        """Note the end of a batch."""
        self.recent.append((time.time(), batch))

    def shown(self) -> dict[str, Any]:
        """Return what the run has done so far."""
        report, recent = self.pipeline.report, list(self.recent)
        seconds = max(time.monotonic() - self.began, 1e-9)
        return {
            "batches": report.batches,
            "rows": report.rows,
            "rejected": report.rejected,
            "restarts": report.restarts,
            "rows_per_second": round(report.rows / seconds, 1) if self.pipeline.is_active else None,
            "last_batch": batch_facts(recent[-1][1]) if recent else None,
            "recent": [{"ended": round(ended, 3), **batch_facts(batch)} for ended, batch in recent],
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

    def __init__(self, most: int, told: Callable[[Lake, str, dict[str, Any]], None], *, tenants: bool = False) -> None:
        """Run up to ``most`` pipelines; none in a service of ``tenants``, who would use its rights."""
        self._most = most
        self.runs_none = tenants
        self._told = told
        self._lock = threading.Lock()
        self._running: dict[_Key, _Runner] = {}
        self._closed = False

    def start(self, lake: Lake, name: str, *, restart: bool = False, accept: bool = False) -> Pipeline:
        """Run a pipeline in a thread until it is stopped.

        Raise ``LeaseHeldError`` when it runs already, here or elsewhere, ``UnsupportedFeatureError`` for a pipeline on
        Spark, and ``TooBusyError`` when too many run here.
        """
        from quacklake.pipelines.definitions import CREATED, Definitions

        definitions = Definitions(lake)
        pipeline = definitions.pipeline(name)
        self.check_allowed(pipeline.name)
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
                runner.done(batch)
                self._told(lake, pipeline.name, batch_facts(batch))

            pipeline.start(restart=restart, accept=accept, on_batch=on_batch)
        return pipeline

    def check_allowed(self, name: str) -> None:
        """Raise ``NotPermittedError`` where pipelines, which may name any source, sink and file, are not to run."""
        if self.runs_none:
            raise NotPermittedError(
                f"the pipeline {name} would read and write with the rights of the service, which has many tenants",
                hint=f"`quacklake pipeline start {name}` runs it in a process with the rights of the tenant",
            )

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
    catalog = lake.handle.context.catalog
    row = catalog.tenant_row  # its name may pass to another catalog
    return str(catalog.url), None if row is None else row.uuid, name.lower()


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
    from quacklake.pipelines.dead_letters import DeadLetters
    from quacklake.pipelines.definitions import Definitions
    from quacklake.pipelines.origins import sequence_of

    definitions = Definitions(lake)
    pipeline = definitions.pipeline(name)
    made, runner = pipeline.definition, runners.find(lake, pipeline.name)
    checkpoints = pipeline.status()
    lag = None if runners.runs_none else pipeline.lag()  # it asks the source
    last, letters = checkpoints[-1] if checkpoints else None, DeadLetters(lake, made)
    return {
        **_facts(pipeline),
        "state": definitions.state(pipeline.name),
        "running": pipeline.is_running_somewhere(),
        "here": runner is not None and runner.pipeline.is_active,
        "reads": _name_part(made.source.options),
        "query": made.query,
        "every_seconds": made.every.total_seconds(),
        "dead_letters": made.dead_letters,
        "letters": letters.count(),
        "letters_pending": letters.pending(),
        "sinks": [
            {
                "name": sink.name,
                "type": sink.type,
                "mode": sink.options.get("mode", "append"),
                "where": sink.where,
                "writes": _name_part(sink.options),
            }
            for sink in made.sinks
        ],
        "checkpoint": last and last["checkpoint_id"],
        "checkpoint_time": last and last["created"],
        "finished": last and last["state"] == "finished",
        "position": last and redact(str(last["position"])),
        "checkpoints": [
            {
                "checkpoint": each["checkpoint_id"],
                "checkpoint_time": each["created"],
                "sequence": sequence_of(each["position"]),
            }
            for each in checkpoints
        ],
        "lag": lag and lag.count,
        "lag_seconds": lag and lag.seconds,
        "run": None if runner is None else runner.shown(),
    }


def _name_part(options: Mapping[str, Any]) -> str | None:
    """Return the name of what a source reads or a sink writes, of a path its last part; None without one."""
    found = next((str(options[name]) for name in _NAMES if name in options), None)
    return None if found is None else redact(found.rstrip("/").rpartition("/")[2])


def _facts(pipeline: Pipeline) -> dict[str, Any]:
    made = pipeline.definition
    return {
        "name": made.name,
        "engine": pipeline.engine,
        "source": made.source.type,
        "sinks": [sink.name for sink in made.sinks],
    }


# -- dead letters ------------------------------------------------------------------------------------------------------


def letters(lake: Lake, name: str, after: int, most: int) -> dict[str, Any]:
    """Return dead letters of a pipeline behind a row id, and the row id to go on from."""
    from quacklake.pipelines.dead_letters import DeadLetters
    from quacklake.pipelines.definitions import Definitions

    found = DeadLetters(lake, Definitions(lake).pipeline(name).definition)
    page = found.page(after, most + 1, _LETTER_BYTES)
    return {
        "letters": [_letter(each) for each in page[:most]],
        "count": found.count(),
        "pending": found.pending(),
        "next": page[most - 1].row if len(page) > most else None,
    }


def _letter(letter: Letter) -> dict[str, Any]:
    return {
        "row": letter.row,
        "sequence": letter.sequence,
        "subject": letter.subject,
        "time": letter.time,
        "reason": letter.reason,
        "body": body_facts(letter.data, letter.size),
    }


def body_facts(data: bytes, size: int) -> dict[str, Any]:
    """Return the body of a message as JSON has it: text, or base64 for other bytes. It may be cut off."""
    shown = data[:_LETTER_BYTES]
    cut = size > len(shown)
    try:
        # the end of a character may be cut off
        text = shown.decode(errors="strict") if not cut else shown.decode(errors="ignore")
        if cut and len(shown) - len(text.encode()) > _MAX_CHARACTER:
            raise ValueError
        return {"text": text, "size": size, "cut": cut}
    except ValueError:
        return {"base64": base64.b64encode(shown).decode(), "size": size, "cut": cut}


def replayed(lake: Lake, name: str, rows: Sequence[int], runners: Runners) -> dict[str, Any]:
    """Publish dead letters of a pipeline again, and return how many."""
    from quacklake.pipelines.dead_letters import DeadLetters
    from quacklake.pipelines.definitions import Definitions

    pipeline = Definitions(lake).pipeline(name)
    runners.check_allowed(pipeline.name)
    found = DeadLetters(lake, pipeline.definition)
    return {"replayed": found.replay(rows), "count": found.count()}
