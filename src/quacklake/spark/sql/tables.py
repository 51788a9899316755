"""CREATE, DROP, ALTER, COMMENT and TRUNCATE in Spark, run by the lake in its own SQL.

Spark itself creates only tables from a query. Statements about objects outside the lake go to Spark unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quacklake.errors import AlreadyExistsError, InputError, SqlError, UnsupportedFeatureError
from quacklake.format.names import fold, literal, quote
from quacklake.format.objects import TableInfo
from quacklake.operations import evolution
from quacklake.operations.reference import TableRef
from quacklake.spark.changes.staged_changes import counted
from quacklake.spark.engine import schema_of
from quacklake.spark.sql.altering import alterations, lake_columns, lake_key
from quacklake.spark.sql.lexer import SparkCursor
from quacklake.spark.sql.queries import run_query
from quacklake.spark.sql.statement import SqlText, Statement
from quacklake.spark.sql.view_proof import lake_query
from quacklake.spark.write.rows import SparkRows
from quacklake.sql.attached import Target
from quacklake.sql.timetravel import time_travel
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OURS = ("quacklake", "ducklake")
_SCHEMAS = ("SCHEMA", "DATABASE", "NAMESPACE")


def _native(statement: Statement, cursor: SparkCursor) -> DataFrame:
    return statement.run(SqlText(cursor.text), cursor.text)


def _named(target: Target) -> str:
    return f"{quote(target.schema)}.{quote(target.name)}"


# -- create ------------------------------------------------------------------------------------------------------------


def create(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run CREATE TABLE, VIEW or SCHEMA in the lake, or CREATE TEMPORARY VIEW over it."""
    cursor.expect("CREATE")
    replacing = cursor.accept("OR", "REPLACE")
    everywhere = cursor.accept("GLOBAL")
    temporary = cursor.accept("TEMPORARY") or cursor.accept("TEMP")
    if cursor.accept("TABLE") and not temporary:
        return _table(statement, cursor, replacing=replacing)
    if cursor.accept("VIEW"):
        if temporary:
            return _temporary_view(statement, cursor, replacing=replacing, everywhere=everywhere)
        return _view(statement, cursor, replacing=replacing)
    if not replacing and not temporary and any(cursor.accept(word) for word in _SCHEMAS):
        return _schema(statement, cursor)
    return _native(statement, cursor)


@dataclass(frozen=True, slots=True)
class _Table:
    target: Target
    columns: str | None
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    comment: str | None
    replacing: bool
    if_not_exists: bool


def _table(statement: Statement, cursor: SparkCursor, *, replacing: bool) -> DataFrame:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    names = cursor.names()
    target = statement.session.names.target(names) if _is_ours(statement, names) else None
    columns = cursor.parens() if cursor.sees("(") else None
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    comment = None
    while not cursor.done and not cursor.sees("AS") and not cursor.sees("SELECT") and not cursor.sees("WITH"):
        if cursor.accept("USING"):
            if fold(cursor.name()) not in _OURS:
                target = None
        elif cursor.accept("PARTITIONED", "BY"):
            partition_by = tuple(map(lake_key, cursor.items()))
        elif cursor.accept("SORTED", "BY"):
            sort_by = tuple(map(lake_key, cursor.items()))
        elif cursor.accept("COMMENT"):
            comment = cursor.string()
        elif target is None:
            cursor.take()
        else:
            raise cursor.fail("a table of a lake has no such clause")
    cursor.accept("AS")
    head = cursor.slice(0, cursor.at)
    query = cursor.rest()
    if target is None:
        return run_query(statement, query, f"{head} ") if query else _native(statement, cursor)
    if replacing and if_not_exists:
        raise SqlError("Cannot specify both OR REPLACE and IF NOT EXISTS within single create statement")
    made = _Table(target, columns, partition_by, sort_by, comment, replacing, if_not_exists)
    done = _from_query(statement, made, query) if query else _from_columns(statement, made)
    if comment is not None:
        statement.session.sql(f"COMMENT ON TABLE {_named(target)} IS {literal(comment)}")
    return done


