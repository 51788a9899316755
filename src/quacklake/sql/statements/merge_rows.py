"""Find and change the rows of a MERGE.

The source is read once, into a temporary table. A join with the target finds the matching rows; the rows without a
match are then found on each side. So an expression sees the columns that its clause allows, as in DuckDB: those of both
sides, or of one side only. The first clause that fits a row applies to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quacklake.duckdb_versions import first_row
from quacklake.engines.duckdb.engine import places_to_target
from quacklake.engines.duckdb.sql import ROW_COLUMNS
from quacklake.errors import ConstraintError, SqlError
from quacklake.format.bounds import ANYTHING
from quacklake.format.names import fold, quote
from quacklake.format.objects import TableInfo
from quacklake.format.schema import Column
from quacklake.format.snapshots import Operation
from quacklake.operations import inserting
from quacklake.operations.conform import default_value
from quacklake.sql.attached import Target
from quacklake.sql.binder import Binder, StandIns
from quacklake.sql.result import Result
from quacklake.sql.statements.inserting import append_bound, conforming
from quacklake.sql.statements.rows import PLACES, cast_to, find_table, new_values, own_name, stand_in
from quacklake.sql.words import Cursor
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake.scan import ScanPlan
    from quacklake.sql.session import Session

_SOURCE = "_ql_source"
_ACTION = "_ql_action"
_MESSAGE = "_ql_message"
_NOWHERE = -9223372036854775807


@dataclass(frozen=True, slots=True)
class MergeClause:
    """A WHEN clause. ``matched`` says which rows it applies to: both, target only or source only.

    An update without ``assigned`` and an insert without ``values`` take the columns of the source.
    """

    matched: str
    condition: str
    action: str
    columns: tuple[str, ...] | None = None
    values: tuple[str, ...] | None = None
    assigned: tuple[tuple[str, str], ...] | None = None
    message: str = ""
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class MergeSource:
    """The source relation: its text, the qualifier of its columns, and the lake table if it is one.

    ``named`` is the text that still refers to the source when a temporary relation replaces the table.
    """

    text: str
    named: str | None
    own: str
    table: Target | None


@dataclass(frozen=True, slots=True)
class Merge:
    """A MERGE statement: the target, the source, the condition that matches their rows, and the clauses."""

    prefix: str
    target: Target
    named: str
    alias: str | None
    source: MergeSource
    how: str
    clauses: tuple[MergeClause, ...]
    returning: str

    @property
    def changed(self) -> str:
        """The target as it is written in FROM."""
        return self.named + (f" AS {quote(self.alias)}" if self.alias else "")

    def has(self, matched: str) -> bool:
        """Return True when a clause applies to rows of this kind."""
        return any(clause.matched == matched for clause in self.clauses)


@dataclass(frozen=True, slots=True)
class _Found:
    """A temporary table of rows, with the action for each row and the position of rows of the target.

    ``several`` is true when a row of the target may occur more than once.
    """

    name: str
    plan: ScanPlan | None = None
    several: bool = True


def change_rows(
    session: Session, tx: Transaction, statement: Merge, params: Any, returned: list[Result], asked: Operation
) -> int:
    """Change the rows of the target, and return their number. Append the rows of RETURNING to ``returned``."""
    tx.asks(asked)
    table = find_table(statement.target, tx)
    found = _Finder(session, statement, table, params).find()
    tx.pending(table).add_read(ANYTHING)
    for rows in found:
        _check_errors(session, rows.name, statement)
    if statement.returning:
        returned[:] = [_returned(session, statement, table, found)]
    return _apply(session, tx, statement, table, found, asked)


class _Finder:
    """Finds the rows of one MERGE, with one query for each side."""

    def __init__(self, session: Session, statement: Merge, table: TableInfo, params: Any) -> None:
        self.session = session
        self.statement = statement
        self.table = table
        self.params = params
        self.own = own_name(statement.target, statement.alias)
        self.source, self.given = self._materialized()
        self.stand_ins: StandIns = {}
        self.here = f"temp.main.{self.source} AS {statement.source.own}"
        if statement.source.named is not None and statement.source.table is not None:
            self.stand_ins = stand_in(statement.source.table, self.source)
            self.here = statement.source.named

    def find(self) -> list[_Found]:
        """Return the matching rows, then those of the source and the target without a match, if a clause needs them."""
        statement, places = self.statement, [f"{self.own}.{name} AS {name}" for name in ROW_COLUMNS]
        both = self._made(
            "both",
            [*places, f"{statement.source.own}.{_SOURCE} AS {_SOURCE}"],
            f"{statement.changed} JOIN {self.here} {statement.how}",
        )
        found = [both] if statement.has("both") else []
        if statement.has("source"):
            alone = f"{statement.source.own}.{_SOURCE} NOT IN (SELECT {_SOURCE} FROM temp.main.{both.name})"
            found.append(self._made("source", [], f"{self.here} WHERE {alone}"))
        if statement.has("target"):
            unmatched = f"ANTI JOIN temp.main.{both.name} AS _ql_m ON {self._same_place(both)}"
            found.append(self._made("target", places, f"{statement.changed} {unmatched}"))
        return found

    def _same_place(self, found: _Found) -> str:
        """Return the condition that a row of the target is among the rows found.

        It does not use IS NOT DISTINCT FROM, with which DuckDB's readers would get no filter.
        """
        names = PLACES.split(", ")
        if found.plan is not None and found.plan.inlined is None:  # then all rows are in files
            return " AND ".join(f"_ql_m.{name} = {self.own}.{name}" for name in names if name != "_ql_version")
        return " AND ".join(
            f"coalesce(_ql_m.{name}, {_NOWHERE}) = coalesce({self.own}.{name}, {_NOWHERE})" for name in names
        )

    def _materialized(self) -> tuple[str, list[str]]:
        """Return a temporary relation of the source with numbered rows, and the source's own columns."""
        connection = self.session.connection
        bound = Binder(self.session, self.params).bind(
            f"{self.statement.prefix}SELECT * FROM {self.statement.source.text}"
        )
        rows, name = self.session.fresh_name(), self.session.fresh_name()
        connection.execute(f"CREATE TEMP TABLE {rows} AS {bound.sql}", bound.values)
        columns = [str(row[0]) for row in connection.execute(f"DESCRIBE {rows}").fetchall()]
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT *, rowid AS {_SOURCE} FROM {rows}")
        return name, columns

    def _made(self, matched: str, beside: list[str], source: str) -> _Found:
        """Create a temporary table of the rows of a query, each with its action and its new columns."""
        clauses = [(f"{c.action}:{at}", c) for at, c in enumerate(self.statement.clauses) if c.matched == matched]
        cases = " ".join(f"WHEN {clause.condition or 'true'} THEN '{label}'" for label, clause in clauses)
        action = _ACTION if not any(_has_query(clause.condition) for _, clause in clauses) else f"(CASE {cases} END)"
        messages = " ".join(f"WHEN '{label}' THEN CAST(({c.message}) AS VARCHAR)" for label, c in clauses if c.message)
        message = f"CASE {action} {messages} END" if messages else "CAST(NULL AS VARCHAR)"
        select = [f"CASE {cases} END AS {_ACTION}", f"{message} AS {_MESSAGE}"] if clauses else []
        names = [_ACTION, _MESSAGE] if clauses else []
        for column in self.table.schema.columns if clauses else ():
            select.append(f"{self._column(column, clauses, matched, action)} AS _ql_c{column.id}")
            names.append(f"_ql_c{column.id} AS {quote(column.name)}")
        names += [item.rpartition(" AS ")[2] for item in beside]
        bound = Binder(self.session, self.params, self.stand_ins).bind(
            f"{self.statement.prefix}SELECT {', '.join([*select, *beside])} FROM {source}", target=matched != "source"
        )
        name = self.session.fresh_name()
        # matching rows count as matched on both sides, whether a clause applies to them or not
        taken = "" if matched == "both" else f" WHERE {_ACTION} IS NOT NULL"
        self.session.connection.execute(
            f"CREATE TEMP TABLE {name} AS SELECT {', '.join(names)} FROM ({bound.sql}){taken}", bound.values
        )
        return _Found(name, None if bound.target is None else bound.target.plan, several=matched == "both")

    def _column(self, column: Column, clauses: Sequence[tuple[str, MergeClause]], matched: str, action: str) -> str:
        """Return the SQL of a column after the row's clause has been applied."""
        values = [(label, self._values(clause)) for label, clause in clauses]
        options = " ".join(
            f"WHEN '{label}' THEN {cast_to(found[column.id], column)}" for label, found in values if column.id in found
        )
        read = matched != "source" and (self.statement.returning or any(c.action == "update" for _, c in clauses))
        kept = f"{self.own}.{quote(column.name)}" if read else f"CAST(NULL AS {column.duckdb_type()})"
        return f"CASE {action} {options} ELSE {kept} END" if options else kept

    def _values(self, clause: MergeClause) -> dict[int, str]:
        """Return the SQL of the values that a clause assigns, by column id."""
        columns = self.table.schema.columns
        if clause.action == "update":
            return self._taken(clause) if clause.assigned is None else new_values(self.table, clause.assigned)
        if clause.action != "insert":
            return {}
        found = {column.id: default_value(column) for column in columns}
        if clause.values is None:
            return found | self._taken(clause)
        chosen = columns if clause.columns is None else [self.table.schema.find(name) for name in clause.columns]
        self._check_number(len(chosen), len(clause.values), clause)
        pairs = zip(chosen, clause.values, strict=True)
        return found | {column.id: value for column, value in pairs if fold(value) != "default"}

    def _taken(self, clause: MergeClause) -> dict[int, str]:
        """Return the columns of the source, by name or position."""
        columns = self.table.schema.columns
        if clause.by_name:
            pairs = [(self.table.schema.find(name), name) for name in self.given]
        else:
            self._check_number(len(columns), len(self.given), clause)
            pairs = list(zip(columns, self.given, strict=True))
        return {column.id: f"{self.statement.source.own}.{quote(name)}" for column, name in pairs}

    def _check_number(self, wanted: int, given: int, clause: MergeClause) -> None:
        if wanted == given:
            return
        if clause.columns is not None:
            raise SqlError(f"Binder Error: {wanted} columns are named but {given} values were supplied")
        raise SqlError(f"Binder Error: table {self.table.name} has {wanted} columns but {given} values were supplied")


