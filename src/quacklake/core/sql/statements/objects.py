"""Schemas, views, macros and comments: CREATE, DROP and COMMENT ON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quacklake.core.engines.duckdb.stored_texts import parse_expression
from quacklake.core.format.names import fold
from quacklake.core.format.objects import MacroVariant
from quacklake.core.format.texts import parse_column
from quacklake.core.operations.expression import Expression
from quacklake.core.operations.reference import DEFAULT_SCHEMA
from quacklake.core.operations.views import COMMENT, check_macro, make_variant
from quacklake.core.sql import tree
from quacklake.core.sql.attached import Attached, Target, missing
from quacklake.core.sql.binder import Binder
from quacklake.core.sql.result import Result
from quacklake.core.sql.statements import queries
from quacklake.core.sql.statements.tables import taken
from quacklake.core.sql.titles import with_titles
from quacklake.core.sql.views import view_column
from quacklake.core.sql.words import Cursor
from quacklake.core.transaction import Transaction
from quacklake.errors import AlreadyExistsError, NotFoundError, SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session


def _parse_create(cursor: Cursor, *kinds: str) -> tuple[bool, bool]:
    """Parse CREATE [OR REPLACE] kind [IF NOT EXISTS]. Return which of the two options are given."""
    cursor.expect("CREATE")
    replacing = cursor.accept("OR", "REPLACE")
    if not any(cursor.accept(kind) for kind in kinds):
        raise cursor.unexpected()
    return replacing, cursor.accept("IF", "NOT", "EXISTS")


def create_schema(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run CREATE SCHEMA [IF NOT EXISTS] [lake.]name."""
    replacing, if_not_exists = _parse_create(cursor, "SCHEMA")
    attached, name = _schema(session, cursor.names())
    if attached is None:
        return queries.native_ddl(session, Cursor(cursor.text), params)
    cursor.end()

    def work(tx: Transaction) -> None:
        if replacing and _has_schema(tx, name):
            tx.drop_schema(name, cascade=True)
        if not if_not_exists and _has_schema(tx, name):
            raise AlreadyExistsError(f'Schema with name "{name}" already exists!', hint="use IF NOT EXISTS")
        tx.create_schema(name, if_not_exists=if_not_exists)

    session.write(attached, work)
    return Result()


def _schema(session: Session, names: Sequence[str]) -> tuple[Attached | None, str]:
    """Return the lake and the name of a schema. The lake is None when the schema is DuckDB's."""
    if len(names) > 2:
        raise SqlError(f"{'.'.join(names)!r} is not the name of a schema")
    return session.attachments.get(names[0]) if len(names) == 2 else session.names.default, names[-1]


def _has_schema(tx: Transaction, name: str) -> bool:
    return any(fold(info.name) == fold(name) for info in tx.schemas())


