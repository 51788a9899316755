"""The author and the message of a commit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """The author, message and extra text of a snapshot."""

    author: str | None = None
    message: str | None = None
    extra: str | None = None

    @property
    def given(self) -> bool:
        """True when any of them is given."""
        return self != NO_SIGNATURE


NO_SIGNATURE = Signature()
"""The empty signature."""
