"""INSERT … ON CONFLICT: a merge by the primary key of a table.

Rows whose key is new are inserted. Of several rows with the same key the first one counts, as in DuckDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quacklake.format.evolution import PRIMARY_KEY, key_columns
from quacklake.format.names import fold, quote
from quacklake.format.objects import TableInfo
from quacklake.format.schema import Column
from quacklake.format.snapshots import Operation
from quacklake.operations import inserting as rows
from quacklake.sql.result import Result
from quacklake.sql.statements.inserting import Insert, proposed
from quacklake.sql.statements.merge_rows import Merge, MergeClause, MergeSource, change_rows
from quacklake.sql.statements.on_conflict import Conflict
from quacklake.sql.statements.rows import counted, find_table, own_name
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from quacklake.sql.session import Session

_ROWS = "_ql_proposed"


def upsert(session: Session, statement: Insert, conflict: Conflict, params: Any) -> Result:
    """Insert rows, and handle those whose key exists as ``conflict`` says."""
    returned: list[Result] = []

    def work(tx: Transaction) -> int:
        table = find_table(statement.target, tx)
        key = key_columns(table.schema, tx.objects.tags(table).own.get(PRIMARY_KEY))
        conflict.check(key)
        sql, values, given = proposed(session, statement, table, params)
        name = session.fresh_name()
        session.connection.execute(f"CREATE TEMP TABLE {name} AS {sql}", values)
        rows.check_not_null(session.connection, name, [table.schema.find(column) for column in key])
        meant = _merge(statement, conflict, table, key, name, given)
        return change_rows(session, tx, meant, params, returned, Operation.INSERT)

    count = session.write(statement.target.attached, work)
    return returned[0] if statement.returning else counted(count)


def _merge(
    statement: Insert, conflict: Conflict, table: TableInfo, key: tuple[str, ...], name: str, given: list[Column]
) -> Merge:
    """Return the MERGE for an INSERT. Its source has one column, ``excluded``; all other names refer to the table."""
    own = own_name(statement.target, statement.alias)
    fields = ", ".join(f"{quote(column.name)} := {quote(column.name)}" for column in table.schema.columns)
    keys = ", ".join(quote(column) for column in key)
    first = f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY rowid) = 1"
    source = f"(SELECT struct_pack({fields}) AS excluded FROM temp.main.{name} {first})"
    clauses = [
        MergeClause("source", "", "insert", values=tuple(_excluded(column.name) for column in table.schema.columns))
    ]
    assigned = conflict.assigned
    if conflict.replacing:
        others = [column.name for column in given if fold(column.name) not in {fold(each) for each in key}]
        assigned = tuple((each, _excluded(each)) for each in others or key)
    if assigned:
        clauses.append(MergeClause("both", conflict.condition, "update", assigned=assigned))
    on = " AND ".join(f"{own}.{quote(column)} = {_excluded(column)}" for column in key)
    return Merge(
        "",
        statement.target,
        statement.named,
        statement.alias,
        MergeSource(f"{source} AS {_ROWS}", None, _ROWS, None),
        f"ON {on}",
        tuple(clauses),
        statement.returning,
    )


def _excluded(column: str) -> str:
    return f"excluded.{quote(column)}"
