"""SQL expressions in place of values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expression:
    """SQL text that computes a value; a plain Python value would be a literal."""

    sql: str
