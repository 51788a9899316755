"""SQL where a value would be."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Expression"]


@dataclass(frozen=True, slots=True)
class Expression:
    """SQL text that computes a value, where a plain Python value would be a literal."""

    sql: str
