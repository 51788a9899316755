"""Who made a snapshot, and why."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NO_SIGNATURE", "Signature"]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a snapshot says of who made it and why."""

    author: str | None = None
    message: str | None = None
    extra: str | None = None

    @property
    def given(self) -> bool:
        """True when it says anything."""
        return self != NO_SIGNATURE


NO_SIGNATURE = Signature()
"""Nothing is said."""
