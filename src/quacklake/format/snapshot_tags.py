"""Names that people give to snapshots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from quacklake.errors import InvalidNameError

__all__ = ["MAX_TAG", "SnapshotTag", "check_tag", "is_tag"]

MAX_TAG = 128
"""The longest tag, in characters."""

# A letter first, so that no tag looks like the number or the time of a snapshot.
_TAG = re.compile(r"[^\W\d][\w.+/-]*")


@dataclass(frozen=True, slots=True)
class SnapshotTag:
    """A name of a snapshot, and when it was given."""

    name: str
    snapshot_id: int
    created: datetime | None = None


def is_tag(text: str) -> bool:
    """True when a text can be a tag: never for a number or a time.

    >>> is_tag("v1.0"), is_tag("2024-01-01"), is_tag("7"), is_tag("a b")
    (True, False, False, False)
    """
    return len(text) <= MAX_TAG and _TAG.fullmatch(text) is not None


def check_tag(name: object) -> str:
    """The name, when a snapshot may be called so; :class:`InvalidNameError` when not."""
    if not isinstance(name, str):
        raise InvalidNameError(f"a tag must be text, not {type(name).__name__}")
    if not is_tag(name):
        raise InvalidNameError(
            f"a snapshot cannot have the tag {name[:MAX_TAG]!r}",
            hint=f"a tag starts with a letter; letters, digits and any of . _ - + / follow, {MAX_TAG} in all at most",
        )
    return name
