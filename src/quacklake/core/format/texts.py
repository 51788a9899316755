"""Types as DuckDB writes them, ``STRUCT(a INTEGER, b VARCHAR[])``, and values as it casts them back.

DuckDB's own parser of types needs a database, takes types that the format has not, and lacks the format's names.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from quacklake.core.format.bounds import encode, encode_comparable
from quacklake.core.format.names import fold
from quacklake.core.format.schema import Column
from quacklake.core.format.types import ALIASES, NESTED, SCALARS, TypeName, parse_type, scalar
from quacklake.errors import InputError, nearest

_TOKEN = re.compile(r'\s*(?:"((?:[^"]|"")+)"|(\w+)|([(),\[\]]))')
_MAX_DEPTH = 64


def parse_column(name: str, text: str) -> Column:
    """Return a column of the type that ``text`` names, without ids. Raise ``InputError`` for anything else.

    The format's own names (``int32``) are understood too, but for ``int8``, which in DuckDB has eight bytes.
    """
    parser = _Parser(text)
    column = parser.type(name, 0)
    if parser.at != len(parser.tokens):
        raise parser.error()
    return column


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self.tokens: list[tuple[str, bool]] = []
        position, stripped = 0, text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                raise self.error()
            quoted = match[1] is not None
            self.tokens.append((match[1].replace('""', '"') if quoted else match[2] or match[3], quoted))
            position = match.end()
        self.at = 0

    def error(self) -> InputError:
        return _unsupported_type_error(self._text, "write it as DuckDB does: INTEGER, STRUCT(a INTEGER)[]")

    def _peek(self) -> str | None:
        if self.at < len(self.tokens) and not self.tokens[self.at][1]:
            return self.tokens[self.at][0].lower()
        return None

    def _take(self, *wanted: str) -> bool:
        if self._peek() in wanted:
            self.at += 1
            return True
        return False

    def _need(self, wanted: str) -> None:
        if not self._take(wanted):
            raise self.error()

    def _name(self) -> str:
        if self.at == len(self.tokens):
            raise self.error()
        name, quoted = self.tokens[self.at]
        if not quoted and not name[0].isidentifier():
            raise self.error()
        self.at += 1
        return name

    def type(self, name: str, depth: int) -> Column:
        if depth > _MAX_DEPTH:
            raise InputError("the type is nested too deeply")
        word = self._name().lower()
        if word in ("struct", "row"):
            self._need("(")
            fields: list[Column] = []
            while not fields or self._take(","):
                field = self._name()
                if fold(field) in {fold(other.name) for other in fields}:
                    raise InputError(f'Duplicate child name found in column "{name}"')
                fields.append(self.type(field, depth + 1))
            self._need(")")
            column = Column(0, name, "struct", children=tuple(fields))
        elif word == "map":
            self._need("(")
            key = self.type("key", depth + 1)
            self._need(",")
            value = self.type("value", depth + 1)
            self._need(")")
            column = Column(0, name, "map", children=(key, value))
        else:
            column = Column(0, name, self._scalar(word))
        while self._take("["):
            self._need("]")
            column = Column(0, name, "list", children=(replace(column, name="element"),))
        return column

    def _scalar(self, word: str) -> str:
        if word == "double" and self._take("precision"):
            word = "double precision"
        if word in ("time", "timestamp") and (zone := self._peek()) in ("with", "without"):
            for part in (str(zone), "time", "zone"):
                self._need(part)
                word += f" {part}"
        if word in ("int8", *NESTED):
            hint = "write TINYINT or BIGINT" if word == "int8" else "write INTEGER[]"
            raise InputError(f"the type {word} means different things", hint=hint)
        found = ALIASES.get(word, word)
        if found == "decimal" and self._take("("):
            width = self._number()
            scale = self._number() if self._take(",") else "0"
            self._need(")")
            found = f"decimal({width},{scale})"
        elif found == "varchar" and self._take("("):
            self._number()  # DuckDB takes no notice of it either
            self._need(")")
        elif found not in SCALARS or found == "unknown":
            known = (*ALIASES, *(name for name in SCALARS if name != "unknown"), "struct", "map")
            raise _unsupported_type_error(word.upper(), nearest(word, known))
        return str(parse_type(found))

    def _number(self) -> str:
        token = self._peek()
        if token is None or not token.isdigit():
            raise self.error()
        self.at += 1
        return token


def _unsupported_type_error(text: str, hint: str | None) -> InputError:
    """Return the error of a type that the format does not have."""
    kind = text.upper()
    if kind.startswith("ENUM"):
        hint = "use VARCHAR: its values are written with a dictionary, too"
    elif re.search(r"\[\s*[0-9]+\s*\]", text):
        hint = "use a list, INTEGER[], which takes arrays of any length"
    return InputError(f"Failed to convert DuckDB type to DuckLake - unsupported type {text}", hint=hint)


_EXACT = Context(prec=80, rounding=ROUND_HALF_UP)
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"\\'\"")


def literal_text(value: Any, type: str) -> str | None:
    """Return DuckDB's text of a scalar value; ``None`` for NULL. Dates and times may also be nanoseconds.

    Raise ``InputError`` for a value that is not of the type, and for types whose text only DuckDB can write.
    """
    if value is None:
        return None
    name = parse_type(type)
    try:
        text = None if name.base in NESTED else _write_value(value, name, scalar(type).stats.value)
    except (ArithmeticError, TypeError, ValueError):
        raise InputError(f"{value!r} is not a {name} value") from None
    if text is None:
        raise InputError(f"a value of the type {name} cannot be written as a literal")
    return text


def _write_value(value: Any, name: TypeName, kind: str) -> str | None:
    if kind == "integer" or name.base in ("int128", "uint128"):
        number = _require_lossless(int(value), value)
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
            return "true" if _require_lossless(bool(value), value) else "false"
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


def _require_lossless(converted: Any, value: Any) -> Any:
    """Return the converted value, when the conversion lost nothing."""
    if not isinstance(value, str) and converted != value:
        raise ValueError
    return converted
