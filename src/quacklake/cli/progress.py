"""What a person sees of work that takes more than a second: a bar, or at least that something goes on."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from quacklake.progress import silent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["DELAY", "hush", "progress", "stages", "track", "waiting"]

T = TypeVar("T")

DELAY = 0.8
"""Seconds of work before something appears."""


class _Late:
    """A display that appears when work has taken a while. Safe to use from several threads."""

    def __init__(self, make: Callable[[], Progress]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._bar: Progress | None = None
        self._timer: threading.Timer | None = None
        self._ended = False

    def arm(self) -> None:
        """Let it appear in a while."""
        with self._lock:
            if self._timer is None and not self._ended:
                self._timer = threading.Timer(DELAY, self.appear)
                self._timer.daemon = True
                self._timer.start()

    def appear(self) -> None:
        """Let it appear now."""
        with self._lock:
            if not self._ended and self._bar is None and self._timer is not None:
                self._bar = self._make()
                self._bar.start()

    def vanish(self) -> None:
        """Take it off the screen, where something else is to be written."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def end(self) -> None:
        """Take it off the screen for good."""
        with self._lock:
            self._ended = True
            self.vanish()


def _for_a_person() -> bool:
    """Return whether a person looks at standard error, and no log is written there, which tells more."""
    return sys.stderr.isatty() and not logging.getLogger("quacklake").isEnabledFor(logging.INFO)


_waiting: list[_Late] = []
"""What shows that a command works; the last one counts."""


@contextmanager
def waiting(label: str, *, console: Console | None = None) -> Iterator[None]:
    """Show on standard error, when that is a terminal, that something goes on, unless a bar or an answer appears."""
    if console is None and not _for_a_person():
        yield
        return

    def make() -> Progress:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        target = console or Console(file=sys.stderr)
        bar = Progress(*columns, console=target, transient=True, disable=not target.is_terminal)
        bar.add_task(label, total=None)
        return bar

    shown = _Late(make)
    _waiting.append(shown)
    shown.arm()
    try:
        yield
    finally:
        shown.end()
        _waiting.remove(shown)


def hush(*, for_good: bool = False) -> None:
    """Take what shows that a command works off the screen, before an answer or a question is written there.

    It appears again when the work goes on for a while, unless that is ``for_good``.
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
    if console is None and not _for_a_person():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    hush(for_good=True)
    target = console or Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=target, transient=True, disable=not target.is_terminal)
    task = bar.add_task("working", total=None)
    shown = _Late(lambda: bar)
    shown.arm()
    begun = time.monotonic()

    def tell(what: str, done: int, total: int | None) -> None:
        bar.update(task, description=what, completed=done, total=total)
        if time.monotonic() - begun >= DELAY:
            shown.appear()

    try:
        yield tell
    finally:
        shown.end()


def track(things: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """The same things, with a bar that counts them."""
    with progress(label, total) as advance:
        for thing in things:
            yield thing
            advance(1)
