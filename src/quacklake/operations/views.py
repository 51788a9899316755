"""Check and run the queries of views and macros."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from quacklake.duckdb_versions import arrow_table
from quacklake.engines.duckdb.connections import reading
from quacklake.engines.duckdb.trees import Name, Query, parse_expression, parse_query
from quacklake.errors import InputError, NotFoundError, UnsupportedFeatureError, nearest
from quacklake.format.names import fold, quote
from quacklake.format.objects import EXPRESSION, MacroInfo, MacroVariant, TableInfo, ViewInfo
from quacklake.format.schema import Column, TableSchema
from quacklake.format.texts import parse_column
from quacklake.operations.context import LakeContext, declared
from quacklake.operations.reference import DEFAULT_SCHEMA
from quacklake.transaction import Transaction

COMMENT = "comment"
"""The tag that holds a comment."""

MOST_VIEWS = 16
"""How many levels of views may build on each other."""


def view_rows(context: LakeContext, tx: Transaction, view: ViewInfo, limit: int) -> tuple[TableSchema, pa.Table]:
    """Return the columns of a view and at most ``limit`` of its rows, with columns named ``c<number>``.

    Values of types that Arrow lacks become text, large integers decimals. Raises ``UnsupportedFeatureError`` for a
    column type that a lake cannot have.
    """
    with context.engine.gate(), closing(ViewSession(context, tx)) as session:
        session.add_view(view)
        name = f"{quote(view.schema_name)}.{quote(view.name)}"
        found = session.describe(f"SELECT * FROM {name}")
        columns = []
        for number, (title, type_) in enumerate(found):
            try:
                columns.append(replace(parse_column(title, type_), id=number))
            except InputError as error:
                raise UnsupportedFeatureError(f"{type_} is a type that Spark has not", hint=error.hint) from None
        names = ", ".join(f"c{column.id}" for column in columns)
        select = ", ".join(f"{_plain(f'c{column.id}', column)} AS c{column.id}" for column in columns)
        rows = session.run(f"SELECT {select} FROM {name} AS ql_rows({names}) LIMIT {limit:d}")
        return TableSchema(tuple(columns)), rows


def _plain(name: str, column: Column) -> str:
    if column.type in ("uuid", "interval", "timetz", "time_ns", "uint128"):
        return f"CAST({name} AS VARCHAR)"
    return f"CAST({name} AS DECIMAL(38,0))" if column.type == "int128" else name


def view_tables(context: LakeContext, tx: Transaction, view: ViewInfo) -> list[TableInfo]:
    """Return the tables that a view reads, directly or through other views."""
    with closing(ViewSession(context, tx)) as session:
        session.add_view(view, empty=True)
        return session.tables


def view_column(context: LakeContext, tx: Transaction, view: ViewInfo, name: str) -> str:
    """Return a column's name as the view spells it. Raises ``NotFoundError``."""
    with closing(ViewSession(context, tx)) as session:
        session.add_view(view)
        query = f"SELECT * FROM {quote(view.schema_name)}.{quote(view.name)} LIMIT 0"
        columns: list[str] = session.run(query).schema.names
    found = next((column for column in columns if fold(column) == fold(name)), None)
    if found is None:
        raise NotFoundError(f'the view "{view.qualified_name}" has no column "{name}"', hint=nearest(name, columns))
    return found


def check_tags(tags: Mapping[Any, Any]) -> dict[str, str | None]:
    """Return tags in stored form, as text. Raises ``InputError``."""
    for key, value in tags.items():
        if not isinstance(key, str) or not key or not (value is None or isinstance(value, str)):
            raise InputError(f"the tag {key!r} must be text, and so must its value")
    return dict(tags)


def check_view(context: LakeContext, tx: Transaction, schema: str, sql: str, aliases: tuple[str, ...]) -> str:
    """Return the query of a new view in stored form. Raises ``InputError`` or ``NotFoundError`` when it cannot run."""
    with closing(ViewSession(context, tx)) as session:
        return session.check(schema, sql, aliases)


