"""Random conditions on columns of many types, as polars expressions and as SQL, and rows to try them on."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa

UTC = dt.UTC
C = pl.col
NAN, INF = math.nan, math.inf
VALUES: dict[str, tuple[str, list[Any], list[Any]]] = {
    "i": ("INTEGER", [-(2**31), -1, 0, 1, 7, 2**31 - 1], [3, 2**40, 1.5, -1.0]),
    "u": ("UBIGINT", [0, 1, 2**63, 2**64 - 1], [-1, 2**63 + 1, 0.5]),
    "d": ("DOUBLE", [NAN, INF, -INF, 0.0, -0.0, 0.1, 1.5, 1e300, -2.25], [0, 1, 0.1 + 0.2]),
    "f": ("FLOAT", [NAN, INF, 0.0, -0.0, 1.5, -2.25], [0.1, 1, 16777217.0]),
    "n": ("DECIMAL(10, 2)", [Decimal("-1.50"), Decimal("0.00"), Decimal("1.25"), Decimal("99999999.99")],
          [1, Decimal("1.255"), Decimal("100000000000.5"), 1.25]),
    "s": ("VARCHAR", ["", "A", "a", "aa", "ä", "z", "Z", "it's", "10", "9", "\ud7ff", "\U0010ffff", "%_\\"], ["b", "a\0b"]),
    "t": ("DATE", [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
          [dt.datetime(2024, 2, 29, 1), dt.date(2024, 1, 1)]),
    "m": ("TIMESTAMP", [dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4), dt.datetime(9999, 12, 31)],
          [dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 1, 2, 3, 5)]),
    "z": ("TIMESTAMPTZ", [dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)],
          [dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.timezone(dt.timedelta(hours=2)))]),
    "b": ("BOOLEAN", [True, False], []),
}  # fmt: skip
SIGNS = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def rows(random_: random.Random, count: int) -> pa.Table:
    picked = {name: [random_.choice([None, *known]) for _ in range(count)] for name, (_, known, _) in VALUES.items()}
    duckdb_types = {name: type_ for name, (type_, _, _) in VALUES.items()}
    types = {"INTEGER": pa.int32(), "UBIGINT": pa.uint64(), "DOUBLE": pa.float64(), "FLOAT": pa.float32()}
    types |= {
        "DECIMAL(10, 2)": pa.decimal128(10, 2),
        "VARCHAR": pa.string(),
        "DATE": pa.date32(),
        "BOOLEAN": pa.bool_(),
    }
    types |= {"TIMESTAMP": pa.timestamp("us"), "TIMESTAMPTZ": pa.timestamp("us", "UTC")}
    return pa.table({name: pa.array(values, types[duckdb_types[name]]) for name, values in picked.items()})


def sql_text(value: Any, type_: str) -> str:
    """A value as SQL for the oracle: a cast of its text to the type of the column, so that both compare in it."""
    text = value.isoformat() if isinstance(value, dt.date | dt.datetime) else str(value)
    return "CAST('" + text.replace("'", "''") + f"' AS {type_})"


def atom(random_: random.Random) -> tuple[pl.Expr, str | None]:
    """A condition on one column, and its SQL if plain DuckDB can say it."""
    name = random_.choice(sorted(VALUES))
    type_, known, others = VALUES[name]
    column = C(name)
    kind = random_.choice(["compare"] * 4 + ["null", "in", "between", "not", "odd", "missing"])
    if name == "b" and kind != "null":
        return random_.choice([(column, "b"), (~column, "NOT b"), (column == True, "b"), (column.not_(), "NOT b")])  # noqa: E712
    if kind == "null":
        return random_.choice([(column.is_null(), f"{name} IS NULL"), (column.is_not_null(), f"{name} IS NOT NULL")])
    if kind == "in":
        values = random_.sample([*known, *known[:2]], random_.randint(1, len(known)))
        texts = ", ".join(sql_text(value, type_) for value in values)
        nulls = random_.choice([[], [None]])
        listed = pl.Series([*values, *nulls], dtype=pl.from_arrow(rows(random.Random(1), 1))[name].dtype)
        return column.is_in(listed.implode()), f"{name} IN ({texts})"
    if kind == "between":
        low, high = random_.choice(known), random_.choice(known)
        low_text, high_text = sql_text(low, type_), sql_text(high, type_)
        return column.is_between(pl.lit(low), pl.lit(high)), f"{name} BETWEEN {low_text} AND {high_text}"
    sign = random_.choice(sorted(SIGNS))
    value = random_.choice(known)
    condition, text = SIGNS[sign](column, value), f"{name} {sign} {sql_text(value, type_)}"
    if kind == "not":
        return ~condition, f"NOT ({text})"
    if kind == "missing":
        return column.eq_missing(pl.lit(value, dtype=None)), f"{name} IS NOT DISTINCT FROM {sql_text(value, type_)}"
    if kind == "odd" and others:
        return SIGNS[sign](column, random_.choice(others)), None
    if kind == "odd" or random_.random() < 0.2:
        return condition, text
    return random_.choice(
        [(condition, text), (SIGNS[sign](pl.lit(value), column), f"{sql_text(value, type_)} {sign} {name}")]
    )


def predicate(random_: random.Random, depth: int = 2) -> tuple[pl.Expr, str | None]:
    if depth == 0 or random_.random() < 0.3:
        return atom(random_)
    (left, left_text), (right, right_text) = predicate(random_, depth - 1), predicate(random_, depth - 1)
    both = None if left_text is None or right_text is None else (left_text, right_text)
    if random_.random() < 0.5:
        return left & right, both and f"({both[0]}) AND ({both[1]})"
    if random_.random() < 0.2:
        return ~(left | right), both and f"NOT (({both[0]}) OR ({both[1]}))"
    return left | right, both and f"({both[0]}) OR ({both[1]})"
