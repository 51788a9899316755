"""What a command is before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its name, what it is for, the function that does it (``module:function``), or its own commands."""

    name: str
    help: str
    home: str = ""
    panel: str | None = None
    commands: tuple[Entry, ...] = ()
