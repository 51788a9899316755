"""Running SQL so that Ctrl-C ends the statement: it works in a thread of its own while this one waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from quacklake.errors import CancelledError

if TYPE_CHECKING:
    from quacklake.lake import Lake, LakeAt
    from quacklake.sql import Session

__all__ = ["Statements"]

T = TypeVar("T")

_GLANCE = 0.1
"""Seconds between two looks at whether the statement has ended."""


class Statements:
    """A session for the statements of one person."""

    def __init__(self, lake: Lake | LakeAt) -> None:
        from quacklake.sql.opening import session_of

        self.session: Session = session_of(lake)
        self.session.python_frames = False  # a statement does not see the variables of this program

    def close(self) -> None:
        """Roll back what is open."""
        self.session.close()

    def run(self, work: Callable[[Session], T]) -> T:
        """Do something with the session; Ctrl-C ends it with ``CancelledError``."""
        outcome: list[Any] = []

        def target() -> None:
            try:
                outcome.extend((True, work(self.session)))
            except BaseException as error:
                outcome.extend((False, error))

        worker = threading.Thread(target=target, name="statement", daemon=True)
        cancelled = False
        worker.start()
        while worker.is_alive():
            try:
                if cancelled:
                    self._interrupt()
                worker.join(_GLANCE)
            except KeyboardInterrupt:
                cancelled = True
        done, value = outcome
        if done and not cancelled:
            return value  # type: ignore[no-any-return]
        if cancelled:
            raise CancelledError("the statement was cancelled") from (None if done else value)
        raise value

    def _interrupt(self) -> None:
        """End what DuckDB is doing for the session; it may not have begun, so that this is done until it ends."""
        with suppress(Exception):
            self.session.connection.interrupt()
