"""A small commit in a process that ends before or after one of its messages to the driver of the catalog."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.crash.homes import Home
from tests.crash.operations import note

__all__ = ["WARM", "append", "append_and_count"]

WARM = list(range(10, 17))
"""The numbers that are appended before: the drivers prepare what comes again, and send it otherwise."""


def append(url: str, n: int, at: int, when: str) -> None:
    """Append ``n`` to the log, and die by SIGKILL ``before`` or ``after`` the message ``at``."""
    _append(url, n, lambda number, now: _die() if (number, now) == (at, when) else None)


def append_and_count(url: str, n: int) -> int:
    """Append ``n`` to the log; return how many messages that takes."""
    numbers: set[int] = set()
    _append(url, n, lambda number, _: numbers.add(number))
    return len(numbers)


def _append(url: str, n: int, reach: Any) -> None:
    with Home(url, Path()).connect() as lake, pytest.MonkeyPatch.context() as patch:
        for warm in WARM:
            note(lake, warm)
        count = itertools.count(1)

        def watch(place: Any, name: str) -> None:
            real = getattr(place, name)

            def watched(*arguments: Any, **options: Any) -> Any:
                number = next(count)
                reach(number, "before")
                answer = real(*arguments, **options)
                reach(number, "after")
                return answer

            patch.setattr(place, name, watched)

        if url.startswith("sqlite"):
            from quacklake.core.catalog.databases import sqlite

            cursor = sqlite._cursor

            def watched_cursor(connection: Any) -> Any:
                made = _Cursor(cursor(connection))
                watch(made, "execute")
                watch(made, "executemany")
                return made

            patch.setattr(sqlite, "_cursor", watched_cursor)
        else:
            import psycopg

            watch(psycopg.Cursor, "execute")
            watch(psycopg.Connection, "commit")
        note(lake, n)


class _Cursor:
    """A cursor of SQLite whose methods can be replaced."""

    def __init__(self, cursor: Any) -> None:
        self.execute, self.executemany = cursor.execute, cursor.executemany


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
