"""DuckDB functions and operators that have an equivalent in Spark SQL, by DuckDB's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from quacklake.format.types import parse_type
from quacklake.spark.expressions.casts import FLOATS, INTEGERS, STAMPS, checked, is_number, precision, type_name
from quacklake.spark.expressions.function_calls import Maker, TranslatedCall
from quacklake.spark.expressions.texts import OF_TEXTS
from quacklake.spark.expressions.times import OF_TIMES, days, shifted
from quacklake.spark.runtime.types import literal

if TYPE_CHECKING:
    from quacklake.engines.duckdb.trees import Node
    from quacklake.spark.expressions.translator import Translator, Typed

_MOST_DIGITS = 38
_ABSOLUTE = 34
"""The most digits for which Spark does not round the results of ``abs`` and ``%``."""


def called(translator: Translator, node: Node, arguments: Sequence[Typed]) -> Typed:
    """Translate a function call. Raises ``UnsupportedFeatureError`` for a function that differs in Spark."""
    call = TranslatedCall(translator, node, arguments)
    name = node["function_name"].lower()
    maker = _MAKERS.get(name)
    made = maker(call) if maker is not None else None
    if made is None:
        raise translator.refusal(node)
    return translator.typed(node, made, call.type)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _sum(call: TranslatedCall) -> str | None:
    """Translate ``+`` and ``-`` of numbers, dates and times."""
    kinds, result = call.types, call.type.type
    if call.count == 1:
        call.translator.strict = True
        return f"{call.name} {call.sql(0)}" if is_number(result) and kinds[0] == result else None
    if all(map(is_number, kinds)):
        return _arithmetic(call)
    if result in ("date", "int64"):
        return days(call)
    return shifted(call) if result in (*STAMPS, "timestamptz") else None


def _arithmetic(call: TranslatedCall) -> str | None:
    """Translate an operation on two numbers in the type of the result. Overflow is an error in DuckDB and in Spark."""
    result = call.type.type
    call.translator.strict = True
    if result in INTEGERS and not all(type_ in INTEGERS for type_ in call.types):
        return None  # one argument is a NULL without a type
    if result in INTEGERS or result in FLOATS:
        one, two = call.all(call.type)
        made = f"({one} {call.name} {two})"
        return checked(made, result) if result.startswith("u") else made
    if parse_type(result).base != "decimal" or any(type_ in FLOATS for type_ in call.types):
        return None
    sizes = [precision(type_) for type_ in call.types]
    (left, behind), (right, after) = sizes
    needed = left + right + 1 if call.name == "*" else max(behind, after) + max(left - behind, right - after) + 1
    if needed > _MOST_DIGITS:  # Spark would drop digits
        return None
    sides = [
        f"CAST({each.sql} AS DECIMAL({digits},{scale}))"
        for each, (digits, scale) in zip(call.arguments, sizes, strict=True)
    ]
    return f"CAST({sides[0]} {call.name} {sides[1]} AS {type_name(result)})"


def _product(call: TranslatedCall) -> str | None:
    return _arithmetic(call) if all(map(is_number, call.types)) else None


def _divided(call: TranslatedCall) -> str | None:
    """Translate ``/``, which gives infinity or NaN for a division by zero."""
    result = call.type.type
    if not all(map(is_number, call.types)) or result not in FLOATS:
        return None
    one, two = call.all(call.type)
    made = f"{one} / {two}" if result == "float64" else f"CAST({one} / {two} AS FLOAT)"
    divisor = call.constant(1)
    if divisor is not None and float(divisor) != 0:
        return made
    negative, type_ = f"CAST({two} AS STRING) = '-0.0'", type_name(result)
    return (
        f"CASE WHEN {one} IS NULL OR {two} IS NULL THEN NULL WHEN {two} <> 0 THEN {made}"
        f" WHEN {one} = 0 OR isnan({one}) THEN {type_}('NaN')"
        f" WHEN ({one} > 0) = ({negative}) THEN {type_}('-Infinity') ELSE {type_}('Infinity') END"
    )


def _whole_division(call: TranslatedCall) -> str | None:
    """Translate ``//``, which gives NULL for a division by zero, also for floats, which it divides unchanged."""
    if call.type.type in FLOATS:
        made = _divided(call)
        return None if made is None else f"CASE WHEN {call.all(call.type)[1]} <> 0 THEN {made} END"
    if call.type.type not in INTEGERS or not all(type_ in INTEGERS for type_ in call.types):
        return None
    one, two = call.all(call.type)
    call.translator.strict = True
    made = f"CAST({one} DIV {two} AS {type_name(call.type.type)})"
    return made if call.number(1) else f"CASE WHEN {two} <> 0 THEN {made} END"


def _remainder(call: TranslatedCall) -> str | None:
    """Translate ``%``. Division by zero gives NULL for whole numbers and decimals, NaN for floats."""
    result = call.type.type
    if not all(map(is_number, call.types)):
        return None
    if result in INTEGERS:
        one, two = call.all(call.type)
        return f"{one} % {two}" if call.number(1) else f"CASE WHEN {two} <> 0 THEN {one} % {two} END"
    divisor = call.constant(1)
    if divisor is None or float(divisor) == 0:
        return None
    if result in FLOATS:
        one, two = call.all(call.type)
        return f"{one} % {two}"
    if parse_type(result).base != "decimal" or any(type_ in FLOATS or not _exact(type_) for type_ in call.types):
        return None
    return f"CAST({call.sql(0)} % {call.sql(1)} AS {type_name(result)})"


