"""``quacklake tenant``: the catalogs (tenants) of a shared lake."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import Yes, count_of, duration_of
from quacklake.cli.output import plural
from quacklake.cli.progress import stages
from quacklake.errors import ConfigError, InputError

if TYPE_CHECKING:
    from quacklake.lake.tenants import Tenants
    from quacklake.tenancy.tenants import Tenant

Name = Annotated[str, typer.Argument(metavar="NAME", help="the name of a catalog", show_default=False)]
Prefix = Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only those whose names begin with this.")]
Count = Annotated[str, typer.Option("--limit", "-n", metavar="CATALOGS", help="How many catalogs.")]


def tenants_of(context: Context, *, make: bool = False, convert: str | None = None) -> Tenants:
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
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="the names", show_default=False)],
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Leave alone those that are there.")] = False,
    files: Annotated[
        str | None, typer.Option("--files", metavar="PATH", help="Where the files of a single catalog go.")
    ] = None,
) -> None:
    """All of them are made, or none. With --data-path a shared lake is made when there is none."""
    if files is not None and len(names) > 1:
        raise InputError("--files is for one catalog", hint="make the catalogs one by one, each with its own --files")
    with tenants_of(context, make=True) as found:
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
    after: Annotated[str | None, typer.Option("--after", metavar="NAME", help="Go on after this one.")] = None,
    limit: Count = "1000",
) -> None:
    """Those that were dropped are not among them."""
    with tenants_of(context) as found:
        rows = [_facts(tenant) for tenant in found.list(prefix, after=after, limit=count_of(limit) or 1_000_000)]
    _rows(context, rows, ("name", "id", "uuid", "data_path", "created"))


def show(context: Context, name: Name) -> None:
    """The case of letters does not count."""
    with tenants_of(context) as found:
        context.output.facts(_facts(found.get(name)))


def rename(
    context: Context, name: Name, new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", show_default=False)]
) -> None:
    """Whoever has it open goes on."""
    with tenants_of(context) as found:
        tenant = found.rename(name, new_name)
    context.output.result(f"{name} is {tenant.name} now", _facts(tenant))


def drop(context: Context, name: Name, yes: Yes = False) -> None:
    """Nobody can open it from now on, and its name is free."""
    with tenants_of(context) as found:
        found.get(name)
        context.confirm(f"Drop the catalog {name} with all its tables?", yes=yes)
        tenant = found.drop(name)
    context.output.result(f"{name} is dropped; `quacklake tenant purge` removes what it holds", {"id": tenant.id})


def purge(
    context: Context,
    limit: Count = "1000",
    grace: Annotated[
        str | None, typer.Option("--grace", metavar="TIME", help="How long those who were writing may still do so.")
    ] = None,
    yes: Yes = False,
) -> None:
    """What was dropped cannot come back afterwards. After --grace its folder is looked at once more."""
    span = None if grace is None else duration_of("grace", grace)
    with tenants_of(context) as found, stages() as progress:
        context.confirm("Remove the rows and files of all dropped catalogs for good?", yes=yes)
        done = found.purge(limit=count_of(limit) or 1_000_000, grace=span, progress=progress)
    context.output.result(
        f"{plural(done.catalogs, 'catalog')} purged: {plural(done.files, 'file')}, {plural(done.rows, 'row')}",
        asdict(done),
    )


def export(
    context: Context,
    name: Name,
    to: Annotated[str, typer.Argument(metavar="URL", help="where the new lake's metadata goes", show_default=False)],
    files: Annotated[
        str | None, typer.Option("--files", metavar="PATH", help="Where the new lake's own files go.")
    ] = None,
    copy_data: Annotated[
        bool, typer.Option("--copy-data", help="Copy the files, so that it needs nothing else.")
    ] = False,
) -> None:
    """Stock DuckDB can open it. Without --copy-data it names the files of the catalog, which then keeps them."""
    with tenants_of(context) as found, stages() as progress:
        done = found.export(name, to, data_path=files, copy_data=copy_data, progress=progress)
    context.output.result(
        f"{name} is exported to {done.url}: {plural(done.files, 'file')}, {done.copied} copied", asdict(done)
    )


def release(
    context: Context, name: Name, to: Annotated[str, typer.Argument(metavar="URL", show_default=False)]
) -> None:
    """The exported lake must not be used any more, unless it has copies."""
    with tenants_of(context) as found:
        found.release(name, to)
    context.output.result(f"{name} keeps no files for {to} any more", {"catalog": name})


def adopt(
    context: Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="the plain lake", show_default=False)],
    name: Name,
) -> None:
    """The plain lake is left alone, and must keep the files that the catalog names."""
    with tenants_of(context) as found, stages() as progress:
        tenant = found.adopt(url, name, progress=progress)
    context.output.result(f"{tenant.name} is a catalog now", _facts(tenant))


def convert(context: Context, name: Name, yes: Yes = False) -> None:
    """Its files stay where they are; new catalogs have theirs in --data-path. Stock DuckDB cannot open it any more."""
    context.confirm(f"Make a shared lake of the plain one, whose catalog will be {name}?", yes=yes)
    with tenants_of(context, convert=name) as found:
        tenant = found.get(name)
    context.output.result(f"the lake is a shared one now, and {tenant.name} a catalog of it", _facts(tenant))


def fork(
    context: Context, name: Name, new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", show_default=False)]
) -> None:
    """Nothing is copied but rows of metadata; both go their own ways from here."""
    with tenants_of(context) as found:
        tenant = found.fork(name, new_name)
    context.output.result(f"{tenant.name} is a fork of {name}", _facts(tenant))


def stats(
    context: Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="one catalog", show_default=False)] = None,
    prefix: Prefix = "",
    limit: Count = "1000",
) -> None:
    """Files, rows and bytes are those of the newest snapshot."""
    with tenants_of(context) as found:
        rows = [asdict(row) for row in found.stats(name, prefix=prefix, limit=count_of(limit) or 1_000_000)]
    _rows(context, rows, ("name", "snapshots", "tables", "files", "rows", "bytes"))


def _rows(context: Context, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    import pyarrow as pa

    numbers = ("id", "snapshots", "tables", "files", "rows", "bytes")
    types = {name: pa.int64() if name in numbers else pa.string() for name in columns}
    context.output.rows(pa.table({name: pa.array([row[name] for row in rows], types[name]) for name in columns}))