def check_macro(
    context: LakeContext, tx: Transaction, schema: str, variant: MacroVariant, *, is_table: bool
) -> MacroVariant:
    """Return a form of a new macro in stored form. Raises ``InputError`` when its SQL is invalid."""
    with closing(ViewSession(context, tx)) as session:
        return session.check_macro(schema, variant, is_table=is_table)


class ViewSession:
    """A database in memory with only the tables, views and macros that a view refers to; tables are scans.

    ``tables`` are the tables of the lake that it reads.
    """

    def __init__(self, context: LakeContext, tx: Transaction) -> None:
        self._context = context
        self._tx = tx
        self._known: set[tuple[str, str]] = set()
        self.tables: list[TableInfo] = []
        self._connection = context.engine.session()
        # Replacement scans would let a query read Python variables.
        self._connection.execute("SET python_enable_replacements = false")

    def close(self) -> None:
        self._connection.close()

    def run(self, query: str) -> pa.Table:
        with reading():
            return arrow_table(self._connection, query)

    def describe(self, query: str) -> list[tuple[str, str]]:
        """Return the names and types of a query's columns."""
        with reading():
            found = self._connection.sql(query)
            return list(zip(found.columns, map(str, found.types), strict=True))

    def check(self, schema: str, sql: str, aliases: tuple[str, ...]) -> str:
        """Bind a query over the tables with DuckDB and return it as DuckDB prints it."""
        query = parse_query(self._connection, sql)
        self._add_named(query, schema, depth=1, empty=True)
        self._create(schema, "ql_new_view", query.sql, aliases)
        return query.sql

    def check_macro(self, schema: str, variant: MacroVariant, *, is_table: bool) -> MacroVariant:
        """Bind the SQL of a macro with DuckDB; the tables it names need not exist yet."""
        parameters = tuple(
            replace(each, default=parse_expression(self._connection, str(each.default)))
            if each.default_type == EXPRESSION
            else each
            for each in variant.parameters
        )
        variant = replace(variant, parameters=parameters)
        if is_table:
            query = parse_query(self._connection, variant.sql)
            for name in query.table_functions:
                self._table_macro(name, schema)
            return replace(variant, sql=query.sql)
        return replace(variant, sql=parse_expression(self._connection, variant.sql))

    def add_view(self, view: ViewInfo, *, depth: int = 1, empty: bool = False) -> None:
        """Create a view and everything that it refers to."""
        if view.dialect != "duckdb":
            raise UnsupportedFeatureError(f'the view "{view.qualified_name}" is written in {view.dialect}')
        if depth > MOST_VIEWS:
            raise too_deep(view)
        query = parse_query(self._connection, view.sql)
        self._add_named(query, view.schema_name, depth=depth, empty=empty)
        self._create(view.schema_name, view.name, query.sql, view.aliases)

    def _create(self, schema: str, name: str, sql: str, aliases: tuple[str, ...]) -> None:
        columns = f"({', '.join(quote(alias) for alias in aliases)})" if aliases else ""
        # As in DuckDB, a name without a schema is looked up in the view's own schema first.
        path = ",".join(quote(part) for part in dict.fromkeys((schema, DEFAULT_SCHEMA)))
        self._make_schema(schema)
        literal = path.replace("'", "''")
        with reading():
            self._connection.execute(f"SET search_path = '{literal}'")
            self._connection.execute(f"CREATE VIEW {quote(schema)}.{quote(name)}{columns} AS {sql}")

    def _make_schema(self, name: str) -> None:
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(name)}")

    def _add_named(self, query: Query, schema: str, *, depth: int, empty: bool) -> None:
        """Create everything that a query of a schema refers to."""
        for given, name in query.functions:
            macro = self._macro(given, name, schema, is_table=False)
            if macro is not None:
                self._add_macro(macro, depth=depth + 1, empty=empty)
        for called in query.table_functions:
            self._add_macro(self._table_macro(called, schema), depth=depth + 1, empty=empty)
        for given, name in query.relations:
            found = self._find(given, name, schema)
            key = (fold(found.schema_name), fold(found.name))
            if key in self._known:
                continue
            if isinstance(found, ViewInfo):
                self.add_view(found, depth=depth + 1, empty=empty)
            else:
                self._add_table(found, empty=empty)
                self.tables.append(found)
            self._known.add(key)

    def _table_macro(self, called: Name, schema: str) -> MacroInfo:
        """Return a table macro. Other table functions could read data outside of the lake."""
        found = self._macro(*called, schema, is_table=True)
        if found is None:
            raise InputError(f'the query uses "{called[1]}", which a lake does not have and does not allow')
        return found

    def _macro(self, given: str | None, name: str, schema: str, *, is_table: bool) -> MacroInfo | None:
        found = (self._tx.objects.get_macro(owner, name, is_table=is_table) for owner in _owners(given, schema))
        return next((macro for macro in found if macro is not None), None)

    def _add_macro(self, macro: MacroInfo, *, depth: int, empty: bool) -> None:
        key = (fold(macro.schema_name), f"{fold(macro.name)}({macro.is_table})")
        if key in self._known:
            return
        if depth > MOST_VIEWS:
            raise InputError(
                f'the macro "{macro.qualified_name}" stands on more than {MOST_VIEWS} others, or on itself'
            )
        forms = []
        for variant in macro.variants:
            whole = variant.sql if macro.is_table else f"SELECT {variant.sql}"
            query = parse_query(self._connection, whole)
            self._add_named(query, macro.schema_name, depth=depth, empty=empty)
            body = f"TABLE {query.sql}" if macro.is_table else parse_expression(self._connection, variant.sql)
            forms.append(f"({', '.join(declared(parameter) for parameter in variant.parameters)}) AS {body}")
        self._make_schema(macro.schema_name)
        target = f"{quote(macro.schema_name)}.{quote(macro.name)}"
        with reading():
            self._connection.execute(f"CREATE MACRO {target} {', '.join(forms)}")
        self._known.add(key)

    def _find(self, given: str | None, name: str, schema: str) -> TableInfo | ViewInfo:
        found = named_object(self._tx, given, name, schema)
        if found is not None:
            return found
        raise NotFoundError(f'there is no table or view "{name if given is None else f"{given}.{name}"}"')

    def _add_table(self, table: TableInfo, *, empty: bool) -> None:
        self._make_schema(table.schema_name)
        target = f"{quote(table.schema_name)}.{quote(table.name)}"
        if empty:
            columns = ", ".join(f"{quote(column.name)} {column.duckdb_type()}" for column in table.schema.columns)
            self._connection.execute(f"CREATE TABLE {target} ({columns})")
            return
        query = self._context.engine.bind(self._connection, self._tx.plan(table))
        with reading():
            self._connection.execute(f"CREATE VIEW {target} AS {query}")


def named_object(tx: Transaction, given: str | None, name: str, schema: str) -> TableInfo | ViewInfo | None:
    """Return the table or view that a view of a schema names, with or without the schema ``given``, or None."""
    for owner in _owners(given, schema):
        found = tx.get_table(owner, name) or tx.objects.get_view(owner, name)
        if found is not None:
            return found
    return None


def too_deep(view: ViewInfo) -> InputError:
    """Return the error for a view that stands on too many others."""
    return InputError(f'the view "{view.qualified_name}" stands on more than {MOST_VIEWS} other views, or on itself')


def _owners(given: str | None, schema: str) -> Iterable[str]:
    """Return the schemas to search for a name: the given one, else the view's own, then ``main``."""
    return dict.fromkeys((given,) if given is not None else (schema, DEFAULT_SCHEMA))
