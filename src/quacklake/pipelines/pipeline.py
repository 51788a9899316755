"""Run pipelines: one process at a time, again after errors that pass, until they are stopped."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from quacklake.connectors.protocols import CountingSource, DatedSource
from quacklake.errors import CommitUnknown, InputError, QuacklakeError, StreamFencedError, Transient
from quacklake.extend.checkpoints import Checkpoints, Claim
from quacklake.lake import Lake
from quacklake.pipelines.barrier import Barrier
from quacklake.pipelines.checkpoints import Manifest, manifest_view
from quacklake.pipelines.definition import SPARK, PipelineDefinition, check_secrets
from quacklake.pipelines.lineage import told
from quacklake.pipelines.local import LocalRun, needs_state
from quacklake.pipelines.reports import BatchReport, Lag, RunReport
from quacklake.pipelines.sinks import Sinks, open_source
from quacklake.telemetry import error_facts

_log = logging.getLogger("quacklake.pipeline")

_LOOK = 2.0
"""Seconds between two looks at whether a pipeline is still wanted."""

OnBatch = Callable[[BatchReport], None]
T = TypeVar("T")


class Run(Protocol):
    """One run of a pipeline on an engine."""

    barrier: Barrier
    idle: float
    """Seconds to wait after nothing was new."""
    full: bool
    """True when the last batch has ended because of its limits, and more may be there."""

    def open(self) -> None:
        """Show what an earlier run has confirmed, and begin behind the last checkpoint."""

    def step(self) -> BatchReport | None:
        """Pass one batch on; None when there is nothing new."""

    @property
    def bounded(self) -> bool:
        """True when the source comes to an end."""

    def close(self) -> None:
        """Let go of everything."""


@dataclass(frozen=True)
class PipelineHold:
    """The hold of a process on a pipeline.

    ``ended`` is true for a process of this machine that is gone.
    """

    until: datetime
    heartbeat: datetime
    ended: bool


class Pipeline:
    """A pipeline of a lake. ``run`` returns at the end of the source; ``start`` runs in a thread until ``stop``.

    ``pipeline.run(until_caught_up=True)`` ends when nothing is new. Only one process at a time runs a pipeline.
    """

    def __init__(self, lake: Lake, definition: PipelineDefinition | Mapping[str, Any]) -> None:
        if not isinstance(definition, PipelineDefinition):
            definition = PipelineDefinition.parse(definition)
        self.lake = lake
        self.definition = definition
        self.checkpoints = Checkpoints(lake, definition.name, definition.keep_checkpoints)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._looked = 0.0
        self._error: BaseException | None = None
        self.report = RunReport()
        self.wanted: Callable[[], bool] | None = None
        """Called now and then while the pipeline runs; it stops when the result is False."""
        self.note: Callable[[bool], None] | None = None
        """Told when a run begins and when it has ended."""

    @classmethod
    def load(cls, lake: Lake, path: str | Path) -> Pipeline:
        """Return the pipeline of a YAML file."""
        return cls(lake, PipelineDefinition.load(path))

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self.definition.name

    @property
    def engine(self) -> str:
        """The engine that runs it: ``local``, or ``spark`` when it asks for that, or needs it."""
        if self.definition.engine != "auto":
            return self.definition.engine
        source = self.definition.source
        if source.type == SPARK or source.watermark is not None:
            return "spark"
        return "spark" if needs_state(self.definition.query) else "local"

    def check(self) -> None:
        """Raise the errors that starting the pipeline would raise, as far as they need no server."""
        check_secrets(self.definition.source.options, "source")
        for sink in self.definition.sinks:
            check_secrets(sink.options, sink.name)
        if self.engine == "local":
            needs_state(self.definition.query)
        if self.definition.source.type != SPARK:
            open_source(self.lake, self.definition.source).close()
        Sinks.open(self.lake, self.definition, "check").close()

    # -- running -------------------------------------------------------------------------------------------------------

    def run(
        self,
        *,
        until_caught_up: bool = False,
        restart: bool = False,
        accept: bool = False,
        on_batch: OnBatch | None = None,
    ) -> RunReport:
        """Run in this thread, until the source ends, ``stop`` is called, or, on request, until nothing is new.

        ``restart`` forgets the position and begins anew. ``accept`` goes on from the position although the pipeline has
        changed. Raise ``LeaseHeldError`` when another process runs it, ``StreamFencedError`` when one has taken over.
        """
        began, attempt = time.monotonic(), 0
        self.report = RunReport()
        lease = self.checkpoints.lease(self.definition.lease, self._stopped)
        with lease as lost, self._note_progress(), told(self.lake, self.definition):
            while True:
                try:
                    self._run_once(lost, until_caught_up, on_batch, restart=restart and not attempt, accept=accept)
                    break
                except QuacklakeError as error:
                    # of a commit that may have been made the next claim finds out
                    policy, passes = self.definition.restart, isinstance(error, Transient | CommitUnknown)
                    if not passes or isinstance(error, StreamFencedError) or attempt >= policy.attempts:
                        raise
                    attempt += 1
                    wait = policy.wait(attempt)
                    facts = error_facts(error, pipeline=self.name, attempt=attempt, retry_in=wait)
                    _log.warning("pipeline %s: %s; again in %.1f s", self.name, error.message, wait, extra=facts)
                    self.report = replace(self.report, restarts=attempt)
                    if self._stopped.wait(wait):
                        break
        self.report = replace(self.report, seconds=time.monotonic() - began)
        return self.report

    def start(self, **options: Any) -> Pipeline:
        """Run in a thread, with the options of ``run``, until ``stop``."""
        if self.is_active:
            raise InputError(f'the pipeline "{self.name}" runs already')
        self._stopped.clear()
        self._error = None

        def go() -> None:
            try:
                self.run(**options)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=go, name=f"pipeline {self.name}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> RunReport:
        """Stop after the batch in progress, and return the report. Raise the error that the pipeline failed with."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self.report

    def request_stop(self) -> None:
        """Let the run end after its batch, without waiting. Safe in a signal handler."""
        self._stopped.set()

    def wait(self) -> None:
        """Wait until the thread of the pipeline has ended, however it ended."""
        if self._thread is not None:
            self._thread.join()

    @property
    def error(self) -> BaseException | None:
        """The error that the run in the thread ended with; None without one."""
        return self._error

    @property
    def is_active(self) -> bool:
        """True while the pipeline runs in its thread."""
        return self._thread is not None and self._thread.is_alive()

    def status(self) -> list[dict[str, Any]]:
        """Return the checkpoints that are kept, oldest first."""
        return [manifest_view(each) for each in self.checkpoints.list()]

    def hold(self) -> PipelineHold | None:
        """Return who holds the lease of the pipeline; None if nobody does."""
        lease = self.checkpoints.find_lease()
        if lease is None:
            return None
        left, ended = lease
        until = datetime.now(UTC) + left
        return PipelineHold(until, until - self.definition.lease, ended)

    def is_running_somewhere(self) -> bool:
        """Return whether some process holds the lease of the pipeline and is not known to have ended."""
        hold = self.hold()
        return hold is not None and not hold.ended

    def behind(self) -> int | None:
        """Return how many messages or versions of the source were not passed on yet; None if that is not known."""
        return self._ask_source(lambda source, done: source.behind(done))

    def lag(self) -> Lag | None:
        """Return how far the pipeline is behind its source, in messages and in time; None if that is not known."""

        def look(source: CountingSource, done: int) -> Lag:
            count = source.behind(done)
            if not count or not isinstance(source, DatedSource):
                return Lag(count, None if count else 0.0)
            first = source.waiting_since(done)
            return Lag(count, 0.0 if first is None else max(0.0, (datetime.now(UTC) - first).total_seconds()))

        return self._ask_source(look)

    def _ask_source(self, ask: Callable[[CountingSource, int], T]) -> T | None:
        """Ask the source about what comes behind the last checkpoint; None if it cannot tell."""
        checkpoints = self.checkpoints.list()
        if not checkpoints or self.definition.source.type == SPARK:
            return None
        position = json.loads(Manifest.from_json(checkpoints[-1].manifest).position)
        source = open_source(self.lake, self.definition.source)
        try:
            known = position.get("offsets", position)  # Spark has its own form
            done = known.get("sequence", known.get("after", position.get("table_version")))
            return ask(source, int(done)) if done is not None and isinstance(source, CountingSource) else None
        except QuacklakeError:
            return None  # the source cannot be reached
        finally:
            source.close()

    def forget(self) -> None:
        """Remove the position: the next run starts over."""
        self.checkpoints.forget()

    def _run_once(
        self, lost: threading.Event, until_caught_up: bool, on_batch: OnBatch | None, *, restart: bool, accept: bool
    ) -> None:
        engine, every = self.engine, self.definition.every.total_seconds()
        claim = self.checkpoints.claim(self.definition.hash, restart=restart, accept=accept)
        self.report = replace(self.report, recovered=self.report.recovered + len(claim.confirmed))
        run = self._make(engine, claim, until_caught_up=until_caught_up)
        try:
            run.open()
            if self.note is not None:
                self.note(True)
            while not self._stopped.is_set():
                if lost.is_set():
                    raise StreamFencedError(f'another process runs the pipeline "{self.name}" now')
                if self._is_unwanted():
                    return
                began = time.monotonic()
                report = run.step()
                if report is None:
                    if until_caught_up or run.bounded:
                        return
                    self._stopped.wait(run.idle)
                    continue
                self.report = self.report.plus(report)
                run.barrier.maintain()
                if on_batch is not None:
                    on_batch(report)
                if not (run.full or until_caught_up or run.bounded):
                    self._stopped.wait(max(0.0, began + every - time.monotonic()))
        finally:
            run.close()

    def _is_unwanted(self) -> bool:
        """Return whether somebody has stopped the pipeline through the lake; looks at most every few seconds."""
        now = time.monotonic()
        if self.wanted is None or now - self._looked < _LOOK:
            return False
        self._looked = now
        return not self.wanted()

    def _make(self, engine: str, claim: Claim, *, until_caught_up: bool) -> Run:
        if engine == "spark":
            from quacklake.pipelines.streaming import SparkRun

            return SparkRun(self.lake, self.definition, self.checkpoints, claim, until_caught_up=until_caught_up)
        return LocalRun(self.lake, self.definition, self.checkpoints, claim)

    @contextmanager
    def _note_progress(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self.note is not None:
                with suppress(QuacklakeError):  # the end of a run must not hide how it ended
                    self.note(False)
