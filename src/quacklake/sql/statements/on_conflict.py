"""Parse ON CONFLICT, which handles a row of an INSERT whose key exists in the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quacklake.errors import SqlError
from quacklake.format.names import fold
from quacklake.sql.statements.rows import assignments
from quacklake.sql.words import Cursor


@dataclass(frozen=True, slots=True)
class Conflict:
    """The handling of a row whose key exists.

    ``assigned`` are new values of the existing row. With ``replacing`` the row gets all values of the INSERT; without
    either it stays unchanged.
    """

    columns: tuple[str, ...] | None = None
    replacing: bool = False
    assigned: tuple[tuple[str, str], ...] = ()
    condition: str = ""

    def check(self, key: Sequence[str]) -> None:
        """Raise ``SqlError`` unless the clause names the primary key of the table."""
        if self.columns is None and not key:
            raise SqlError(
                "Binder Error: There are no UNIQUE/PRIMARY KEY constraints that refer to this table",
                hint="declare a PRIMARY KEY, or say MERGE INTO, which goes by any columns",
            )
        if self.columns is not None and {fold(name) for name in self.columns} != {fold(name) for name in key}:
            raise SqlError(
                "Binder Error: The specified columns as conflict target are not referenced by a UNIQUE/PRIMARY KEY"
                " CONSTRAINT or INDEX",
                hint=f"the primary key is ({', '.join(key)})" if key else "there is none: say MERGE INTO",
            )
        changed = next((name for name, _ in self.assigned if fold(name) in {fold(each) for each in key}), None)
        if changed is not None:
            raise SqlError(
                f'Binder Error: DO UPDATE cannot set "{changed}", a column of the primary key',
                hint="say UPDATE instead",
            )


def parse_conflict(cursor: Cursor, *, replacing: bool, ignoring: bool) -> Conflict | None:
    """Parse ``ON CONFLICT [(columns)] DO NOTHING | DO UPDATE SET … [WHERE …]``; OR REPLACE and OR IGNORE count too."""
    if not cursor.accept("ON", "CONFLICT"):
        return Conflict(replacing=replacing) if replacing or ignoring else None
    if replacing or ignoring:
        raise SqlError(
            "Parser Error: You can not provide both OR REPLACE|IGNORE and an ON CONFLICT clause", hint="leave one out"
        )
    columns = tuple(Cursor(item).name() for item in cursor.items()) if cursor.sees("(") else None
    if cursor.sees("WHERE"):
        raise SqlError("Binder Error: ON CONFLICT WHERE clause is only supported in DO UPDATE SET ... WHERE ...")
    cursor.expect("DO")
    if cursor.accept("NOTHING"):
        return Conflict(columns)
    cursor.expect("UPDATE", "SET")
    assigned = tuple(assignments(cursor))
    condition = cursor.until("RETURNING") if cursor.accept("WHERE") else ""
    return Conflict(columns, assigned=assigned, condition=condition)
