"""``quacklake maintain``: give a lake the care it wants, once or for good."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import signal
import sys
import threading
from dataclasses import asdict, is_dataclass
from typing import Any

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.cli.output import plain
from quacklake.cli.progress import stages
from quacklake.config import parse_duration
from quacklake.errors import InputError, QuacklakeError
from quacklake.lake.upkeep import Maintainer
from quacklake.maintenance.policy import Job, Policy
from quacklake.maintenance.scheduler import JobReport, MaintenanceReport

__all__ = ["MAINTAIN"]


def _duration(text: str) -> dt.timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="go on until interrupted, one pass every --interval")
    parser.add_argument("--dry-run", action="store_true", help="only say what is due")
    policy = parser.add_argument_group("what makes care due")
    policy.add_argument("--interval", type=_duration, metavar="TIME", help="time between passes (default: 1m)")
    policy.add_argument("--flush-rows", type=int, metavar="N", help="flush tables with N inlined rows")
    policy.add_argument("--flush-age", type=_duration, metavar="TIME", help="flush inlined rows older than this")
    policy.add_argument("--small-files", type=int, metavar="N", help="merge tables with N small files")
    policy.add_argument("--delete-ratio", type=float, metavar="SHARE", help="rewrite files that lost this share")
    policy.add_argument("--expire-older-than", type=_duration, metavar="TIME", help="expire snapshots of this age")
    policy.add_argument("--delete-older-than", type=_duration, metavar="TIME", help="delete files that long unused")
    policy.add_argument("--orphans-every", type=_duration, metavar="TIME", help="look for orphans this often")


def _policy(arguments: argparse.Namespace) -> Policy:
    names = (
        "interval",
        "flush_rows",
        "flush_age",
        "small_files",
        "delete_ratio",
        "expire_older_than",
        "delete_older_than",
        "orphans_every",
    )
    given = {name: getattr(arguments, name) for name in names}
    return Policy(**{name: value for name, value in given.items() if value is not None})


def _run(context: Context) -> None:
    arguments = context.arguments
    policy = _policy(arguments)
    if arguments.watch and arguments.dry_run:
        raise InputError("--watch and --dry-run exclude each other")
    with context.open(write=True) as lake:
        maintainer = Maintainer(lake, policy)
        if arguments.dry_run:
            _tell(context, [_job_facts(job) for job in maintainer.due()])
        elif arguments.watch:
            _watch(context, maintainer)
        else:
            with stages() as progress:
                report = maintainer.run_once(progress)
            _tell(context, [_report_facts(job) for job in report.jobs])
            if report.failed:
                raise report.failed[0].error or QuacklakeError("maintenance failed")


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
    elif context.output.format == "table":
        for job in jobs:
            context.output.result(_sentence(job), job)
    else:
        context.output.facts({"jobs": jobs})


def _sentence(job: dict[str, Any]) -> str:
    what = f"{job['job']} {job['table'] or ''}".rstrip()
    outcome = f"failed: {job['error']}" if job.get("error") else f"{job['seconds']} s" if "seconds" in job else "due"
    return f"{what}: {job['reason']}, {outcome}"


MAINTAIN = Command("maintain", "Flush, merge, rewrite, expire and clean up what is due", _run, _configure)
