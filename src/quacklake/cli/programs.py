"""The programs: what differs between ``quacklake`` and ``pond``. Everything else they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quacklake.cli.commands import COMMANDS, Entry
from quacklake.cli.context import Context, Options
from quacklake.cli.options import COMMON


@dataclass(frozen=True, eq=False)
class Program:
    """A command line: its name and purpose, its commands, and the context that they run in.

    ``package`` has the modules of the commands; ``common`` are the options of every command. Other packages add
    commands as entry points of the group ``plugins``.
    """

    name: str
    help: str
    epilog: str
    commands: tuple[Entry, ...]
    package: str
    common: Mapping[str, tuple[object, object]]
    context: Callable[[Options], Any]
    plugins: str


QUACKLAKE = Program(
    "quacklake",
    "A lakehouse in the open DuckLake format: read, write and maintain lakes.",
    "Settings also come from the environment and from quacklake.toml; see `quacklake config show`.",
    COMMANDS,
    "quacklake.cli.commands",
    COMMON,
    Context,
    "quacklake.commands",
)
