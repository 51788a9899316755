"""Check views, macros and comments of a lake, and write macros as DuckDB takes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quacklake.core.engines.duckdb.expressions import OrderMacro, check_expression, parser, plain_expression
from quacklake.core.engines.duckdb.stored_texts import LAKE, parse_expression, parse_query
from quacklake.core.format.layout import SortSpec
from quacklake.core.format.names import check_name, fold, literal, quote
from quacklake.core.format.objects import EXPRESSION, MacroInfo, MacroParameter, MacroVariant, ViewInfo
from quacklake.core.format.schema import Column
from quacklake.core.operations.expression import Expression
from quacklake.core.operations.reference import DEFAULT_SCHEMA
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError

COMMENT = "comment"
"""The tag that holds a comment."""

MAX_VIEWS = 16
"""The most levels of views that may build on each other."""


def check_tags(tags: Mapping[Any, Any]) -> dict[str, str | None]:
    """Return tags in stored form, as text. Raise ``InputError``."""
    for key, value in tags.items():
        if not isinstance(key, str) or not key or not (value is None or isinstance(value, str)):
            raise InputError(f"the tag {key!r} must be text, and so must its value")
    return dict(tags)


def check_macro(tx: Transaction, schema: str, variant: MacroVariant, *, is_table: bool) -> MacroVariant:
    """Return a form of a new macro in stored form; the tables it names need not exist yet. Raise ``InputError``."""
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


def check_depth(view: ViewInfo, depth: int) -> None:
    """Raise ``InputError`` for a view that depends on too many others."""
    if depth >= MAX_VIEWS:
        raise InputError(f'the view "{view.qualified_name}" depends on more than {MAX_VIEWS} other views, or on itself')


def _owners(given: str | None, schema: str) -> Iterable[str]:
    """Return the schemas to search for a name: the given one, else the view's own, then ``main``."""
    return dict.fromkeys((given,) if given is not None else (schema, DEFAULT_SCHEMA))


Default = bool | int | float | str | Expression | None
Parameters = Sequence[str] | Mapping[str, Default]
"""The names of parameters, or a mapping of names to defaults."""
_CALLED = re.compile(r"([^\W\d]\w*)\"?\s*\(")


def declared(parameter: MacroParameter) -> str:
    """Return a parameter of a macro as CREATE MACRO takes it."""
    text = quote(parameter.name)
    if parameter.type != "unknown":
        text += f" {Column(0, parameter.name, parameter.type).duckdb_type()}"
    if parameter.default is not None:
        text += f" := {_default(parameter)}"
    return text


def _default(parameter: MacroParameter) -> str:
    if parameter.default_type == EXPRESSION:
        return f"({plain_expression(str(parameter.default))})"
    type_ = Column(0, parameter.name, parameter.default_type).duckdb_type()
    return f"CAST({literal(str(parameter.default))} AS {type_})"


def forms_of(macro: MacroInfo) -> str:
    """Return the forms of a macro as CREATE MACRO takes them. Raise ``InputError`` for a body that is none."""
    forms = []
    with parser() as connection:
        for variant in macro.variants:
            given = ", ".join(declared(parameter) for parameter in variant.parameters)
            if macro.is_table:
                body = f"TABLE {parse_query(connection, variant.sql).sql}"
            else:
                body = parse_expression(connection, variant.sql)
            forms.append(f"({given}) AS {body}")
    return ", ".join(forms)


def order_macros(
    keys: Sequence[str] | SortSpec | None, find: Callable[[], Sequence[MacroInfo]]
) -> tuple[OrderMacro, ...]:
    """Return the macros that a sort order uses; ``find`` is called if there may be any. Raise ``InputError``."""
    texts = [key.expression for key in keys.keys] if isinstance(keys, SortSpec) else list(keys or ())
    called = {fold(name) for text in texts for name in _CALLED.findall(text)}
    if not called:
        return ()
    wanted = [macro for macro in find() if not macro.is_table and fold(macro.name) in called]
    names = [macro.name for macro in wanted]
    for macro in wanted:
        for variant in macro.variants:
            check_expression(variant.sql.replace(LAKE, ""), names)
    return tuple(
        OrderMacro(macro.name, f"CREATE OR REPLACE TEMP MACRO {quote(macro.name)} {forms_of(macro)}")
        for macro in wanted
    )


def make_variant(parameters: Parameters, sql: str) -> MacroVariant:
    """Return a form of a macro whose SQL is not checked yet. Raise ``InputError``."""
    if isinstance(parameters, str):
        raise InputError("parameters must be a list of names")
    given = dict(parameters) if isinstance(parameters, Mapping) else dict.fromkeys(parameters)
    if len({fold(name) for name in given}) != len(parameters):
        raise InputError("two parameters have the same name")
    checked = tuple(_parameter(name, default) for name, default in given.items())
    with_default = [parameter.default is not None for parameter in checked]
    if with_default != sorted(with_default):
        raise InputError("parameters without a default come before those with one")
    return MacroVariant(checked, sql)


def _parameter(name: str, default: Default) -> MacroParameter:
    check_name(name, "parameter")
    if default is None:
        return MacroParameter(name)
    if isinstance(default, Expression):
        return MacroParameter(name, default=default.sql, default_type=EXPRESSION)
    # The order matters: in Python, a bool is also an int.
    types = ((bool, "boolean"), (int, "int32" if _small(default) else "int64"), (float, "float64"), (str, "varchar"))
    for python, type_ in types:
        if isinstance(default, python):
            text = str(default).lower() if python is bool else str(default)
            return MacroParameter(name, default=text, default_type=type_)
    raise InputError(f'the default of the parameter "{name}" must be a number, text or a truth value')


def _small(value: Default) -> bool:
    return isinstance(value, int) and -(1 << 31) <= value < 1 << 31
