"""Threads that wait with their appends for the turn to commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from quacklake import Lake

Appends = list[Callable[[], int]]


@contextmanager
def waiting(lake: Lake, appends: Appends) -> Iterator[list[Future[int]]]:
    """Threads of which each waits with its append for the turn to commit, which comes at the end of the block."""
    group = lake._context.group
    with ThreadPoolExecutor(len(appends)) as pool:
        with group.turn(None):  # type: ignore[arg-type]  # one that leads, but commits nothing
            futures = []
            for number, append in enumerate(appends):
                futures.append(pool.submit(append))
                last, others = futures[-1], number + 1
                until(lambda last=last, others=others: len(group._waiting) > others or last.done())
            yield futures


def until(reached: Callable[[], bool]) -> None:
    """Look until something is so."""
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end, "a thread does not come to where it should wait"
        time.sleep(0.001)


def together(lake: Lake, appends: Appends) -> list[int]:
    """Let appends wait for one turn, and return their results."""
    with waiting(lake, appends) as futures:
        pass
    return [future.result() for future in futures]
