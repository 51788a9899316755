"""``quacklake maintain``, ``compact``, ``expire``, ``cleanup`` and ``verify``: keep a lake small, fast and intact."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.context import Context
from quacklake.cli.options import (
    AllRows,
    Bundle,
    DryRun,
    Yes,
    also,
    argument,
    complete_table,
    duration_of,
    names_of,
    option,
    whole_number,
)
from quacklake.cli.output import human_size, plain, plural
from quacklake.cli.progress import stages
from quacklake.errors import InputError, QuacklakeError

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake import (
        CleanupReport,
        CompactionReport,
        Finding,
        Job,
        JobReport,
        MaintenanceReport,
        Policy,
        RepairReport,
        Skipped,
    )

_BROKEN = 1
_SHOWN = 20
"""The most paths that are printed for people."""


Watch = Annotated[bool, option("--watch", "Run until interrupted, with one pass every --interval.")]

POLICY: Bundle = {
    name: (
        Annotated[
            kind, option(f"--{name.replace('_', '-')}", help, metavar, rich_help_panel="When maintenance is due")
        ],
        None,
    )
    for name, kind, metavar, help in (
        ("interval", str | None, "TIME", "The time between passes; by default 1m."),
        ("flush_rows", int | None, "N", "Flush tables with this many inlined rows; by default 10000."),
        ("flush_age", str | None, "TIME", "Flush inlined rows of this age; by default 1h."),
        ("small_files", int | None, "N", "Merge files of tables with this many small files; by default 16."),
        ("delete_ratio", float | None, "SHARE", "Rewrite files with this share of their rows deleted; by default 0.3."),
        (
            *("expire_older_than", str | None, "TIME"),
            "Expire snapshots of this age; by default the lake's expire_older_than.",
        ),
        (
            *("delete_older_than", str | None, "TIME"),
            "Remove files unused for this long; by default the lake's value, or 2d.",
        ),
        ("orphans_every", str | None, "TIME", "How often to look for orphaned files; by default 1d."),
    )
}
"""The options of a maintenance policy."""


@also(POLICY)
def maintain(context: Context, watch: Watch = False, dry_run: DryRun = False, **options: Any) -> None:
    """It flushes inlined rows, merges and rewrites files, expires snapshots and removes files, if that is due.

    It also refreshes the materialized views whose schedule asks for it.

    Only one process at a time maintains a lake. With --watch, others wait and take over; without it, that is an error.
    Times are written as 30s, 10m, 12h or 7d.
    """
    from quacklake.cli.commands.views import sentence as refreshed

    policy = policy_of(options, watch=watch, dry_run=dry_run)
    with context.open(write=True) as lake:
        maintainer = lake.maintenance.maintainer(policy)
        if dry_run:
            _print_jobs(context, [job_facts(job) for job in maintainer.due()])
        elif watch:
            stop = threading.Event()
            refreshes = lake.materialized_views.keep_refreshed(lambda report: context.output.say(refreshed(report)))
            with refreshes, stopping(stop.set):
                maintainer.run(stop, lambda report: _print_pass(context, report))
        else:
            with stages() as progress:
                report = maintainer.run_once(progress)
            for done in lake.materialized_views.refresh_due():
                context.output.say(refreshed(done))
            _print_jobs(context, [report_facts(job) for job in report.jobs])
            if report.failed:
                raise report.failed[0].error or QuacklakeError("maintenance failed")


def policy_of(options: dict[str, Any], *, watch: bool, dry_run: bool) -> Policy:
    """Return the policy of these options, of which texts are durations. Raise ``InputError`` for a contradiction."""
    from quacklake import Policy

    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    times = {name: duration_of(name, value) for name, value in given.items() if isinstance(value, str)}
    policy = Policy(**given | times)
    if watch and dry_run:
        raise InputError("--watch cannot be combined with --dry-run")
    return policy


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Call a function at Ctrl-C or SIGTERM, which lets work in progress be finished first."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def json_line(facts: dict[str, Any]) -> None:
    """Print the result of a pass as one line of JSON, for programs that read along."""
    sys.stdout.write(json.dumps(plain(facts), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _print_pass(context: Context, report: MaintenanceReport) -> None:
    jobs = [report_facts(job) for job in report.jobs]
    if context.output.format == "json":
        json_line({"jobs": jobs})
    elif jobs:
        _print_jobs(context, jobs)


def job_facts(job: Job) -> dict[str, Any]:
    """Return a job that is due, for programs."""
    return {"job": job.kind.value, "table": job.table, "reason": job.reason}


def report_facts(done: JobReport) -> dict[str, Any]:
    """Return the result of a job, for programs."""
    error = None if done.error is None else done.error.message
    report = asdict(done.report) if is_dataclass(done.report) and not isinstance(done.report, type) else None
    return {**job_facts(done.job), "seconds": round(done.seconds, 3), "error": error, "report": report}


def _print_jobs(context: Context, jobs: list[dict[str, Any]]) -> None:
    context.output.result("\n".join(map(sentence, jobs)) or "nothing is due", {"jobs": jobs})


def sentence(job: dict[str, Any]) -> str:
    """Return the result of a job as a sentence, for people."""
    what = f"{job['job']} {job['table'] or ''}".rstrip()
    outcome = f"failed: {job['error']}" if job.get("error") else f"{job['seconds']} s" if "seconds" in job else "due"
    return f"{what}: {job['reason']}, {outcome}"


def compact(
    context: Context,
    table: Annotated[
        str | None,
        argument("TABLE", "The table, or schema.table; without it, every table.", autocompletion=complete_table),
    ] = None,
    delete_threshold: Annotated[
        float | None, option("--delete-threshold", "Rewrite files with this share of their rows deleted.", "SHARE")
    ] = None,
    order_by: Annotated[
        str | None, option("--order-by", "Rewrite all files of the table, sorted by these columns.", "NAMES")
    ] = None,
    zorder: Annotated[
        str | None, option("--zorder", "Rewrite all files of the table in Z-order of these columns.", "NAMES")
    ] = None,
    where: Annotated[
        str | None, option("--where", "Only files of the table that may have rows with this condition.", "FILTER")
    ] = None,
) -> None:
    """Writers can continue meanwhile. Older snapshots keep their files, until `quacklake cleanup` removes them."""
    if delete_threshold is not None and not 0 <= delete_threshold <= 1:  # before anything is changed
        raise InputError(f"--delete-threshold must be between 0 and 1, not {delete_threshold}")
    if table is None and (order_by or zorder or where is not None):
        raise InputError("--order-by, --zorder and --where need a table")
    with context.open(write=True) as lake, stages() as progress:
        reports: list[CompactionReport]
        if table is None:
            care = lake.maintenance
            reports = [
                *care.flush_inlined_data(progress=progress),
                *care.merge_adjacent_files(progress=progress),
                *care.rewrite_data_files(delete_threshold=delete_threshold, progress=progress),
            ]
        elif order_by or zorder:
            keys, curve = names_of(order_by), names_of(zorder)
            reports = [lake.table(table).optimize(order_by=keys, zorder=curve, where=where, progress=progress)]
        else:
            found = lake.table(table)
            reports = [
                found.flush_inlined_data(progress=progress),
                found.merge_adjacent_files(where=where, progress=progress),
                found.rewrite_data_files(delete_threshold, where=where, progress=progress),
            ]
    if not (order_by or zorder):
        reports = [report for report in reports if report.snapshot is not None or report.skipped]
    if not context.output.for_people:
        context.output.rows(_compaction_rows(reports))
        return
    for report in reports:
        context.output.say(_compaction_sentence(report))
        _say_skipped(context, report.skipped, "left alone")
    if not reports:
        context.output.say("there was nothing to do")


def _compaction_sentence(report: CompactionReport) -> str:
    what = f"{report.operation} {report.table}"
    if report.snapshot is None:
        return f"{what}: nothing to do"
    files = f"{plural(report.files_before, 'file')} became {report.files_after:,}"
    return f"{what}: {files}, {plural(report.rows, 'row')}, in snapshot {report.snapshot}"


def _compaction_rows(reports: Sequence[CompactionReport]) -> pa.Table:
    import pyarrow as pa

    fields = {"operation": pa.string(), "table": pa.string()}
    numbers = ("snapshot", "files_before", "files_after", "bytes_before", "bytes_after", "rows")
    schema = pa.schema([*fields.items(), *((name, pa.int64()) for name in numbers)])
    return pa.Table.from_pylist([asdict(report) for report in reports], schema=schema)


def expire(
    context: Context,
    older_than: Annotated[
        str | None, option("--older-than", "Snapshots older than a time or an age: 7d, 12h, '1 month'.", "AGE")
    ] = None,
    keep_last: Annotated[int | None, option("--keep-last", "Keep at least the newest N snapshots.", "N")] = None,
    versions: Annotated[
        str | None, option("--versions", "Expire these snapshots, separated by commas.", "NUMBERS")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Without options, the lake's option expire_older_than applies. The newest snapshot and tagged ones always stay."""
    chosen = None if versions is None else [whole_number(text, "--versions") for text in names_of(versions) or ()]
    with context.open(write=True) as lake:
        if not dry_run:
            context.confirm(f"Expire old snapshots of {lake.url} permanently?", yes=yes)
        with stages() as progress:
            report = lake.expire_snapshots(
                older_than, versions=chosen, keep_last=keep_last, dry_run=dry_run, progress=progress
            )
    files = report.data_files + report.delete_files
    verb = "would expire" if report.dry_run else "expired"
    words = f"{plural(len(report.snapshots), 'snapshot')} {verb}; the oldest that remains is {report.oldest}"
    if files:
        words += f"; `quacklake cleanup` can remove {plural(files, 'file')} ({human_size(report.bytes)})"
    facts = asdict(report)
    context.output.result(words, {**facts, "snapshots": list(report.snapshots), "kept": list(facts["kept"])})
    _say_skipped(context, report.kept, "kept")


