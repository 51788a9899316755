"""The guard that every statement of a session passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake.core.duckdb_versions import Connection
from quacklake.errors import NotPermittedError, QuacklakeError

if TYPE_CHECKING:
    from quacklake.core.sql.attached import Attached
    from quacklake.core.sql.safety.checks import Known
    from quacklake.core.sql.scans import Scan
    from quacklake.core.sql.session import Session
    from quacklake.core.sql.tree import Node
    from quacklake.core.sql.words import Cursor


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a query: expression parts, table references, columns, and for a macro its uses of parameters."""

    nodes: int
    tables: int
    columns: int
    uses: int = 1


class Guard:
    """The default guard, which allows everything. The guard of a safe session enforces limits and an allow list."""

    safe = False
    trusted = True
    """True when the author of a statement may run any SQL: it is not parsed again."""
    seconds: float | None = None
    batch_rows = 122_880

    def opened(self, connection: Connection) -> None:
        """Prepare a new connection of the session."""

    def attaching(self, attached: Attached) -> None:
        """Check a lake before it is attached. Only a safe session is for a principal that may not see everything."""
        if attached.handle.restricted:
            raise NotPermittedError(
                "a lake with row filters, masks or hidden tables needs a safe session",
                hint="quacklake.session(safety=Safety())",
            )

    def text(self, text: str) -> None:
        """Check a text before it is split into statements."""

    def admit(self, session: Session, cursor: Cursor) -> Cursor:
        """Check a statement before it runs. Return the statement to run in its place."""
        return cursor

    def auditing(self, session: Session, sql: str) -> AbstractContextManager[None]:
        """Record a statement while it runs."""
        return nullcontext()

    def native(self) -> None:
        """Called before DuckDB gets the text of a statement unchanged."""

    def check(self, parsed: Node, known: Known) -> None:
        """Check a parsed query or expression before any part of it is computed."""

    def measure(self, parsed: Node, made: Mapping[str, Size]) -> Size | None:
        """Check a query after its names are resolved, before it is bound. ``made`` are the sizes of its relations."""
        return None

    def value(self, expression: Node, is_macro: Known | None = None) -> None:
        """Check an expression before it is computed without its names being resolved.

        ``is_macro`` finds the macros that it may call.
        """

    def foreign(self, session: Session, names: Sequence[str]) -> None:
        """Check the name of a table outside the lakes before the table is read."""

    def scanned(self, query: str, scan: Scan) -> str:
        """Return the query of a scan as DuckDB may get it."""
        return query

    def plan(self, session: Session, text: str) -> str:
        """Return a query plan as it may be shown."""
        return text

    def failed(self, session: Session, error: QuacklakeError) -> None:
        """Change an error before it is raised."""

    def limited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a result, within the limits."""
        return batches

    def close(self) -> None:
        """Called when the databases of the session are closed."""


class StoredTextGuard(Guard):
    """The guard of a session whose queries come from the metadata."""

    trusted = False
