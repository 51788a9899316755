"""The commands that Ekko adds to ``quacklake``."""

from __future__ import annotations

from quacklake.cli.commands import Entry

__all__ = ["MIGRATE_ARROW"]

_MODULE = "quacklake_ekko.migrate_arrow"

MIGRATE_ARROW = Entry(
    "migrate-arrow",
    "Move Ekko's Arrow files into the lake",
    panel="Maintain",
    commands=(
        Entry("backfill", "Load the rows of Arrow files into the lake", f"{_MODULE}:backfill"),
        Entry("compare", "Compare the Arrow files with the lake", f"{_MODULE}:compare"),
        Entry("switch", "Let readers use the lake, or the Arrow files again", f"{_MODULE}:switch"),
        Entry("retire", "Remove the Arrow files that are in the lake", f"{_MODULE}:retire"),
        Entry("status", "Show how far the migration is", f"{_MODULE}:status"),
    ),
)