def _is_ours(statement: Statement, names: Sequence[str]) -> bool:
    """Return True when a new object of this name belongs to the lake."""
    if len(names) == 1 or statement.session.names.explicit(names):
        return True
    return len(names) == 2 and statement.session.names.has_schema(statement.attached, names[0])


def _from_columns(statement: Statement, made: _Table) -> DataFrame:
    if made.columns is None:
        raise SqlError("a table needs columns, or a query that gives them")
    how = "CREATE OR REPLACE TABLE" if made.replacing else "CREATE TABLE"
    how += " IF NOT EXISTS" if made.if_not_exists else ""
    layouts = [
        f" {word} BY ({', '.join(keys)})"
        for word, keys in (("PARTITIONED", made.partition_by), ("SORTED", made.sort_by))
        if keys
    ]
    statement.session.sql(f"{how} {_named(made.target)} ({', '.join(lake_columns(made.columns))}){''.join(layouts)}")
    return statement.nothing()


def _from_query(statement: Statement, made: _Table, query: str) -> DataFrame:
    """Create a table with the rows of a query, in one snapshot."""
    if made.columns is not None:
        raise SqlError("a table has columns or a query, not both", hint="the names in the query become the columns")
    target, engine = made.target, statement.engine
    if made.if_not_exists and statement.view().get_table(target.schema, target.name) is not None:
        return statement.numbers(num_affected_rows=0, num_inserted_rows=0)
    rows = run_query(statement, query)
    schema, done = schema_of(rows), [0]

    def work(tx: Transaction, given: SparkRows) -> None:
        known = tx.get_table(target.schema, target.name)
        if known is not None:
            if not made.replacing:
                raise AlreadyExistsError(f'the table "{known.qualified_name}" already exists')
            tx.drop_table(known)
        ref = TableRef(target.schema, target.name)
        info = evolution.create_table(engine.context, tx, ref, schema, made.partition_by, made.sort_by)
        done[:] = [counted(tx, info, given)]

    engine.write(rows, work)
    return statement.numbers(num_affected_rows=done[0], num_inserted_rows=done[0])


def _view(statement: Statement, cursor: SparkCursor, *, replacing: bool) -> DataFrame:
    """Run CREATE VIEW. The view is stored in DuckDB's SQL, so that every client can read it."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    names = cursor.names()
    target = statement.session.names.target(names) if _is_ours(statement, names) else None
    if target is None:
        return _native(statement, cursor)
    aliases = [quote(SparkCursor(item).name()) for item in cursor.items()] if cursor.sees("(") else []
    cursor.expect("AS")
    query = cursor.rest()
    if time_travel(SparkCursor(query)):
        raise UnsupportedFeatureError(
            "a view that is made in Spark cannot look at a past state", hint="make it with lake.sql"
        )
    how = "CREATE OR REPLACE VIEW" if replacing else "CREATE VIEW"
    how += " IF NOT EXISTS" if if_not_exists else ""
    columns = f" ({', '.join(aliases)})" if aliases else ""
    statement.session.sql(f"{how} {_named(target)}{columns} AS {lake_query(statement, target, query)}")
    return statement.nothing()


def _temporary_view(statement: Statement, cursor: SparkCursor, *, replacing: bool, everywhere: bool) -> DataFrame:
    """Run CREATE TEMPORARY VIEW: a name in Spark for a query over the current state of the lake."""
    names = cursor.names()
    aliases = [SparkCursor(item).name() for item in cursor.items()] if cursor.sees("(") else []
    if not cursor.accept("AS"):
        return _native(statement, cursor)
    rows = run_query(statement, cursor.rest())
    rows = rows.toDF(*aliases) if aliases else rows
    make = {
        (False, False): rows.createTempView,
        (False, True): rows.createOrReplaceTempView,
        (True, False): rows.createGlobalTempView,
        (True, True): rows.createOrReplaceGlobalTempView,
    }
    with statement.translating():
        make[everywhere, replacing](names[-1])
    return statement.nothing()


def _schema(statement: Statement, cursor: SparkCursor) -> DataFrame:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    names = cursor.names()
    if len(names) > 1 and not statement.session.names.explicit(names):
        return _native(statement, cursor)
    cursor.end()
    how = "CREATE SCHEMA IF NOT EXISTS" if if_not_exists else "CREATE SCHEMA"
    statement.session.sql(f"{how} {quote(names[-1])}")
    return statement.nothing()


# -- drop --------------------------------------------------------------------------------------------------------------


def drop(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run DROP TABLE, VIEW or SCHEMA."""
    cursor.expect("DROP")
    kind = cursor.take().upper
    if kind not in ("TABLE", "VIEW", *_SCHEMAS):
        return _native(statement, cursor)
    cursor.accept("IF", "EXISTS")
    names = cursor.names()
    how = " CASCADE" if cursor.accept("CASCADE") else ""
    cursor.accept("RESTRICT") or cursor.accept("PURGE")
    cursor.end()
    if kind in _SCHEMAS:
        if not statement.session.names.has_schema(statement.attached, names[-1]):
            return _native(statement, cursor)
        statement.session.sql(f"DROP SCHEMA {quote(names[-1])}{how}")
        return statement.nothing()
    found = statement.find(names, statement.view())
    if found is None:
        return _native(statement, cursor)
    statement.session.sql(f"DROP {kind} {quote(found.schema_name)}.{quote(found.name)}")
    return statement.nothing()


