"""``quacklake tenant``: the catalogs (tenants) of a shared lake."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from quacklake.cli.commands.maintain import (
    POLICY,
    Watch,
    json_line,
    policy_of,
    report_facts,
    sentence,
    stopping,
)
from quacklake.cli.context import Context
from quacklake.cli.options import Bundle, DryRun, Yes, also, argument, count_of, duration_of, option
from quacklake.cli.output import plural
from quacklake.cli.progress import stages
from quacklake.config import parse_size
from quacklake.errors import ConfigError, InputError

if TYPE_CHECKING:
    from quacklake import RoundReport, Tenant, Tenants

_ALL = 1_000_000
Name = Annotated[str, argument("NAME", "The name of the catalog.")]
NewName = Annotated[str, argument("NEW_NAME", "The name of the new catalog.")]
OneOrAll = Annotated[
    str | None, argument("NAME", "The name of the catalog; without it, all catalogs without limits of their own.")
]
Prefix = Annotated[str, option("--prefix", "Only catalogs whose names begin with this.", "TEXT")]
Count = Annotated[str, option("--limit -n", 'The number of catalogs, or "all".', "CATALOGS")]
Role = Annotated[str, argument("ROLE", "A role of the PostgreSQL database.")]


def _open(context: Context, *, make: bool = False, convert: str | None = None) -> Tenants:
    """Open the shared lake of the settings. ``convert`` names the first catalog when a plain lake is converted."""
    from quacklake.lake.tenants import tenants

    if context.config.url is None:
        raise ConfigError("no lake was given", hint="pass --lake, or set QUACKLAKE_URL")
    options = context.options
    make_it = None if make else False
    return tenants(options.lake, options.data_path, create=make_it, convert=convert, config_file=options.config_file)


def _facts(tenant: Tenant) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "id": tenant.id,
        "uuid": tenant.uuid,
        "data_path": tenant.data_path,
        "created": tenant.created.isoformat(timespec="seconds"),
    }


def create(
    context: Context,
    names: Annotated[list[str], argument("NAME", "The names of the catalogs.")],
    if_not_exists: Annotated[bool, option("--if-not-exists", "Skip catalogs that exist.")] = False,
    files: Annotated[str | None, option("--files", "The folder or s3:// URL of a single catalog.", "PATH")] = None,
) -> None:
    """All catalogs are created, or none. With --data-path, the command creates a missing shared lake."""
    if files is not None and len(names) > 1:
        raise InputError("--files needs a single catalog", hint="create the catalogs one by one")
    with _open(context, make=True) as found:
        if files is not None:
            made = [found.create(names[0], if_not_exists=if_not_exists, data_path=files)]
        else:
            made = found.create_many(names, if_not_exists=if_not_exists)
    context.output.result(
        f"{plural(len(made), 'catalog')}: {', '.join(tenant.name for tenant in made)}",
        {"catalogs": [_facts(tenant) for tenant in made]},
    )


def list_(
    context: Context,
    prefix: Prefix = "",
    after: Annotated[str | None, option("--after", "Only catalogs after this one, to continue a list.", "NAME")] = None,
    limit: Count = "1000",
) -> None:
    """Dropped catalogs are not listed."""
    with _open(context) as found:
        rows = [_facts(tenant) for tenant in found.list(prefix, after=after, limit=count_of(limit) or _ALL)]
    _print_rows(context, rows, ("name", "id", "uuid", "data_path", "created"))


def show(context: Context, name: Name) -> None:
    """Names are case-insensitive."""
    with _open(context) as found:
        context.output.facts(_facts(found.get(name)))


def rename(context: Context, name: Name, new_name: Annotated[str, argument("NEW_NAME", "The new name.")]) -> None:
    """Clients that have the catalog open can continue."""
    with _open(context) as found:
        tenant = found.rename(name, new_name)
    context.output.result(f"renamed {name} to {tenant.name}", _facts(tenant))


def drop(context: Context, name: Name, yes: Yes = False) -> None:
    """Nobody can open the catalog any more, and its name is free."""
    with _open(context) as found:
        found.get(name)
        context.confirm(f"Drop the catalog {name} with all its tables?", yes=yes)
        tenant = found.drop(name)
    context.output.result(f"dropped {name}; `quacklake tenant purge` removes its rows and files", {"id": tenant.id})


def purge(
    context: Context,
    limit: Count = "1000",
    grace: Annotated[
        str | None, option("--grace", "How long clients may still write after the drop, such as 1h.", "TIME")
    ] = None,
    yes: Yes = False,
) -> None:
    """A purged catalog cannot be restored. The first purge after --grace checks its folder once more."""
    span = None if grace is None else duration_of("grace", grace)
    with _open(context) as found, stages() as progress:
        context.confirm("Remove the rows and files of all dropped catalogs permanently?", yes=yes)
        done = found.purge(limit=count_of(limit) or _ALL, grace=span, progress=progress)
    context.output.result(
        f"{plural(done.catalogs, 'catalog')} purged: {plural(done.files, 'file')}, {plural(done.rows, 'row')}",
        asdict(done),
    )


def export(
    context: Context,
    name: Name,
    to: Annotated[str, argument("URL", "The URL of the new lake: an empty database.")],
    files: Annotated[str | None, option("--files", "The folder or s3:// URL for new files.", "PATH")] = None,
    copy_data: Annotated[bool, option("--copy-data", "Copy all files.")] = False,
) -> None:
    """Stock DuckDB can open the new lake. Without --copy-data, it uses the files of the catalog, which keeps them."""
    with _open(context) as found, stages() as progress:
        done = found.export(name, to, data_path=files, copy_data=copy_data, progress=progress)
    context.output.result(
        f"exported {name} to {done.url}: {plural(done.files, 'file')}, {done.copied} copied", asdict(done)
    )


def release(context: Context, name: Name, to: Annotated[str, argument("URL", "The URL of the exported lake.")]) -> None:
    """Do not use the exported lake any more, unless it was exported with --copy-data."""
    with _open(context) as found:
        found.release(name, to)
    context.output.result(f"{name} no longer keeps files for {to}", {"catalog": name})


def adopt(context: Context, url: Annotated[str, argument("URL", "The URL of the plain lake.")], name: Name) -> None:
    """The plain lake does not change, and must keep the files that the catalog uses."""
    with _open(context) as found, stages() as progress:
        tenant = found.adopt(url, name, progress=progress)
    context.output.result(f"created the catalog {tenant.name} from {url}", _facts(tenant))


def convert(context: Context, name: Name, yes: Yes = False) -> None:
    """Its files stay where they are; new catalogs get folders in --data-path. Stock DuckDB can no longer open it."""
    context.confirm(f"Convert the plain lake to a shared lake with the catalog {name}?", yes=yes)
    with _open(context, convert=name) as found:
        tenant = found.get(name)
    context.output.result(f"converted the lake to a shared lake with the catalog {tenant.name}", _facts(tenant))


def fork(context: Context, name: Name, new_name: NewName) -> None:
    """Only metadata is copied. From then on, each catalog changes independently of the other."""
    with _open(context) as found:
        tenant = found.fork(name, new_name)
    context.output.result(f"forked {name} as {tenant.name}", _facts(tenant))


def stats(
    context: Context,
    name: Annotated[str | None, argument("NAME", "The name of a catalog; without it, all.")] = None,
    prefix: Prefix = "",
    limit: Count = "1000",
) -> None:
    """Files, rows and bytes are those of the newest snapshot."""
    with _open(context) as found:
        rows = [asdict(row) for row in found.stats(name, prefix=prefix, limit=count_of(limit) or _ALL)]
    _print_rows(context, rows, ("name", "snapshots", "tables", "files", "rows", "bytes"))


def _print_rows(context: Context, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    import pyarrow as pa

    numbers = ("id", "snapshots", "tables", "files", "rows", "bytes")
    types = {name: pa.int64() if name in numbers else pa.string() for name in columns}
    context.output.rows(pa.table({name: pa.array([row[name] for row in rows], types[name]) for name in columns}))


# -- limits ------------------------------------------------------------------------------------------------------------


_LIMITS: Bundle = {
    name: (Annotated[str | None, option(f"--{name.replace('_', '-')}", help, "N|none")], None)
    for name, help in (
        ("commits_per_second", "Commits per second."),
        ("concurrent_scans", "Concurrent scans in one process."),
        ("bytes", "Total size of the data files, such as 10GB."),
        ("tables", "Number of tables."),
        ("snapshots", "Number of snapshots."),
    )
}
_RESET: Bundle = {"reset": (Annotated[bool, option("--reset", "Remove all limits first.")], False)}


@also({**_LIMITS, **_RESET})
def limit(context: Context, name: OneOrAll = None, **options: Any) -> None:
    """Limits that are not given stay as they are; "none" removes a limit."""
    reset = options.pop("reset")
    given: dict[str, Any] = {key: _limit_value(key, text) for key, text in options.items() if text is not None}
    with _open(context) as found:
        now = found.limit(name, reset=reset, **given)
    context.output.facts(now.asdict())


def _limit_value(name: str, text: str) -> float | None:
    try:
        if text == "none":
            return None
        if name == "commits_per_second":
            return float(text)
        if name == "bytes":
            return parse_size(text)
        if text.isascii() and text.isdigit():
            return int(text)
        raise ValueError('expected a whole number or "none"')
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=f"'--{name.replace('_', '-')}'") from None


def limits(context: Context, name: OneOrAll = None) -> None:
    """An empty value means no limit."""
    with _open(context) as found:
        context.output.facts(found.limits(name).asdict())


# -- maintenance -------------------------------------------------------------------------------------------------------


@also(POLICY)
def maintain(
    context: Context,
    watch: Watch = False,
    dry_run: DryRun = False,
    most: Annotated[int | None, option("--tenants", "The most catalogs in one round; by default 100.", "N")] = None,
    files: Annotated[int | None, option("--files", "The most files in one round; by default 10000.", "N")] = None,
    time: Annotated[str | None, option("--time", "The longest time of a round; by default 10m.", "TIME")] = None,
    threads: Annotated[int, option("--threads", "The number of catalogs at a time.", "N")] = 1,
    engine: Annotated[Literal["duckdb", "spark"], option("--engine", "The engine that compacts.")] = "duckdb",
    **options: Any,
) -> None:
    """A round continues where the last one ended. A failure in one catalog does not stop the others."""
    from quacklake import RoundLimits

    policy = policy_of(options, watch=watch, dry_run=dry_run)
    given = {"tenants": most, "files": files, "time": None if time is None else duration_of("time", time)}
    bounds = RoundLimits(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    with _open(context) as found:
        maintainer = found.maintainer(policy, bounds=bounds, threads=threads, engine=engine)
        if dry_run:
            due = maintainer.due()
            context.output.result("\n".join(due) or "nothing is due", {"tenants": due})
        elif watch:
            stop = threading.Event()
            with stopping(stop.set):
                maintainer.run(stop, lambda report: _print_watched(context, report))
        else:
            with stages() as progress:
                report = maintainer.run_once(progress)
            _print_round(context, report)
            for visit in report.failed:
                raise next(error for error in (visit.error, *(job.error for job in visit.report.failed)) if error)


def _print_watched(context: Context, report: RoundReport) -> None:
    if context.output.format == "json":
        json_line(_round_facts(report))
    elif report.tenants:
        _print_round(context, report)


def _print_round(context: Context, report: RoundReport) -> None:
    if not context.output.for_people:
        context.output.facts(_round_facts(report))
        return
    for visit in report.tenants:
        if visit.error is not None:
            context.output.say(f"{visit.name}: {'left alone' if visit.busy else 'failed'}: {visit.error.message}")
        for job in visit.report.jobs:
            context.output.say(f"{visit.name}: {sentence(report_facts(job))}")
    rest = "" if report.complete else "; there may be more to do"
    seen = f"visited {len(report.tenants):,} of {plural(report.looked, 'catalog')}"
    context.output.say(f"{seen}, {plural(report.files, 'file')}{rest}")


def _round_facts(report: RoundReport) -> dict[str, Any]:
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


# -- access ------------------------------------------------------------------------------------------------------------


def grant(
    context: Context,
    name: Name,
    role: Role,
    read_only: Annotated[bool, option("--read-only", "Let the role read the catalog, but not change it.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Even with its own SQL, the role sees no row of another catalog. --dry-run prints the SQL statements."""
    with _open(context) as found:
        statements = found.grant(name, role, read_only=read_only, dry_run=dry_run)
    _print_sql(context, statements, f"{role} can {'read' if read_only else 'use'} {name}", dry_run=dry_run)