def create_view(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name [(columns)] AS query."""
    replacing, if_not_exists = _parse_create(cursor, "VIEW")
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_ddl(session, Cursor(cursor.text), params)
    aliases = tuple(Cursor(item).name() for item in cursor.items()) if cursor.sees("(") else ()
    cursor.expect("AS")
    given = cursor.rest()
    query = own_names(session, target, given)

    def work(tx: Transaction) -> None:
        owner = tx.find_schema(target.schema)
        existing = tx.objects.get_view(target.schema, target.name)
        if existing is not None and if_not_exists:
            return
        if existing is not None and not replacing:
            raise AlreadyExistsError(f'View with name "{target.name}" already exists!', hint="use OR REPLACE")
        if tx.get_table(target.schema, target.name) is not None:
            raise taken(target.name, "Table", "View", replacing=replacing)
        text = with_titles(session.connection, given, Binder(session).check(query, target, tx, aliases))
        tx.objects.create_view(owner.name, target.name, text, aliases, replacing=replacing)

    session.write(target.attached, work)
    return Result()


_KEYS = {
    "BASE_TABLE": ("catalog_name", "schema_name", "table_name"),
    "FUNCTION": ("catalog", "schema", "function_name"),
}


def own_names(session: Session, target: Target, query: str, *, expression: bool = False) -> str:
    """Return a query to store in a lake: its table names lose the name that the lake has in this session."""
    parsed = tree.parse(session.connection, f"SELECT {query}" if expression else query)
    names = session.names
    for node in tree.nodes(parsed):
        keys = _KEYS.get(str(node.get("type")))
        if keys is None:
            continue
        catalog, schema, name = (node.get(key) for key in keys)
        if catalog and fold(str(catalog)) == fold(target.attached.alias):
            node[keys[0]] = ""
        elif not catalog and schema and fold(str(schema)) == fold(target.attached.alias):
            if not names.has_schema(target.attached, str(schema)):
                node[keys[1]] = DEFAULT_SCHEMA
        elif not catalog and not schema and keys[2] == "table_name":
            # a table of the current schema, which is not the target's
            other = names.default is target.attached and fold(names.schema) != fold(target.schema)
            if other and session.view(target.attached).get_table(names.schema, str(name)) is not None:
                node[keys[1]] = names.schema
    text = tree.render(session.connection, parsed)
    return text.removeprefix("SELECT ") if expression else text


def create_macro(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run CREATE [OR REPLACE] MACRO name (parameters) AS expression | TABLE query, …."""
    replacing, if_not_exists = _parse_create(cursor, "MACRO", "FUNCTION")
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_ddl(session, Cursor(cursor.text), params)
    variants: list[MacroVariant] = []
    is_table = False
    while not variants or cursor.accept(","):
        parameters = cursor.items()
        cursor.expect("AS")
        is_table = cursor.accept("TABLE")
        variants.append(_variant(session, target, parameters, _body(cursor), is_table=is_table))
    cursor.end()

    def work(tx: Transaction) -> None:
        owner = tx.find_schema(target.schema)
        if if_not_exists and tx.objects.get_macro(target.schema, target.name, is_table=is_table) is not None:
            return
        checked = tuple(check_macro(tx, owner.name, one, is_table=is_table) for one in variants)
        tx.objects.create_macro(owner.name, target.name, checked, is_table=is_table, replacing=replacing)

    session.write(target.attached, work)
    return Result()


def _body(cursor: Cursor) -> str:
    """Return the text of one form, up to a comma that another form follows."""
    first = cursor.at
    while True:
        cursor.until(",")
        here = cursor.at
        if not cursor.accept(","):
            break
        if cursor.sees("("):
            cursor.skip_group()
            if cursor.sees("AS"):
                cursor.at = here
                break
    return cursor.slice(first, cursor.at)


def _variant(session: Session, target: Target, parameters: list[str], body: str, *, is_table: bool) -> MacroVariant:
    given: dict[str, Any] = {}
    types: dict[str, str] = {}
    for item in parameters:
        inner = Cursor(item)
        name = inner.name()
        type_ = inner.until(":=", "=>")
        if type_:
            types[name] = parse_column(name, type_).type
        given[name] = None
        if inner.accept(":=") or inner.accept("=>"):
            text = inner.rest()
            parsed = tree.expression_of(session.connection, text)
            computed = any(node.get("class") not in ("CONSTANT", "CAST", None) for node in tree.nodes(parsed))
            if computed and target.attached.context.catalog.is_next:  # the format has a place for the expression
                given[name] = Expression(parse_expression(session.connection, text))
            else:
                given[name] = Binder(session).evaluate(parsed)
    if is_table and body.startswith("(") and body.endswith(")"):
        body = Cursor(body).parens()
    stored = own_names(session, target, body, expression=not is_table)
    variant = make_variant(given, with_titles(session.connection, body, stored) if is_table else stored)
    typed = (replace(parameter, type=types.get(parameter.name, parameter.type)) for parameter in variant.parameters)
    return replace(variant, parameters=tuple(typed))


def drop(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run DROP SCHEMA | TABLE | VIEW | MACRO [TABLE] [IF EXISTS] name [CASCADE]."""
    cursor.expect("DROP")
    kind = cursor.take().upper
    if kind == "FUNCTION":
        kind = "MACRO"
    if kind not in ("SCHEMA", "TABLE", "VIEW", "MACRO"):
        return queries.native_ddl(session, Cursor(cursor.text), params)
    is_table = kind == "MACRO" and cursor.accept("TABLE")
    if_exists = cursor.accept("IF", "EXISTS")
    names = cursor.names()
    cascade = cursor.accept("CASCADE")
    cursor.accept("RESTRICT")
    target, name = None, ""  # type: Target | None, str
    if kind == "SCHEMA":
        attached, name = _schema(session, names)
    else:
        target = _existing(session, names, kind, is_table=is_table)
        attached = None if target is None else target.attached
    if attached is None:
        return queries.native_ddl(session, Cursor(cursor.text), params)
    cursor.end()

    def work(tx: Transaction) -> None:
        if target is not None:
            _drop(tx, target, kind, if_exists=if_exists, is_table=is_table)
        elif not if_exists or _has_schema(tx, name):
            tx.drop_schema(name, cascade=cascade)

    session.write(attached, work)
    return Result()


def _existing(session: Session, names: Sequence[str], kind: str, *, is_table: bool) -> Target | None:
    """Return the place of an existing object with this name, else the place where it would be created."""
    if kind != "MACRO":
        found = session.names.relation(names)
        return session.names.target(names) if found is None else found[0]
    for place in session.names.places(names):
        if session.view(place.attached).objects.get_macro(place.schema, place.name, is_table=is_table) is not None:
            return place
    return session.names.target(names)


def _drop(tx: Transaction, target: Target, kind: str, *, if_exists: bool, is_table: bool) -> None:
    table = tx.get_table(target.schema, target.name)
    view = tx.objects.get_view(target.schema, target.name)
    if kind == "MACRO":
        macro = tx.objects.get_macro(target.schema, target.name, is_table=is_table)
        if macro is None and not is_table:
            macro = tx.objects.get_macro(target.schema, target.name, is_table=True)
        if macro is not None:
            tx.objects.drop(macro)
        elif not if_exists:
            raise NotFoundError(f'Macro Function with name "{target.name}" does not exist!')
        return
    wrong = view if kind == "TABLE" else table
    if wrong is not None:
        other = "View" if kind == "TABLE" else "Table"
        raise SqlError(
            f"Catalog Error: Existing object {target.name} is of type {other}, trying to drop type {kind.title()}",
            hint=f"use DROP {other.upper()}",
        )
    if kind == "TABLE" and table is not None:
        tx.drop_table(table)
    elif kind == "VIEW" and view is not None:
        tx.objects.drop(view)
    elif not if_exists:
        raise missing(target, tx, kind.title())


def comment(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run COMMENT ON TABLE | VIEW | COLUMN name IS 'text' | NULL."""
    cursor.expect("COMMENT", "ON")
    kind = cursor.take().upper
    names = cursor.names()
    cursor.expect("IS")
    text = Binder(session, params).evaluate_text(cursor.rest())
    column = names.pop() if kind == "COLUMN" else None
    target = _existing(session, names, kind, is_table=False) if names else None
    if target is None:
        return session.native(cursor.text, params)
    if kind not in ("TABLE", "VIEW", "COLUMN"):
        raise SqlError(f"Not implemented Error: COMMENT ON {kind} is not supported in a lake")

    def work(tx: Transaction) -> None:
        table = tx.get_table(target.schema, target.name) if kind != "VIEW" else None
        view = tx.objects.get_view(target.schema, target.name) if kind != "TABLE" and table is None else None
        if table is not None:
            column_id = None if column is None else table.schema.find(column).id
            tx.objects.set_tags(table, {COMMENT: text}, column_id=column_id)
        elif view is not None:
            named = None if column is None else view_column(target.attached.context, tx, view, column)
            tx.objects.set_tags(view, {COMMENT: text}, column_name=named)
        else:
            raise missing(target, tx, kind.title())

    session.write(target.attached, work)
    return Result()
