"""Run SQL so that Ctrl-C ends the statement: it runs in a thread while the main thread waits and shows progress."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from quacklake import telemetry
from quacklake.cli.progress import stages
from quacklake.operations.frames import ROWS_TAKEN

if TYPE_CHECKING:
    from rich.console import Console

    from quacklake.progress import Progress
    from quacklake.sql.result import Result
    from quacklake.sql.session import Session

T = TypeVar("T")

_GLANCE = 0.1
"""Seconds between two checks whether the statement has ended."""


class Statements:
    """A session for the statements of one person."""

    def __init__(self, session: Session, console: Console | None = None) -> None:
        self.session = session
        self._console = console
        self.session.python_frames = False  # statements do not see this program's variables
        self.interrupted = False
        """Whether Ctrl-C was pressed during the last piece of work."""

    def close(self) -> None:
        """Roll back the open transaction."""
        self.session.close()

    def execute(self, statement: str) -> Result:
        """Run a statement. One that writes for more than a second shows the number of rows written."""
        before = _rows_taken()
        tell: Progress | None = None
        with ExitStack() as bar:

            def glance() -> None:
                nonlocal tell
                rows = _rows_taken() - before
                if rows and tell is None:
                    tell = bar.enter_context(stages(console=self._console))
                if tell is not None:
                    tell("writing rows", rows, None)

            return self.run(lambda session: session.statement(statement), glance)

    def run(self, work: Callable[[Session], T], glance: Callable[[], None] = lambda: None) -> T:
        """Run a function with the session. Ctrl-C ends it with ``CancelledError``, unless it is too late for that.

        ``glance`` is called several times a second meanwhile.
        """
        ended = threading.Event()
        results: list[T] = []
        failures: list[BaseException] = []

        def target() -> None:
            try:
                results.append(work(self.session))
            except BaseException as error:
                failures.append(error)
            finally:
                ended.set()

        cancelled = False
        threading.Thread(target=target, name="statement", daemon=True).start()
        # not Thread.join, which treats a thread as ended when it is interrupted itself
        while not ended.is_set():
            try:
                if cancelled:
                    self.session.interrupt()  # once more: the work may not have begun, or may have begun something new
                ended.wait(_GLANCE)
                glance()
            except KeyboardInterrupt:
                cancelled = True
        self.interrupted = cancelled
        if failures:
            raise failures[0]
        return results[0]


def _rows_taken() -> int:
    return telemetry.snapshot().counters.get(ROWS_TAKEN, 0)
