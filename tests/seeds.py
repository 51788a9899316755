"""The samples of a run of the tests: those of the commit, so that everybody who tests a commit repeats its samples.

``make test SEED=…`` takes the samples of another seed. ``make test FUNCTIONS=all`` takes every test function, and the
long profile (``make test-all``) everything.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

__all__ = ["FUNCTIONS", "LONG", "SAMPLED", "SEED", "chance", "find_commit_date", "fix", "some"]

T = TypeVar("T")

PROFILE = os.environ.get("QUACKLAKE_TEST_PROFILE", "short")
#: True if a run samples nothing.
LONG = PROFILE == "long"
#: True if a run takes every test function, with some of its parameters at least.
FUNCTIONS = PROFILE == "functions"


#: The seed where no commit is known, as in a source distribution.
_WITHOUT_COMMIT = 20261119


def find_commit_date(repository: Path) -> int | None:
    """Return the day (UTC) of the newest commit as a number, or None outside of a git checkout."""
    command = ["git", "-C", str(repository), "log", "-1", "--format=%ct"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return int(f"{dt.datetime.fromtimestamp(int(answer), dt.UTC):%Y%m%d}")


def fix() -> int:
    """Choose the seed once, for this process and all it starts: the day of the newest commit, if none is set.

    Continuous integration takes the same, so that a clone of a commit repeats the samples that were green there.
    """
    seed = os.environ.get("QUACKLAKE_TEST_SEED")
    if seed is None:
        seed = str(find_commit_date(Path(__file__).resolve().parent) or _WITHOUT_COMMIT)
        os.environ["QUACKLAKE_TEST_SEED"] = seed
    return int(seed)


SEED = fix()
#: The size of each sample of this process, and of what it was taken from, by purpose.
SAMPLED: dict[str, tuple[int, int]] = {}


def chance(*what: object) -> random.Random:
    """Return random numbers for one purpose: the same for the same seed and purpose, in every process."""
    return random.Random(f"{SEED} {what!r}")


def some(things: Iterable[T], count: int, *what: object, always: Sequence[T] = ()) -> list[T]:
    """Return ``always`` and others up to ``count``, in their order; the long profile gets all of them."""
    known = list(things)
    if LONG or count >= len(known):
        return known
    others = [thing for thing in known if thing not in always]
    chosen = [*always, *chance(*what).sample(others, max(0, min(len(others), count - len(always))))]
    sample = [thing for thing in known if thing in chosen]
    SAMPLED[": ".join(map(str, what))] = len(sample), len(known)
    return sample