def _has_query(condition: str) -> bool:
    """Return True for a condition with a subquery, which DuckDB does not let other expressions refer to by a name."""
    return any(word.upper in ("SELECT", "FROM", "VALUES", "EXISTS") for word in Cursor(condition).words)


_WHEN = {"both": "WHEN MATCHED", "source": "WHEN NOT MATCHED", "target": "WHEN NOT MATCHED BY SOURCE"}


def _check_errors(session: Session, rows: str, statement: Merge) -> None:
    query = f"SELECT {_ACTION}, {_MESSAGE} FROM {rows} WHERE {_ACTION} LIKE 'error:%' LIMIT 1"
    row = first_row(session.connection, query)
    if row is not None:
        clause = statement.clauses[int(str(row[0]).split(":")[1])]
        condition = f" AND {clause.condition}" if clause.condition else ""
        message = "" if row[1] is None else f": {row[1]}"
        raise ConstraintError(f"Merge error condition {_WHEN[clause.matched]}{condition}{message}")


def _apply(
    session: Session,
    tx: Transaction,
    statement: Merge,
    table: TableInfo,
    found: Sequence[_Found],
    asked: Operation,
) -> int:
    """Insert, delete and update. A row of the target that matches several rows of the source is changed once."""
    attached, connection = statement.target.attached, session.connection
    names = ", ".join(quote(column.name) for column in table.schema.columns)
    changed: dict[str, str] = {}
    gone: dict[str, pa.Table] = {}
    for rows in (each for each in found if each.plan is not None):
        name = changed[rows.name] = session.fresh_name()
        once = f" QUALIFY row_number() OVER (PARTITION BY {PLACES}) = 1" if rows.several else ""
        connection.execute(
            f"CREATE TEMP {'TABLE' if rows.several else 'VIEW'} {name} AS SELECT {names}, {', '.join(ROW_COLUMNS)}"
            f" FROM {rows.name} WHERE {_ACTION} LIKE 'update:%'{once}"
        )
        inserting.check_not_null(connection, name, list(table.schema.columns))
        word = "DISTINCT " if rows.several else ""
        gone[rows.name] = session.rows(f"SELECT {word}{PLACES} FROM {rows.name} WHERE {_ACTION} LIKE 'delete:%'")
    places = {column.id: place for place, column in enumerate(table.schema.columns)}
    count = 0
    for rows in (each for each in found if each.plan is None):
        fresh = f"SELECT {names} FROM {rows.name} WHERE {_ACTION} LIKE 'insert:%'"
        if first_row(connection, f"SELECT 1 FROM ({fresh}) LIMIT 1") is not None:
            count += append_bound(session, tx, attached, table, conforming(table, places, fresh), None, asked)
    for each in found:
        if each.plan is not None:
            inserting.replace_rows(attached.context, tx, connection, table, each.plan, changed[each.name])
            if gone[each.name].num_rows:
                tx.pending(table).delete(each.plan, places_to_target(gone[each.name]))
            count += _number(session, each.name)
    return count


