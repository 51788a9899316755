"""The one place that binds a catalog (tenant) of a shared lake into every statement.

In a shared lake every metadata table has a column ``catalog_id``, of which nothing above knows. The tables that
statements are built from (``Tables``) lack it; each carries a :class:`Scope` that says where its rows really are. When
SQLAlchemy turns a statement into text, once for each form of statement and for all catalogs together:

- a table to read from becomes ``(SELECT * FROM the_table WHERE catalog_id = :quacklake_catalog) AS the_table``,
- an update or delete gets the same condition, an insert the same value,
- a table of the lake that has no scope, or a text that names one, is an error: nothing is ever read unbound.

The value comes with the execution options of the connection, and is missing from no statement: ``attach`` adds it to
the parameters of each.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

CATALOG_ID = "catalog_id"
CATALOG = "quacklake_catalog"
"""The name of the parameter, and of the execution option that gives its value."""
bind: sa.BindParameter[int] = sa.bindparam(CATALOG, type_=sa.BigInteger(), required=True)
"""The catalog that a statement is for."""

_NOWHERE: Mapping[str, int] = MappingProxyType({})
_SCOPE = "quacklake_scope"
_REGISTRY = "quacklake_registry"
_OURS = ("ducklake_", "quacklake_")
_NAMED = re.compile(r"\b(?:ducklake|quacklake)_(?!unseen_)\w+")


@dataclass(frozen=True, slots=True)
class CatalogScope:
    """The place of a table's rows: in ``physical``, whose ``catalog_id`` is the catalog's, and ``where`` holds.

    ``alive`` is a further condition, in SQL with ``{catalog}`` for the catalog's id.
    """

    physical: sa.Table
    where: Mapping[str, int]
    alive: str | None = None


def place(table: sa.Table, target: sa.Table, where: Mapping[str, int] = _NOWHERE, alive: str | None = None) -> sa.Table:
    """Say where the rows of a table are; return the table."""
    table.info[_SCOPE] = CatalogScope(target, where, alive)
    return table


def physical(table: sa.Table, name: str | None = None, where: Mapping[str, int] = _NOWHERE) -> sa.Table:
    """Return a table as a shared lake has it, for inserts: with columns for the catalog and for ``where``."""
    first = sa.Column(CATALOG_ID, sa.BigInteger(), default=bind)
    others = (
        sa.Column(column, sa.BigInteger(), default=sa.literal_column(f"{value:d}")) for column, value in where.items()
    )
    columns = (sa.Column(column.name, column.type, key=column.key) for column in table.c)
    return sa.Table(name or table.name, sa.MetaData(), first, *others, *columns, schema=table.schema)


def registry(table: sa.Table) -> sa.Table:
    """Mark a table as one that belongs to no catalog; return it."""
    table.info[_REGISTRY] = True
    return table


def attach(engine: Engine) -> None:
    """Bind every statement of an engine, from now on."""
    dialect: Any = engine.dialect
    if not issubclass(dialect.statement_compiler, _Binding):
        dialect.statement_compiler = _binding(dialect.statement_compiler)
    sa.event.listen(engine, "before_execute", _add_catalog, retval=True)


def value_of(connection: Connection) -> int | None:
    """Return the catalog whose statements a connection runs; None for a plain lake."""
    catalog: int | None = connection.get_execution_options().get(CATALOG)
    return catalog


def fixed(connection: Connection, table: sa.Table) -> tuple[sa.Table, dict[str, int]]:
    """Return where rows go that do not travel through SQLAlchemy, and the values that each of them has in addition."""
    compiler: Any = connection.dialect.statement_compiler  # that of a plain lake binds nothing
    scope = _scope(table) if isinstance(compiler, type) and issubclass(compiler, _Binding) else None
    if scope is None:
        return table, {}
    return scope.physical, {CATALOG_ID: required_value_of(connection), **scope.where}


def literal_options(connection: Connection) -> dict[str, Any]:
    """Return how a statement becomes text without parameters."""
    catalog = value_of(connection)
    return {"literal_binds": True} if catalog is None else {"literal_binds": True, CATALOG: catalog}


def required_value_of(connection: Connection) -> int:
    """Like ``value_of``, but raise where a catalog is missing."""
    return _require_catalog(value_of(connection))


def _require_catalog(value: int | None) -> int:
    if value is None:
        raise sa.exc.InvalidRequestError("a statement of a shared lake names no catalog")
    return int(value)


def _add_catalog(
    connection: Connection,
    statement: Any,
    many: Sequence[Mapping[str, Any]],
    one: Mapping[str, Any],
    options: Mapping[str, Any],
) -> tuple[Any, Sequence[Mapping[str, Any]], Mapping[str, Any]]:
    if isinstance(statement, sa.DDLElement) or CATALOG not in options:
        return statement, many, one  # without a value the parameter is missing, which the database layer refuses
    added = {CATALOG: options[CATALOG]}
    if many:
        return statement, [{**row, **added} for row in many], one
    return statement, many, {**one, **added}


def _scope(table: Any) -> CatalogScope | None:
    """Return where a table's rows are, None for one that is not the lake's. Raise for one that cannot be bound."""
    info = table.info if isinstance(table, sa.Table) else {}
    scope: CatalogScope | None = info.get(_SCOPE)
    temporary = "TEMPORARY" in getattr(table, "_prefixes", ())
    if scope is None and str(table.name).startswith(_OURS) and not info.get(_REGISTRY) and not temporary:
        raise sa.exc.CompileError(f"{table.name} cannot be bound to a catalog")
    return scope


class _Binding:
    """The additions to a compiler; mixed in before the one of the database."""

    preparer: Any

    def _condition(self, scope: CatalogScope, **options: Any) -> str:
        if options.get("literal_binds"):
            catalog = str(_require_catalog(options.get(CATALOG)))
        else:
            catalog = self.process(bind)  # type: ignore[attr-defined]
        quote = self.preparer.quote
        parts = [f"{CATALOG_ID} = {catalog}", *(f"{quote(name)} = {value:d}" for name, value in scope.where.items())]
        if scope.alive is not None:
            schema = scope.physical.schema
            prefix = "" if schema is None else f"{self.preparer.quote_schema(schema)}."
            parts.append(scope.alive.format(catalog=catalog, schema=prefix))
        return " AND ".join(parts)

    def visit_table(self, table: Any, asfrom: bool = False, enclosing_alias: Any = None, **options: Any) -> str:
        scope = _scope(table)
        if scope is None or not asfrom:
            text: str = super().visit_table(  # type: ignore[misc]
                table, asfrom=asfrom, enclosing_alias=enclosing_alias, **options
            )
            return text
        linter = options.get("from_linter")
        if linter:
            linter.froms[table] = table.fullname
        rows = f"(SELECT * FROM {self.preparer.format_table(scope.physical)} WHERE {self._condition(scope, **options)})"
        if enclosing_alias is not None and enclosing_alias.element is table:
            return rows
        return f"{rows} AS {self.preparer.quote(scope.physical.name)}"

    def visit_column(self, column: Any, *args: Any, include_table: bool = True, **options: Any) -> str:
        scope = column.table.info.get(_SCOPE) if isinstance(column.table, sa.Table) else None
        text: str = super().visit_column(  # type: ignore[misc]
            column, *args, include_table=include_table and scope is None, **options
        )
        return text if scope is None or not include_table else f"{self.preparer.quote(scope.physical.name)}.{text}"

    def visit_textclause(self, textclause: Any, *args: Any, **options: Any) -> str:
        if _NAMED.search(textclause.text):
            raise sa.exc.CompileError("a text cannot be bound to a catalog")
        return super().visit_textclause(textclause, *args, **options)  # type: ignore[misc,no-any-return]

    def visit_insert(self, insert_stmt: Any, *args: Any, **options: Any) -> str:
        scope = _scope(insert_stmt.table)
        if scope is not None:
            insert_stmt = insert_stmt._generate()
            insert_stmt.table = scope.physical
            insert_stmt.include_insert_from_select_defaults = True
        return super().visit_insert(insert_stmt, *args, **options)  # type: ignore[misc,no-any-return]

    def visit_update(self, update_stmt: Any, *args: Any, **options: Any) -> str:
        return super().visit_update(_bind_statement(update_stmt, self.preparer), *args, **options)  # type: ignore[misc,no-any-return]

    def visit_delete(self, delete_stmt: Any, *args: Any, **options: Any) -> str:
        return super().visit_delete(_bind_statement(delete_stmt, self.preparer), *args, **options)  # type: ignore[misc,no-any-return]

    def update_tables_clause(self, update_stmt: Any, from_table: Any, extra_froms: Any, **options: Any) -> str:
        text = self._target(from_table, extra_froms, **options)
        if text is None:
            text = super().update_tables_clause(  # type: ignore[misc]
                update_stmt, from_table, extra_froms, **options
            )
        return text

    def delete_table_clause(self, delete_stmt: Any, from_table: Any, extra_froms: Any, **options: Any) -> str:
        text = self._target(from_table, extra_froms, **options)
        if text is None:
            text = super().delete_table_clause(  # type: ignore[misc]
                delete_stmt, from_table, extra_froms, **options
            )
        return text

    def _target(self, table: Any, others: Any, **options: Any) -> str | None:
        """Return the table that is changed; its condition is in the statement."""
        scope = _scope(table)
        if scope is None:
            return None
        if others and self.dialect.name in ("mysql", "mariadb"):  # type: ignore[attr-defined]
            raise sa.exc.CompileError("a change over several tables cannot be bound to a catalog here")
        linter = options.get("from_linter")
        if linter:
            linter.froms[table] = table.fullname
        text: str = self.preparer.format_table(scope.physical)
        return text


def _bind_statement(statement: Any, preparer: Any) -> Any:
    scope = _scope(statement.table)
    if scope is None:
        return statement
    name = preparer.quote(scope.physical.name)
    conditions = [sa.literal_column(f"{name}.{CATALOG_ID}", sa.BigInteger()) == bind]
    for column, value in scope.where.items():
        conditions.append(sa.literal_column(f"{name}.{preparer.quote(column)} = {value:d}", sa.Boolean()))
    return statement.where(*conditions)


@functools.cache
def _binding(compiler: type[Any]) -> type[Any]:
    return type(f"Bound{compiler.__name__}", (_Binding, compiler), {})
