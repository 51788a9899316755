"""The guard of a session that runs queries which others have written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quacklake.core.format.names import fold
from quacklake.core.sql import statements
from quacklake.core.sql.guard import StoredTextGuard
from quacklake.core.sql.safety import checks
from quacklake.core.sql.statements import queries
from quacklake.core.sql.tree import Node
from quacklake.core.sql.words import Cursor
from quacklake.errors import NotPermittedError, SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session


class ReadingGuard(StoredTextGuard):
    """Lets queries read tables of lakes and registered rows, and nothing else."""

    def admit(self, session: Session, cursor: Cursor) -> Cursor:
        """Return a query. Raise ``NotPermittedError`` for any other statement."""
        if statements.handler(cursor) is not queries.query:
            checks.check_syntax(session, cursor)
            raise NotPermittedError("only a query can run here", hint="write one SELECT")
        return cursor

    def native(self) -> None:
        """Raise ``NotPermittedError``: such a statement cannot be checked."""
        raise NotPermittedError("only a query can run here", hint="write one SELECT")

    def check(self, parsed: Node, known: checks.Known) -> None:
        """Check a query, or one of a view or macro that it uses."""
        checks.check(parsed, known)

    def value(self, expression: Node, is_macro: checks.Known | None = None) -> None:
        """Check an expression that is computed on its own."""
        checks.check_value(expression, is_macro)

    def foreign(self, session: Session, names: Sequence[str]) -> None:
        """Raise ``SqlError`` for anything but registered rows: another name can be a file."""
        if len(names) > 1 or fold(names[0]) not in session.attachments.frames:
            raise SqlError(f"Catalog Error: Table with name {'.'.join(names)} does not exist!", hint="FROM source")
