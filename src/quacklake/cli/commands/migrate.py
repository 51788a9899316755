"""``quacklake migrate``: a lake of an older format version becomes one of the present."""

from __future__ import annotations

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context

__all__ = ["MIGRATE"]


def _run(context: Context) -> None:
    with context.open(write=True) as lake:
        before = lake.version
        after = lake.migrate()
        done = f"migrated from format version {before} to {after}" if before != after else f"already at {after}"
        context.output.result(done, {"from": before, "to": after, "migrated": before != after})


MIGRATE = Command("migrate", "Bring a lake of an older format version to the present one", _run)