def _number(session: Session, rows: str) -> int:
    """Count the rows to update or delete as DuckDB does: a row that is matched twice counts twice."""
    question = f"SELECT count(*) FROM {rows} WHERE {_ACTION} LIKE 'update:%' OR {_ACTION} LIKE 'delete:%'"
    row = first_row(session.connection, question)
    assert row is not None
    return int(row[0])


def _returned(session: Session, statement: Merge, table: TableInfo, found: Sequence[_Found]) -> Result:
    """Evaluate RETURNING before anything is changed, so that an error in it changes nothing."""
    columns = ", ".join(quote(column.name) for column in table.schema.columns)
    parts = [
        f"SELECT upper(split_part({_ACTION}, ':', 1)) AS merge_action, {columns} FROM {rows.name}"
        f" WHERE {_ACTION} NOT LIKE 'nothing:%'"
        for rows in found
    ]
    name = session.fresh_name()
    session.connection.execute(f"CREATE TEMP TABLE {name} AS {' UNION ALL '.join(parts)}")
    query = f"SELECT {_without_action(statement.returning)} FROM {statement.changed}"
    result = session.query(query, stand_ins=stand_in(statement.target, name))
    result.keep()
    return result


def _without_action(returning: str) -> str:
    """Return the list of RETURNING with ``*`` limited to the table's columns."""
    words = Cursor(returning).words
    parts, done = [], 0
    for number, word in enumerate(words):
        if word.text == "*" and (number == 0 or words[number - 1].text == ","):
            parts += [returning[done : word.end], " EXCLUDE (merge_action)"]
            done = word.end
    return "".join([*parts, returning[done:]])