def _exact(type_: str) -> bool:
    return precision(type_)[0] <= _ABSOLUTE


def _absolute(call: TranslatedCall) -> str | None:
    call.translator.strict = True
    fits = is_number(call.types[0]) and (call.types[0] in FLOATS or _exact(call.types[0]))
    return f"abs({call.sql(0)})" if fits else None


def _sign(call: TranslatedCall) -> str | None:
    return f"CAST(sign({call.sql(0)}) AS TINYINT)" if is_number(call.types[0]) and call.types[0] not in FLOATS else None


def _to_whole(call: TranslatedCall) -> str | None:
    """Translate ``ceil`` and ``floor``. In DuckDB they keep the argument's type, but whole numbers give doubles."""
    kind, value, word = call.types[0], call.sql(0), call.name.removesuffix("ing")
    if kind in INTEGERS:
        return call.cast(0, call.type)
    if kind == "float64":  # larger numbers are whole; Spark returns a bigint, which has no -0
        return (
            f"CASE WHEN abs({value}) >= 4503599627370496D THEN {value} WHEN {word}({value}) = 0 THEN {value} * 0D"
            f" ELSE CAST({word}({value}) AS DOUBLE) END"
        )
    return f"CAST({word}({value}) AS {type_name(call.type.type)})" if parse_type(kind).base == "decimal" else None


def _round(call: TranslatedCall) -> str | None:
    kind, value = call.types[0], call.sql(0)
    digits = 0 if call.count == 1 else call.number(1)
    if digits is None or not 0 <= digits <= 15:
        return None
    if kind == "float64":
        # as in DuckDB; Spark would round by the decimal digits of the number
        return f"round({value})" if digits == 0 else f"round({value} * 1e{digits}D) / 1e{digits}D"
    if parse_type(kind).base == "decimal":
        return f"CAST(round({value}, {digits}) AS {type_name(call.type.type)})"
    return value if kind in INTEGERS and call.type.type == kind else None


def _extreme(call: TranslatedCall) -> str | None:
    """Translate ``greatest`` and ``least``, which ignore NULL on both sides."""
    known = is_number(call.type.type) or call.type.type in ("varchar", "date", "timestamp")
    return f"{call.name}({', '.join(call.all(call.type))})" if known and call.count > 1 else None


def _null_if(call: TranslatedCall) -> str | None:
    one, two = call.arguments
    equal = call.translator.compared(one, "=", two)
    return None if call.type.nested else f"CASE WHEN {equal} THEN NULL ELSE {call.cast(0, call.type)} END"


# -- lists and structs -------------------------------------------------------------------------------------------------


def _list(call: TranslatedCall) -> str | None:
    if not call.arguments:
        return call.translator.empty(call.type)
    element = call.type.children[0]
    return f"array({', '.join(call.translator.shaped(each, element) for each in call.arguments)})"


def _struct(call: TranslatedCall) -> str | None:
    names = [child.name for child in call.type.children]
    pairs = zip(names, call.arguments, call.type.children, strict=True)
    values = ((name, call.translator.shaped(one, kind)) for name, one, kind in pairs)
    return f"named_struct({', '.join(f'{literal(name)}, {value}' for name, value in values)})"


def _holds(call: TranslatedCall) -> str | None:
    """Translate the test whether a list has an element. DuckDB ignores NULLs in the list."""
    if call.types[0] != "list" or (call.arguments[1].loose and call.constant(1) is None):
        return None
    element = call.arguments[0].column.children[0]
    if element.nested or not (is_number(element.type) or element.type in ("varchar", "date", "boolean")):
        return None
    whole = element.type in INTEGERS and call.number(1) is not None
    if not (whole or call.arguments[1].loose or call.types[1] == element.type):  # otherwise DuckDB casts the list
        return None
    wanted = call.cast(1, element)
    found = f"coalesce(array_contains({call.sql(0)}, {wanted}), false)"
    return f"CASE WHEN {call.sql(0)} IS NOT NULL AND {wanted} IS NOT NULL THEN {found} END"


_MAKERS: Mapping[str, Maker] = {
    **OF_TEXTS,
    **OF_TIMES,
    "+": _sum,
    "-": _sum,
    "*": _product,
    "/": _divided,
    "//": _whole_division,
    "%": _remainder,
    "mod": _remainder,
    "abs": _absolute,
    "sign": _sign,
    **dict.fromkeys(("ceil", "ceiling", "floor"), _to_whole),
    "round": _round,
    **dict.fromkeys(("greatest", "least"), _extreme),
    "nullif": _null_if,
    "list_value": _list,
    "struct_pack": _struct,
    **dict.fromkeys(("list_contains", "array_contains", "list_has", "array_has"), _holds),
}
