"""What a catalog (tenant) of a shared lake may take, and how that is kept: pure data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

from quacklake.errors import InputError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a catalog may take; None for any number.

    ``commits_per_second`` may be less than 1. ``concurrent_scans`` are those of one process. ``bytes`` are those of the
    data files of the newest snapshot, as ``TenantStats`` has them.
    """

    commits_per_second: float | None = None
    concurrent_scans: int | None = None
    bytes: int | None = None
    tables: int | None = None
    snapshots: int | None = None

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(own: str | None, default: str | None) -> Limits:
        """Return the limits of the texts in the database. What is said for a catalog goes before what is said for all.

        >>> Limits.of('{"tables": 3, "bytes": null}', '{"tables": 9, "bytes": 9, "snapshots": 9}')
        Limits(commits_per_second=None, concurrent_scans=None, bytes=None, tables=3, snapshots=9)
        """
        if own is None and default is None:
            return NO_LIMITS
        said = {**_parsed(default), **_parsed(own)}
        return Limits(**{name: said[name] for name in _NAMES if name in said})

    def asdict(self) -> dict[str, float | None]:
        """Return the limits by name."""
        return asdict(self)

    @property
    def pace(self) -> tuple[int, float] | None:
        """So many commits in so many seconds; None for any number.

        >>> Limits(commits_per_second=2.5).pace, Limits(commits_per_second=0.1).pace
        ((2, 0.8), (1, 10.0))
        """
        if self.commits_per_second is None:
            return None
        count = max(1, math.floor(self.commits_per_second))
        return count, count / self.commits_per_second


NO_LIMITS = Limits()
_NAMES = tuple(field.name for field in fields(Limits))


def changed(text: str | None, given: Mapping[str, Any]) -> str | None:
    """Return the text with these limits changed, or None when none are left. Raises ``InputError``."""
    said = {**_parsed(text), **{name: _checked(name, value) for name, value in given.items()}}
    return json.dumps(said, sort_keys=True) if said else None


def _parsed(text: str | None) -> dict[str, Any]:
    return dict(json.loads(text)) if text else {}


def _checked(name: str, value: Any) -> Any:
    """Return a limit that can be kept. Those of things that are kept may be 0, which forbids them."""
    if name not in _NAMES:
        raise InputError(f"there is no limit {name!r}", hint=f"those that there are: {', '.join(_NAMES)}")
    if value is None:
        return None
    rate = name == "commits_per_second"
    number = isinstance(value, int | float if rate else int) and not isinstance(value, bool) and math.isfinite(value)
    least = 1 if name in ("concurrent_scans", "snapshots") else 0
    if not number or value < least or (rate and value <= 0) or value >= 2**63:
        what = "a number above 0" if rate else f"a whole number, at least {least}"
        raise InputError(f"the limit {name} must be {what}, not {value!r}", hint="None stands for no limit")
    return value
