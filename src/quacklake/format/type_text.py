"""Types as DuckDB writes them: ``INTEGER``, ``DECIMAL(10,2)``, ``STRUCT(a INTEGER, b VARCHAR[])``.

DuckDB's own parser of types (``duckdb.sqltype``) needs a database, takes types that the format has not, and does not
know the format's names.
"""

from __future__ import annotations

import re
from dataclasses import replace

from quacklake.errors import InputError, nearest
from quacklake.format.names import fold
from quacklake.format.schema import Column
from quacklake.format.types import NESTED, SCALARS, parse_type

_TOKEN = re.compile(r'\s*(?:"((?:[^"]|"")+)"|(\w+)|([(),\[\]]))')
_MAX_DEPTH = 64
_ALIASES = {
    "bigint": "int64", "bool": "boolean", "bytea": "blob", "char": "varchar", "datetime": "timestamp",
    "double": "float64", "double precision": "float64", "float": "float32", "float4": "float32",
    "float8": "float64", "hugeint": "int128", "int": "int32", "int1": "int8", "int2": "int16", "int4": "int32",
    "integer": "int32", "long": "int64", "numeric": "decimal", "real": "float32", "short": "int16",
    "signed": "int32", "smallint": "int16", "string": "varchar", "text": "varchar",
    "time with time zone": "timetz", "time without time zone": "time",
    "timestamp with time zone": "timestamptz", "timestamp without time zone": "timestamp", "tinyint": "int8",
    "ubigint": "uint64", "uhugeint": "uint128", "uinteger": "uint32", "usmallint": "uint16",
    "utinyint": "uint8", "varbinary": "blob",
}  # fmt: skip


def parse_column(name: str, text: str) -> Column:
    """Return a column of the type that ``text`` names, without ids. Raises :class:`InputError` for anything else.

    The format's own names (``int32``, ``float64``) are understood too, but for ``int8``, which is a byte in the
    format and eight of them in DuckDB.
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
        return _unsupported(self._text, "write it as DuckDB does: INTEGER, STRUCT(a INTEGER)[]")

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
        found = _ALIASES.get(word, word)
        if found == "decimal" and self._take("("):
            width = self._number()
            scale = self._number() if self._take(",") else "0"
            self._need(")")
            found = f"decimal({width},{scale})"
        elif found == "varchar" and self._take("("):
            self._number()  # DuckDB takes no notice of it either
            self._need(")")
        elif found not in SCALARS or found == "unknown":
            known = (*_ALIASES, *(name for name in SCALARS if name != "unknown"), "struct", "map")
            raise _unsupported(word.upper(), nearest(word, known))
        return str(parse_type(found))

    def _number(self) -> str:
        token = self._peek()
        if token is None or not token.isdigit():
            raise self.error()
        self.at += 1
        return token


def _unsupported(text: str, hint: str | None) -> InputError:
    """Return the error of a type that the format does not have."""
    kind = text.upper()
    if kind.startswith("ENUM"):
        hint = "use VARCHAR: its values are written with a dictionary, too"
    elif re.search(r"\[\s*[0-9]+\s*\]", text):
        hint = "use a list, INTEGER[], which takes arrays of any length"
    return InputError(f"Failed to convert DuckDB type to DuckLake - unsupported type {text}", hint=hint)
