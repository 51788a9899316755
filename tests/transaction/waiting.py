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
        with group._turn:
            futures = []
            for number, append in enumerate(appends):
                futures.append(pool.submit(append))
                end = time.monotonic() + 30
                while len(group._waiting) <= number and not futures[-1].done():
                    assert time.monotonic() < end, "the append does not come to its commit"
                    time.sleep(0.001)
            yield futures


def together(lake: Lake, appends: Appends) -> list[int]:
    """Let appends wait for one turn, and return their results."""
    with waiting(lake, appends) as futures:
        pass
    return [future.result() for future in futures]