# -- change ------------------------------------------------------------------------------------------------------------


def alter(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run ALTER TABLE name …, with all changes in one snapshot."""
    cursor.expect("ALTER")
    if not cursor.accept("TABLE"):
        return _native(statement, cursor)
    table = statement.table(cursor.names())
    if table is None:
        return _native(statement, cursor)
    changes = alterations(cursor)
    cursor.end()
    _in_one(statement, [f"ALTER TABLE {_own(table)} {change}" for change in changes])
    return statement.nothing()


def _own(table: TableInfo) -> str:
    return f"{quote(table.schema_name)}.{quote(table.name)}"


def _in_one(statement: Statement, texts: Sequence[str]) -> None:
    """Let the lake run several statements in one transaction."""
    if len(texts) == 1:
        statement.session.sql(texts[0])
        return
    statement.session.sql("BEGIN")
    try:
        for text in texts:
            statement.session.sql(text)
        statement.session.sql("COMMIT")
    except BaseException:
        statement.session.work.rollback()
        raise


def comment(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run COMMENT ON TABLE | COLUMN name IS text."""
    cursor.expect("COMMENT", "ON")
    kind = cursor.take().upper
    if kind not in ("TABLE", "COLUMN"):
        return _native(statement, cursor)
    names = cursor.names()
    column = names.pop() if kind == "COLUMN" and len(names) > 1 else None
    table = statement.find(names, statement.view())
    if table is None:
        return _native(statement, cursor)
    cursor.expect("IS")
    text = "NULL" if cursor.accept("NULL") else literal(cursor.string())
    cursor.end()
    own = f"{quote(table.schema_name)}.{quote(table.name)}"
    what = "VIEW" if not isinstance(table, TableInfo) and kind == "TABLE" else kind
    statement.session.sql(f"COMMENT ON {what} {own}{'' if column is None else f'.{quote(column)}'} IS {text}")
    return statement.nothing()


def truncate(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run TRUNCATE TABLE name."""
    cursor.expect("TRUNCATE", "TABLE")
    table = statement.table(cursor.names())
    if table is None:
        return _native(statement, cursor)
    if not cursor.done:
        raise InputError("TRUNCATE empties a whole table", hint="DELETE FROM name WHERE … deletes some of its rows")
    statement.session.sql(f"TRUNCATE {_own(table)}")
    return statement.nothing()
