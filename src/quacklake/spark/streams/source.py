"""The source of a stream of Spark, and the checks of stream options."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from quacklake.core.operations.keyed_changes import FEED_NAMES
from quacklake.errors import InputError, nearest
from quacklake.extend.schemas import TableInfo
from quacklake.extend.streams import StreamSource

if TYPE_CHECKING:
    from quacklake.core.operations.context import LakeContext

Bound: TypeAlias = int | dt.datetime | str
"""An end of a range of snapshots: a number, a time or a tag."""
Position: TypeAlias = Mapping[str, int]
"""A position in a stream, as ``StreamSource`` makes it."""

EARLIEST, LATEST = "earliest", "latest"


def open_source(
    context: LakeContext,
    table: TableInfo,
    max_files: int | None = None,
    max_bytes: int | None = None,
    *,
    changes: bool = False,
) -> StreamSource:
    """Return a table as a stream. Raise ``InputError`` for a column that a stream of changes would add."""
    taken = [name for name in table.schema.names if changes and name.lower() in FEED_NAMES]
    if taken:
        raise InputError(f'the column "{taken[0]}" has a name that the stream of changes needs')
    return StreamSource(context, table, changes, max_files, max_bytes)


MODES = ("append", "upsert", "changes")
OUTPUT_MODES = ("append", "update", "complete")
_SPAN = re.compile(r"\s*\d+(\.\d+)?\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|days?)\s*", re.IGNORECASE)
_TRIGGERS: Mapping[str, Mapping[str, bool]] = {"availableNow": {"availableNow": True}, "once": {"once": True}}


def refuse_unknown(given: Iterable[str], known: Sequence[str]) -> None:
    """Raise ``InputError`` for an option that does not exist, with the most similar one."""
    for name in given:
        # Quacklake's name for an option of Spark, such as max_files for maxFilesPerTrigger
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().removesuffix("_per_trigger")
        hint = nearest(name, known) or nearest(snake, known) or f"there are {', '.join(known)}"
        raise InputError(f'there is no option "{name}"', hint=hint)


def choice(what: str, given: object, known: Sequence[str]) -> str:
    """Return ``given`` if it is one of the known words. Raise ``InputError`` with the most similar word."""
    if given in known:
        return str(given)
    raise InputError(f"{what} cannot be {given!r}", hint=nearest(str(given), known) or f"one of: {', '.join(known)}")


def positive(what: str, given: object) -> int | None:
    """Return a number from 1, or None. Raise ``InputError`` for any other value."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InputError(f"{what} must be a number from 1, not {given!r}")
    return given


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
