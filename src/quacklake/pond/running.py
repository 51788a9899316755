"""Run collectors: one of them once, or all of a directory on their schedules."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from quacklake import telemetry
from quacklake.errors import InputError, InternalError, NotFoundError, QuacklakeError, nearest
from quacklake.extend.reporting import Progress, silent
from quacklake.pond.collectors.base import Report, Run, Runnable
from quacklake.pond.factories.registry import factory_of
from quacklake.pond.fs import FS, NodePath
from quacklake.pond.nodes import CONFIG, SCHEDULE, EntryType
from quacklake.pond.pond import Pond
from quacklake.pond.resources import COLLECTORS
from quacklake.pond.schedules import Schedule, parse_schedule

_LOOK = 0.5
"""Seconds between two looks at the pond for resources that are new or gone."""
_FIRST_BACK_OFF, _MAX_BACK_OFF = 2.0, 300.0
_WORKERS = 4
_MAX_RUNNING = 64


def runnable(found: NodePath) -> Runnable | None:
    """Return what runs a node, or None for a node that nothing runs. Raise when its factory is missing."""
    if found.node.file_type is not EntryType.DYNAMIC:
        return None
    factory = factory_of(found.node)
    return factory if isinstance(factory, Runnable) else None


def find_runnable(fs: FS, name: str) -> NodePath:
    """Return the node of a path, or of a name among the collectors. Raise ``NotFoundError`` with a suggestion."""
    for path in (name, f"{COLLECTORS}/{name}"):
        found = fs.find(path)
        if found is not None and not found.is_directory:
            if runnable(found) is None:
                raise InputError(
                    f"{found.path} is a {found.entry_type}, which nothing runs",
                    hint="`pond run` runs collectors; a computed node is made when somebody reads it",
                )
            return found
    known = {each.path.rpartition("/")[2]: each.path for each in all_runnable(fs)}
    others = ", ".join(sorted(known.values()))
    hint = nearest(name, [*known, *known.values()]) or (
        f"there is {others}" if others else "`pond apply -f FILE` makes collectors"
    )
    raise NotFoundError(f"there is no collector {name!r}", hint=hint)


def all_runnable(fs: FS, folder: str = "/") -> list[NodePath]:
    """Return the nodes below a directory that can be run, also those whose factory is missing."""
    return [each for each in fs.glob(f"{folder.rstrip('/')}/**/*") if each.entry_type is EntryType.DYNAMIC]


def run_once(
    pond: Pond,
    name: str,
    args: Sequence[str] = ("pond", "run"),
    words: Sequence[str] = (),
    *,
    stop: threading.Event | None = None,
    progress: Progress = silent,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run a collector once, and return what it did."""
    found = find_runnable(pond.fs(), name)
    run = Run(pond, found.path, args, tuple(words), stop or threading.Event(), progress, say)
    return _run(found, run)


def _run(found: NodePath, run: Run) -> Report:
    factory = runnable(found)
    assert factory is not None
    with telemetry.timed("pond.run"):
        return factory.run(run, found.node.attribute(CONFIG) or {})


# -- watching ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened while resources were kept going: a run that ended, or failed, or was set aside."""

    path: str
    report: Report | None = None
    error: QuacklakeError | None = None
    retry_in: float | None = None
    message: str | None = None


@dataclass
class _Job:
    found: NodePath
    factory: Runnable
    schedule: Schedule
    due: dt.datetime
    failures: int = 0
    running: Future[Report] | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def key(self) -> tuple[Any, ...]:
        """The definition of the job, which is created again when this changes."""
        return _key(self.found)


def _key(found: NodePath) -> tuple[Any, ...]:
    node = found.node
    return found.path, node.node_id, str(node.attribute(CONFIG)), node.attribute(SCHEDULE)


