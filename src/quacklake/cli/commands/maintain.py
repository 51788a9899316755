"""``quacklake maintain``: run the maintenance of a lake, once or continuously."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import DryRun, duration_of
from quacklake.cli.output import plain
from quacklake.cli.progress import stages
from quacklake.errors import InputError, QuacklakeError

if TYPE_CHECKING:
    from quacklake.maintenance.policy import Job, Policy
    from quacklake.maintenance.scheduler import JobReport, MaintenanceReport

_POLICY = "What makes care due"


def _option(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel=_POLICY)


Watch = Annotated[bool, typer.Option("--watch", help="Go on until interrupted, one pass every --interval.")]
Interval = Annotated[str | None, _option("--interval", "TIME", "Time between passes; 1m unless given.")]
FlushRows = Annotated[int | None, _option("--flush-rows", "N", "Flush tables with N inlined rows; 10000 unless given.")]
FlushAge = Annotated[str | None, _option("--flush-age", "TIME", "Flush inlined rows older than this; 1h unless given.")]
SmallFiles = Annotated[int | None, _option("--small-files", "N", "Merge tables with N small files; 16 unless given.")]
DeleteRatio = Annotated[
    float | None,
    _option("--delete-ratio", "SHARE", "Rewrite files that lost this share of their rows; 0.3 unless given."),
]
ExpireAge = Annotated[
    str | None,
    _option(
        "--expire-older-than", "TIME", "Expire snapshots of this age; else as the lake's option expire_older_than says."
    ),
]
DeleteAge = Annotated[
    str | None,
    _option(
        "--delete-older-than", "TIME", "Delete files that are unused for this long; 2d unless given, or the lake says."
    ),
]
OrphansEvery = Annotated[
    str | None, _option("--orphans-every", "TIME", "Look this often for files that no commit knows; 1d unless given.")
]


def maintain(
    context: Context,
    watch: Watch = False,
    dry_run: DryRun = False,
    interval: Interval = None,
    flush_rows: FlushRows = None,
    flush_age: FlushAge = None,
    small_files: SmallFiles = None,
    delete_ratio: DeleteRatio = None,
    expire_older_than: ExpireAge = None,
    delete_older_than: DeleteAge = None,
    orphans_every: OrphansEvery = None,
) -> None:
    """What is due is told by --dry-run. Times are written as 30s, 10m, 12h or 7d.

    One process at a time does so: with --watch others wait and take over when it is gone, else it is an error.
    """
    from quacklake.maintenance.scheduler import Maintainer

    ages = (flush_age, expire_older_than, delete_older_than)
    policy = policy_of(interval, flush_rows, small_files, delete_ratio, ages, orphans_every)
    check_watch(watch, dry_run)
    with context.open(write=True) as lake:
        maintainer = Maintainer(lake.maintenance, policy)
        if dry_run:
            _tell(context, [_job_facts(job) for job in maintainer.due()])
        elif watch:
            until_interrupted(lambda stop: maintainer.run(stop, lambda report: _told(context, report)))
        else:
            with stages() as progress:
                report = maintainer.run_once(progress)
            _tell(context, [report_facts(job) for job in report.jobs])
            if report.failed:
                raise report.failed[0].error or QuacklakeError("maintenance failed")


def policy_of(
    interval: str | None,
    flush_rows: int | None,
    small_files: int | None,
    delete_ratio: float | None,
    ages: tuple[str | None, str | None, str | None],
    orphans_every: str | None,
) -> Policy:
    """Return the policy of these options. The ages are those for flushing, expiring and deleting."""
    from quacklake.maintenance.policy import Policy

    names = ("flush_age", "expire_older_than", "delete_older_than")
    times = {"interval": interval, "orphans_every": orphans_every, **dict(zip(names, ages, strict=True))}
    given: dict[str, Any] = {"flush_rows": flush_rows, "small_files": small_files, "delete_ratio": delete_ratio}
    given |= {name: None if text is None else duration_of(name, text) for name, text in times.items()}
    return Policy(**{name: value for name, value in given.items() if value is not None})


def check_watch(watch: bool, dry_run: bool) -> None:
    """Raise ``InputError`` for options that contradict each other."""
    if watch and dry_run:
        raise InputError("--watch and --dry-run exclude each other")


def until_interrupted(run: Callable[[threading.Event], None]) -> None:
    """Run until Ctrl-C or SIGTERM. Work in progress is finished first."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        run(stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def json_line(facts: dict[str, Any]) -> None:
    """Print the result of a pass as one line of JSON, for programs that read along."""
    sys.stdout.write(json.dumps(plain(facts), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _told(context: Context, report: MaintenanceReport) -> None:
    jobs = [report_facts(job) for job in report.jobs]
    if context.output.format == "json":
        json_line({"jobs": jobs})
    elif jobs:
        _tell(context, jobs)


def _job_facts(job: Job) -> dict[str, Any]:
    return {"job": job.kind.value, "table": job.table, "reason": job.reason}


def report_facts(done: JobReport) -> dict[str, Any]:
    """Return the result of a job, for programs."""
    error = None if done.error is None else done.error.message
    report = asdict(done.report) if is_dataclass(done.report) and not isinstance(done.report, type) else None
    return {**_job_facts(done.job), "seconds": round(done.seconds, 3), "error": error, "report": report}


def _tell(context: Context, jobs: list[dict[str, Any]]) -> None:
    if not jobs:
        context.output.result("nothing is due", {"jobs": []})
    elif context.output.for_people:
        for job in jobs:
            context.output.result(sentence(job), job)
    else:
        context.output.facts({"jobs": jobs})


def sentence(job: dict[str, Any]) -> str:
    """Return the result of a job as a sentence, for people."""
    what = f"{job['job']} {job['table'] or ''}".rstrip()
    outcome = f"failed: {job['error']}" if job.get("error") else f"{job['seconds']} s" if "seconds" in job else "due"
    return f"{what}: {job['reason']}, {outcome}"
