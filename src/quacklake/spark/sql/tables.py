"""CREATE, DROP, ALTER, COMMENT and TRUNCATE in Spark, run by the lake in its own SQL.

Views are stored in the SQL of DuckDB. Spark itself creates only tables from a query. Statements about objects outside
the lake go to Spark unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from sqlglot import exp

from quacklake.core.engines.duckdb.stored_texts import LAKE
from quacklake.core.format.objects import ViewInfo
from quacklake.core.operations import evolution
from quacklake.core.sql.attached import Target
from quacklake.core.sql.statements.objects import own_names
from quacklake.core.sql.timetravel import time_travel
from quacklake.errors import (
    AlreadyExistsError,
    InputError,
    NotFoundError,
    QuacklakeError,
    SqlError,
    UnsupportedFeatureError,
)
from quacklake.extend.names import TableRef, fold, literal, quote
from quacklake.extend.schemas import TableInfo
from quacklake.extend.writes import Transaction
from quacklake.spark.changes.staged_changes import counted
from quacklake.spark.engine import schema_of
from quacklake.spark.runtime.session import is_connect, settings
from quacklake.spark.runtime.words import SparkCursor
from quacklake.spark.sql.parsing import to_lake
from quacklake.spark.sql.queries import Rewriter, run_query
from quacklake.spark.sql.statement import SqlText, Statement
from quacklake.spark.sql.view_queries import unescaped
from quacklake.spark.write.rows import SparkRows


def lake_columns(columns: str) -> list[str]:
    """Return column definitions in the SQL of the lake. Raise ``SqlError``."""
    try:
        tree = sqlglot.parse_one(f"CREATE TABLE t ({columns})", dialect="spark")
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise SqlError(f"the columns cannot be understood: {str(error).splitlines()[0]}") from None
    schema = tree.this if isinstance(tree, exp.Create) else None
    if not isinstance(schema, exp.Schema):
        raise SqlError("the columns cannot be understood")
    odd = next((each for each in schema.expressions if not isinstance(each, exp.ColumnDef)), None)
    if odd is not None:
        raise UnsupportedFeatureError(f"a table of a lake cannot have {odd.sql('spark')} among its columns")
    if schema.find(exp.CommentColumnConstraint) is not None:
        raise UnsupportedFeatureError(
            "columns of a lake are not made with comments", hint="COMMENT ON COLUMN adds one afterwards"
        )
    return [each.sql("duckdb", identify=True) for each in schema.expressions]


def alterations(cursor: SparkCursor) -> list[str]:
    """Parse the actions after the name of the table, and return one text for each change."""
    if cursor.accept("ADD"):
        return [f"ADD COLUMN {each}" for each in _parse_added(cursor)]
    if cursor.accept("DROP"):
        return _parse_dropped(cursor)
    if cursor.accept("RENAME"):
        if cursor.accept("TO"):
            return [f"RENAME TO {quote(cursor.names()[-1])}"]
        cursor.expect("COLUMN")
        path = _path(cursor)
        cursor.expect("TO")
        return [f"RENAME COLUMN {path} TO {quote(cursor.name())}"]
    if cursor.accept("ALTER") or cursor.accept("CHANGE"):
        cursor.accept("COLUMN")
        return [f"ALTER COLUMN {_path(cursor)} {_column(cursor)}"]
    return _layout(cursor)


def _path(cursor: SparkCursor) -> str:
    return ".".join(map(quote, cursor.names()))


def _parse_added(cursor: SparkCursor) -> list[str]:
    cursor.accept("COLUMNS") or cursor.accept("COLUMN")
    if_not_exists = "IF NOT EXISTS " if cursor.accept("IF", "NOT", "EXISTS") else ""
    items = cursor.items() if cursor.sees("(") else [cursor.rest()]
    found = []
    for item in items:
        inner = SparkCursor(item)
        path = inner.names()
        # the path may lead into a struct, where it is not a column definition
        (definition,) = lake_columns(f"c {inner.rest()}")
        found.append(f"{if_not_exists}{'.'.join(map(quote, path))} {definition.partition(' ')[2]}")
    return found


def _parse_dropped(cursor: SparkCursor) -> list[str]:
    cursor.accept("COLUMNS") or cursor.accept("COLUMN")
    if_exists = "IF EXISTS " if cursor.accept("IF", "EXISTS") else ""
    if cursor.sees("("):
        paths = [_path(SparkCursor(item)) for item in cursor.items()]
    else:
        paths = [_path(cursor)]
        while cursor.accept(","):
            paths.append(_path(cursor))
    return [f"DROP COLUMN {if_exists}{path}" for path in paths]


def _column(cursor: SparkCursor) -> str:
    for words in (("SET", "NOT", "NULL"), ("DROP", "NOT", "NULL"), ("DROP", "DEFAULT")):
        if cursor.accept(*words):
            return " ".join(words)
    if cursor.accept("SET", "DEFAULT"):
        return f"SET DEFAULT {to_lake(cursor.rest(), 'the default')}"
    if cursor.accept("TYPE") or cursor.accept("SET", "DATA", "TYPE"):
        (definition,) = lake_columns(f"c {cursor.rest()}")
        return f"TYPE {definition.partition(' ')[2]}"
    raise cursor.unexpected()


def _layout(cursor: SparkCursor) -> list[str]:
    if cursor.accept("SET", "TBLPROPERTIES"):
        pairs = []
        for inner in map(SparkCursor, cursor.items()):
            name = _key(inner)
            inner.accept("=") or inner.accept("==")
            word = inner.peek()
            value = inner.string() if word is not None and word.kind == "string" else inner.rest()
            pairs.append(f"{quote(name)} = {literal(value)}")
        return [f"SET ({', '.join(pairs)})"]
    if cursor.accept("UNSET", "TBLPROPERTIES"):
        cursor.accept("IF", "EXISTS")
        return [f"RESET ({', '.join(quote(_key(SparkCursor(item))) for item in cursor.items())})"]
    for action in ("SET", "RESET"):
        for words in (("PARTITIONED", "BY"), ("SORTED", "BY")):
            if cursor.accept(action, *words):
                keys = "" if action == "RESET" else f" ({', '.join(lake_key(item) for item in cursor.items())})"
                return [f"{action} {' '.join(words)}{keys}"]
    raise cursor.unexpected()


def lake_key(text: str) -> str:
    return to_lake(text, "the key") if "`" in text else text


def _key(cursor: SparkCursor) -> str:
    word = cursor.peek()
    return cursor.string() if word is not None and word.kind == "string" else ".".join(cursor.names())


_OURS = ("quacklake", "ducklake")
_SCHEMAS = ("SCHEMA", "DATABASE", "NAMESPACE")


def _quote_target(target: Target) -> str:
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
    return statement.native(cursor)


def _target(statement: Statement, names: Sequence[str]) -> Target | None:
    """Return the place of a new object of this name, or None when it does not belong to the lake."""
    known = statement.session.names
    ours = len(names) == 1 or known.explicit(names)
    ours = ours or (len(names) == 2 and known.has_schema(statement.attached, names[0]))
    return known.target(names) if ours else None


def _begin_create(what: str, *, replacing: bool, if_not_exists: bool) -> str:
    return f"CREATE {'OR REPLACE ' if replacing else ''}{what}{' IF NOT EXISTS' if if_not_exists else ''}"


def _table(statement: Statement, cursor: SparkCursor, *, replacing: bool) -> DataFrame:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    target = _target(statement, cursor.names())
    columns = cursor.parens() if cursor.sees("(") else None
    keys: dict[str, list[str]] = {"PARTITIONED": [], "SORTED": []}
    comment = None
    while not cursor.done and not cursor.sees("AS") and not cursor.sees("SELECT") and not cursor.sees("WITH"):
        if cursor.accept("USING"):
            if fold(cursor.name()) not in _OURS:
                target = None
        elif word := next((word for word in keys if cursor.accept(word, "BY")), None):
            keys[word] = [lake_key(item) for item in cursor.items()]
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
        return run_query(statement, query, f"{head} ") if query else statement.native(cursor)
    if replacing and if_not_exists:
        raise SqlError("Cannot specify both OR REPLACE and IF NOT EXISTS within single create statement")
    if query and columns is not None:
        raise SqlError("a table has columns or a query, not both", hint="the names in the query become the columns")
    if query and if_not_exists and statement.view().get_table(target.schema, target.name) is not None:
        done = statement.numbers(num_affected_rows=0, num_inserted_rows=0)
    elif query:
        done = _from_query(statement, target, run_query(statement, query), keys, replacing=replacing)
    elif columns is None:
        raise SqlError("a table needs columns, or a query that returns them")
    else:
        how = _begin_create("TABLE", replacing=replacing, if_not_exists=if_not_exists)
        layouts = "".join(f" {word} BY ({', '.join(items)})" for word, items in keys.items() if items)
        done = statement.done(f"{how} {_quote_target(target)} ({', '.join(lake_columns(columns))}){layouts}")
    if comment is not None:
        statement.session.sql(f"COMMENT ON TABLE {_quote_target(target)} IS {literal(comment)}")
    return done


def _from_query(
    statement: Statement, target: Target, rows: DataFrame, keys: Mapping[str, Sequence[str]], *, replacing: bool
) -> DataFrame:
    """Create a table with the rows of a query, in one snapshot."""
    schema, done = schema_of(rows), [0]

    def work(tx: Transaction, given: SparkRows) -> None:
        known = tx.get_table(target.schema, target.name)
        if known is not None:
            if not replacing:
                raise AlreadyExistsError(f'the table "{known.qualified_name}" already exists')
            tx.drop_table(known)
        ref, context = TableRef(target.schema, target.name), statement.engine.context
        info = evolution.create_table(context, tx, ref, schema, keys["PARTITIONED"], keys["SORTED"])
        done[:] = [counted(tx, info, given)]

    statement.engine.write(rows, work)
    return statement.numbers(num_affected_rows=done[0], num_inserted_rows=done[0])


def _view(statement: Statement, cursor: SparkCursor, *, replacing: bool) -> DataFrame:
    """Run CREATE VIEW. The view is stored in DuckDB's SQL, so that every client can read it."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    target = _target(statement, cursor.names())
    if target is None:
        return statement.native(cursor)
    aliases = [quote(SparkCursor(item).name()) for item in cursor.items()] if cursor.sees("(") else []
    cursor.expect("AS")
    query = cursor.rest()
    if time_travel(SparkCursor(query)):
        raise UnsupportedFeatureError(
            "a view that is made in Spark cannot look at a past state", hint="make it with lake.sql"
        )
    how = _begin_create("VIEW", replacing=replacing, if_not_exists=if_not_exists)
    columns = f" ({', '.join(aliases)})" if aliases else ""
    return statement.done(f"{how} {_quote_target(target)}{columns} AS {_lake_query(statement, target, query)}")


