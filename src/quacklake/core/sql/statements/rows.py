"""UPDATE, DELETE and TRUNCATE, and what all statements that change rows share in a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.core.duckdb_versions import arrow_reader, arrow_table, first_row
from quacklake.core.engines.duckdb.expressions import order_keys
from quacklake.core.engines.duckdb.sql import ROW_COLUMNS
from quacklake.core.engines.duckdb.visible import hiding, new_rows_sql
from quacklake.core.format.bounds import ANYTHING
from quacklake.core.format.names import fold, quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.snapshots import Operation
from quacklake.core.operations import conform, dml, row_changes
from quacklake.core.operations.expression import Expression
from quacklake.core.operations.row_changes import BoundQuery, Scope
from quacklake.core.operations.sources import Source
from quacklake.core.operations.statements import Delete, Update, Value
from quacklake.core.sql import tree
from quacklake.core.sql.attached import Attached, Target, missing
from quacklake.core.sql.binder import Binder, StandIns
from quacklake.core.sql.result import Result
from quacklake.core.sql.statements import queries
from quacklake.core.sql.words import Cursor, refuse_parameters
from quacklake.core.transaction import Transaction
from quacklake.errors import SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session


_BATCH_ROWS = 122_880


def counted(count: int) -> Result:
    """Return the result of a statement that changes rows."""
    return Result(pa.table({"Count": pa.array([count], pa.int64())}), types=("BIGINT",), rowcount=count)


def find_table(target: Target, tx: Transaction) -> TableInfo:
    """Return the table that a statement changes. Raise ``NotFoundError`` with the most similar names."""
    found = tx.get_table(target.schema, target.name)
    if found is not None:
        return found
    if tx.objects.get_view(target.schema, target.name) is not None:
        raise SqlError(f'"{target.name}" is a view: only tables can be changed')
    raise missing(target, tx)


class SessionScope(Scope):
    """The meaning of a statement's texts in a session: they are whole SQL, which the binder looks up and checks."""

    def __init__(
        self,
        session: Session,
        tx: Transaction,
        place: Place,
        params: Any,
        asked: Operation,
        *,
        returning: str,
        prefix: str,
    ) -> None:
        tx.asks(asked)
        self.session, self.place, self.params, self.asked, self.returning = session, place, params, asked, returning
        self.stand_ins: StandIns = {}
        self.returned: Result | None = None
        table = find_table(place.target, tx)
        super().__init__(place.target.attached.context, tx, table, session.connection, place.text, place.own)
        self.prefix = prefix

    def bind(self, query: str, *, target: bool) -> BoundQuery:
        """Look up the names of a query. What it reads of the target is anything if it reads the table twice."""
        bound = Binder(self.session, self.params, self.stand_ins).bind(query, target=target)
        scan = bound.target
        if scan is None:
            return BoundQuery(bound.sql, bound.values)
        again = any(other is not scan and other.table.id == scan.table.id and not other.past for other in bound.scans)
        return BoundQuery(bound.sql, bound.values, scan.plan, ANYTHING if again else scan.predicate)

    def fresh_name(self) -> str:
        """Return a name that lives as long as the statement."""
        return self.session.fresh_name()

    def sql(self, value: Value) -> str:
        """Return the text of a value. Raise ``SqlError`` unless it is one expression."""
        return tree.enclosed(self.connection, str(value.sql))

    def insert(self, query: str) -> int:
        """Insert rows as INSERT does."""
        if first_row(self.connection, f"SELECT 1 FROM ({query}) LIMIT 1") is None:
            return 0
        return append_bound(self.session, self.tx, self.place.target.attached, self.table, query, None, self.asked)

    def show(self, rows: str, *, read: str = "false") -> None:
        """Evaluate RETURNING on the changed rows, as far as the principal would see them."""
        if not self.returning:
            return
        tree.select_list_of(self.connection, self.returning)
        rows = self._apply_rules(rows, read)
        found = {str(row[0]) for row in self.connection.execute(f"DESCRIBE {rows}").fetchall()}
        hidden = ", ".join(name for name in ROW_COLUMNS if name in found)
        shown = self.create(f"SELECT *{f' EXCLUDE ({hidden})' if hidden else ''} FROM temp.main.{rows}", view=True)
        returning = _without_action(self.returning) if "merge_action" in found else self.returning
        query = f"SELECT {returning} FROM {self.place.text}"
        self.returned = self.session.query(query, stand_ins=stand_in(self.place.target, shown))
        self.returned.keep()  # read all rows first, so that an error in them changes nothing

    def _apply_rules(self, rows: str, read: str) -> str:
        """Return the changed rows without those that row filters hide, and with masks: also defaults can be secret.

        Raise ``NotPermittedError`` for a principal that may not read the table at all.
        """
        visible = self.tx.visible(self.table)
        if visible is None:
            return rows
        assert self.tx.rules is not None
        whole = self.tx.whole(self.table)
        self.tx.rules.check_change(self.table, whole)  # from here on, no column of the table is missing
        names = {column.name for column in whole.schema.columns}
        described = self.connection.execute(f"DESCRIBE {rows}").fetchall()
        beside = [name for name in (str(row[0]) for row in described) if name not in names]
        new = new_rows_sql(f"FROM temp.main.{rows} WHERE NOT ({read})", visible, whole.schema.columns, beside)
        listed = ", ".join(map(quote, [*visible.values(), *beside]))
        with hiding():
            # a table, so that no expression of RETURNING meets what is hidden
            return self.create(f"{new} UNION ALL SELECT {listed} FROM temp.main.{rows} WHERE {read}")


