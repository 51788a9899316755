"""The samples of a run of the tests: the same all day, so that whoever repeats a run repeats its samples.

``make test SEED=…`` takes the samples of another seed. The long profile (``make test-all``) runs everything.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

__all__ = ["LONG", "SAMPLED", "SEED", "chance", "fix", "some"]

T = TypeVar("T")

LONG = os.environ.get("QUACKLAKE_TEST_PROFILE") == "long"


def fix() -> int:
    """Choose the seed once, for this process and all it starts: that of the day, if none is set."""
    return int(os.environ.setdefault("QUACKLAKE_TEST_SEED", f"{dt.datetime.now(dt.UTC):%Y%m%d}"))


SEED = fix()
#: The size of each sample of this process, and of what it was taken from, by purpose.
SAMPLED: dict[str, tuple[int, int]] = {}


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
    sample = [thing for thing in known if thing in chosen]
    SAMPLED[": ".join(map(str, what))] = len(sample), len(known)
    return sample
