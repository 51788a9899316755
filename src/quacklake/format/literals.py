"""Values as the text that DuckDB casts back to them: defaults and partition values are stored so."""

from __future__ import annotations

import json
import math
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from quacklake.errors import InputError
from quacklake.format.bounds import encode, encode_comparable
from quacklake.format.types import NESTED, TypeName, parse_type, scalar

_EXACT = Context(prec=80, rounding=ROUND_HALF_UP)
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"\\'\"")


def literal_text(value: Any, type: str) -> str | None:
    """Return DuckDB's text of a value of a scalar type; ``None`` for NULL.

    Dates and times may also be nanoseconds, the form of ``bounds.decode``. Raises :class:`InputError` for a value
    that is not of the type, and for types whose text only DuckDB can write: nested ones, intervals, times with a
    zone, variants and geometries.
    """
    if value is None:
        return None
    name = parse_type(type)
    try:
        text = None if name.base in NESTED else _written(value, name, scalar(type).stats.value)
    except (ArithmeticError, TypeError, ValueError):
        raise InputError(f"{value!r} is not a {name} value") from None
    if text is None:
        raise InputError(f"a value of the type {name} cannot be written as a literal")
    return text


def _written(value: Any, name: TypeName, kind: str) -> str | None:
    if kind == "integer" or name.base in ("int128", "uint128"):
        number = _kept(int(value), value)
        bits = int(name.base.lstrip("uint"))
        low, high = (0, 1 << bits) if name.base[0] == "u" else (-1 << (bits - 1), 1 << (bits - 1))
        if not low <= number < high:
            raise ValueError
        return str(number)
    match kind:
        case "text":
            if not isinstance(value, str):
                raise TypeError
            if name.base == "json":
                json.loads(value)
            return value
        case "boolean":
            if isinstance(value, str):
                value = {"true": True, "false": False}.get(value.lower())
            return "true" if _kept(bool(value), value) else "false"
        case "float" if math.isnan(float(value)):
            return "nan"
        case "decimal":
            decimal = Decimal(value if isinstance(value, int | Decimal) else str(value))
            if not decimal.is_finite():
                raise ValueError
            decimal = decimal.quantize(Decimal(1).scaleb(-(name.scale or 0)), context=_EXACT)
            if decimal.adjusted() >= (name.precision or 0) - (name.scale or 0) and decimal:
                raise InvalidOperation
            # A negative value that rounds to nothing is plain zero.
            value = decimal if decimal else abs(decimal)
        case "blob":
            if isinstance(value, str | int):
                raise TypeError
            return "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02X}" for byte in bytes(value))
        case "date" | "time" | "timestamp" if isinstance(value, int) and not isinstance(value, bool):
            return str(encode_comparable(value, str(name)))
        case "none" | "geometry" | "variant":
            return None
    return str(encode(value, str(name)))


def _kept(converted: Any, value: Any) -> Any:
    """Return the converted value, when the conversion lost nothing."""
    if not isinstance(value, str) and converted != value:
        raise ValueError
    return converted
