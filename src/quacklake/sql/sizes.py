"""How large a query is, where a session asks for it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Size"]


@dataclass(frozen=True, slots=True)
class Size:
    """What a query comes to: parts of expressions, mentions of tables, columns, and for a macro uses of parameters."""

    nodes: int
    tables: int
    columns: int
    uses: int = 1