def cleanup(
    context: Context,
    older_than: Annotated[
        str | None, option("--older-than", "Files unused since a time or for an age: 2d, 36h.", "AGE")
    ] = None,
    all: Annotated[bool, option("--all", "Files of any age; only safe while nobody uses the lake.")] = False,
    orphans: Annotated[bool, option("--orphans", "Remove orphaned files, which crashes have left behind.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """By default, the age is the lake's option delete_older_than, or two days; for orphans the setting orphan_grace."""
    with context.open(write=True) as lake:
        if not dry_run:
            context.confirm(f"Remove unused files of {lake.url} permanently?", yes=yes)
        with stages() as progress:
            work = lake.delete_orphaned_files if orphans else lake.cleanup_old_files
            report = work(older_than, cleanup_all=all, dry_run=dry_run, progress=progress)
    facts = asdict(report)
    context.output.result(
        _cleanup_sentence(report), {**facts, "paths": list(report.paths), "skipped": list(facts["skipped"])}
    )
    _say_skipped(context, report.skipped, "left alone")


def _cleanup_sentence(report: CleanupReport) -> str:
    size = "" if report.bytes is None else f" ({human_size(report.bytes)})"
    lines = [f"{plural(report.files, 'file')}{size} {'would be removed' if report.dry_run else 'removed'}"]
    if report.dry_run:
        shown = report.paths[:_SHOWN]
        lines += [f"  {path}" for path in shown]
        lines += [f"  … and {report.files - len(shown):,} more"] if report.files > len(shown) else []
    if report.failed:
        lines.append(f"{plural(report.failed, 'file')} could not be removed; the next cleanup tries again")
    return "\n".join(lines)


def _say_skipped(context: Context, skipped: Sequence[Skipped], verb: str) -> None:
    for found in skipped:
        context.output.say(f"  {verb}: {found.what}: {found.reason}")


def verify(
    context: Context,
    deep: Annotated[bool, option("--deep", "Also read all rows.")] = False,
    repair: Annotated[bool, option("--repair", "Show what can be repaired without losing anything.")] = False,
    yes: Annotated[bool, option("--yes -y", "With --repair, repair it.")] = False,
    all_rows: AllRows = False,
) -> int:
    """It checks the catalog and the files. The exit code is 1 if there are errors, and 0 if there are only warnings."""
    if yes and not repair:
        raise InputError("--yes needs --repair")
    count = context.terminal_limit(None, all_rows)
    with context.open(write=repair and yes) as lake:
        with stages() as progress:
            report = lake.verify(deep=deep, progress=progress)
        if repair:
            done = lake.maintenance.repair(report, dry_run=not yes)
            _print_repair(context, done, count)
            remaining = (*done.left, *(done.repaired if done.dry_run else ()))
            return _BROKEN if any(found.severity == "error" for found in remaining) else 0
    if context.output.for_people and report.ok:
        context.output.say(f"no damage found: {plural(report.files, 'file')}, snapshot {report.snapshot}")
    else:
        context.print_list(_finding_rows(report.findings), count)
    for skipped in report.skipped:
        context.output.say(f"not checked: {skipped.what}: {skipped.reason}")
    return _BROKEN if report.errors else 0


def _print_repair(context: Context, done: RepairReport, shown: int | None) -> None:
    if not context.output.for_people:
        context.output.rows(_finding_rows((*done.repaired, *done.left)))
        return
    if done.repaired:
        context.print_list(_finding_rows(done.repaired), shown)
    count = plural(len(done.repaired), "finding")
    verb = (
        f"{count} can be repaired with --repair --yes"
        if done.dry_run
        else f"{count} repaired in snapshot {done.snapshot}"
    )
    context.output.say(verb if done.repaired else "nothing to repair")
    if done.left:
        context.print_list(_finding_rows(done.left), shown)
        context.output.say(f"{plural(len(done.left), 'finding')} cannot be repaired")


def _finding_rows(findings: Sequence[Finding]) -> pa.Table:
    import pyarrow as pa

    names = ("code", "severity", "what", "table", "file_id", "repairable", "hint")
    types = {"file_id": pa.int64(), "repairable": pa.bool_()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in names])
    return pa.Table.from_pylist([{name: getattr(found, name) for name in names} for found in findings], schema=schema)
