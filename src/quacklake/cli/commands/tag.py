"""``quacklake tag``: name snapshots, which then do not expire."""

from __future__ import annotations

from typing import Annotated

import typer

from quacklake.cli.completion import complete_version
from quacklake.cli.context import Context
from quacklake.cli.options import DryRun, Yes
from quacklake.errors import InputError, NotFoundError, nearest


def tag(
    context: Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="the name to give; without it all names are listed", autocompletion=complete_version
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            "--version",
            metavar="VERSION",
            help="The snapshot to name: its number, another tag, or a time. The newest unless it is given.",
            autocompletion=complete_version,
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Let a name that exists move.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Take the name away.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """A snapshot with a name does not expire, and the name can stand wherever a snapshot is wanted."""
    if name is None:
        if at is not None or replace or delete:
            raise InputError("a name is missing")
        with context.open() as lake:
            context.output.rows(lake.history.tags())
        return
    if delete:
        if at is not None or replace:
            raise InputError("--delete goes with a name alone")
        _delete(context, name, dry_run=dry_run, yes=yes)
        return
    if dry_run:
        raise InputError("--dry-run goes with --delete")
    with context.open(write=True) as lake:
        snapshot = lake.tag(name, context.snapshot(lake, at), replace=replace)
        context.output.result(f"snapshot {snapshot} has the tag {name}", {"tag": name, "snapshot": snapshot})


def _delete(context: Context, name: str, *, dry_run: bool, yes: bool) -> None:
    with context.open(write=not dry_run) as lake:
        if dry_run:
            tags = dict(
                zip(*(lake.history.tags().column(column).to_pylist() for column in ("tag", "snapshot_id")), strict=True)
            )
            if name not in tags:
                raise NotFoundError(f'no snapshot has the tag "{name}"', hint=nearest(name, tags))
            context.output.result(
                f"snapshot {tags[name]} would lose the tag {name}", {"tag": name, "snapshot": tags[name]}
            )
            return
        context.confirm(f"Take the tag {name} away? Its snapshot can then expire.", yes=yes)
        lake.history.untag(name)
        context.output.result(f"{name} is no tag any more", {"tag": name, "snapshot": None})
