"""The size of a query, for sessions that limit it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a query: expression parts, table references, columns, and for a macro its uses of parameters."""

    nodes: int
    tables: int
    columns: int
    uses: int = 1
