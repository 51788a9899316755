"""What a command is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from quacklake.cli.context import Context

__all__ = ["Command"]


def _nothing(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, what it is for, what it takes and what it does; it may return an exit code."""

    name: str
    help: str
    run: Callable[[Context], int | None]
    configure: Callable[[argparse.ArgumentParser], None] = _nothing
