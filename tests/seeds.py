"""What a run of the tests samples: the seed of the day, said at the head of the run, or the one that is asked for.

``QUACKLAKE_TEST_SEED=… make test`` takes the same samples again. With ``QUACKLAKE_TEST_PROFILE=long`` nothing is sampled.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

__all__ = ["LONG", "SEED", "chance", "fix", "some"]

T = TypeVar("T")

LONG = os.environ.get("QUACKLAKE_TEST_PROFILE") == "long"


def fix() -> int:
    """Choose the seed once, for this process and all it starts."""
    today = (dt.datetime.now(dt.UTC).date() - dt.date(2020, 1, 1)).days
    return int(os.environ.setdefault("QUACKLAKE_TEST_SEED", str(today)))


SEED = fix()


def chance(*what: object) -> random.Random:
    """Random numbers for one purpose: the same for the same seed and purpose, in every process."""
    return random.Random(f"{SEED} {what!r}")


def some(things: Iterable[T], count: int, *what: object, always: Sequence[T] = ()) -> list[T]:
    """``always`` and then others up to ``count``, in their order; all of them in the long profile."""
    known = list(things)
    if LONG or count >= len(known):
        return known
    others = [thing for thing in known if thing not in always]
    chosen = [*always, *chance(*what).sample(others, max(0, min(len(others), count - len(always))))]
    return [thing for thing in known if thing in chosen]
