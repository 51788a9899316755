"""``quacklake migrate``: change the format version of a lake."""

from __future__ import annotations

from typing import Annotated

import typer

from quacklake.cli.context import Context


def migrate(
    context: Context,
    to: Annotated[
        str | None, typer.Option("--to", metavar="VERSION", help="1.0 or 1.1; without it an older lake becomes 1.0.")
    ] = None,
) -> None:
    """A lake that has it already is left alone. Close clients of the other version first: they cannot open it then.

    From 1.1 a lake goes back to 1.0 unless it holds what 1.0 has no place for, which is then listed.
    """
    with context.open(write=True) as lake:
        before = lake.version
        after = lake.migrate(to)
        done = f"migrated from format version {before} to {after}" if before != after else f"already at {after}"
        context.output.result(done, {"from": before, "to": after, "migrated": before != after})
