"""``quacklake maintain``: give a lake the care it wants, once or for good."""

from __future__ import annotations

import datetime as dt
import json
import signal
import sys
import threading
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import DryRun
from quacklake.cli.output import plain
from quacklake.cli.progress import stages
from quacklake.config import parse_duration
from quacklake.errors import InputError, QuacklakeError

if TYPE_CHECKING:
    from quacklake.lake.upkeep import Maintainer
    from quacklake.maintenance.policy import Job
    from quacklake.maintenance.scheduler import JobReport, MaintenanceReport

__all__ = ["maintain"]


_POLICY = "What makes care due"


def _option(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel=_POLICY)


def maintain(
    context: Context,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until interrupted, one pass every --interval.")] = False,
    dry_run: DryRun = False,
    interval: Annotated[str | None, _option("--interval", "TIME", "Time between passes; 1m unless given.")] = None,
    flush_rows: Annotated[int | None, _option("--flush-rows", "N", "Flush tables with N inlined rows.")] = None,
    flush_age: Annotated[str | None, _option("--flush-age", "TIME", "Flush inlined rows older than this.")] = None,
    small_files: Annotated[int | None, _option("--small-files", "N", "Merge tables with N small files.")] = None,
    delete_ratio: Annotated[
        float | None, _option("--delete-ratio", "SHARE", "Rewrite files that lost this share of their rows.")
    ] = None,
    expire_older_than: Annotated[
        str | None, _option("--expire-older-than", "TIME", "Expire snapshots of this age.")
    ] = None,
    delete_older_than: Annotated[
        str | None, _option("--delete-older-than", "TIME", "Delete files that are unused for this long.")
    ] = None,
    orphans_every: Annotated[str | None, _option("--orphans-every", "TIME", "Look for orphans this often.")] = None,
) -> None:
    """One process at a time does so: with --watch others wait and take over when it is gone, else it is an error."""
    from quacklake.lake.upkeep import Maintainer
    from quacklake.maintenance.policy import Policy

    given = {
        "interval": _duration("--interval", interval),
        "flush_rows": flush_rows,
        "flush_age": _duration("--flush-age", flush_age),
        "small_files": small_files,
        "delete_ratio": delete_ratio,
        "expire_older_than": _duration("--expire-older-than", expire_older_than),
        "delete_older_than": _duration("--delete-older-than", delete_older_than),
        "orphans_every": _duration("--orphans-every", orphans_every),
    }
    policy = Policy(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    if watch and dry_run:
        raise InputError("--watch and --dry-run exclude each other")
    with context.open(write=True) as lake:
        maintainer = Maintainer(lake, policy)
        if dry_run:
            _tell(context, [_job_facts(job) for job in maintainer.due()])
        elif watch:
            _watch(context, maintainer)
        else:
            with stages() as progress:
                report = maintainer.run_once(progress)
            _tell(context, [_report_facts(job) for job in report.jobs])
            if report.failed:
                raise report.failed[0].error or QuacklakeError("maintenance failed")


def _duration(option: str, text: str | None) -> dt.timedelta | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=f"'{option}'") from None


def _watch(context: Context, maintainer: Maintainer) -> None:
    """Passes until Ctrl-C or SIGTERM, each told as it ends; the one that runs then is finished first."""
    stop = threading.Event()

    def told(report: MaintenanceReport) -> None:
        jobs = [_report_facts(job) for job in report.jobs]
        if context.output.format == "json":
            sys.stdout.write(json.dumps({"jobs": plain(jobs)}, ensure_ascii=False) + "\n")
            sys.stdout.flush()
        elif jobs:
            _tell(context, jobs)

    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        maintainer.run(stop, told)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _job_facts(job: Job) -> dict[str, Any]:
    return {"job": job.kind.value, "table": job.table, "reason": job.reason}


def _report_facts(done: JobReport) -> dict[str, Any]:
    error = None if done.error is None else done.error.message
    report = asdict(done.report) if is_dataclass(done.report) and not isinstance(done.report, type) else None
    return {**_job_facts(done.job), "seconds": round(done.seconds, 3), "error": error, "report": report}


def _tell(context: Context, jobs: list[dict[str, Any]]) -> None:
    if not jobs:
        context.output.result("nothing is due", {"jobs": []})
    elif context.output.for_people:
        for job in jobs:
            context.output.result(_sentence(job), job)
    else:
        context.output.facts({"jobs": jobs})


def _sentence(job: dict[str, Any]) -> str:
    what = f"{job['job']} {job['table'] or ''}".rstrip()
    outcome = f"failed: {job['error']}" if job.get("error") else f"{job['seconds']} s" if "seconds" in job else "due"
    return f"{what}: {job['reason']}, {outcome}"