def revoke(context: Context, name: Name, role: Role, dry_run: DryRun = False) -> None:
    """--dry-run prints the SQL statements."""
    with _open(context) as found:
        statements = found.revoke(name, role, dry_run=dry_run)
    _print_sql(context, statements, f"{role} can no longer use {name}", dry_run=dry_run)


def expose(
    context: Context,
    name: Name,
    role: Annotated[str | None, option("--role", "A role that may use it.", "ROLE")] = None,
    writable: Annotated[bool, option("--writable", "Let stock DuckDB also write the catalog.")] = False,
    dry_run: DryRun = False,
) -> None:
    """The inlined rows of the catalog are flushed to files. --dry-run prints the SQL statements."""
    with _open(context) as found:
        made = found.expose(name, role, writable=writable, dry_run=dry_run)
    _print_sql(context, made.sql, f"exposed {name}: attach it with METADATA_SCHEMA '{made.schema}'", dry_run=dry_run)


def unexpose(context: Context, name: Name, dry_run: DryRun = False) -> None:
    """--dry-run prints the SQL statements."""
    with _open(context) as found:
        statements = found.unexpose(name, dry_run=dry_run)
    _print_sql(context, statements, f"{name} is not exposed", dry_run=dry_run)


def _print_sql(context: Context, statements: Sequence[str], words: str, *, dry_run: bool) -> None:
    text = "\n".join(f"{statement};" for statement in statements) if dry_run else words
    context.output.result(text, {"sql": list(statements), "dry_run": dry_run})
