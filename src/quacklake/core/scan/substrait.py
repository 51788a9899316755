"""``pyarrow.compute`` expressions as predicates, read through Substrait, their only open form."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping
from decimal import Decimal
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from substrait.extended_expression_pb2 import ExtendedExpression

from quacklake.core.format.bounds import ANYTHING, FLIPPED, IsNull, Predicate, comparable, compare, every, some
from quacklake.core.format.names import literal, quote
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.types import DAY, StatsKind, scalar
from quacklake.errors import PredicateError, UnsupportedFeatureError

# where any package is called substrait, pyarrow imports this module of another distribution, which nothing here needs
sys.modules.setdefault("substrait.proto", ModuleType("substrait.proto"))

_COMPARISONS = {"equal": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_INTEGERS = ("i8", "i16", "i32", "i64")
_TIMESTAMPS = {14: "timestamp", 27: "timestamptz"}
"""Fields of literals that Arrow still writes and newer versions of Substrait have no more: microseconds of a type."""

_EPOCH = dt.date(1970, 1, 1).toordinal()
_TEXTS = frozenset({"uuid", "json", "variant", "int128", "uint128", "geometry"})
"""Types that DuckDB compares in another way than Arrow, for which they are texts, decimals or bytes."""


def from_arrow_expression(expression: pc.Expression, schema: TableSchema) -> Predicate:
    """Return what an Arrow expression says about bounds. Raise ``PredicateError`` when it does not fit."""
    decoded = _decode_expression(expression, schema)
    return ANYTHING if decoded is None else _Translator(schema, decoded[1]).translate(decoded[0])


def to_sql(expression: pc.Expression, schema: TableSchema) -> str:
    """Return an Arrow expression as SQL. Raise ``UnsupportedFeatureError`` for one that SQL answers otherwise."""
    decoded = _decode_expression(expression, schema)
    text = None if decoded is None else _sql(decoded[0], decoded[1], schema)
    if text is None:
        raise UnsupportedFeatureError(
            f"{expression} cannot be said in SQL with the same meaning", hint="write the filter as SQL text"
        )
    return text


def _decode_expression(expression: pc.Expression, schema: TableSchema) -> tuple[Any, dict[int, str]] | None:
    """Return the tree of an expression and the names of its functions, or None if it has no open form."""
    arrow = schema.to_arrow()
    try:
        arrow.empty_table().filter(expression)  # does it fit at all?
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise PredicateError(
            f"the expression {expression} does not fit the table: {error}",
            hint="compare columns with values of their own types, or write the filter as SQL text",
        ) from None
    # unsigned numbers as signed ones: Substrait has no others, and bounds are the same
    unsigned = (pa.uint8(), pa.uint16(), pa.uint32())
    signed = pa.schema([field.with_type(pa.int64()) if field.type in unsigned else field for field in arrow])
    try:
        encoded = expression.to_substrait(signed, allow_arrow_extensions=True)
        message = ExtendedExpression.FromString(bytes(encoded))
    except (pa.ArrowException, KeyError, DecodeError):
        return None  # a function or a cast without an open form: the engine evaluates it
    names = {
        entry.extension_function.function_anchor: entry.extension_function.name
        for entry in message.extensions
        if entry.WhichOneof("mapping_type") == "extension_function"
    }
    return message.referred_expr[0].expression, names


_SIGNS = {**_COMPARISONS, "not_equal": "<>", "and": "AND", "or": "OR"}


def _sql(node: Any, names: Mapping[int, str], schema: TableSchema) -> str | None:
    kind = node.WhichOneof("rex_type")
    if kind == "literal":
        return _literal(node.literal)
    if kind == "selection":
        reference = node.selection.direct_reference.struct_field
        column = None if reference.HasField("child") else schema.columns[reference.field]
        # NaN is not above every number in Arrow
        return None if column is None or column.type.startswith("float") else quote(column.name)
    if kind == "singular_or_list":
        if _is_text(node.singular_or_list.value, schema):
            return None
        parts = [_sql(each, names, schema) for each in (node.singular_or_list.value, *node.singular_or_list.options)]
        value, *options = [part for part in parts if part is not None]
        return f"({value} IN ({', '.join(options)}))" if options and None not in parts else None
    if kind != "scalar_function":
        return None
    name = names.get(node.scalar_function.function_reference, "")
    given = [_sql(argument.value, names, schema) for argument in node.scalar_function.arguments]
    arguments = [part for part in given if part is not None]
    if len(arguments) < len(given) or not arguments:
        return None
    if name in _SIGNS:
        compared = name not in ("and", "or")
        if compared and any(_is_text(argument.value, schema) for argument in node.scalar_function.arguments):
            return None
        return f"({f' {_SIGNS[name]} '.join(arguments)})"
    if name in ("is_null", "is_not_null"):
        return f"({arguments[0]} {name.upper().replace('_', ' ')})"
    return f"(NOT {arguments[0]})" if name == "not" else None


def _is_text(node: Any, schema: TableSchema) -> bool:
    """Return whether a node is a column that DuckDB compares in another way than Arrow."""
    if node.WhichOneof("rex_type") != "selection":
        return False
    reference = node.selection.direct_reference.struct_field
    return reference.HasField("child") or schema.columns[reference.field].type in _TEXTS


def _micros(value: Any) -> tuple[str, int] | None:
    """Return the type and the microseconds of a timestamp."""
    found = [field for field in UnknownFieldSet(value) if field.field_number in _TIMESTAMPS]
    if value.WhichOneof("literal_type") is not None or len(found) != 1 or not isinstance(found[0].data, int):
        return None
    number = found[0].data
    return _TIMESTAMPS[found[0].field_number], number - 2**64 if number >= 2**63 else number


def _timestamp(value: Any) -> str | None:
    known = _micros(value)
    try:
        moment = None if known is None else dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=known[1])
    except OverflowError:
        return None
    if known is None or moment is None:
        return None
    return f"{known[0].upper()} '{moment.isoformat(' ')}{'+00' if known[0] == 'timestamptz' else ''}'"


def _literal(value: Any) -> str | None:
    kind = value.WhichOneof("literal_type")
    if kind is None:
        return _timestamp(value)
    if kind in _INTEGERS:
        return f"{getattr(value, kind):d}"
    if kind == "boolean":
        return str(value.boolean).lower()
    if kind == "string":
        return literal(value.string) if "\0" not in value.string else None
    if kind == "decimal":
        unscaled = int.from_bytes(value.decimal.value, "little", signed=True)
        return f"{Decimal(unscaled).scaleb(-value.decimal.scale):f}"
    if kind == "date":
        day = value.date + _EPOCH
        known = 1 <= day <= dt.date.max.toordinal()
        return f"DATE '{dt.date.fromordinal(day)}'" if known else f"(DATE '1970-01-01' + {value.date:d})"
    return None


class _Translator:
    def __init__(self, schema: TableSchema, functions: Mapping[int, str]) -> None:
        self._schema = schema
        self._functions = functions

    def translate(self, node: Any) -> Predicate:
        kind = node.WhichOneof("rex_type")
        if kind == "singular_or_list":
            options = node.singular_or_list.options
            column = self._column(node.singular_or_list.value)
            return some(self._compare(column, "=", option) for option in options) if len(options) else ANYTHING
        if kind != "scalar_function":
            return ANYTHING
        name = self._functions.get(node.scalar_function.function_reference, "")
        arguments = [argument.value for argument in node.scalar_function.arguments]
        if name == "and":
            return every(self.translate(argument) for argument in arguments)
        if name == "or":
            return some(self.translate(argument) for argument in arguments)
        if name == "is_null" and len(arguments) == 1:
            column = self._column(arguments[0])
            # Arrow may count NaN as NULL, statistics do not
            known = column is not None and not column.nested and not column.type.startswith("float")
            return IsNull(column.id) if known and column is not None else ANYTHING
        if name in _COMPARISONS and len(arguments) == 2:
            left, right = arguments
            column = self._column(left)
            if column is not None:
                return self._compare(column, _COMPARISONS[name], right)
            return self._compare(self._column(right), FLIPPED[_COMPARISONS[name]], left)
        return ANYTHING

    def _column(self, node: Any) -> Column | None:
        if node.WhichOneof("rex_type") != "selection":
            return None
        reference = node.selection.direct_reference
        if reference.WhichOneof("reference_type") != "struct_field" or reference.struct_field.HasField("child"):
            return None
        column: Column = self._schema.columns[reference.struct_field.field]
        return column if column.id > 0 else None  # nothing is known of virtual columns

    def _compare(self, column: Column | None, operator: str, node: Any) -> Predicate:
        if column is None or column.nested or node.WhichOneof("rex_type") != "literal":
            return ANYTHING
        return compare(column, operator, _value(node.literal, column.type))


def _value(given: Any, type_: str) -> Any:
    """Return a literal as a comparable value of the column's type, or None when nothing certain can be said."""
    literal_type = given.WhichOneof("literal_type")
    kind = scalar(type_).stats
    if literal_type is None:
        known = _micros(given)
        return None if known is None or known[0] != scalar(type_).name else known[1] * 1000
    if literal_type in _INTEGERS and kind is StatsKind.INTEGER:
        return int(getattr(given, literal_type))
    if literal_type == "fp64" and type_ == "float64":
        return comparable(given.fp64, type_)
    if literal_type == "string" and kind is StatsKind.TEXT and type_ != "json":
        return comparable(given.string, type_)
    if literal_type == "date" and kind is StatsKind.DATE:
        return int(given.date) * DAY  # as a number: Python's dates end with the year 9999
    if literal_type == "decimal" and kind is StatsKind.DECIMAL:
        unscaled = int.from_bytes(given.decimal.value, "little", signed=True)
        return comparable(Decimal(unscaled).scaleb(-given.decimal.scale), type_)
    return None
