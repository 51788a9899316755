"""Track the running statement of a session, and stop it from another thread or after a timeout."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import duckdb

from quacklake.core import forks
from quacklake.core.engines.duckdb.connections import interrupted
from quacklake.errors import CancelledError, QuacklakeError, StatementTimeoutError

_AGAIN = 0.05
"""Seconds between repeated interrupts. DuckDB forgets an interrupt between two queries of a statement."""
_IDLE = 10.0


@dataclass
class TimeBudget:
    """The seconds left for a statement and the reading of its rows; None for no limit."""

    left: float | None


@dataclass(eq=False)
class _CancelScope:
    """One stretch of work that can be stopped."""

    budget: TimeBudget
    thread: int = field(default_factory=threading.get_ident)
    active: bool = True
    cancelled: bool = False
    late: bool = False

    def reason(self) -> QuacklakeError:
        """Return the error for the work that was stopped."""
        return _late() if self.late else CancelledError("the statement was cancelled")


class Running:
    """The current work of a session. ``stop`` interrupts a thread that works for it."""

    def __init__(self, stop: Callable[[int], None]) -> None:
        self._stop = stop
        self._lock = threading.Lock()
        self._scope: _CancelScope | None = None

    @property
    def busy(self) -> bool:
        """True while the session works."""
        return self._scope is not None

    @contextmanager
    def working(self, budget: TimeBudget) -> Iterator[None]:
        """Run a block that can be stopped. Raise ``CancelledError`` or ``StatementTimeoutError`` when it was."""
        if self._scope is not None:
            yield
            return
        if budget.left is not None and budget.left <= 0:
            raise _late()
        scope = self._scope = _CancelScope(budget)
        start = time.monotonic()
        if budget.left is not None:
            _clock.wake(start + budget.left, self, scope)
        try:
            yield
        except BaseException as error:
            if interrupted(error):
                raise KeyboardInterrupt from error
            if isinstance(error, CancelledError | duckdb.InterruptException) or "INTERRUPT Error" in str(error):
                raise scope.reason() from error  # DuckDB raises the same error for every reason
            raise
        finally:
            with self._lock:
                scope.active = False
                self._scope = None
            _clock.forget(scope)
            if budget.left is not None:
                budget.left -= time.monotonic() - start

    def check(self) -> None:
        """Raise the error of ``working`` between two steps that cannot be interrupted."""
        scope = self._scope
        if scope is not None and (scope.late or scope.cancelled) and scope.thread == threading.get_ident():
            raise scope.reason()

    def interrupt(self) -> bool:
        """Cancel the current work, from any thread. Return False when there is none."""
        with self._lock:
            scope = self._scope
            if scope is None:
                return False
            scope.cancelled = True
        return self.nudge(scope)

    def nudge(self, scope: _CancelScope) -> bool:
        """Stop a stretch of work, and repeat the interrupt until it ends. Return False when it has ended."""
        with self._lock:
            if not scope.active:
                return False
            scope.late = scope.late or not scope.cancelled
            self._stop(scope.thread)
        _clock.wake(time.monotonic() + _AGAIN, self, scope)
        return True


def _late() -> StatementTimeoutError:
    return StatementTimeoutError("the statement took longer than this session allows")


class _Clock:
    """One thread that stops work which takes too long. It ends when there is nothing to watch."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[_CancelScope, tuple[float, Running]] = {}
        self._next = float("inf")
        self._thread: threading.Thread | None = None
        self._numbers = itertools.count()
        forks.watch(self, _Clock._renew)

    def _renew(self) -> None:
        """Start again in a forked process, where the thread does not exist."""
        self._changed = threading.Condition()
        self._waiting.clear()
        self._thread = None

    def wake(self, when: float, running: Running, scope: _CancelScope) -> None:
        """Stop a stretch of work at a given time."""
        with self._changed:
            if not scope.active:
                return
            self._waiting[scope] = (when, running)
            if self._thread is None:
                name = f"quacklake-clock-{next(self._numbers)}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            elif when < self._next:
                self._changed.notify()

    def forget(self, scope: _CancelScope) -> None:
        """Stop watching a stretch of work that has ended."""
        with self._changed:
            self._waiting.pop(scope, None)

    def _run(self) -> None:
        while (due := self._due()) is not None:
            for scope, running in due:
                running.nudge(scope)

    def _due(self) -> list[tuple[_CancelScope, Running]] | None:
        """Wait for work that is due to be stopped, and return it. Return None after a while without any work."""
        with self._changed:
            idle = time.monotonic()
            while True:
                now = time.monotonic()
                due = [(scope, running) for scope, (when, running) in self._waiting.items() if when <= now]
                if due:
                    for scope, _ in due:
                        del self._waiting[scope]
                    self._next = now
                    return due
                if self._waiting:
                    idle = now
                elif now - idle >= _IDLE:
                    self._thread = None
                    return None
                self._next = min((when for when, _ in self._waiting.values()), default=idle + _IDLE)
                self._changed.wait(self._next - now)


_clock = _Clock()
