"""Filters as SQL text, parsed by sqlglot, which is imported only for them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp

from quacklake.core.format.bounds import ANYTHING, FLIPPED, IsNull, Predicate, comparable, compare, decode, every, some
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.types import StatsKind, scalar
from quacklake.errors import PredicateError

_COMPARISONS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MAX_IN = 1000
_SHORT = 500
"""Filters of up to so many characters are parsed once: that takes longer than all the rest of a remembered plan."""
_INTEGER = re.compile(r"-?[0-9]{1,40}")
# sqlglot's duckdb dialect calls TIMESTAMP "without time zone"
_TIMESTAMPS = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ)


def from_sql(text: str, schema: TableSchema) -> Predicate:
    """Return what a filter says about column bounds. Raise ``PredicateError`` when it is not one expression."""
    return _translate(_parse_filter(text), schema)


def column_names(text: str) -> list[str]:
    return [column.name for column in _parse_filter(text).find_all(exp.Column)]


def _parse_filter(text: str) -> exp.Expr:
    """Return the tree of a filter, which nobody changes. Raise ``PredicateError`` when it is not one expression."""
    return _parse_cached(text) if len(text) <= _SHORT else _parse(text)


@lru_cache(maxsize=500)
def _parse_cached(text: str) -> exp.Expr:
    return _parse(text)


def _parse(text: str) -> exp.Expr:
    try:
        parsed = sqlglot.parse(f"SELECT 1 WHERE {text}", dialect="duckdb")
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else "syntax error"
        raise PredicateError(f"cannot parse the filter {text!r}: {first}") from None
    select = parsed[0] if len(parsed) == 1 else None
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    known = ("expressions", "where", "kind")
    only = select is not None and not any(value for key, value in select.args.items() if key not in known)
    if not only or not isinstance(where, exp.Where):
        raise PredicateError(f"the filter {text!r} is not one expression", hint='write a condition such as "id > 5"')
    condition: exp.Expr = where.this
    return condition


def _translate(node: exp.Expr, schema: TableSchema) -> Predicate:
    node = node.unnest()
    if isinstance(node, exp.And):
        return every(_translate(part, schema) for part in node.flatten())
    if isinstance(node, exp.Or):
        return some(_translate(part, schema) for part in node.flatten())
    if isinstance(node, exp.Between):
        return every(
            (_compare(node.this, ">=", node.args["low"], schema), _compare(node.this, "<=", node.args["high"], schema))
        )
    if isinstance(node, exp.In):
        values = node.expressions
        if not values or len(values) > _MAX_IN:
            return ANYTHING
        return some(_compare(node.this, "=", value, schema) for value in values)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        column = _column(node.this, schema)
        return ANYTHING if column is None or column.nested else IsNull(column.id)
    operator = _COMPARISONS.get(type(node))
    if operator is None:
        return ANYTHING
    if _column(node.this, schema) is None:
        return _compare(node.expression, FLIPPED[operator], node.this, schema)
    return _compare(node.this, operator, node.expression, schema)


def _column(node: exp.Expr, schema: TableSchema) -> Column | None:
    node = node.unnest()
    if not isinstance(node, exp.Column) or len(node.parts) != 1:
        return None
    return schema.get(node.name)


def _compare(left: exp.Expr, operator: str, right: exp.Expr, schema: TableSchema) -> Predicate:
    column = _column(left, schema)
    if column is None or column.nested:
        return ANYTHING
    value = _literal(right.unnest(), column.type)
    return compare(column, operator, value)


def _literal(node: exp.Expr, type_: str) -> Any:
    """Return a literal as a comparable value of the column's type, or None when DuckDB might compare it differently."""
    kind = scalar(type_).stats
    negative = isinstance(node, exp.Neg)
    if negative:
        node = node.this.unnest()
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and not negative:
        return _typed_literal(node, type_, kind)
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return None if negative else _text_literal(node.this, type_, kind)
    text = f"-{node.this}" if negative else str(node.this)
    if kind is StatsKind.INTEGER:
        return int(text) if _INTEGER.fullmatch(text) else None
    if kind is StatsKind.DECIMAL:
        return decode(text, type_) if "e" not in text.lower() else None
    if kind is StatsKind.FLOAT and type_ == "float64":
        return decode(text, type_)
    return None


def _text_literal(text: str, type_: str, kind: StatsKind) -> Any:
    if kind is StatsKind.TEXT:
        # a json column may have been a number before: its older files have bounds that do not compare as text
        return comparable(text, type_) if type_ != "json" else None
    if kind is StatsKind.INTEGER:
        return int(text) if _INTEGER.fullmatch(text) else None
    if kind is StatsKind.DATE:
        return decode(text, type_) if len(text) == 10 else None
    if kind is StatsKind.TIMESTAMP:
        zoned = type_ == "timestamptz"
        if zoned != (text.endswith(("+00", "Z", "+00:00"))):
            return None  # a local time means another instant in every session
        return decode(text.removesuffix("Z") + "+00" if text.endswith("Z") else text, type_)
    return None


def _typed_literal(node: exp.Cast, type_: str, kind: StatsKind) -> Any:
    """Return the value of ``DATE '2024-01-01'`` or ``TIMESTAMP '…'`` against a column of the same type."""
    target = node.to.this
    if not node.this.is_string:
        return None
    same = (
        (target == exp.DataType.Type.DATE and kind is StatsKind.DATE)
        or (target in _TIMESTAMPS and type_ == "timestamp")
        or (target == exp.DataType.Type.TIMESTAMPTZ and type_ == "timestamptz")
        or (target == exp.DataType.Type.DATE and type_ == "timestamp")
    )
    return _text_literal(node.this.this, type_, kind) if same else None