class Watcher:
    """Keeps the resources of a directory going until it is told to stop. One that fails does not disturb the others.

    Everything runs once at the beginning, which takes what came while nobody looked, and then on its schedule.
    """

    def __init__(
        self, pond: Pond, folder: str, args: Sequence[str], tell: Callable[[Event], None], stop: threading.Event
    ) -> None:
        self._pond, self._folder, self._args, self._tell, self._stop = pond, folder, args, tell, stop
        self._zone = pond.control.settings().get("timezone") or "UTC"
        self._jobs: dict[str, _Job] = {}
        self._refused: set[tuple[Any, ...]] = set()
        self._snapshot = -1
        self._wake = threading.Event()
        self._turn = threading.Lock()

    def run(self, until: float | None = None) -> None:
        """Run until ``stop`` is set, or for some seconds. Work in progress is finished first."""
        end = None if until is None else time.monotonic() + until
        with ThreadPoolExecutor(_WORKERS, "pond-run") as pool, ThreadPoolExecutor(_MAX_RUNNING, "pond-serve") as ports:
            try:
                while not self._stop.is_set() and (end is None or time.monotonic() < end):
                    self._look()
                    for job in list(self._jobs.values()):
                        self._advance(job, ports if job.factory.serves else pool)
                    self._wake.wait(self._pause(end))
                    self._wake.clear()
            finally:
                for job in self._jobs.values():
                    job.stop.set()
                for job in self._jobs.values():
                    self._finish(job)

    def stop(self) -> None:
        """Stop soon. Safe in a handler of signals."""
        self._stop.set()
        self._wake.set()

    def _pause(self, end: float | None) -> float:
        now = dt.datetime.now(dt.UTC)
        waits = [(job.due - now).total_seconds() for job in self._jobs.values() if job.running is None]
        if end is not None:
            waits.append(end - time.monotonic())
        return max(0.01, min([_LOOK, *waits]))

    def _look(self) -> None:
        """Take up what is new or changed, and let go of what is gone."""
        try:
            snapshot = self._pond.lake.current_snapshot()
            if snapshot == self._snapshot:
                return
            there = {each.path: each for each in all_runnable(self._pond.fs(), self._folder)}
            self._snapshot = snapshot
        except QuacklakeError as error:
            self._tell(Event(self._folder, error=error, retry_in=_LOOK))
            return
        for path in [path for path, job in self._jobs.items() if path not in there or job.key != _key(there[path])]:
            job = self._jobs[path]
            job.stop.set()
            if job.running is None or job.running.done():
                self._finish(self._jobs.pop(path))
        for path, found in there.items():
            if _key(found) in self._refused:
                continue
            if path in self._jobs:
                self._jobs[path].found = found if self._jobs[path].key == _key(found) else self._jobs[path].found
                continue
            try:
                factory = runnable(found)
                assert factory is not None
                schedule = parse_schedule(str(found.node.attribute(SCHEDULE) or factory.every), self._zone)
            except QuacklakeError as error:
                self._refused.add(_key(found))
                self._tell(Event(path, error=error))
                continue
            self._jobs[path] = _Job(found, factory, schedule, dt.datetime.now(dt.UTC))

    def _advance(self, job: _Job, pool: ThreadPoolExecutor) -> None:
        if job.running is not None:
            if not job.running.done():
                return
            self._finish(job)
            self._snapshot = -1 if job.stop.is_set() else self._snapshot
        if job.stop.is_set() or dt.datetime.now(dt.UTC) < job.due:
            return
        path = job.found.path
        run = Run(
            self._pond,
            path,
            (*self._args, path),
            stop=job.stop,
            turn=self._turn,
            say=lambda text: self._tell(Event(path, message=text)),
        )
        job.running = pool.submit(_run, job.found, run)
        job.running.add_done_callback(lambda _: self._wake.set())

    def _finish(self, job: _Job) -> None:
        """Tell how a run ended, and set the time of the next one."""
        if job.running is None:
            return
        future, job.running = job.running, None
        now, path = dt.datetime.now(dt.UTC), job.found.path
        try:
            report = future.result()
            failed = bool(report.failures)
            error: QuacklakeError | None = None
        except QuacklakeError as caught:
            report, failed, error = None, caught.code != "cancelled", caught
        except Exception as caught:
            report, failed, error = None, True, InternalError(f"unexpected error: {type(caught).__name__}: {caught}")
        job.failures = job.failures + 1 if failed else 0
        job.due = job.schedule.next(now)
        wait = None
        if failed:
            wait = min(_FIRST_BACK_OFF * 2 ** (job.failures - 1), _MAX_BACK_OFF)
            job.due = max(job.due, now + dt.timedelta(seconds=wait))
            wait = (job.due - now).total_seconds()
        elif report is not None and report.more and report.rows:
            job.due = now
        if report is not None or failed:
            self._tell(Event(path, report, error, wait))


def as_facts(report: Report) -> Mapping[str, Any]:
    """Return a report for programs."""
    series = [
        {"path": each.path, "version": each.version, "rows": each.rows, "repeated": each.repeated}
        for each in report.imported
    ]
    failures = [{"item": each.item, "code": each.error.code, "message": each.error.message} for each in report.failures]
    return {
        "rows": report.rows,
        "series": series,
        "failures": failures,
        "more": report.more,
        "notes": list(report.notes),
    }
