"""What stands between a statement and its session: nothing here, two locks and limits in a safe one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from quacklake.errors import QuacklakeError
    from quacklake.sql.attached import Attached
    from quacklake.sql.safety.walk import Known
    from quacklake.sql.scans import Scan
    from quacklake.sql.session_connection import SessionConnection
    from quacklake.sql.sizes import Size
    from quacklake.sql.tree import Node
    from quacklake.sql.words import Cursor

__all__ = ["Guard"]

_BATCH_ROWS = 122_880


class Guard:
    """Lets everything pass, as is right for statements of one's own."""

    safe = False
    seconds: float | None = None
    batch_rows = _BATCH_ROWS

    def attaching(self, attached: Attached) -> None:
        """Before a lake is attached."""

    def text(self, text: str) -> None:
        """Before a text is cut into statements."""

    def admit(self, session: SessionConnection, cursor: Cursor) -> Cursor:
        """Before a statement is run: as which one."""
        return cursor

    def native(self) -> None:
        """Before DuckDB gets the text of a statement as it is."""

    def check(self, parsed: Node, known: Known) -> None:
        """Before anything of a parsed query or expression is computed."""

    def measure(self, parsed: Node, made: Mapping[str, Size]) -> Size | None:
        """Before a query whose names have been looked up is bound; ``made`` are the sizes of what it names."""
        return None

    def value(self, expression: Node) -> None:
        """Before an expression is computed whose names nobody looks up."""

    def foreign(self, session: SessionConnection, names: Sequence[str]) -> None:
        """Before a table is read that is of no lake."""

    def scanned(self, query: str, scan: Scan) -> str:
        """The query of a table, before DuckDB gets it."""
        return query

    def plan(self, session: SessionConnection, text: str) -> str:
        """A plan, before it is shown."""
        return text

    def failed(self, session: SessionConnection, error: QuacklakeError) -> None:
        """Before an error is raised."""

    def limited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a result."""
        return batches

    def close(self) -> None:
        """When the databases of the session are closed."""
