"""A progress bar for what takes more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from quacklake.maintenance.reports import silent

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["DELAY", "progress", "stages", "track"]

T = TypeVar("T")

DELAY = 1.0
"""Seconds of work before a bar appears."""


@contextmanager
def progress(
    label: str, total: int | None = None, *, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with each further number of things done."""
    done = 0

    with stages(console=console) as tell:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            tell(label, done, total)

        yield advance


@contextmanager
def stages(*, console: Console | None = None) -> Iterator[Callable[[str, int, int | None], None]]:
    """Gives a function to call with what is being worked on, how much is done and how much there is.

    The bar appears on standard error, when that is a terminal, once a second has passed; it goes when the block ends.
    """
    if console is None and not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    target = console or Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=target, transient=True, disable=not target.is_terminal)
    task = bar.add_task("", total=None)
    begun = time.monotonic()

    def tell(what: str, done: int, total: int | None) -> None:
        if not bar.live.is_started and time.monotonic() - begun >= DELAY:
            bar.start()
        bar.update(task, description=what, completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()


def track(things: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """The same things, with a bar that counts them."""
    with progress(label, total) as advance:
        for thing in things:
            yield thing
            advance(1)
