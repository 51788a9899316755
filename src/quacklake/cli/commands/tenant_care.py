"""``quacklake tenant limit`` and ``maintain``: limits and maintenance for the catalogs of a shared lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from quacklake.cli.commands.maintain import (
    DeleteAge,
    DeleteRatio,
    ExpireAge,
    FlushAge,
    FlushRows,
    Interval,
    OrphansEvery,
    SmallFiles,
    Watch,
    check_watch,
    json_line,
    policy_of,
    report_facts,
    sentence,
    until_interrupted,
)
from quacklake.cli.commands.tenant import tenants_of
from quacklake.cli.context import Context
from quacklake.cli.options import DryRun, duration_of
from quacklake.cli.output import plural
from quacklake.cli.progress import stages
from quacklake.config import parse_size
from quacklake.errors import QuacklakeError

if TYPE_CHECKING:
    from quacklake.tenancy.rounds import RoundReport, TenantVisit

OneOrAll = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="a catalog; without, all for which nothing else is said", show_default=False),
]
_NONE = "none"


def _number(name: str, help: str) -> Any:
    return typer.Option(name, metavar="N|none", help=help)


def limit(
    context: Context,
    name: OneOrAll = None,
    commits_per_second: Annotated[str | None, _number("--commits-per-second", "Commits in a second.")] = None,
    concurrent_scans: Annotated[str | None, _number("--concurrent-scans", "Scans at a time in a process.")] = None,
    size: Annotated[str | None, _number("--bytes", "Size of the data files, such as 10GB.")] = None,
    tables: Annotated[str | None, _number("--tables", "Tables.")] = None,
    snapshots: Annotated[str | None, _number("--snapshots", "Snapshots that are kept.")] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Forget first what was said.")] = False,
) -> None:
    """What is not named stays as it is; none stands for no limit."""
    texts = {
        "commits_per_second": commits_per_second,
        "concurrent_scans": concurrent_scans,
        "bytes": size,
        "tables": tables,
        "snapshots": snapshots,
    }
    given: dict[str, Any] = {key: _value(key, text) for key, text in texts.items() if text is not None}
    with tenants_of(context) as found:
        now = found.limit(name, reset=reset, **given)
    context.output.facts(now.asdict())


def _value(name: str, text: str) -> float | None:
    try:
        if text == _NONE:
            return None
        return float(text) if name == "commits_per_second" else parse_size(text) if name == "bytes" else _whole(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=f"'--{name.replace('_', '-')}'") from None


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("a whole number, or none, is expected")
    return int(text)


def limits(context: Context, name: OneOrAll = None) -> None:
    """What is empty has no limit."""
    with tenants_of(context) as found:
        context.output.facts(found.limits(name).asdict())


def maintain(
    context: Context,
    watch: Watch = False,
    dry_run: DryRun = False,
    most: Annotated[
        int | None, typer.Option("--tenants", metavar="N", help="Most catalogs in a round; 100 unless given.")
    ] = None,
    files: Annotated[
        int | None, typer.Option("--files", metavar="N", help="Most files in a round; 10000 unless given.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="Longest time of a round; 10m unless given.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", metavar="N", help="Catalogs at a time.")] = 1,
    engine: Annotated[Literal["duckdb", "spark"], typer.Option("--engine", help="What compacts.")] = "duckdb",
    interval: Interval = None,
    flush_rows: FlushRows = None,
    flush_age: FlushAge = None,
    small_files: SmallFiles = None,
    delete_ratio: DeleteRatio = None,
    expire_older_than: ExpireAge = None,
    delete_older_than: DeleteAge = None,
    orphans_every: OrphansEvery = None,
) -> None:
    """A round goes on where the last one stopped. What goes wrong with one keeps no other from its turn."""
    from quacklake.tenancy.rounds import RoundLimits

    ages = (flush_age, expire_older_than, delete_older_than)
    policy = policy_of(interval, flush_rows, small_files, delete_ratio, ages, orphans_every)
    check_watch(watch, dry_run)
    given = {"tenants": most, "files": files, "time": None if time is None else duration_of("time", time)}
    bounds = RoundLimits(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    with tenants_of(context) as found:
        maintainer = found.maintainer(policy, bounds=bounds, threads=threads, engine=engine)
        if dry_run:
            due = maintainer.due()
            context.output.result("\n".join(due) or "nothing is due", {"tenants": due})
        elif watch:
            until_interrupted(lambda stop: maintainer.run(stop, lambda report: _told(context, report)))
        else:
            with stages() as progress:
                report = maintainer.run_once(progress)
            _tell(context, report)
            if report.failed:
                raise _error(report.failed[0])


def _error(visit: TenantVisit) -> QuacklakeError:
    errors = [visit.error, *(job.error for job in visit.report.failed)]
    return next(error for error in errors if error is not None)


def _told(context: Context, report: RoundReport) -> None:
    if context.output.format == "json":
        json_line(_facts(report))
    elif report.tenants:
        _tell(context, report)


def _tell(context: Context, report: RoundReport) -> None:
    if not context.output.for_people:
        context.output.facts(_facts(report))
        return
    for visit in report.tenants:
        if visit.error is not None:
            context.output.say(f"{visit.name}: {'left alone' if visit.busy else 'failed'}: {visit.error.message}")
        for job in visit.report.jobs:
            context.output.say(f"{visit.name}: {sentence(report_facts(job))}")
    rest = "" if report.complete else "; there may be more to do"
    seen = f"{plural(len(report.tenants), 'catalog')} of {report.looked:,} visited"
    context.output.say(f"{seen}, {plural(report.files, 'file')}{rest}")


def _facts(report: RoundReport) -> dict[str, Any]:
    visits = [
        {
            "tenant": visit.name,
            "seconds": round(visit.seconds, 3),
            "error": None if visit.error is None else visit.error.message,
            "busy": visit.busy,
            "jobs": [report_facts(job) for job in visit.report.jobs],
        }
        for visit in report.tenants
    ]
    return {"tenants": visits, "looked": report.looked, "files": report.files, "complete": report.complete}
