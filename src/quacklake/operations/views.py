"""What views, macros and comments of a lake may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from quacklake.engines.duckdb.expressions import parser
from quacklake.engines.duckdb.trees import parse_expression, parse_query
from quacklake.errors import InputError
from quacklake.format.objects import EXPRESSION, MacroVariant, TableInfo, ViewInfo
from quacklake.operations.reference import DEFAULT_SCHEMA
from quacklake.transaction import Transaction

COMMENT = "comment"
"""The tag that holds a comment."""

MOST_VIEWS = 16
"""How many levels of views may build on each other."""


def check_tags(tags: Mapping[Any, Any]) -> dict[str, str | None]:
    """Return tags in stored form, as text. Raises ``InputError``."""
    for key, value in tags.items():
        if not isinstance(key, str) or not key or not (value is None or isinstance(value, str)):
            raise InputError(f"the tag {key!r} must be text, and so must its value")
    return dict(tags)


def check_macro(tx: Transaction, schema: str, variant: MacroVariant, *, is_table: bool) -> MacroVariant:
    """Return a form of a new macro in stored form; the tables it names need not exist yet. Raises ``InputError``."""
    with parser() as connection:
        parameters = tuple(
            replace(each, default=parse_expression(connection, str(each.default)))
            if each.default_type == EXPRESSION
            else each
            for each in variant.parameters
        )
        if not is_table:
            return replace(variant, parameters=parameters, sql=parse_expression(connection, variant.sql))
        query = parse_query(connection, variant.sql)
    for given, name in query.table_functions:  # other table functions could read data outside of the lake
        if not any(tx.objects.get_macro(owner, name, is_table=True) for owner in _owners(given, schema)):
            raise InputError(f'the query uses "{name}", which a lake does not have and does not allow')
    return replace(variant, parameters=parameters, sql=query.sql)


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
