"""Random expressions in the SQL of DuckDB over a table of edge values.

They call every function that both DuckDB and Spark have, with arguments of the types it takes, and often of others.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import duckdb

__all__ = ["COLUMNS", "ROWS", "TYPES", "Expressions", "aggregates", "casts"]

ROWS = 7
"""Rows of the table; the first has NULL in each column."""
#: Columns with the values that functions stumble over.
COLUMNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "i8": ("TINYINT", ("0", "-128", "127", "1", "-1", "7")),
    "i16": ("SMALLINT", ("0", "-32768", "32767", "1", "-1", "12")),
    "i32": ("INTEGER", ("0", "-2147483648", "2147483647", "-7", "3", "10")),
    "i64": ("BIGINT", ("0", "-9223372036854775808", "9223372036854775807", "9007199254740993", "-3", "2")),
    "u8": ("UTINYINT", ("0", "255", "128", "1", "4", "2")),
    "u32": ("UINTEGER", ("0", "4294967295", "1", "2147483648", "9", "5")),
    "u64": ("UBIGINT", ("0", "18446744073709551615", "9223372036854775808", "1", "64", "3")),
    "f32": ("FLOAT", ("0.1", "-0.0", "'nan'", "'inf'", "-2.5", "3.4e38")),
    "f64": ("DOUBLE", ("0.1", "-0.0", "'nan'", "'-inf'", "2.5", "1e300")),
    "g64": ("DOUBLE", ("2.675", "0.5", "-1.5", "4503599627370497.5", "1e-300", "1e15")),
    "h64": ("DOUBLE", ("-0.5", "9007199254740993", "-9223372036854775808", "4294967295.5", "0.49999999999999994", "-7.3")),
    "d9": ("DECIMAL(9,2)", ("0", "-9999999.99", "9999999.99", "0.05", "1.25", "-2.50")),
    "d18": ("DECIMAL(18,3)", ("0.005", "-999999999999999.999", "999999999999999.999", "2.5", "-0.001", "100")),
    "d38": ("DECIMAL(38,10)", ("0", "1.0000000001", "-9999999999999999999999999999.9999999999", "2.5", "7", "0.5")),
    "bo": ("BOOLEAN", ("true", "false", "true", "false", "true", "NULL")),
    "v": ("VARCHAR", ("''", "'Äpfel ß'", "' a_b%c '", "'🦆é'", "'ǅ ŉ İstanbul'", "chr(9) || 'x\\y' || chr(160)")),
    "w": ("VARCHAR", ("'0'", "'-12'", "' 7 '", "'127'", "'10'", "'+3'")),
    "x": ("VARCHAR", ("'true'", "'F'", "'1'", "'no'", "' 0 '", "'yes'")),
    "y": ("VARCHAR", ("'a'", "'ab'", "'aXb'", "chr(10)", "'e' || chr(769)", "'%'")),
    "z": ("VARCHAR", ("'1e3'", "'1.5'", "'Infinity'", "'NaN'", "'-0'", "'2024-2-9'")),
    "da": ("DATE", ("'1970-01-01'", "'0001-01-01'", "'9999-12-31'", "'2024-02-29'", "'1582-10-10'", "'2021-01-03'")),
    "ts": ("TIMESTAMP", ("'1970-01-01 00:00:00'", "'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'",
           "'2024-02-29 12:34:56.789'", "'1969-12-31 23:59:59.999999'", "'2024-12-30 00:00:00'")),
    "tz": ("TIMESTAMPTZ", ("'1970-01-01 00:00:00+00'", "'1900-01-01 00:00:00+00'", "'2024-03-10 07:30:00+00'",
           "'2024-11-03 05:30:00+00'", "'1969-12-31 23:59:59.999999+00'", "'2024-12-30 00:00:00+00'")),
    "tm": ("TIMESTAMP_MS", ("'1970-01-01 00:00:00'", "'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999'",
           "'2024-02-29 12:34:56.789'", "'1969-12-31 23:59:59.999'", "'2024-12-30 00:00:00'")),
    "ti": ("TIME", ("'00:00:00'", "'23:59:59.999999'", "'12:00:00'", "'06:07:08.5'", "'00:00:00.000001'", "NULL")),
    "uu": ("UUID", ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'80000000-0000-4000-8000-00000000000A'",
           "'7fffffff-0000-4000-8000-00000000000b'", "'0a000000-0000-4000-8000-00000000000c'", "NULL")),
    "bl": ("BLOB", ("''", "'\\x00'", "'\\xFF\\xFE'", "'abc'", "'\\xC3\\xA9'", "NULL")),
    "li": ("INTEGER[]", ("[]", "[1, NULL]", "[NULL]", "[3, 3, 5]", "[-2147483648]", "[0]")),
    "lv": ("VARCHAR[]", ("[]", "['a', NULL]", "[NULL]", "['é', '']", "['b', 'a', 'b']", "NULL")),
    "lf": ("DOUBLE[]", ("[]", "['nan'::DOUBLE, 0.1]", "[-0.0, 0.0]", "[NULL]", "['inf'::DOUBLE]", "NULL")),
    "st": ("STRUCT(a INTEGER, b VARCHAR)", ("{'a': 1, 'b': 'x'}", "{'a': NULL, 'b': NULL}", "{'a': -1, 'b': ''}", "NULL",
           "{'a': 3, 'b': 'é'}", "{'a': 0, 'b': 'B'}")),
    "mp": ("MAP(VARCHAR, INTEGER)", ("MAP {}", "MAP {'a': 1}", "MAP {'a': NULL}", "MAP {'é': 2, 'b': 3}", "NULL", "MAP {'': 0}")),
}  # fmt: skip
TYPES = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)",
         "DECIMAL(18,3)", "DECIMAL(38,10)", "VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_MS", "UUID", "TIME", "BLOB", "JSON")  # fmt: skip
_NUMBERS = ("i8", "i16", "i32", "i64", "u8", "u32", "u64", "f32", "f64", "g64", "h64", "d9", "d18", "d38", "0", "1", "-1", "2", "2.5", "1e0",
            "-0.0::DOUBLE", "3000000000", "NULL")  # fmt: skip
_TEXTS = ("v", "w", "x", "y", "z", "'a'", "''", "'%a_'", "'é'", "'b'", "NULL", "'-1'", "'true'", "chr(0)")
_TIMES = (
    "da",
    "ts",
    "tz",
    "tm",
    "DATE '2024-01-31'",
    "TIMESTAMP '2024-01-31 10:00:00'",
    "TIMESTAMPTZ '2024-03-10 12:00:00+00'",
    "NULL",
)
_PARTS = (
    "'day'",
    "'year'",
    "'month'",
    "'week'",
    "'hour'",
    "'dow'",
    "'quarter'",
    "'isodow'",
    "'doy'",
    "'minute'",
    "'second'",
    "'epoch'",
)
#: Arguments for a parameter of each type.
_POOLS: Mapping[str, tuple[str, ...]] = {
    "TINYINT": ("i8", "1::TINYINT"), "SMALLINT": ("i16", "i8"), "INTEGER": ("i32", "i8", "0", "-1", "3"), "BIGINT": ("i64", "i32", "0", "-2", "5"),
    "UTINYINT": ("u8",), "USMALLINT": ("u8",), "UINTEGER": ("u32",), "UBIGINT": ("u64",), "HUGEINT": ("i64", "u64"),
    "FLOAT": ("f32",), "DOUBLE": ("f64", "g64", "h64", "0.5::DOUBLE"), "DECIMAL": ("d9", "d18", "d38", "2.5"),
    "BOOLEAN": ("bo", "true", "(i32 > 0)"), "VARCHAR": _TEXTS, "DATE": ("da", "DATE '2024-01-31'"), "TIMESTAMP": ("ts", "tm"),
    "TIMESTAMP WITH TIME ZONE": ("tz",), "TIME": ("ti",), "UUID": ("uu",), "BLOB": ("bl", "'a'::BLOB"), "JSON": ("'[1, 2]'::JSON", "v"),
    "INTERVAL": ("INTERVAL 1 MONTH", "INTERVAL '-36 hours'", "INTERVAL 1 DAY", "(INTERVAL 1 DAY * i8)"),
    "MAP(K, V)": ("mp",), "STRUCT": ("st",), "T[]": ("li", "lv", "lf"), "K[]": ("lv", "li"), "V[]": ("li", "lf"),
    "LAMBDA": ("lambda q: q", "lambda q: q IS NULL", "lambda q, r: q"),
}  # fmt: skip
_GROUPS: tuple[Sequence[str], ...] = (_NUMBERS, _NUMBERS, _TEXTS, _TIMES, ("bo", "true", "NULL", "x"), ("uu", "'FFFFFFFF-ffff-ffff-ffff-ffffffffffff'"),
          ("ti", "TIME '12:00:00'"), ("bl", "'abc'::BLOB"), ("li", "[1]", "[]"), ("lv", "['a']"), ("st",), ("mp",))  # fmt: skip
_OPERATORS = ("=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "//", "%", "**", "^", "&", "|", "<<", ">>", "||", "LIKE", "ILIKE", "GLOB",
              "~", "^@", "&&", "@>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "NOT LIKE", "SIMILAR TO")  # fmt: skip
_LEFT_OUT = ("now", "current_date")
"""Functions that give another value whenever they are asked."""


@dataclass(frozen=True)
class _Overload:
    parameters: tuple[str, ...]
    more: bool


class Expressions:
    """Makes expressions by chance. ``spark`` are the functions that Spark has, ``known`` those that are translated."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, chance: random.Random, spark: Iterable[str], known: Collection[str]
    ) -> None:
        self._chance = chance
        self._overloads: dict[str, list[_Overload]] = defaultdict(list)
        both = {name.lower() for name in spark} | set(known)
        rows = connection.execute(
            "SELECT lower(function_name), parameter_types, varargs IS NOT NULL FROM duckdb_functions()"
            " WHERE function_type IN ('scalar', 'macro') AND schema_name IN ('main', 'pg_catalog') ORDER BY ALL"
        ).fetchall()
        for name, parameters, more in rows:
            if name in both and name.isidentifier() and name not in _LEFT_OUT:
                self._overloads[name].append(_Overload(tuple(kind or "ANY" for kind in parameters), more))
        self._known = [name for name in self._overloads if name in known]
        self._names = list(self._overloads)

    @property
    def names(self) -> list[str]:
        """The functions that are called."""
        return self._names

    def some(self, count: int) -> list[str]:
        """Return different expressions that call each function at least once, as far as their number allows."""
        found = {self.call(name) for name in self._names[:count]}
        while len(found) < count:
            found.add(self.condition(2) if self._chance.random() < 0.2 else self.value(2))
        return sorted(found)

    def value(self, depth: int) -> str:
        """An expression of any type."""
        one, two, three = self._alike(depth)
        match self._chance.randrange(9):
            case 0 | 1 | 2:
                return self.call(self._chance.choice(self._known), depth)
            case 3:
                return self.call(self._chance.choice(self._names), depth)
            case 4 | 5:
                return f"({one} {self._chance.choice(_OPERATORS)} {two})"
            case 6:
                return f"CASE WHEN {self.condition(depth - 1)} THEN {one} ELSE {two} END"
            case 7:
                return self._chance.choice(
                    (f"coalesce({one}, {two})", f"nullif({one}, {two})", f"ifnull({one}, {two})")
                )
        return self._chance.choice((f"{one} BETWEEN {two} AND {three}", f"CAST({one} AS {self._chance.choice(TYPES)})"))

    def condition(self, depth: int) -> str:
        """A condition, with AND, OR and NOT. A text or a number may stand for one."""
        if depth <= 0:
            return self._chance.choice(("bo", "x", "i32", "(v = '')", "(da IS NULL)", "NULL", "w"))
        one, two, three = self._alike(0)
        match self._chance.randrange(8):
            case 0 | 1 | 2:
                word = self._chance.choice(("AND", "OR"))
                return f"({self.condition(depth - 1)} {word} {self.condition(depth - 1)})"
            case 3:
                return f"(NOT {self.condition(depth - 1)})"
            case 4:
                return f"({one} IS {self._chance.choice(('', 'NOT '))}NULL)"
            case 5:
                return f"({one} {self._chance.choice(('', 'NOT '))}IN ({two}, {three}))"
        operator = self._chance.choice(("=", "<>", "<", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
        return f"({one} {operator} {two})"

    def call(self, name: str, depth: int = 0) -> str:
        """A call of a function."""
        overload = self._chance.choice(self._overloads[name])
        kinds = [*overload.parameters, *(["ANY"] * self._chance.randrange(3) if overload.more else ())]
        group = self._alike(depth)
        return f"{name}({', '.join(self._argument(kind, group[i % 3], depth) for i, kind in enumerate(kinds))})"

    def _argument(self, kind: str, alike: str, depth: int) -> str:
        chance = self._chance.random()
        if chance < 0.04:
            return "NULL"
        if kind == "VARCHAR" and chance > 0.9:
            return self._chance.choice(_PARTS)
        if chance < 0.15 or kind not in _POOLS:
            return alike
        if depth > 1 and chance < 0.3:
            return self.value(depth - 1)
        return self._chance.choice(_POOLS[kind])

    def _alike(self, depth: int) -> list[str]:
        """Three arguments that go together."""
        group = self._chance.choice(_GROUPS)
        found = [self._chance.choice(group) for _ in range(3)]
        if depth > 1 and self._chance.random() < 0.3:
            found[self._chance.randrange(3)] = self.value(depth - 1)
        return found


def casts() -> list[str]:
    """Casts of every column to every type."""
    return [f"CAST({column} AS {type_})" for column in COLUMNS for type_ in TYPES]


def aggregates(names: Iterable[str]) -> list[str]:
    """Aggregates of every column."""
    calls = [f"{name}({distinct}{column})" for name in names for distinct in ("", "DISTINCT ") for column in COLUMNS]
    filtered = [f"{name}({column}) FILTER (WHERE k > 2)" for name in names for column in COLUMNS]
    return [*calls, *filtered, "count(*)", "count(*) FILTER (WHERE x AND bo)"]
