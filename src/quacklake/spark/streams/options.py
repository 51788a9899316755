"""Check the options of streams, with hints for misspelled ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from quacklake.errors import InputError, nearest

MODES = ("append", "upsert", "changes")
OUTPUT_MODES = ("append", "update", "complete")
_SPAN = re.compile(r"\s*\d+(\.\d+)?\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|days?)\s*", re.IGNORECASE)
_TRIGGERS: Mapping[str, Mapping[str, bool]] = {"availableNow": {"availableNow": True}, "once": {"once": True}}


def refuse_unknown(given: Iterable[str], known: Sequence[str]) -> None:
    """Raise ``InputError`` for an option that does not exist, with the most similar one."""
    for name in given:
        hint = nearest(name, known) or nearest(_snake(name), known) or f"there are {', '.join(known)}"
        raise InputError(f'there is no option "{name}"', hint=hint)


def _snake(name: str) -> str:
    """Return Quacklake's name for an option of Spark, such as ``max_files`` for ``maxFilesPerTrigger``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().removesuffix("_per_trigger")


def choice(what: str, given: object, known: Sequence[str]) -> str:
    """Return ``given`` if it is one of the known words. Raises ``InputError`` with the most similar word."""
    if given in known:
        return str(given)
    raise InputError(f"{what} cannot be {given!r}", hint=nearest(str(given), known) or f"one of: {', '.join(known)}")


def positive(what: str, given: object) -> int | None:
    """Return a number from 1, or None. Raises ``InputError`` for any other value."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InputError(f"{what} must be a number from 1, not {given!r}")
    return given


def columns(given: str | Sequence[str] | None) -> list[str]:
    """Return the names of one or several columns as a list."""
    return [given] if isinstance(given, str) else list(given or ())


def trigger_of(given: str | None) -> Mapping[str, str | bool]:
    """Return the arguments of Spark's ``trigger``: an interval, ``availableNow`` or ``once``."""
    if given is None:
        return {"processingTime": "0 seconds"}
    if given in _TRIGGERS:
        return _TRIGGERS[given]
    if _SPAN.fullmatch(str(given)):
        return {"processingTime": given}
    raise InputError(
        f"a trigger cannot be {given!r}",
        hint=nearest(str(given), _TRIGGERS) or 'pass "10 seconds", or "availableNow" to stop when all is there',
    )
