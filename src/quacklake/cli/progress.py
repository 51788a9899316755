"""A progress bar for what takes more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["DELAY", "progress", "reporting", "track"]

T = TypeVar("T")

DELAY = 1.0
"""Seconds of work before a bar appears."""


@contextmanager
def progress(
    label: str, total: int | None = None, *, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with each further number of things done.

    The bar appears on standard error, when that is a terminal, once a second has passed; it goes when the block ends.
    """
    target = console or Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=target, transient=True, disable=not target.is_terminal)
    task = bar.add_task(label, total=total)
    begun = time.monotonic()

    def advance(count: int) -> None:
        if not bar.live.is_started and time.monotonic() - begun >= DELAY:
            bar.start()
        bar.update(task, advance=count)

    try:
        yield advance
    finally:
        bar.stop()


def track(things: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """The same things, with a bar that counts them."""
    with progress(label, total) as advance:
        for thing in things:
            yield thing
            advance(1)


@contextmanager
def reporting(label: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Gives what maintenance tells its progress to; one bar shows whatever is being worked on."""
    with progress(label) as advance:
        before = ("", 0)

        def tell(what: str, done: int, total: int | None) -> None:
            nonlocal before
            advance(done - before[1] if what == before[0] else 1)
            before = (what, done)

        yield tell
