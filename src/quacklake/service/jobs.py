"""Long work: maintenance and undo, with progress. A job runs in the process that took it; the catalog remembers it.

Other processes ask it to end through the catalog, which the process looks at while jobs run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import TYPE_CHECKING, Any

from quacklake.config import redact
from quacklake.errors import CancelledError, InputError, NotFoundError, QuacklakeError, ReadOnlyError
from quacklake.extend.names import uuid7
from quacklake.extend.reporting import Progress
from quacklake.service.job_records import ENDED, JobRecords
from quacklake.service.problems import TooBusyError, status_of
from quacklake.telemetry import error_facts

if TYPE_CHECKING:
    from quacklake.lake import Lake

__all__ = ["KINDS", "Job", "Jobs"]

_log = logging.getLogger("quacklake.service")
_WORKERS = 2
_PRINCIPALS = 64
"""The principals whose ended jobs are all remembered; more of them share the room."""
_LEASES = 3
"""The times that a lease is kept longer before it would end."""
_INSIDE = "the job could not be done; the log of the service says more"


@dataclass
class Job:
    """A piece of work: ``state`` is ``waiting``, ``running``, ``done``, ``failed`` or ``cancelled``."""

    id: str
    kind: str
    principal: str
    dry_run: bool
    state: str = "waiting"
    stage: str = ""
    done: int = 0
    total: int | None = None
    result: Any = None
    error: dict[str, Any] | None = None
    began: float = field(default_factory=time.time)
    cancelling: bool = False

    def ask_to_end(self) -> None:
        """Let the job end after the step that is under way."""
        self.cancelling = self.state not in ENDED

    def shown(self) -> dict[str, Any]:
        """Return the job for its principal."""
        return {name: value for name, value in asdict(self).items() if name != "principal"}


def _expire(lake: Lake, given: Mapping[str, Any], dry_run: bool, progress: Progress) -> Any:
    options = {name: given[name] for name in ("older_than", "keep_last", "versions") if name in given}
    return lake.expire_snapshots(dry_run=dry_run, progress=progress, **options)


def _cleanup(lake: Lake, given: Mapping[str, Any], dry_run: bool, progress: Progress) -> Any:
    return lake.cleanup_old_files(given.get("older_than"), dry_run=dry_run, progress=progress)


def _orphans(lake: Lake, given: Mapping[str, Any], dry_run: bool, progress: Progress) -> Any:
    return lake.delete_orphaned_files(given.get("older_than"), dry_run=dry_run, progress=progress)


def _maintain(lake: Lake, _: Mapping[str, Any], dry_run: bool, progress: Progress) -> Any:
    if dry_run:
        raise InputError("maintain has no dry run", hint="expire and cleanup have one")
    return lake.maintain(progress=progress)


def _verify(lake: Lake, given: Mapping[str, Any], _: bool, progress: Progress) -> Any:
    return lake.verify(bool(given.get("deep", False)), progress)


def _rollback(lake: Lake, given: Mapping[str, Any], dry_run: bool, progress: Progress) -> Any:
    return lake.rollback(_require(given, "to"), dry_run=dry_run, progress=progress)


def _restore(lake: Lake, given: Mapping[str, Any], dry_run: bool, _: Progress) -> Any:
    return lake.table(_require(given, "table")).restore(_require(given, "to"), dry_run=dry_run)


def _refresh(lake: Lake, given: Mapping[str, Any], dry_run: bool, _: Progress) -> Any:
    view = str(_require(given, "view"))
    return lake.materialized_views.explain(view) if dry_run else lake.refresh(view)


def _verify_view(lake: Lake, given: Mapping[str, Any], _: bool, __: Progress) -> Any:
    found = lake.materialized_views.verify(str(_require(given, "view")))[0]
    facts = {name: getattr(found, name) for name in ("view", "snapshot", "count", "missing", "unexpected", "problem")}
    return {"ok": found.ok, **facts}


def _on_table(operation: str) -> Callable[[Any, Mapping[str, Any], bool, Progress], Any]:
    def run(lake: Lake, given: Mapping[str, Any], dry_run: bool, progress: Progress) -> Any:
        if dry_run:
            raise InputError("this job has no dry run", hint="GET /api/v1/care says what is due")
        return getattr(lake.table(str(_require(given, "table"))), operation)(progress=progress)

    return run


def _require(given: Mapping[str, Any], name: str) -> Any:
    if name not in given:
        raise InputError(f"the job needs {name}")
    return given[name]


KINDS: Mapping[str, Callable[[Any, Mapping[str, Any], bool, Progress], Any]] = {
    "cleanup": _cleanup,
    "expire": _expire,
    "flush": _on_table("flush_inlined_data"),
    "maintain": _maintain,
    "merge": _on_table("merge_adjacent_files"),
    "orphans": _orphans,
    "refresh": _refresh,
    "restore": _restore,
    "rewrite": _on_table("rewrite_data_files"),
    "rollback": _rollback,
    "verify": _verify,
    "verify_view": _verify_view,
}
_TAKES = {
    "cleanup": {"older_than"},
    "expire": {"older_than", "keep_last", "versions"},
    "flush": {"table"},
    "maintain": set[str](),
    "merge": {"table"},
    "orphans": {"older_than"},
    "refresh": {"view"},
    "restore": {"table", "to"},
    "rewrite": {"table"},
    "rollback": {"to"},
    "verify": {"deep"},
    "verify_view": {"view"},
}


class Jobs:
    """The jobs of this process: a few run at once. Those of others are in the catalog; each process shows all."""

    def __init__(
        self, most: int, told: Callable[[Job], None], lease_seconds: float = 30.0, look_seconds: float = 0.5
    ) -> None:
        self._most = most
        self._told = told
        self._seconds = lease_seconds
        self._look_seconds = min(look_seconds, lease_seconds / _LEASES)
        self._holder = uuid7().hex
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._unsaved: dict[str, tuple[JobRecords, Job]] = {}  # those whose state the catalog must still learn
        self._threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix="quacklake-job")
        self._closed = threading.Event()
        self._keeper: threading.Thread | None = None

    def start(self, lake: Lake, principal: str, kind: str, given: Mapping[str, Any], *, dry_run: bool) -> Job:
        """Start a job. Raise ``InputError`` for one that there is not, and ``TooBusyError`` when too many wait."""
        if kind not in KINDS:
            raise InputError(f"there is no job {kind!r:.40}", hint=f"one of: {', '.join(KINDS)}")
        odd = next((name for name in given if name not in _TAKES[kind]), None)
        if odd is not None:
            raise InputError(f"{kind} has no argument {odd!r:.40}", hint=f"it takes: {', '.join(sorted(_TAKES[kind]))}")
        values, run = dict(given), KINDS[kind]
        return self.begin(lake, principal, kind, lambda progress: run(lake, values, dry_run, progress), dry_run=dry_run)

    def begin(
        self, lake: Lake, principal: str, kind: str, work: Callable[[Progress], Any], *, dry_run: bool = False
    ) -> Job:
        """Start work of a kind that a route has checked. Raise ``TooBusyError`` when too many wait."""
        job = Job(uuid7().hex, kind, principal, dry_run)
        with self._lock:
            self._make_room(principal)
            self._jobs[job.id] = job
        try:
            self._record(lake, job)
        except BaseException:
            with self._lock:
                self._jobs.pop(job.id, None)
            raise
        self._threads.submit(self._run, job, work)
        return job

    def _make_room(self, principal: str) -> None:
        """Forget an ended job of a principal who has as many as it may. Raise ``TooBusyError`` without such a one."""
        mine = [job for job in self._jobs.values() if job.principal == principal]
        if len(mine) >= self._most:
            ended = next((job for job in mine if job.state in ENDED), None)
            if ended is None:
                raise TooBusyError("too many jobs wait")
            del self._jobs[ended.id]
        if len(self._jobs) >= self._most * _PRINCIPALS:
            oldest = next((job for job in self._jobs.values() if job.state in ENDED), None)
            if oldest is not None:
                del self._jobs[oldest.id]

    def _record(self, lake: Lake, job: Job) -> None:
        records = JobRecords(lake, job.principal)
        try:
            records.add(job.shown(), self._holder, self._seconds, self._most)
        except ReadOnlyError:
            return  # a lake that keeps nothing: this process remembers the job
        with self._lock:
            self._unsaved[job.id] = records, job
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="quacklake-job-leases", daemon=True)
                self._keeper.start()

    def of(self, lake: Lake, principal: str) -> list[dict[str, Any]]:
        """Return the jobs of a principal on a lake, newest first; those of this process as they are now."""
        with self._lock:
            mine = {job.id: job.shown() for job in self._jobs.values() if job.principal == principal}
        found = {job["id"]: job for job in JobRecords(lake, principal).all()} | mine
        return [found[id_] for id_ in sorted(found, reverse=True)][: self._most]

    def get(self, lake: Lake, id_: str, principal: str) -> dict[str, Any]:
        """Return a job of a principal. Raise ``NotFoundError``."""
        with self._lock:
            job = self._jobs.get(id_)
        if job is not None and job.principal == principal:
            return job.shown()
        found = JobRecords(lake, principal).find(id_)
        if found is None:
            raise NotFoundError("there is no such job")
        return found

    def elsewhere(self, lake: Lake, principal: str) -> list[dict[str, Any]]:
        """Return the jobs of a principal on a lake that other processes have taken, newest first."""
        found = JobRecords(lake, principal).all()
        with self._lock:
            return [job for job in found if job["id"] not in self._jobs]

    def cancel(self, lake: Lake, id_: str, principal: str) -> dict[str, Any]:
        """Ask a job of a principal to end: before it begins, or after the step that is under way.

        A job that cannot be divided, or that is about to end, is done all the same. One of another process is asked
        through the catalog. Raise ``NotFoundError``.
        """
        with self._lock:
            job = self._jobs.get(id_)
        if job is not None and job.principal == principal:
            job.ask_to_end()
            return job.shown()
        found = JobRecords(lake, principal).cancel(id_)
        if found is None:
            raise NotFoundError("there is no such job")
        return found

    def close(self) -> None:
        """Wait for the jobs that run, and give up those that wait."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            waiting = [job for job in self._jobs.values() if job.state not in ENDED]
        for job in waiting:
            job.error = {"code": "cancelled", "detail": "the service stopped before the job began", "hint": None}
            job.state = "failed"
        self._closed.set()
        if self._keeper is not None:
            self._keeper.join()

    def _keep(self) -> None:
        """Keep the leases of the jobs that wait and run, and tell the catalog what it has not learned yet."""
        is_last, kept = False, time.monotonic()
        while not is_last:
            is_last = self._closed.wait(self._look_seconds)
            if not is_last and time.monotonic() - kept < self._seconds / _LEASES:
                self._look()
                continue
            kept = time.monotonic()
            with self._lock:
                ids = list(self._unsaved)
            for id_ in ids:
                self._save(id_)

    def _look(self) -> None:
        """End the jobs that other processes ask to end: one question to the catalog for those of one principal."""
        with self._lock:
            asked = {
                (id(records.lake), job.principal): records
                for records, job in self._unsaved.values()
                if job.state not in ENDED and not job.cancelling
            }
        for records in asked.values():
            try:
                found = [job["id"] for job in records.all() if job["cancelling"]]
            except Exception as error:
                _log.warning("the catalog was not asked about jobs: %s", type(error).__name__, extra=error_facts(error))
                return
            with self._lock:
                for id_ in found:
                    if id_ in self._unsaved:
                        self._unsaved[id_][1].ask_to_end()

    def _save(self, id_: str) -> None:
        """Write the state of a job; what cannot be written now is written later."""
        with self._saving:  # one after the other: the last state is the last that is written
            with self._lock:
                known = self._unsaved.get(id_)
            if known is None:
                return
            records, job = known
            is_last = job.state in ENDED
            try:
                if records.save(job.shown(), self._holder, self._seconds):
                    job.ask_to_end()
            except Exception as error:
                _log.warning(
                    "the state of job %s was not written: %s",
                    id_,
                    type(error).__name__,
                    extra=error_facts(error, job=id_),
                )
                return
            if is_last:
                with self._lock:
                    self._unsaved.pop(id_, None)

    def _run(self, job: Job, work: Callable[[Progress], Any]) -> None:
        def progress(what: str, done: int, total: int | None) -> None:
            job.stage, job.done, job.total = what, done, total
            if job.cancelling:
                raise CancelledError("the job was cancelled")

        job.state = "running"
        self._save(job.id)
        self._told(job)
        try:
            progress("", 0, None)
            job.result = _plain(work(progress))
            job.state = "done"
        except CancelledError:
            job.state = "cancelled"
        except QuacklakeError as error:
            inside = status_of(error) >= 500
            message, hint = (_INSIDE, None) if inside else (redact(error.message), error.hint)
            job.error, job.state = {"code": error.code, "detail": message, "hint": hint}, "failed"
        except Exception:
            job.error, job.state = {"code": "internal", "detail": _INSIDE, "hint": None}, "failed"
        job.cancelling = False
        self._save(job.id)
        self._told(job)


def _plain(value: Any) -> Any:
    """Return a report as JSON has it, without the paths of files."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {
            str(key): _plain(each) for key, each in value.items() if key not in ("path", "paths", "skipped", "kept")
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
