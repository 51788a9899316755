"""Translate Spark's ALTER TABLE into the SQL of the lake."""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from quacklake.errors import SqlError, UnsupportedFeatureError
from quacklake.format.names import literal, quote
from quacklake.spark.sql.lexer import SparkCursor
from quacklake.spark.sql.parsing import to_lake


def lake_columns(columns: str) -> list[str]:
    """Return column definitions in the SQL of the lake. Raises ``SqlError``."""
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
        return [f"ADD COLUMN {each}" for each in _added(cursor)]
    if cursor.accept("DROP"):
        return _dropped(cursor)
    if cursor.accept("RENAME"):
        return [_renamed(cursor)]
    if cursor.accept("ALTER") or cursor.accept("CHANGE"):
        cursor.accept("COLUMN")
        return [f"ALTER COLUMN {_path(cursor)} {_column(cursor)}"]
    return _layout(cursor)


def _path(cursor: SparkCursor) -> str:
    return ".".join(map(quote, cursor.names()))


def _added(cursor: SparkCursor) -> list[str]:
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


def _dropped(cursor: SparkCursor) -> list[str]:
    cursor.accept("COLUMNS") or cursor.accept("COLUMN")
    if_exists = "IF EXISTS " if cursor.accept("IF", "EXISTS") else ""
    if cursor.sees("("):
        return [f"DROP COLUMN {if_exists}{_path(SparkCursor(item))}" for item in cursor.items()]
    found = []
    while True:
        found.append(f"DROP COLUMN {if_exists}{_path(cursor)}")
        if not cursor.accept(","):
            return found


def _renamed(cursor: SparkCursor) -> str:
    if cursor.accept("TO"):
        return f"RENAME TO {quote(cursor.names()[-1])}"
    cursor.expect("COLUMN")
    path = _path(cursor)
    cursor.expect("TO")
    return f"RENAME COLUMN {path} TO {quote(cursor.name())}"


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
    """Translate changes of partitioning, sort order and options of the table."""
    if cursor.accept("SET", "TBLPROPERTIES"):
        pairs = [_property(SparkCursor(item)) for item in cursor.items()]
        return [f"SET ({', '.join(f'{quote(name)} = {literal(value)}' for name, value in pairs)})"]
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
    """Return a partition or sort key in the SQL of the lake."""
    return to_lake(text, "the key") if "`" in text else text


def _key(cursor: SparkCursor) -> str:
    """Parse the name of a property, either quoted or with dots."""
    word = cursor.peek()
    return cursor.string() if word is not None and word.kind == "string" else ".".join(cursor.names())


def _property(cursor: SparkCursor) -> tuple[str, str]:
    name = _key(cursor)
    cursor.accept("=") or cursor.accept("==")
    word = cursor.peek()
    return name, cursor.string() if word is not None and word.kind == "string" else cursor.rest()
