"""The commands of the program, as they are typed."""

from __future__ import annotations

from collections.abc import Iterator

from quacklake.cli.commands import COMMANDS, Entry

__all__ = ["command_names"]


def command_names(entries: tuple[Entry, ...] = COMMANDS, before: str = "") -> Iterator[str]:
    """Every command; those in groups with the name of the group."""
    for entry in entries:
        if entry.commands:
            yield from command_names(entry.commands, f"{before}{entry.name} ")
        else:
            yield f"{before}{entry.name}"
