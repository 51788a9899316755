"""The guard of a safe session: the allow list, DuckDB's switches and the limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake.errors import ConfigError, NotPermittedError, QuacklakeError, ResultTooLargeError, nearest
from quacklake.format.names import fold
from quacklake.sql.attached import PREFIX, Attached
from quacklake.sql.guard import Guard
from quacklake.sql.safety import measure, places, statements, walk
from quacklake.sql.safety.limits import Safety
from quacklake.sql.safety.seal import Seal
from quacklake.sql.safety.walk import Known
from quacklake.sql.scans import Scan
from quacklake.sql.sizes import Size
from quacklake.sql.tree import Node
from quacklake.sql.words import Cursor

if TYPE_CHECKING:
    from quacklake.sql.session_connection import SessionConnection

_SAFE_BATCH_ROWS = 8_192


class SafeGuard(Guard):
    """Refuses what ``Safety`` does not allow. The cursors of a session share it."""

    safe = True
    batch_rows = _SAFE_BATCH_ROWS

    def __init__(self, safety: Safety, seal: Seal) -> None:
        self.safety = safety
        self.seconds = safety.seconds
        self._seal = seal
        self._tenant: str | None = None

    def attaching(self, attached: Attached) -> None:
        """Refuse a second catalog of a shared lake: a safe session is for one tenant."""
        self._seal.allows(attached)
        row = attached.context.catalog.tenant_row
        if row is not None and self._tenant not in (None, row.uuid):
            raise ConfigError(
                f'the lake "{attached.alias}" cannot be attached: a safe session is for one catalog of a shared lake',
                hint="make a session for each catalog",
            )
        self._tenant = self._tenant if row is None else row.uuid

    def text(self, text: str) -> None:
        if len(text) > self.safety.max_text:
            raise NotPermittedError(f"the text has {len(text)} characters, {self.safety.max_text} are allowed")

    def admit(self, session: SessionConnection, cursor: Cursor) -> Cursor:
        self._seal.close(session.attachments)
        return statements.admit(session, cursor, read_only=self.safety.read_only)

    def native(self) -> None:
        raise NotPermittedError("a safe session does not run such a statement")

    def measure(self, parsed: Node, made: Mapping[str, Size]) -> Size:
        return measure.measure(parsed, made, self.safety)

    def check(self, parsed: Node, known: Known) -> None:
        measure.check_shape(parsed, self.safety)
        walk.check(parsed, known)

    def value(self, expression: Node) -> None:
        measure.check_shape(expression, self.safety)
        walk.check_value(expression)

    def foreign(self, session: SessionConnection, names: Sequence[str]) -> None:
        last, schema = fold(names[-1]), [fold(name) for name in names[:-1]]
        if schema[-1:] == ["information_schema"] or (not schema and last in walk.LISTINGS):
            return
        if schema == ["temp", "main"] and last.startswith(PREFIX) and session.has_made(last):
            return
        raise NotPermittedError(
            f'"{".".join(names)}" is not a table of a lake of this safe session', hint=_near(session, names)
        )

    def scanned(self, query: str, scan: Scan) -> str:
        return places.relative_name(query, scan.attached) if "filename" in scan.virtual else query

    def plan(self, session: SessionConnection, text: str) -> str:
        return places.hidden_plan(text, self._places(session))

    def failed(self, session: SessionConnection, error: QuacklakeError) -> None:
        places.hidden_error(error, self._places(session))

    def _places(self, session: SessionConnection) -> dict[str, str]:
        return places.places_of(session.attachments.lakes.values(), self._seal.spill)

    def limited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = size = 0
        most_rows, most_bytes = self.safety.max_rows, self.safety.result_bytes
        for batch in batches:
            rows += batch.num_rows
            size += batch.nbytes
            if most_rows is not None and rows > most_rows:
                raise ResultTooLargeError(f"the result has more than {most_rows} rows", hint="LIMIT or an aggregate")
            if most_bytes is not None and size > most_bytes:
                raise ResultTooLargeError(f"the result has more than {most_bytes} bytes", hint="name fewer columns")
            yield batch

    def close(self) -> None:
        self._seal.remove()


def _near(session: SessionConnection, names: Sequence[str]) -> str | None:
    used = session.names.default
    if used is None or len(names) != 1:
        return None
    return nearest(names[0], [table.name for table in session.view(used).tables()])
