"""Show progress for work that takes more than a second: a bar, or at least a sign of activity."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from quacklake.extend.reporting import silent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

T = TypeVar("T")

DELAY = 0.8
"""Seconds of work before a display appears."""


class _Late:
    """A display that appears after a delay. Safe to use from several threads."""

    def __init__(self, make: Callable[[], Progress]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._bar: Progress | None = None
        self._timer: threading.Timer | None = None
        self._ended = False

    def arm(self) -> None:
        """Show the display after the delay."""
        with self._lock:
            if self._timer is None and not self._ended:
                self._timer = threading.Timer(DELAY, self.appear)
                self._timer.daemon = True
                self._timer.start()

    def appear(self) -> None:
        with self._lock:
            if not self._ended and self._bar is None and self._timer is not None:
                self._bar = self._make()
                self._bar.start()

    def vanish(self) -> None:
        """Hide the display, so that other output can be written."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def end(self) -> None:
        """Hide the display for good."""
        with self._lock:
            self._ended = True
            self.vanish()


def _for_a_person() -> bool:
    """Return True when standard error is a terminal without a log, which would tell more."""
    return sys.stderr.isatty() and not logging.getLogger("quacklake").isEnabledFor(logging.INFO)


def _bar(label: str, console: Console | None, *, counts: bool) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text, time_ = TextColumn("{task.description}"), TimeElapsedColumn()
    columns = (text, BarColumn(), MofNCompleteColumn(), time_) if counts else (SpinnerColumn(), text, time_)
    target = console or Console(file=sys.stderr)
    bar = Progress(*columns, console=target, transient=True, disable=not target.is_terminal)
    bar.add_task(label, total=None)
    return bar


_waiting: list[_Late] = []
"""The displays of running commands; the last one counts."""


@contextmanager
def waiting(label: str, *, console: Console | None = None) -> Iterator[None]:
    """Show on standard error, if it is a terminal, that work goes on, unless a bar or a result appears."""
    if console is None and not _for_a_person():
        yield
        return

    shown = _Late(lambda: _bar(label, console, counts=False))
    _waiting.append(shown)
    shown.arm()
    try:
        yield
    finally:
        shown.end()
        _waiting.remove(shown)


def hush(*, for_good: bool = False) -> None:
    """Hide the display of the running command before a result or a question is written.

    It appears again when the work goes on for a while, unless ``for_good`` is true.
    """
    for shown in _waiting:
        if for_good:
            shown.end()
        else:
            shown.vanish()
            shown.arm()


@contextmanager
def progress(
    label: str, total: int | None = None, *, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with each further number of things done."""
    done = 0

    with stages(console=console) as tell:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            tell(label, done, total)

        yield advance


@contextmanager
def stages(*, console: Console | None = None) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function to call with the current stage, the amount done and the total.

    The bar appears on standard error, if it is a terminal, after a second; it disappears when the block ends.
    """
    if console is None and not _for_a_person():
        yield silent
        return
    hush(for_good=True)
    bar = _bar("working", console, counts=True)
    shown = _Late(lambda: bar)
    shown.arm()
    begun = time.monotonic()

    def tell(what: str, done: int, total: int | None) -> None:
        bar.update(bar.task_ids[0], description=what, completed=done, total=total)
        if time.monotonic() - begun >= DELAY:
            shown.appear()

    try:
        yield tell
    finally:
        shown.end()


def track(things: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Yield the same things, with a bar that counts them."""
    with progress(label, total) as advance:
        for thing in things:
            yield thing
            advance(1)
