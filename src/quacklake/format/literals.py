"""Values as the text that DuckDB casts back to them: defaults and partition values are stored so."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from quacklake.errors import InputError
from quacklake.format.bounds import encode, encode_comparable
from quacklake.format.types import NESTED, StatsKind, TypeName, parse_type, scalar

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
    huge = name.base in ("int128", "uint128")
    write = None if name.base in NESTED else _WRITERS.get(StatsKind.INTEGER if huge else scalar(type).stats)
    if write is None:
        raise InputError(f"a value of the type {name} cannot be written as a literal")
    try:
        return write(value, name)
    except (ArithmeticError, TypeError, ValueError):
        raise InputError(f"{value!r} is not a {name} value") from None


def _boolean(value: Any, name: TypeName) -> str:
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower())
    return "true" if _kept(bool(value), value) else "false"


def _integer(value: Any, name: TypeName) -> str:
    number = _kept(int(value), value)
    bits = int(name.base.lstrip("uint"))
    low, high = (0, 1 << bits) if name.base[0] == "u" else (-1 << (bits - 1), 1 << (bits - 1))
    if not low <= number < high:
        raise ValueError
    return str(number)


def _kept(converted: Any, value: Any) -> Any:
    """Return the converted value, when the conversion lost nothing."""
    if not isinstance(value, str) and converted != value:
        raise ValueError
    return converted


def _float(value: Any, name: TypeName) -> str:
    return "nan" if math.isnan(float(value)) else str(encode(value, str(name)))


def _decimal(value: Any, name: TypeName) -> str:
    number = Decimal(value if isinstance(value, int | Decimal) else str(value))
    if not number.is_finite():
        raise ValueError
    rounded = number.quantize(Decimal(1).scaleb(-(name.scale or 0)), context=_EXACT)
    if rounded.adjusted() >= (name.precision or 0) - (name.scale or 0) and rounded:
        raise InvalidOperation
    # A negative value that rounds to nothing is plain zero.
    return str(encode(rounded if rounded else abs(rounded), str(name)))


def _text(value: Any, name: TypeName) -> str:
    if not isinstance(value, str):
        raise TypeError
    if name.base == "json":
        json.loads(value)
    return value


def _blob(value: Any, name: TypeName) -> str:
    if isinstance(value, str | int):
        raise TypeError
    return "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02X}" for byte in bytes(value))


def _temporal(value: Any, name: TypeName) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(encode_comparable(value, str(name)))
    return str(encode(value, str(name)))


_WRITERS: Mapping[StatsKind, Callable[[Any, TypeName], str]] = {
    StatsKind.BOOLEAN: _boolean,
    StatsKind.INTEGER: _integer,
    StatsKind.FLOAT: _float,
    StatsKind.DECIMAL: _decimal,
    StatsKind.TEXT: _text,
    StatsKind.BLOB: _blob,
    StatsKind.UUID: lambda value, name: str(encode(value, str(name))),
    **dict.fromkeys((StatsKind.DATE, StatsKind.TIME, StatsKind.TIMESTAMP), _temporal),
}
