"""The output of the demo: headings, sentences, calls and their results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from quacklake.config import SETTINGS
from quacklake.lake.connect import connect
from quacklake.lake.lake import Lake
from quacklake.operations.display import print_table


class Stage:
    """Counts the steps of a story and prints them."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.steps = 0
        self._width = min(console.width, 100)

    def step(self, title: str) -> None:
        """Begin the next step."""
        self.steps += 1
        self.console.print()
        heading = Rule(Text(f"{self.steps}. {title}", style="bold cyan"), align="left", style="cyan")
        self.console.print(heading, width=self._width)

    def say(self, text: str) -> None:
        """Print a sentence or two."""
        self.console.print(Text(text), width=self._width)

    def call(self, code: str) -> None:
        """Print the call that the demo makes now."""
        self.console.print(Text(f"  >>> {code}", style="green"), soft_wrap=True)

    def sql(self, statement: str) -> None:
        """Print the statement that DuckDB runs now."""
        self.console.print(Text(f"  D {statement};", style="yellow"), soft_wrap=True)

    def table(self, rows: pa.Table, *, total: int | None = None) -> None:
        """Print rows as a table."""
        print_table(rows, total=total, console=self.console)


def open_lake(directory: Path) -> Lake:
    """Open the lake of the demo, without a settings file, and with the inlining limit of stock DuckLake."""
    return connect(
        f"ducklake:sqlite:{directory / 'lake.db'}",
        directory / "data",
        config_file=os.devnull,
        data_inlining_row_limit=10,
    )


@contextmanager
def own_settings() -> Iterator[None]:
    """Hide the settings of the environment, so that the demo is the same on every machine."""
    variables = {name for setting in SETTINGS for name in setting.env}
    hidden = {name: os.environ.pop(name) for name in variables & set(os.environ)}
    try:
        yield
    finally:
        os.environ.update(hidden)
