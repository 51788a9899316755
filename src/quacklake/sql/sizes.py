"""The size of a query, for sessions that limit it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Size"]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a query: parts of expressions, mentions of tables, columns, and for a macro uses of parameters."""

    nodes: int
    tables: int
    columns: int
    uses: int = 1
