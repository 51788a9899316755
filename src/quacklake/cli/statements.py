"""Running SQL so that Ctrl-C ends the statement: it works in a thread of its own while this one waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from quacklake.sql.session import Session

__all__ = ["Statements"]

T = TypeVar("T")

_GLANCE = 0.1
"""Seconds between two looks at whether the statement has ended."""


class Statements:
    """A session for the statements of one person."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.session.python_frames = False  # a statement does not see the variables of this program
        self.interrupted = False
        """Whether Ctrl-C was pressed during the last piece of work."""

    def close(self) -> None:
        """Roll back what is open."""
        self.session.close()

    def run(self, work: Callable[[Session], T]) -> T:
        """Do something with the session. Ctrl-C ends it with ``CancelledError``, unless it is too late for that."""
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
        # not Thread.join, which takes a thread for ended when it is interrupted itself
        while not ended.is_set():
            try:
                if cancelled:
                    self.session.interrupt()  # once more, as it may not have begun, or have begun something new
                ended.wait(_GLANCE)
            except KeyboardInterrupt:
                cancelled = True
        self.interrupted = cancelled
        if failures:
            raise failures[0]
        return results[0]
