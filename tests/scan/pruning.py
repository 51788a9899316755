"""A table that is hard to prune: several files of odd values in every type, and the same rows in plain DuckDB."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

__all__ = ["FILES", "POOLS", "TYPES", "filters", "judge", "tables"]

FILES = 14
_DAY = 86_400_000_000

_TEXTS = [
    "",
    " ",
    "  ",
    "a",
    "a ",
    "a\t",
    "a\x01",
    "A",
    "b",
    "Z",
    "z",
    "ä",
    "ß",
    "é",
    "e\u0301",
    "ﬀ",
    "日本",
    "🦆",
    "\x01",
    "~",
    "\x7f",
    "\x80",
    "\ue000",
    "\uffff",
    "\U00010000",
    "a" * 300,
    "a" * 256 + "b",
    "😀" * 80,
    "0",
    "10",
    "9",
    "-1",
    "nan",
    "2024-01-01",
    "%",
    "_",
    "\\",
    "it's",
]
_DAYS = [-1_000_000, -719_893, -719_162, -1, 0, 1, 19_782, 2_932_896, 2_932_897, 5_000_000]
_MICROS = [
    -70_000_000_000_000_000,
    -62_135_596_800_000_000,
    -1,
    0,
    1,
    500_000,
    1_700_000_000_000_000,
    1_700_000_000_100_000,
    1_700_000_000_123_456,
    253_402_300_799_999_999,
    253_402_300_800_000_000,
    300_000_000_000_000_000,
]

#: Column -> (Arrow type, odd values).
POOLS: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 9, 10, 127]),
    "i64": (pa.int64(), [-(2**63), -(10**18), -10, -9, -1, 0, 1, 9, 10, 99, 100, 2**53 + 1, 10**18, 2**63 - 1]),
    "u64": (pa.uint64(), [0, 9, 10, 2**63 - 1, 2**63, 2**64 - 1]),
    "f64": (
        pa.float64(),
        [-math.inf, -1e308, -1.5, 0.0, 5e-324, 0.1, 1 / 3, 1.0, 9.0, 10.0, 1e16, 1e22, 1e308, math.inf, math.nan],
    ),
    "f32": (pa.float32(), [-math.inf, -1.5, 0.0, 1e-45, 0.1, 1 / 3, 16777217.0, 1e10, 3e38, math.inf, math.nan]),
    "d18": (
        pa.decimal128(18, 3),
        [Decimal(x) for x in ("-999999999999999.999", "-1.5", "-0.001", "0", "0.1", "9", "10")],
    ),
    "d38": (pa.decimal128(38, 10), [Decimal(x) for x in ("-12345678901234567890.1", "0", "0.0000000001", "9" * 28)]),
    "s": (pa.string(), _TEXTS),
    "d": (pa.date32(), _DAYS),
    "ts": (pa.timestamp("us"), _MICROS),
    "tz": (pa.timestamp("us", "UTC"), _MICROS),
    "ns": (pa.timestamp("ns"), [-1, 0, 1, 1_700_000_000_123_456_789, 1_700_000_000_000_000_000]),
    "sec": (pa.timestamp("s"), [-1, 0, 1_700_000_000, 253_402_300_800]),
    "b": (pa.bool_(), [True, False]),
    "bin": (pa.binary(), [b"", b"\x00", b"a", b"\xff", b"00"]),
    "t": (pa.time64("us"), [0, 1, _DAY - 1]),
}
TYPES = {name: type_ for name, (type_, _) in POOLS.items()}


def tables(seed: int) -> list[pa.Table]:
    """The rows of each file: in each column one to three values of its pool, some of them NULL."""
    chance = random.Random(seed)
    found = []
    for number in range(FILES):
        rows = 12
        columns = {}
        for name, (type_, pool) in POOLS.items():
            values: list[Any] = chance.sample(list(pool), k=min(len(pool), chance.randint(1, 3)))
            if chance.random() < 0.3:
                values.append(None)
            if number == 0 and chance.random() < 0.5:
                values = [None]
            columns[name] = _array([chance.choice(values) for _ in range(rows)], type_)
        found.append(pa.table(columns))
    return found


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_date(type_):
        return pa.array(values, pa.int32()).cast(type_)  # beyond the years that Python knows
    if pa.types.is_temporal(type_):
        return pa.array(values, pa.int64()).cast(type_)
    return pa.array(values, type_)


def judge(batches: Sequence[pa.Table]) -> duckdb.DuckDBPyConnection:
    """Plain DuckDB with all rows in ``truth``, each with the number of its ``file``."""
    connection = duckdb.connect(config={"threads": 1, "autoload_known_extensions": False})
    for number, batch in enumerate(batches):
        connection.register("batch", batch)
        create = "INSERT INTO truth" if number else "CREATE TABLE truth AS"
        connection.execute(f"{create} SELECT *, {number} AS file FROM batch")
    connection.unregister("batch")
    return connection


# -- filters ------------------------------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"'{value}'::DOUBLE" if math.isnan(value) or math.isinf(value) else repr(value)
    return str(value)


def _temporal(name: str, value: int) -> list[str]:
    try:
        if name == "d":
            text = (dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat()
            return [_quoted(text), f"DATE {_quoted(text)}"]
        scale = {"ns": 0.001, "sec": 1_000_000}.get(name, 1)
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=int(value * scale))
    except OverflowError:
        if name == "d":
            return [f"(DATE '1970-01-01' + {value})"]
        return ["TIMESTAMP '20000-01-01 00:00:00'", "'20000-01-01 00:00:00'", "'10000-01-01'", "'0044-03-15 (BC)'"]
    texts = [str(moment), moment.date().isoformat(), moment.isoformat(timespec="microseconds")]
    plain = [_quoted(text) for text in texts] + [f"TIMESTAMP {_quoted(text)}" for text in texts]
    plain.append(f"DATE {_quoted(moment.date().isoformat())}")
    if name == "tz":
        plain += [_quoted(f"{moment}+00"), f"TIMESTAMPTZ {_quoted(f'{moment}+00')}", _quoted(f"{moment}+02")]
    return plain


def _literals(name: str) -> list[str]:
    _, pool = POOLS[name]
    found: list[str] = []
    for value in pool:
        if name in ("i8", "i64", "u64", "f64", "f32", "d18", "d38"):
            found += [_number(value), f"({_number(value)})"]
            if not isinstance(value, float) or math.isfinite(value):
                found += [_quoted(str(value)), f"{_number(value)}::DOUBLE"]
            if isinstance(value, int):
                found.append(f"{value}.5")
        elif name in ("d", "ts", "tz", "ns", "sec"):
            found += _temporal(name, value)
        elif name == "s":
            found += [_quoted(value), _quoted(value[:100] + "x")]
        elif name == "b":
            found.append(str(value).lower())
        elif name == "bin":
            found.append("'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB")
        else:
            found += ["'00:00:00'", "TIME '12:00:00'", "'23:59:59.999999'"]
    if name in ("f64", "f32", "d18", "d38", "i64"):
        found += ["1e3", "-1e-3", "0.1", "-0.0", "1e400" if name == "f64" else "1e30", "1_000"]
    return [*dict.fromkeys(found), "NULL"]


_LITERALS = {name: _literals(name) for name in POOLS}


@st.composite
def _comparison(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(sorted(POOLS)))
    literals = st.sampled_from(_LITERALS[name])
    kind = draw(st.sampled_from(["compare", "compare", "compare", "flipped", "between", "in", "null", "column"]))
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "IS DISTINCT FROM"]))
    if kind == "compare":
        return f"{name} {operator} {draw(literals)}"
    if kind == "flipped":
        return f"{draw(literals)} {operator} {name}"
    if kind == "between":
        negated = draw(st.sampled_from(["", "NOT "]))
        return f"{name} {negated}BETWEEN {draw(literals)} AND {draw(literals)}"
    if kind == "in":
        negated = draw(st.sampled_from(["", "NOT "]))
        return f"{name} {negated}IN ({', '.join(draw(st.lists(literals, min_size=1, max_size=4)))})"
    if kind == "null":
        return f"{name} IS {draw(st.sampled_from(['NULL', 'NOT NULL']))}"
    return f"{name} {operator} {name}"


@st.composite
def _combined(draw: st.DrawFn, parts: st.SearchStrategy[str]) -> str:
    kind = draw(st.sampled_from(["AND", "OR", "NOT", "paren"]))
    if kind in ("NOT", "paren"):
        return f"{'NOT ' if kind == 'NOT' else ''}({draw(parts)})"
    return f" {kind} ".join(f"({part})" for part in draw(st.lists(parts, min_size=2, max_size=3)))


def filters() -> st.SearchStrategy[str]:
    """Filters over the columns of the table, most of them with values near its own."""
    return st.recursive(_comparison(), lambda parts: _combined(parts), max_leaves=4)