def _without_action(returning: str) -> str:
    """Return the list of RETURNING with ``*`` limited to the table's columns."""
    words = Cursor(returning).words
    parts, done = [], 0
    for number, word in enumerate(words):
        if word.text == "*" and (number == 0 or words[number - 1].text == ","):
            parts += [returning[done : word.end], " EXCLUDE (merge_action)"]
            done = word.end
    return "".join([*parts, returning[done:]])


@dataclass(frozen=True, slots=True)
class Place:
    """The table that a statement changes, as it is written."""

    target: Target
    named: str
    alias: str | None

    @property
    def text(self) -> str:
        """The table as FROM has it."""
        return self.named + (f" AS {quote(self.alias)}" if self.alias else "")

    @property
    def own(self) -> str:
        """The qualifier of the table's columns, since another table may have the same last name."""
        if self.alias is not None:
            return quote(self.alias)
        return ".".join(quote(name) for name in (self.target.attached.alias, self.target.schema, self.target.name))


def place_of(session: Session, cursor: Cursor, *keywords: str) -> Place | None:
    """Parse the table that a statement changes, and its alias; None for a table of DuckDB itself."""
    first = cursor.at
    target = session.names.target(cursor.names())
    if target is None:
        return None
    named = cursor.slice(first, cursor.at)
    return Place(target, named, cursor.alias(*keywords))


