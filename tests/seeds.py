"""What a run of the tests samples: always the same, so that a failure is news about the code and not about the day.

``QUACKLAKE_TEST_SEED=… make test`` takes other samples. With ``QUACKLAKE_TEST_PROFILE=long`` nothing is sampled.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

__all__ = ["FIXED", "LONG", "SEED", "chance", "fix", "some"]

T = TypeVar("T")

LONG = os.environ.get("QUACKLAKE_TEST_PROFILE") == "long"


_USUAL = 1


def fix() -> int:
    """Choose the seed once, for this process and all it starts."""
    return int(os.environ.setdefault("QUACKLAKE_TEST_SEED", str(_USUAL)))


SEED = fix()
#: Whether Hypothesis tries the same examples each time, too.
FIXED = SEED == _USUAL and not LONG


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
