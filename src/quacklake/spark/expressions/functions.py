"""DuckDB functions and operators that have an equivalent in Spark SQL, by DuckDB's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from quacklake.extend.schemas import parse_type
from quacklake.spark.expressions.casts import (
    FLOATS,
    INTEGERS,
    STAMPS,
    TEXT,
    TEXTS,
    Maker,
    TranslatedCall,
    checked,
    failing,
    is_number,
    precision,
    type_name,
)
from quacklake.spark.runtime.types import literal

if TYPE_CHECKING:
    from quacklake.spark.expressions.translator import Node, Translator, Typed

_MAX_DIGITS = 38
_ABSOLUTE = 34  # the most digits for which Spark does not round the results of ``abs`` and ``%``
_DATED = ("date", *STAMPS)


def called(translator: Translator, node: Node, arguments: Sequence[Typed]) -> Typed:
    """Translate a function call. Raise ``UnsupportedFeatureError`` for a function that differs in Spark."""
    call = TranslatedCall(translator, node, arguments)
    maker = _MAKERS.get(call.name)
    made = maker(call) if maker is not None else None
    if made is None:
        raise translator.refusal(node)
    return translator.typed(node, made, call.type)


# -- texts -------------------------------------------------------------------------------------------------------------


def _translate_concat(call: TranslatedCall) -> str | None:
    if any(each.column.nested or each.type == "blob" for each in call.arguments):
        return None
    call.type = TEXT  # DuckDB has no type for a value that is always NULL
    return " || ".join(call.all(TEXT))


#: Letters that Spark or DuckDB turns into several, treats differently at the end of a word, or does not know yet.
_ODD: Mapping[str, str] = {
    "lower": r"\x{130}\x{3a3}\x{1c89}\x{a7cb}\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65}",
    "upper": r"\x{df}\x{149}\x{19b}\x{1f0}\x{264}\x{390}\x{3b0}\x{587}\x{1c8a}\x{1e96}-\x{1e9a}\x{1f50}-\x{1f56}"
    r"\x{1f80}-\x{1ffc}\x{a7cd}\x{a7db}\x{fb00}-\x{fb17}\x{10d70}-\x{10d85}",
}


def _case_of(word: str, value: str) -> str:
    wrong = failing(f"a text has letters whose {word} case Spark and DuckDB do not agree on")
    return f"CASE WHEN {value} RLIKE {literal(f'[{_ODD[word]}]')} THEN {wrong} ELSE {word}({value}) END"


def _make_case(word: str) -> Maker:
    return lambda call: _case_of(word, call.sql(0)) if call.are_texts() else None


def _length(call: TranslatedCall) -> str | None:
    if call.types == ["list"]:
        return f"CAST(array_size({call.sql(0)}) AS BIGINT)"
    return f"CAST(char_length({call.sql(0)}) AS BIGINT)" if call.are_texts() else None


def _part(call: TranslatedCall) -> str | None:
    """Translate ``substring`` with a start from 1. DuckDB counts positions before the first character."""
    start, length = call.number(1), call.number(2)
    if call.types[0] not in TEXTS or start is None or start < 1 or (call.count == 3 and (length is None or length < 0)):
        return None
    return f"substring({', '.join([call.sql(0), str(start), *([] if length is None else [str(length)])])})"


def _end(call: TranslatedCall) -> str | None:
    length = call.number(1)
    fits = call.types[0] in TEXTS and length is not None and length >= 0
    return f"{call.name}({call.sql(0)}, {length})" if fits else None


def _make_trim(side: str, spaces: str) -> Maker:
    """Return a translation of ``trim``, which removes every kind of space in DuckDB, or the given characters."""

    def made(call: TranslatedCall) -> str | None:
        if not call.are_texts():
            return None
        if call.count == 2:
            return f"trim({side} {call.cast(1, TEXT)} FROM {call.sql(0)})"
        return f"regexp_replace({call.sql(0)}, {literal(spaces)}, '')"

    return made


def _texts(name: str) -> Maker:
    """Return a translation for a text function that Spark has under the given name."""
    return lambda call: f"{name}({', '.join(call.all(TEXT))})" if call.are_texts() else None


def _position(call: TranslatedCall) -> str | None:
    return f"CAST(instr({', '.join(call.all(TEXT))}) AS BIGINT)" if call.are_texts() else None


def _translate_pad(call: TranslatedCall) -> str | None:
    fits = call.types[0] in TEXTS and (call.number(1) or 0) > 0 and bool(call.constant(2))
    return f"{call.name}({call.sql(0)}, {call.number(1)}, {call.sql(2)})" if fits else None


def _like(call: TranslatedCall) -> str | None:
    """Translate all forms of LIKE. DuckDB has no escape character unless one is given."""
    folded = call.name.endswith("*") or "ilike" in call.name
    pattern, escape = call.constant(1), call.constant(2) if call.count == 3 else ""
    if call.types[0] not in TEXTS or pattern is None or escape is None or (folded and not pattern.isascii()):
        return None
    said, characters = "", iter(pattern)
    for char in characters:
        if escape and char == escape:
            following = next(characters, None)
            if following is None:
                return None
            said += f"!{following}" if following in "%_!" else following
        else:
            said += "!!" if char == "!" else char
    value = _case_of("lower", call.sql(0)) if folded else call.sql(0)
    found = f"({value} LIKE {literal(said.lower() if folded else said)} ESCAPE '!')"
    return f"NOT {found}" if call.name.startswith(("!", "not_")) else found


# -- times -------------------------------------------------------------------------------------------------------------


def _days(call: TranslatedCall) -> str | None:
    """Translate a date plus or minus days, or the days between two dates."""
    if call.types == ["date", "date"] and call.name == "-":
        return f"CAST(datediff({call.sql(0)}, {call.sql(1)}) AS BIGINT)"
    order = (0, 1) if call.types[0] == "date" else (1, 0)
    date, days = (call.arguments[number] for number in order)
    if date.type != "date" or days.type not in ("int8", "int16", "int32") or (call.name == "-" and order == (1, 0)):
        return None
    return f"{'date_add' if call.name == '+' else 'date_sub'}({date.sql}, CAST({days.sql} AS INT))"


def _translate_shift(call: TranslatedCall) -> str | None:
    """Translate a time plus or minus a constant interval: first the months, then the rest."""
    order = (0, 1) if call.types[1] == "interval" else (1, 0)
    time, span = (call.arguments[number] for number in order)
    zoned = time.type == "timestamptz"
    if span.type != "interval" or not span.constant or not (zoned or time.type in _DATED):
        return None
    found = call.translator.binder.interval(span.node)
    if found is None or (zoned and (found[0] or found[1])):  # the length of a day depends on the zone
        return None
    months, days, micros = (-part if call.name == "-" else part for part in found)
    if zoned:  # Spark takes 24 hours of an interval for a day in its zone
        return f"timestamp_micros(unix_micros({time.sql}) + {micros}L)"
    value = f"CAST({time.sql} AS TIMESTAMP_NTZ)"
    value = f"({value} + make_ym_interval(0, {months}))" if months else value
    sign, left = "-" if micros < 0 else "", abs(micros)
    seconds = f"CAST({sign}{left // 1_000_000}.{left % 1_000_000:06d}BD AS DECIMAL(18,6))"
    return f"{value} + make_dt_interval({days}, 0, 0, {seconds})" if days or micros else value


_DATE_PARTS: Mapping[str, str] = {
    **{name: f"{name}({{0}})" for name in ("year", "month", "day", "quarter", "weekofyear", "dayofyear")},
    "dayofmonth": "day({0})",
    "week": "weekofyear({0})",
    "doy": "dayofyear({0})",
    **dict.fromkeys(("dayofweek", "dow", "weekday"), "(dayofweek({0}) - 1)"),
    "isodow": "(weekday({0}) + 1)",
}
_TIME_PARTS: Mapping[str, str] = {"hour": "hour({0})", "minute": "minute({0})"}


def _date_part(call: TranslatedCall) -> str | None:
    """Translate ``year(x)``, ``date_part('year', x)`` and ``extract(year FROM x)``."""
    name = call.name if call.count == 1 else (call.constant(0) or "").lower()
    form = _DATE_PARTS.get(name) or (_TIME_PARTS.get(name) if call.types[-1] in STAMPS else None)
    if form is None or call.types[-1] not in _DATED:
        return None
    return f"CAST({form.format(call.sql(call.count - 1))} AS BIGINT)"


_CLOCK = ("hour", "minute", "second")


def _translate_trunc(call: TranslatedCall) -> str | None:
    unit = (call.constant(0) or "").lower()
    if call.types[1] in STAMPS and unit in _CLOCK:
        # date_trunc of Spark would go by the time zone of the session, in which an hour may be missing
        parts = [f"{part}({call.sql(1)})" if at <= _CLOCK.index(unit) else "0" for at, part in enumerate(_CLOCK)]
        start = f"CAST(CAST({call.sql(1)} AS DATE) AS TIMESTAMP_NTZ)"
        return f"({start} + make_dt_interval(0, {', '.join(parts)}))" if call.type.type in STAMPS else None
    if call.types[1] not in _DATED or unit not in ("year", "quarter", "month", "week", "day"):
        return None
    day = f"CAST({call.sql(1)} AS DATE)"
    day = day if unit == "day" else f"trunc({day}, '{unit}')"
    return day if call.type.type == "date" else f"CAST({day} AS TIMESTAMP_NTZ)"


_MONDAY = 946_857_600_000_000
"""The microseconds from 1970 to the Monday with which the buckets of time begin, 3 January 2000."""


def _time_bucket(call: TranslatedCall) -> str | None:
    """Translate ``time_bucket(width, time)`` of widths without months; the buckets begin on a Monday, as in DuckDB."""
    span = call.translator.binder.interval(call.arguments[0].node) if call.arguments[0].constant else None
    kind = call.type.type
    if call.count != 2 or span is None or span[0] or kind not in ("timestamp", "timestamptz") or call.types[1] != kind:
        return None
    width, time = span[1] * 86_400_000_000 + span[2], call.sql(1)
    if width <= 0:
        return None
    if kind == "timestamptz":
        micros = f"unix_micros({time})"
        return f"timestamp_micros({micros} - pmod({micros} - {_MONDAY}L, {width}L))"
    # the parts of a time, because its microseconds would go by the time zone of the session
    days = f"CAST(datediff(CAST({time} AS DATE), DATE'2000-01-03') AS BIGINT)"
    clock = f"hour({time}) * 3600000000L + minute({time}) * 60000000L"
    micros = f"({days} * 86400000000L + {clock} + CAST(extract(SECOND FROM {time}) * 1000000 AS BIGINT))"
    seconds = f"CAST(CAST({micros} - pmod({micros}, {width}L) AS DECIMAL(20,0)) * 0.000001BD AS DECIMAL(18,6))"
    return f"(TIMESTAMP_NTZ'2000-01-03 00:00:00' + make_dt_interval(0, 0, 0, {seconds}))"


def _difference(call: TranslatedCall) -> str | None:
    if (call.constant(0) or "").lower() != "day" or not all(type_ in _DATED for type_ in call.types[1:]):
        return None
    return f"CAST(datediff(CAST({call.sql(2)} AS DATE), CAST({call.sql(1)} AS DATE)) AS BIGINT)"


# -- numbers -----------------------------------------------------------------------------------------------------------


def _sum(call: TranslatedCall) -> str | None:
    kinds, result = call.types, call.type.type
    if call.count == 1:
        call.translator.strict = True
        return f"{call.name} {call.sql(0)}" if is_number(result) and kinds[0] == result else None
    if all(map(is_number, kinds)):
        return _arithmetic(call)
    if result in ("date", "int64"):
        return _days(call)
    return _translate_shift(call) if result in (*STAMPS, "timestamptz") else None


def _arithmetic(call: TranslatedCall) -> str | None:
    """Translate an operation on two numbers in the type of the result. Overflow is an error in DuckDB and in Spark."""
    result = call.type.type
    if not all(map(is_number, call.types)):
        return None
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
    if needed > _MAX_DIGITS:  # Spark would drop digits
        return None
    sides = [
        f"CAST({each.sql} AS DECIMAL({digits},{scale}))"
        for each, (digits, scale) in zip(call.arguments, sizes, strict=True)
    ]
    return f"CAST({sides[0]} {call.name} {sides[1]} AS {type_name(result)})"


def _translate_division(call: TranslatedCall) -> str | None:
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
        made = _translate_division(call)
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
        return " % ".join(call.all(call.type))
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
    equal = call.translator.compared(call.arguments[0], "=", call.arguments[1])
    return None if call.type.nested else f"CASE WHEN {equal} THEN NULL ELSE {call.cast(0, call.type)} END"


# -- lists and structs -------------------------------------------------------------------------------------------------


def _list(call: TranslatedCall) -> str | None:
    if not call.arguments:
        return call.translator.empty(call.type)
    element = call.type.children[0]
    return f"array({', '.join(call.translator.shaped(each, element) for each in call.arguments)})"


def _struct(call: TranslatedCall) -> str | None:
    pairs = zip(call.arguments, call.type.children, strict=True)
    values = (f"{literal(kind.name)}, {call.translator.shaped(one, kind)}" for one, kind in pairs)
    return f"named_struct({', '.join(values)})"


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


def _is_nan(call: TranslatedCall) -> str | None:
    """Translate ``isnan``, which is NULL for NULL in DuckDB and false in Spark."""
    return f"if({call.sql(0)} IS NULL, NULL, isnan({call.sql(0)}))" if call.types[0] in FLOATS else None


_MAKERS: Mapping[str, Maker] = {
    "||": _translate_concat,
    # concat ignores NULL in DuckDB
    "concat": lambda call: f"concat_ws('', {', '.join(call.all(TEXT))})" if call.type.type == "varchar" else None,
    "concat_ws": lambda call: f"concat_ws({', '.join(call.all(TEXT))})",
    **dict.fromkeys(("lower", "lcase"), _make_case("lower")),
    **dict.fromkeys(("upper", "ucase"), _make_case("upper")),
    **dict.fromkeys(("length", "len", "char_length", "character_length", "array_length", "list_length"), _length),
    **dict.fromkeys(("substring", "substr"), _part),
    **dict.fromkeys(("left", "right"), _end),
    "trim": _make_trim("BOTH", r"^\p{Zs}+|\p{Zs}+\z"),
    "ltrim": _make_trim("LEADING", r"^\p{Zs}+"),
    "rtrim": _make_trim("TRAILING", r"\p{Zs}+\z"),
    **{name: _texts(name) for name in ("replace", "contains", "md5")},
    **dict.fromkeys(("starts_with", "prefix", "^@"), _texts("startswith")),
    **dict.fromkeys(("ends_with", "suffix"), _texts("endswith")),
    **dict.fromkeys(("instr", "strpos", "position"), _position),
    **dict.fromkeys(("lpad", "rpad"), _translate_pad),
    **dict.fromkeys(("~~", "!~~", "~~*", "!~~*"), _like),
    **dict.fromkeys(("like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape"), _like),
    **dict.fromkeys(("date_part", "datepart", *_DATE_PARTS, *_TIME_PARTS), _date_part),
    **dict.fromkeys(("date_trunc", "datetrunc"), _translate_trunc),
    "time_bucket": _time_bucket,
    **dict.fromkeys(("date_diff", "datediff"), _difference),
    "last_day": lambda call: f"last_day({call.sql(0)})" if call.types[0] in _DATED else None,
    **dict.fromkeys(("+", "-"), _sum),
    "*": _arithmetic,
    "/": _translate_division,
    "//": _whole_division,
    **dict.fromkeys(("%", "mod"), _remainder),
    "abs": _absolute,
    "isnan": _is_nan,
    "sign": _sign,
    **dict.fromkeys(("ceil", "ceiling", "floor"), _to_whole),
    "round": _round,
    **dict.fromkeys(("greatest", "least"), _extreme),
    "nullif": _null_if,
    "list_value": _list,
    "struct_pack": _struct,
    **dict.fromkeys(("list_contains", "array_contains", "list_has", "array_has"), _holds),
}
