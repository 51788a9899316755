"""Named points where a crash could hurt, and a way to crash there.

The library calls :func:`reach` before and after each step whose loss must not matter. It does nothing unless a test
has armed a fault::

    with record() as points:  # which points does this operation pass?
        table.append(rows)
    for n in range(1, len(points) + 1):  # … then fail at each of them in turn
        with arm(Fault(at=n)), pytest.raises(FaultInjected):
            table.append(rows)

A child process is armed from outside with ``QUACKLAKE_FAULT="n:action[:pattern]"``, such as ``3:kill:catalog.*``.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, cast, get_args

from quacklake.errors import ConfigError

EXIT_CODE = 86
"""The exit code of a process that a fault with the action ``exit`` has ended."""

Action = Literal["exception", "exit", "kill"]


class FaultInjected(Exception):
    """The armed fault: an ``Exception`` that nobody foresaw, but no ``QuacklakeError``, so that nothing retries it."""


@dataclass(frozen=True)
class Fault:
    """A failure at a point that matches ``pattern``, when it is reached for the ``at``-th time, and never again.

    ``exception`` raises ``error``, ``exit`` ends the process without clean-up and ``kill`` sends it SIGKILL.
    """

    at: int = 1
    action: Action = "exception"
    pattern: str = "*"
    error: Callable[[], BaseException] | None = None

    def __post_init__(self) -> None:
        if self.at < 1 or self.action not in get_args(Action):
            raise ConfigError(
                f'invalid fault "{self.at}:{self.action}:{self.pattern}"',
                hint=f"use n:action[:pattern] with n from 1 and an action of {', '.join(get_args(Action))}",
            )

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The fault that ``n:action[:pattern]`` describes. Raise :class:`ConfigError`."""
        number, _, rest = text.partition(":")
        action, _, pattern = rest.partition(":")
        return cls(int(number) if number.isdecimal() else 0, cast(Action, action), pattern or "*")


_hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Say that the point ``name`` is reached.

    >>> with record() as points:
    ...     reach("writer.file")
    >>> points
    ['writer.file']
    """
    if _hook is not None:
        _hook(name)


def arm(fault: Fault) -> AbstractContextManager[None]:
    """Make ``fault`` happen within the block, in whichever thread gets there."""
    return _hooked(_trigger(fault))


@contextmanager
def record() -> Iterator[list[str]]:
    """Collect the names of the points reached within the block, in order."""
    names: list[str] = []
    with _hooked(names.append):
        yield names


@contextmanager
def _hooked(hook: Callable[[str], None]) -> Iterator[None]:
    global _hook
    outer = _hook

    def both(name: str) -> None:
        if outer is not None:
            outer(name)
        hook(name)

    _hook = both
    try:
        yield
    finally:
        _hook = outer


def _trigger(fault: Fault) -> Callable[[str], None]:
    lock = threading.Lock()
    reached = 0

    def trigger(name: str) -> None:
        nonlocal reached
        if not fnmatchcase(name, fault.pattern):
            return
        with lock:
            reached += 1
            due = reached == fault.at
        if due:
            _happen(fault, name)

    return trigger


def _happen(fault: Fault, name: str) -> None:
    if fault.action == "exit":
        os._exit(EXIT_CODE)
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise FaultInjected(f"fault {fault.at} at {name}") if fault.error is None else fault.error()


if "QUACKLAKE_FAULT" in os.environ:
    _hook = _trigger(Fault.parse(os.environ["QUACKLAKE_FAULT"]))
