"""The description of a command before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its name, its purpose, and its function (``module:function``) or its own commands."""

    name: str
    help: str
    home: str = ""
    panel: str | None = None
    commands: tuple[Entry, ...] = ()
