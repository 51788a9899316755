"""``quacklake migrate``: a lake of an older format version becomes one of the present."""

from __future__ import annotations

from quacklake.cli.context import Context

__all__ = ["migrate"]


def migrate(context: Context) -> None:
    """A lake that has it already is left alone. Close clients of the older version first: they cannot open it then."""
    with context.open(write=True) as lake:
        before = lake.version
        after = lake.migrate()
        done = f"migrated from format version {before} to {after}" if before != after else f"already at {after}"
        context.output.result(done, {"from": before, "to": after, "migrated": before != after})
