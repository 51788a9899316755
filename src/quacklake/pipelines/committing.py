"""Commit a transaction that may be done again: work that lost a race runs anew."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from quacklake.errors import CommitConflict
from quacklake.lake.lake import Lake, LakeTransaction

_ATTEMPTS = 20


def commit(lake: Lake, message: str, work: Callable[[LakeTransaction], None]) -> None:
    """Do work in a transaction and commit it, again where another commit conflicts with it.

    Raises ``CommitConflict`` after many attempts, and whatever else the work or its commit raises.
    """
    for attempt in range(_ATTEMPTS):
        try:
            with lake.transaction(message=message) as transaction:
                work(transaction)
            return
        except CommitConflict:
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(random.uniform(0, min(1.0, 0.02 * 2**attempt)))