def update(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run UPDATE name [alias] SET column = value, … [FROM …] [WHERE …] [RETURNING …]."""
    parsed = parse_update(session, cursor)
    if parsed is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    place, statement, prefix = parsed
    change = partial(row_changes.update, statement=statement)
    return run_change(session, place, params, Operation.UPDATE, change, statement.returning, prefix)


def parse_update(session: Session, cursor: Cursor) -> tuple[Place, Update, str] | None:
    """Return the table, the parts and the common tables of an UPDATE; None for a table of DuckDB itself."""
    prefix = cursor.prefix()
    cursor.expect("UPDATE")
    place = place_of(session, cursor, "SET")
    if place is None:
        return None
    cursor.expect("SET")
    columns, values = assignments(cursor)
    others = _relations(session, cursor) if cursor.accept("FROM") else ""
    where = Expression(cursor.until("RETURNING")) if cursor.accept("WHERE") else None
    statement = Update(columns, values, where, others, returning_of(cursor))
    cursor.end()
    return place, statement, prefix


def _relations(session: Session, cursor: Cursor) -> str:
    """Parse the other tables of a statement. Raise ``SqlError`` for anything else."""
    text = cursor.until("WHERE", "RETURNING")
    tree.check_relations(session.connection, text)
    return f"{text}\n"


def run_change(
    session: Session,
    place: Place,
    params: Any,
    asked: Operation,
    change: Callable[[SessionScope], int],
    returning: str,
    prefix: str = "",
) -> Result:
    """Change rows of a lake; return their number, or the rows of RETURNING."""
    returned: list[Result | None] = []

    def work(tx: Transaction) -> int:
        scope = SessionScope(session, tx, place, params, asked, returning=returning, prefix=prefix)
        count = change(scope)
        returned[:] = [scope.returned]
        return count

    count = session.write(place.target.attached, work)
    return returned[0] or counted(count)


def returning_of(cursor: Cursor) -> str:
    """Return the text after RETURNING, or an empty text. Raise ``SqlError`` for a parameter in it, as DuckDB does."""
    if not cursor.accept("RETURNING"):
        return ""
    refuse_parameters(cursor.words[cursor.at :])
    return cursor.rest()


def stand_in(target: Target, name: str) -> StandIns:
    """Return a mapping that puts a temporary relation in place of a table."""
    return {(fold(target.attached.alias), fold(target.schema), fold(target.name)): name}


def assignments(cursor: Cursor) -> tuple[tuple[str, ...], tuple[Expression, ...]]:
    """Parse ``column = value, (a, b) = (x, y)`` into columns and the texts of their values."""
    found: list[tuple[str, str]] = []
    while True:
        if cursor.sees("("):
            names = [type(cursor)(item).name() for item in cursor.items()]
            cursor.expect("=")
            cursor.accept("ROW")
            following = cursor.peek(1)
            if following is not None and following.upper in ("SELECT", "FROM", "VALUES", "WITH", "TABLE"):
                raise cursor.fail("Binder Error: a subquery cannot give several columns of SET")
            values = cursor.items()
            if len(values) != len(names):
                raise cursor.fail("the number of columns and of values differ")
            found += zip(names, values, strict=True)
        else:
            names = cursor.names()
            if len(names) > 1:
                raise cursor.fail("Qualified column names in SET are not supported")
            cursor.expect("=")
            found.append((names[0], _read_value(cursor)))
        if not cursor.accept(","):
            return tuple(name for name, _ in found), tuple(Expression(value) for _, value in found)


def _read_value(cursor: Cursor) -> str:
    """Return the text of a value. The FROM of IS DISTINCT FROM does not end it."""
    first = cursor.at
    while True:
        cursor.until(",", "FROM", "WHERE", "RETURNING", "WHEN")
        if not (cursor.sees("FROM") and cursor.at > first and cursor.words[cursor.at - 1].upper == "DISTINCT"):
            return cursor.slice(first, cursor.at)
        cursor.take()


def delete(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run DELETE FROM name [alias] [USING …] [WHERE …] [RETURNING …]."""
    parsed = parse_delete(session, cursor)
    if parsed is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    place, statement, prefix = parsed
    if statement == Delete():
        return _delete_all(session, place.target)
    change = partial(row_changes.delete, statement=statement)
    return run_change(session, place, params, Operation.DELETE, change, statement.returning, prefix)


def parse_delete(session: Session, cursor: Cursor) -> tuple[Place, Delete, str] | None:
    """Return the table, the parts and the common tables of a DELETE; None for a table of DuckDB itself."""
    prefix = cursor.prefix()
    cursor.expect("DELETE", "FROM")
    place = place_of(session, cursor, "USING", "WHERE", "RETURNING")
    if place is None:
        return None
    others = _relations(session, cursor) if cursor.accept("USING") else ""
    where = Expression(cursor.until("RETURNING")) if cursor.accept("WHERE") else None
    statement = Delete(where, others, returning_of(cursor))
    cursor.end()
    return place, statement, prefix


def truncate(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run TRUNCATE [TABLE] name."""
    cursor.expect("TRUNCATE")
    cursor.accept("TABLE")
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    cursor.end()
    return _delete_all(session, target)


def _delete_all(session: Session, target: Target) -> Result:
    def work(tx: Transaction) -> int:
        table = find_table(target, tx)
        return dml.delete(target.attached.context, tx, table, None)

    return counted(session.write(target.attached, work))


def append_bound(
    session: Session,
    tx: Transaction,
    attached: Attached,
    table: TableInfo,
    sql: str,
    values: Any,
    asked: Operation = Operation.INSERT,
) -> int:
    """Insert the rows of a query that has the table's columns and types. Return their number."""
    tx.asks(asked)
    if any(column.travels_as_text for column in table.schema.columns):
        return _append_kept(session, tx, attached, table, sql, values)
    attached.context.store.make_parent(f"{table.location}x")  # as stock DuckLake does, even for rows in the catalog
    options = attached.context.write_options(table)
    for macro in options.macros:  # before the first row is read
        session.connection.execute(macro.statement)
    reader = arrow_reader(session.connection, sql, values, batch_rows=_BATCH_ROWS)
    counts = [0]

    def counting() -> Any:
        for batch in reader:
            counts[0] += batch.num_rows
            yield batch

    source = Source(reader.schema, stream=pa.RecordBatchReader.from_batches(reader.schema, counting()))
    if table.sort is not None and options.sort:
        _sort_small(session, attached, table, source)
    dml.append(attached.context, tx, table, source, asked=asked)
    return counts[0]


def _sort_small(session: Session, attached: Attached, table: TableInfo, source: Source) -> None:
    """Sort rows for the catalog by the table's sort order, as stock DuckLake does. The writer sorts those of files."""
    few = source.first(attached.context.inline_limit(table))
    order = order_keys(table.sort, attached.context.write_options(table).macros)
    if few is not None and few.num_rows and order:
        name = session.fresh_name()
        session.connection.register(name, few)
        query = f"SELECT * FROM {name} ORDER BY {', '.join(order)}"
        source.table = arrow_table(session.connection, query).cast(few.schema)


def _append_kept(session: Session, tx: Transaction, attached: Attached, table: TableInfo, sql: str, values: Any) -> int:
    """Insert rows with types that Arrow does not carry. They never leave DuckDB."""
    name = session.fresh_name()
    session.connection.execute(f"CREATE TEMP TABLE {name} AS {sql}", values)
    conform.check_not_null(session.connection, name, list(table.schema.columns))
    writer = conform.RowWriter(attached.context, tx, table, session.connection)
    return writer.insert_query(f"SELECT * FROM {name}")
