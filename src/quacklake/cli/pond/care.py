"""``pond verify``, ``maintain`` and ``config``."""

from __future__ import annotations

from typing import Annotated, Any

from quacklake.cli.commands.maintain import POLICY, job_facts, policy_of, report_facts, sentence
from quacklake.cli.options import DryRun, also, argument, option
from quacklake.cli.output import human_size, plural
from quacklake.cli.pond.context import PondContext
from quacklake.cli.progress import stages
from quacklake.errors import QuacklakeError

SETTINGS = {
    "timezone": "The zone of times that are written without one, such as UTC or Europe/Berlin",
}
"""The settings of a pond."""


def verify(
    context: PondContext, deep: Annotated[bool, option("--deep", "Also read all rows of tables and series.")] = False
) -> int:
    """Large files are compared with the hash they were stored under. The exit code is 1 if there is a problem."""
    from quacklake.pond.verifying import verify as verify_pond

    with context.pond() as pond, stages() as progress:
        report = verify_pond(pond, deep=deep, progress=progress)
    if context.output.for_people:
        for problem in report.problems:
            context.output.say(f"{problem.path}: {problem.what}")
        found = plural(len(report.problems), "problem") if report.problems else "no problem"
        context.output.say(
            f"checked {plural(report.nodes, 'node')} and {plural(report.large_files, 'large file')}: {found}"
        )
    else:
        problems = [{"path": each.path, "what": each.what} for each in report.problems]
        context.output.facts({"nodes": report.nodes, "large_files": report.large_files, "problems": problems})
    return 1 if report.problems else 0


@also(POLICY)
def maintain(context: PondContext, dry_run: DryRun = False, **options: Any) -> None:
    """It refreshes resolutions, merges small files, expires old states if asked to, and removes what nothing needs.

    Large files are removed two days after the last state that names them is gone. Times are written as 30s, 12h or 7d.
    """
    from quacklake import Job
    from quacklake.pond.maintaining import maintain as maintain_pond

    policy = policy_of(options, watch=False, dry_run=dry_run)
    with context.pond(write=True) as pond, stages() as progress:
        done = maintain_pond(pond, policy, dry_run=dry_run, progress=progress)
    jobs = [job_facts(job) if isinstance(job, Job) else report_facts(job) for job in done.jobs]
    large = done.large
    lines = [sentence(job) for job in jobs]
    if done.reductions.refreshed:
        lines.insert(0, f"{plural(done.reductions.refreshed, 'resolution')} brought up to date")
    if large.files:
        verb = "removed" if large.removed else "would be removed"
        lines.append(f"{plural(large.files, 'large file')} ({human_size(large.bytes)}) {verb}")
    facts = {
        "jobs": jobs,
        "refreshed": done.reductions.refreshed,
        "large_files": large.files,
        "large_bytes": large.bytes,
        "dry_run": dry_run,
    }
    context.output.result("\n".join(lines) or "nothing is due", facts)
    failed = next((job["error"] for job in jobs if job.get("error")), None)
    if failed is not None:
        raise QuacklakeError(f"maintenance failed: {failed}")


def config_show(context: PondContext) -> None:
    """Each has its value, and what it is for."""
    import pyarrow as pa

    with context.pond() as pond:
        chosen = pond.control.settings()
    rows = [{"name": name, "value": chosen.get(name), "meaning": meaning} for name, meaning in SETTINGS.items()]
    context.output.rows(pa.Table.from_pylist(rows))


def config_set(
    context: PondContext,
    name: Annotated[str, argument("NAME", "The name of the setting.")],
    value: Annotated[str, argument("VALUE", "Its value; empty to remove it.")],
) -> None:
    """Settings belong to the pond, and hold for every command."""
    from quacklake.errors import ConfigError, nearest
    from quacklake.pond.times import check_zone

    if name not in SETTINGS:
        raise ConfigError(
            f"there is no setting {name!r}", hint=nearest(name, SETTINGS) or f"one of {', '.join(SETTINGS)}"
        )
    if name == "timezone" and value:
        check_zone(value)
    context.change(lambda pond, fs: fs.change_setting(name, value or None))
    context.output.result(f"{name} is {value or 'not set'}", {"name": name, "value": value or None})
