"""CREATE TABLE, with a list of columns or from a query, and COPY to and from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quacklake.core.duckdb_versions import arrow_table, first_row
from quacklake.core.format import evolution
from quacklake.core.format.evolution import PRIMARY_KEY, DefaultExpression, key_tag, replace_column, with_required
from quacklake.core.format.inline import is_reserved
from quacklake.core.format.names import fold, quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.texts import parse_column
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.evolution import create_table as new_table
from quacklake.core.operations.reference import TableRef
from quacklake.core.sql import tree
from quacklake.core.sql.attached import Target
from quacklake.core.sql.binder import Binder, Bound
from quacklake.core.sql.listing import view_definition
from quacklake.core.sql.result import Result
from quacklake.core.sql.statements import queries, transactions
from quacklake.core.sql.statements.inserting import conforming
from quacklake.core.sql.statements.rows import append_bound, counted, find_table
from quacklake.core.sql.words import Cursor
from quacklake.core.transaction import Transaction
from quacklake.errors import AlreadyExistsError, InputError, SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session


_RESERVED = "_ducklake_internal_"
"""Prefix of the names of the internal columns of files."""


def create_table(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name (columns) [PARTITIONED BY (…)] [SORTED BY (…)] [AS query]."""
    cursor.expect("CREATE")
    replacing = cursor.accept("OR", "REPLACE")
    temporary = cursor.accept("TEMP") or cursor.accept("TEMPORARY")
    cursor.expect("TABLE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    names = cursor.names()
    target = None if temporary else session.names.target(names)
    if target is None:
        return queries.native_create_as(session, cursor, params, names[-1] if temporary else None)
    if replacing and if_not_exists:
        raise SqlError("Cannot specify both OR REPLACE and IF NOT EXISTS within single create statement")
    columns = cursor.parens() if cursor.sees("(") else None
    partition_by: Sequence[str] = ()
    sort_by: Sequence[str] = ()
    while not cursor.done and not cursor.sees("AS"):
        if cursor.accept("PARTITION", "BY") or cursor.accept("PARTITIONED", "BY"):
            partition_by = cursor.items()
        elif cursor.accept("SORTED", "BY") or cursor.accept("ORDER", "BY"):
            sort_by = cursor.items()
        elif cursor.accept("WITH"):
            raise SqlError("Not implemented Error: WITH is not supported for a lake's tables")
        else:
            raise cursor.unexpected()
    query, with_data = _with_data(cursor.rest()) if cursor.accept("AS") else (None, True)
    if columns is None and query is None:
        raise cursor.unexpected()

    def work(tx: Transaction) -> int | None:
        existing = tx.get_table(target.schema, target.name)
        if tx.objects.get_view(target.schema, target.name) is not None:
            raise taken(target.name, "View", "Table", replacing=replacing)
        if existing is not None and if_not_exists:
            return None
        if existing is not None and not replacing:
            raise AlreadyExistsError(f'Table with name "{target.name}" already exists!', hint="use IF NOT EXISTS")
        bound, keys = None, ()  # type: Bound | None, tuple[str, ...]
        if query is not None:
            bound = queries.bind_rows(session, query, params)
            schema = _schema_of_query(session, bound, columns)
        else:
            schema, keys = schema_of_columns(session, columns or "")
        context, ref = target.attached.context, TableRef(target.schema, target.name)
        check_reserved(context, schema.names)
        if existing is not None:
            tx.drop_table(existing)
        made = new_table(context, tx, ref, with_required(schema, keys), tuple(partition_by), tuple(sort_by))
        if keys:
            tx.objects.set_tags(made, {PRIMARY_KEY: key_tag(schema, keys)})
        if bound is None:
            return None
        if not with_data:
            return 0
        places = {column.id: place for place, column in enumerate(made.schema.columns)}
        return append_bound(session, tx, target.attached, made, conforming(made, places, bound.sql), bound.values)

    count = session.write(target.attached, work)
    return Result() if count is None else counted(count)


def taken(name: str, existing: str, kind: str, *, replacing: bool) -> AlreadyExistsError:
    """Return the error for a table whose name a view has, or a view whose name a table has."""
    if replacing:
        return AlreadyExistsError(
            f"Existing object {name} is of type {existing}, trying to replace with type {kind}",
            hint=f"drop the {existing.lower()} first",
        )
    return AlreadyExistsError(f'{existing} with name "{name}" already exists!', hint="choose another name")


def _with_data(query: str) -> tuple[str, bool]:
    words = Cursor(query).words
    last = [word.upper for word in words[-3:]]
    if last == ["WITH", "NO", "DATA"]:
        return query[: words[-4].end], False
    if last[1:] == ["WITH", "DATA"]:
        return query[: words[-3].end], True
    return query, True


def _schema_of_query(session: Session, bound: Bound, columns: str | None) -> TableSchema:
    described = session.connection.execute(f"DESCRIBE {bound.sql}", bound.values).fetchall()
    names = [str(name) for name, *_ in described]
    if columns is not None:
        given = [Cursor(item).name() for item in Cursor(f"({columns})").items()]
        if len(given) > len(names):
            raise SqlError(f"the table names {len(given)} columns, and the query returns {len(names)}")
        names[: len(given)] = given
    seen: dict[str, int] = {}
    found = []
    for name, (_, type_, *_) in zip(names, described, strict=True):
        number = seen[fold(name)] = seen.get(fold(name), -1) + 1
        known = "INTEGER" if str(type_) in ('"NULL"', "NULL") else str(type_)
        found.append(parse_column(f"{name}_{number}" if number else name, known))  # as DuckDB numbers equal names
    return _number_columns(found)


def _number_columns(columns: Sequence[Column]) -> TableSchema:
    """Return columns with new ids, in the order in which stock DuckLake numbers them. Raise ``SqlError``."""
    reserved = next((column.name for column in columns if fold(column.name).startswith(_RESERVED)), None)
    if reserved is not None:
        raise SqlError(f'Binder Error: Column name "{reserved}" is reserved by DuckLake for internal use')
    next_id = 0

    def number(column: Column) -> Column:
        nonlocal next_id
        next_id += 1
        own = next_id
        return replace(column, id=own, children=tuple(number(child) for child in column.children))

    return TableSchema(tuple(number(column) for column in columns))


def check_reserved(context: LakeContext, names: Iterable[str], table: TableInfo | None = None) -> None:
    """Raise ``SqlError`` for names with which stock clients could not put rows into the catalog."""
    reserved = None if context.catalog.is_next else next((name for name in names if is_reserved(name)), None)
    if reserved is not None and context.option("data_inlining_row_limit", table):
        raise SqlError(
            f'Binder Error: Column name "{reserved}" is reserved by DuckLake for internal use when data inlining is'
            " enabled. If you must use this column name, disable inlining by calling"
            " ducklake_set_option('data_inlining_row_limit', 0).",
            hint="it is enough to set the option for the table or its schema",
        )


def _constraint_error(constraint: str) -> SqlError:
    """Return an error in DuckLake's wording, although Quacklake does keep primary keys."""
    return SqlError(
        f"Not implemented Error: {constraint} constraints are not supported in DuckLake",
        hint="NOT NULL, DEFAULT and PRIMARY KEY are kept, the last one as the key of merge",
    )


def schema_of_columns(session: Session, text: str) -> tuple[TableSchema, tuple[str, ...]]:
    """Let DuckDB parse a list of columns. Return the columns and the names of the primary key."""
    name = session.fresh_name()
    keywords = {word.upper for word in Cursor(text).words}
    if "COLLATE" in keywords:
        raise SqlError("Not implemented Error: Collations are not supported in DuckLake storage")
    if {"USING", "COMPRESSION"} <= keywords:
        raise SqlError("Not implemented Error: a compression type for a column is not supported in DuckLake")
    if "REFERENCES" in keywords:
        raise _constraint_error("FOREIGN KEY")
    planner = session.planner()
    planner.execute(f"CREATE TEMP TABLE {name} ({text})")
    # duckdb_columns() would first bind every view that a new database has, which takes longer than all the rest
    columns = planner.execute(
        'SELECT "name", "type", NOT "notnull", dflt_value FROM pragma_table_info(?) ORDER BY cid', [f"temp.{name}"]
    ).fetchall()
    constraints = planner.execute(
        "SELECT constraint_type, constraint_column_names FROM duckdb_constraints()"
        " WHERE database_name = 'temp' AND table_name = ?",
        [name],
    ).fetchall()
    row = first_row(planner, "SELECT sql FROM duckdb_tables() WHERE table_name = ?", [name])
    keys: tuple[str, ...] = ()
    for kind, names in constraints:
        if kind == "PRIMARY KEY":
            keys = tuple(names)
        elif kind != "NOT NULL":
            raise _constraint_error("PRIMARY KEY/UNIQUE" if kind == "UNIQUE" else kind)
    if row is not None and any(word.upper == "GENERATED" for word in Cursor(row[0]).words):
        raise SqlError("Not implemented Error: DuckLake does not support generated columns")
    schema = _number_columns([replace(parse_column(c, t), nullable=bool(n)) for c, t, n, _ in columns])
    for column, _, _, default in columns:
        if default is not None:
            value = default_of(session, default, schema.find(column))
            if isinstance(value, LiteralText):
                schema = with_literal(schema, (column,), value)
            else:
                schema = evolution.set_default(schema, (column,), value)
    return schema, keys


@dataclass(frozen=True, slots=True)
class LiteralText:
    """A literal of a type whose text only DuckDB can write, such as an interval."""

    text: str


def with_literal(
    schema: TableSchema, path: tuple[str, ...], value: LiteralText, *, initial: bool = False
) -> TableSchema:
    """Return the schema with a default. With ``initial``, existing rows get the value too."""

    def change(old: Column) -> Column:
        first = value.text if initial else old.initial_default
        return replace(old, initial_default=first, default=value.text, default_kind="literal")

    return replace_column(schema, path, change)


def default_of(session: Session, text: str, column: Column) -> Any:
    """Return a default: the value of a literal, or an expression."""
    inner = tree.expression_of(session.connection, text)
    while inner.get("class") == "CAST":
        inner = inner["child"]
    if inner.get("class") == "FUNCTION" and inner.get("function_name") == "-" and len(inner["children"]) == 1:
        inner = inner["children"][0]
    if inner.get("class") != "CONSTANT":
        return DefaultExpression(text)
    with session.attachments.root.cursor() as cursor:
        typed = f"CAST({tree.enclosed(cursor, text)} AS {column.duckdb_type()})"
        whole = column.type in ("int128", "uint128")  # too large for Arrow
        found = arrow_table(cursor, f"SELECT {f'CAST({typed} AS VARCHAR)' if whole else typed} AS v")
        value = found.column(0)[0].as_py()
        value = int(value) if whole and value is not None else value
        try:
            evolution.set_default(TableSchema((column,)), (column.name,), value)
        except InputError:
            row = None if column.nested else first_row(cursor, f"SELECT CAST({typed} AS VARCHAR)")
            return DefaultExpression(text) if row is None or row[0] is None else LiteralText(str(row[0]))
    return value


def copy(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run COPY name | (query) TO 'file' (…), or COPY name [(columns)] FROM 'file' (…)."""
    cursor.expect("COPY")
    if cursor.accept("FROM", "DATABASE"):
        return _copy_database(session, cursor)
    if cursor.sees("("):
        query = cursor.parens()
        return _copy_to(session, query, cursor.rest(), params)
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native(session, cursor, params)
    columns = [Cursor(item).name() for item in cursor.items()] if cursor.sees("(") else None
    if cursor.sees("TO"):
        names = "*" if columns is None else ", ".join(quote(name) for name in columns)
        named = ".".join(quote(part) for part in (target.attached.alias, target.schema, target.name))
        return _copy_to(session, f"SELECT {names} FROM {named}", cursor.rest(), params)
    cursor.expect("FROM")
    return _copy_from(session, target, columns, cursor.rest(), params)


def _copy_database(session: Session, cursor: Cursor) -> Result:
    """Run COPY FROM DATABASE a TO b [(SCHEMA | DATA)]: copy schemas, tables and views in one transaction."""
    source = cursor.name()
    cursor.expect("TO")
    target = cursor.name()
    what = cursor.parens().upper() if cursor.sees("(") else ""
    cursor.end()
    if session.attachments.get(source) is None and session.attachments.get(target) is None:
        return session.native(cursor.text)
    own = not session.work.explicit
    if own:
        transactions.begin(session, Cursor("BEGIN"), None)
    try:
        for statement in _copying(session, source, target, what):
            session.statement(statement)
    except BaseException:
        if own:
            transactions.rollback(session, Cursor("ROLLBACK"), None)
        raise
    if own:
        transactions.commit(session, Cursor("COMMIT"), None)
    return Result()


def _copying(session: Session, source: str, target: str, what: str) -> list[str]:
    """Return the statements that copy a database."""

    def listed(query: str) -> list[tuple[Any, ...]]:
        return session.query(query, {"source": source}).fetchall()

    where = "WHERE database_name = $source AND NOT internal ORDER BY ALL"
    found = []
    if what != "DATA":
        for (schema,) in listed(f"SELECT schema_name FROM duckdb_schemas() {where}"):
            found.append(f"CREATE SCHEMA IF NOT EXISTS {quote(target)}.{quote(schema)}")
    for schema, name in listed(f"SELECT schema_name, table_name FROM duckdb_tables() {where}"):
        place = f"{quote(schema)}.{quote(name)}"
        if what != "DATA":
            columns = ", ".join(
                f"{quote(column)} {type_}{'' if nullable else ' NOT NULL'}"
                f"{'' if default in (None, 'NULL') else f' DEFAULT {default}'}"
                for column, type_, nullable, default in session.query(
                    "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns()"
                    " WHERE database_name = $source AND schema_name = $schema AND table_name = $name"
                    " ORDER BY column_index",
                    {"source": source, "schema": schema, "name": name},
                )
            )
            found.append(f"CREATE TABLE {quote(target)}.{place} ({columns})")
        if what != "SCHEMA":
            found.append(f"INSERT INTO {quote(target)}.{place} SELECT * FROM {quote(source)}.{place}")
    if what != "DATA" and session.attachments.get(source) is not None and session.attachments.get(target) is not None:
        views = session.view(session.attachments.find(source)).objects.views()
        found += [view_definition(view, f"{quote(target)}.") for view in views]
    return found


def _copy_to(session: Session, query: str, rest: str, params: Any) -> Result:
    bound = Binder(session, params).bind(query)
    return session.native(f"COPY ({bound.sql}) {rest}", bound.values)


def _copy_from(session: Session, target: Target, columns: list[str] | None, rest: str, params: Any) -> Result:
    """Let DuckDB read the file into a table with the same columns, and insert the rows from there."""
    name = session.fresh_name()

    def work(tx: Transaction) -> int:
        table = find_table(target, tx)
        chosen = list(table.schema.columns) if columns is None else [table.schema.find(n) for n in columns]
        listed = ", ".join(f"{quote(column.name)} {column.duckdb_type()}" for column in chosen)
        session.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({listed})")
        session.connection.execute(f"COPY {name} FROM {rest}", params)
        places = {column.id: place for place, column in enumerate(chosen)}
        sql = conforming(table, places, f"SELECT * FROM temp.main.{name}")
        return append_bound(session, tx, target.attached, table, sql, None)

    return counted(session.write(target.attached, work))