def _temporary_view(statement: Statement, cursor: SparkCursor, *, replacing: bool, everywhere: bool) -> DataFrame:
    """Run CREATE TEMPORARY VIEW: a name in Spark for a query over the current state of the lake."""
    names = cursor.names()
    aliases = [SparkCursor(item).name() for item in cursor.items()] if cursor.sees("(") else []
    if not cursor.accept("AS"):
        return statement.native(cursor)
    rows = run_query(statement, cursor.rest())
    rows = rows.toDF(*aliases) if aliases else rows
    make = f"create{'OrReplace' if replacing else ''}{'Global' if everywhere else ''}TempView"
    with statement.translating():
        getattr(rows, make)(names[-1])
    return statement.nothing()


def _schema(statement: Statement, cursor: SparkCursor) -> DataFrame:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    names = cursor.names()
    if len(names) > 1 and not statement.session.names.explicit(names):
        return statement.native(cursor)
    cursor.end()
    how = _begin_create("SCHEMA", replacing=False, if_not_exists=if_not_exists)
    return statement.done(f"{how} {quote(names[-1])}")


# -- drop --------------------------------------------------------------------------------------------------------------


def drop(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run DROP TABLE, VIEW or SCHEMA."""
    cursor.expect("DROP")
    kind = cursor.take().upper
    if kind not in ("TABLE", "VIEW", *_SCHEMAS):
        return statement.native(cursor)
    cursor.accept("IF", "EXISTS")
    names = cursor.names()
    how = " CASCADE" if cursor.accept("CASCADE") else ""
    cursor.accept("RESTRICT") or cursor.accept("PURGE")
    cursor.end()
    if kind in _SCHEMAS:
        if not statement.session.names.has_schema(statement.attached, names[-1]):
            return statement.native(cursor)
        return statement.done(f"DROP SCHEMA {quote(names[-1])}{how}")
    found = statement.find(names, statement.view())
    if found is None:
        return statement.native(cursor)
    return statement.done(f"DROP {kind} {_own(found)}")


# -- change ------------------------------------------------------------------------------------------------------------


def alter(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run ALTER TABLE name …, with all changes in one snapshot."""
    cursor.expect("ALTER")
    if not cursor.accept("TABLE"):
        return statement.native(cursor)
    table = statement.table(cursor.names())
    if table is None:
        return statement.native(cursor)
    changes = alterations(cursor)
    cursor.end()
    texts = [f"ALTER TABLE {_own(table)} {change}" for change in changes]
    if len(texts) == 1:
        return statement.done(texts[0])
    statement.session.sql("BEGIN")
    try:
        for text in texts:
            statement.session.sql(text)
        statement.session.sql("COMMIT")
    except BaseException:
        statement.session.work.rollback()
        raise
    return statement.nothing()


def _own(table: TableInfo | ViewInfo) -> str:
    return f"{quote(table.schema_name)}.{quote(table.name)}"


def comment(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run COMMENT ON TABLE | COLUMN name IS text."""
    cursor.expect("COMMENT", "ON")
    kind = cursor.take().upper
    if kind not in ("TABLE", "COLUMN"):
        return statement.native(cursor)
    names = cursor.names()
    column = names.pop() if kind == "COLUMN" and len(names) > 1 else None
    table = statement.find(names, statement.view())
    if table is None:
        return statement.native(cursor)
    cursor.expect("IS")
    text = "NULL" if cursor.accept("NULL") else literal(cursor.string())
    cursor.end()
    what = "VIEW" if isinstance(table, ViewInfo) and kind == "TABLE" else kind
    return statement.done(f"COMMENT ON {what} {_own(table)}{'' if column is None else f'.{quote(column)}'} IS {text}")


def truncate(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run TRUNCATE TABLE name."""
    cursor.expect("TRUNCATE", "TABLE")
    table = statement.table(cursor.names())
    if table is None:
        return statement.native(cursor)
    if not cursor.done:
        raise InputError("TRUNCATE empties a whole table", hint="DELETE FROM name WHERE … deletes some of its rows")
    return statement.done(f"TRUNCATE {_own(table)}")


# -- queries of views --------------------------------------------------------------------------------------------------

_WHOLE = {"spark.sql.debug.maxToStringFields": "1000000"}  # shows every column and value of a plan
_NUMBER = re.compile(r"#(\d+)")
_FAILURE = re.compile(r"[\w$]+(\.[\w$]+)+")  # the class of an error, which appears in place of a plan
_HINT = "make it with lake.sql, in the SQL of DuckDB"


def _lake_query(statement: Statement, target: Target, query: str) -> str:
    """Return a Spark query in DuckDB's SQL, in which every client reads the view.

    It is translated back, with constructs that are known to mean the same, and Spark compares the plans of both. Raise
    ``SqlError`` and ``NotFoundError`` as Spark does, ``UnsupportedFeatureError`` for a query that may mean something
    else.
    """
    if is_connect(statement.engine.session) and "#" in query:
        raise UnsupportedFeatureError("through Spark Connect the query of a view cannot have a #", hint=_HINT)
    rewriter = Rewriter(statement, whole=True)
    written = rewriter.text(query)
    plan = statement.run(written, query)
    try:
        text = to_lake(query, "the query of the view")
        kept = own_names(statement.session, target, text)
        view = ViewInfo(-1, "", -1, target.schema, target.name, kept.replace(LAKE, ""))
        first = len(rewriter.read)
        back = rewriter.translated(view, statement.view())
        sql = f"SELECT * FROM {back.sql}"
        meant = SqlText(sql if rewriter.frames else unescaped(sql), rewriter.frames)
        again = statement.run(meant)
    except NotFoundError:
        raise
    except QuacklakeError as error:
        raise UnsupportedFeatureError(
            f"the query of the view is not known to mean the same in DuckDB: {error.message}", hint=_HINT
        ) from error
    columns, others = ([(field.name, field.dataType) for field in frame.schema] for frame in (plan, again))
    same = columns == others
    if same and is_connect(statement.engine.session):
        read = [(table.id, tx.base.id) for table, tx in rewriter.read]
        plans = {_plan_text(statement, text) for text in (written, meant)}
        same = len(plans) == 1 and sorted(read[:first]) == sorted(read[first:])
    elif same:
        try:
            one, two = (frame._jdf.queryExecution().optimizedPlan() for frame in (plan, again))
        except PySparkException as error:  # Spark evaluates small relations while it plans
            raise _unplanned_error(str(error).splitlines()[0]) from error
        same = bool(one.sameResult(two))
    if not same:
        raise UnsupportedFeatureError("the query of the view does not mean the same in DuckDB", hint=_HINT)
    return text


def _unplanned_error(message: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"the query of the view fails on the rows that are there: {message}", hint=_HINT)


def _plan_text(statement: Statement, query: SqlText) -> str:
    """Return the plan of a query as Spark shows it, with columns numbered in order. Tables show only columns."""
    with settings(statement.engine.session, _WHOLE):
        shown = str(statement.run(SqlText(f"EXPLAIN EXTENDED {query.sql}", query.frames)).collect()[0][0])
    plan = shown.partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0]
    if not plan.strip() or _FAILURE.match(plan.strip()):
        raise _unplanned_error((plan.strip() or shown.strip()).splitlines()[0])
    numbers: dict[str, int] = {}
    return _NUMBER.sub(lambda found: f"#{numbers.setdefault(found[1], len(numbers))}", plan)
