"""Random types and hostile values for them, as SQL."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

__all__ = ["Type", "random_type", "random_value"]

_TEXTS = (
    "", " ", "NULL", "null", "a", "A", "]", "[", "}", "{", ")", "(", "a,b", "a, b", "'", '"', "\\", "\\'", "\\n", "\n",
    "=", ":", "a=b", "é", "\U0001f600", "[a", "b]", "', '", "{'a': 1}", "[]", "x'y", "%", "\t", " lead", "trail ",
    "\u202e", "true", "0", "-0.0", "nan",
)  # fmt: skip
_NUMBERS = ("0", "'-0.0'", "'nan'", "'inf'", "'-inf'", "1.5", "-1.5", "'5e-324'", "'1.7976931348623157e308'", "0.1")
_SMALL = ("0", "'-0.0'", "'nan'", "'inf'", "1.5", "'1e-45'", "'3.4028235e38'", "0.1")


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


LEAVES: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127", "0"),
    "INTEGER": ("-2147483648", "2147483647", "0"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "0"),
    "UBIGINT": ("18446744073709551615", "0"),
    "HUGEINT": ("-170141183460469231731687303715884105728", "36893488147419103233", "7", "-9007199254740992"),
    "UHUGEINT": ("340282366920938463463374607431768211455", "0", "5"),
    "FLOAT": _SMALL,
    "DOUBLE": _NUMBERS,
    "DECIMAL(9,2)": ("-9999999.99", "0.00", "0.01"),
    "DECIMAL(38,10)": ("9999999999999999999999999999.9999999999", "-0.0000000001", "0"),
    "VARCHAR": (*map(_text, _TEXTS), "'a' || chr(0) || 'b'", "chr(0)"),
    "JSON": ("'{\"a\": [1, null]}'", "'null'", "'\"x]\"'", "'[]'", "'1.0'", "'{}'", "'\"\\u0000\"'", "' true '"),
    "BLOB": ("''", "'\\x00'", "'\\x27\\x5C'", "'abc'", "'\\xFF]'", "','"),
    "UUID": ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    "DATE": ("'infinity'", "'-infinity'", "'0044-03-15 (BC)'", "'9999-12-31'", "'5877642-06-25 (BC)'"),
    "TIME": ("'00:00:00'", "'23:59:59.999999'", "'24:00:00'"),
    "TIMETZ": ("'12:34:56.789+00'", "'00:00:00+00'", "'24:00:00+00'", "'12:34:56.789+05:30'", "'00:00:00-15:59:59'"),
    "TIMESTAMP": ("'infinity'", "'290309-12-22 (BC) 00:00:00'", "'2000-01-01 00:00:00.000001'"),
    "TIMESTAMP_S": ("'2000-01-01 00:00:01'", "'infinity'"),
    "TIMESTAMP_MS": ("'2000-01-01 00:00:00.001'", "'-infinity'"),
    "TIMESTAMP_NS": ("'2000-01-01 00:00:00.000000001'", "'1677-09-22 00:00:00'"),
    "TIMESTAMPTZ": ("'infinity'", "'0044-03-15 (BC) 12:00:00+00'", "'2000-01-01 00:00:00.000001+00'"),
    "INTERVAL": ("'1 month'", "'30 days'", "'-1 month 3 days'", "'00:00:00.000001'", "'1 year -3 days -25 hours'", "'1 s'"),
    "VARIANT": ("42::VARIANT", "'x'::VARIANT", "{'a': [1, NULL]}::VARIANT", "'-0.0'::DOUBLE::VARIANT", "0.0::DOUBLE::VARIANT"),
}  # fmt: skip
_KEYS = ("VARCHAR", "INTEGER", "DOUBLE", "DATE", "BLOB")
_NAMES = ("a", "b c", "d'e", "F", "g,h", "i:j", "{k", "l]")


@dataclass(frozen=True)
class Type:
    """A type, with the types inside of it."""

    kind: str
    inside: tuple[Type, ...] = ()
    names: tuple[str, ...] = field(default=())

    @property
    def sql(self) -> str:
        """The type as SQL names it."""
        match self.kind:
            case "LIST":
                return f"{self.inside[0].sql}[]"
            case "MAP":
                return f"MAP({self.inside[0].sql}, {self.inside[1].sql})"
            case "STRUCT":
                quoted = (name.replace('"', '""') for name in self.names)
                fields = (f'"{name}" {type_.sql}' for name, type_ in zip(quoted, self.inside, strict=True))
                return f"STRUCT({', '.join(fields)})"
        return self.kind

    @property
    def leaves(self) -> set[str]:
        """The simple types inside, or the type itself."""
        return {leaf for type_ in self.inside for leaf in type_.leaves} if self.inside else {self.kind}


def random_type(draw: random.Random, depth: int = 0, *, leaves: tuple[str, ...] = tuple(LEAVES)) -> Type:
    """Return a type of at most three levels; texts and floating-point numbers come more often than others."""
    nested = draw.random() < (0.75, 0.5, 0.3, 0)[depth]
    if not nested:
        often = ("VARCHAR", "DOUBLE", "JSON", "FLOAT")
        names = [name for name in often if name in leaves] if draw.random() < 0.5 else list(leaves)
        names = [name for name in names if depth == 0 or name != "VARIANT"]
        return Type(draw.choice(names or ["VARCHAR"]))
    kind = draw.choice(("LIST", "LIST", "STRUCT", "MAP"))
    if kind == "LIST":
        return Type(kind, (random_type(draw, depth + 1, leaves=leaves),))
    if kind == "MAP":
        return Type(kind, (Type(draw.choice(_KEYS)), random_type(draw, depth + 1, leaves=leaves)))
    count = draw.randrange(1, 4)
    inside = tuple(random_type(draw, depth + 1, leaves=leaves) for _ in range(count))
    return Type(kind, inside, tuple(draw.sample(_NAMES, count)))


def random_value(draw: random.Random, type_: Type, *, null: bool = True) -> str:
    """Return the SQL of a value of a type, with NULL at every level."""
    if null and draw.random() < 0.15:
        return f"NULL::{type_.sql}"
    match type_.kind:
        case "LIST":
            items = [random_value(draw, type_.inside[0]) for _ in range(draw.choice((0, 1, 1, 2, 3)))]
            return f"[{', '.join(items)}]::{type_.sql}"
        case "MAP":
            keys = {random_value(draw, type_.inside[0], null=False) for _ in range(draw.choice((0, 1, 1, 2)))}
            if "('-0.0')::DOUBLE" in keys:
                keys.discard("(0)::DOUBLE")  # equal keys are refused
            ordered = sorted(keys)
            values = [random_value(draw, type_.inside[1]) for _ in ordered]
            return f"MAP([{', '.join(ordered)}], [{', '.join(values)}])::{type_.sql}"
        case "STRUCT":
            pairs = zip(type_.names, type_.inside, strict=True)
            fields = (f'"{name}" := {random_value(draw, inside)}' for name, inside in pairs)
            return f"struct_pack({', '.join(fields)})::{type_.sql}"
    value = draw.choice(LEAVES[type_.kind])
    return value if type_.kind == "VARIANT" else f"({value})::{type_.kind}"
