"""A z-order curve through columns, as a key that Spark can sort by.

Each column counts by the position of its value among bounds from a sample of the rows, so that every distribution fills
the curve evenly; then the bits of the positions alternate. Only the bounds come to the driver.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from quacklake.errors import UnsupportedFeatureError
from quacklake.format.schema import Column
from quacklake.format.types import parse_type
from quacklake.spark.runtime.types import literal, quote, shown_type
from quacklake.spark.write.writer import SortBy

_SAMPLE = 20_000
_LONGEST = 64
"""The number of leading characters of a text that count."""
_HARD = ("time", "timetz", "time_ns", "interval", "timestamp_ns")


def z_order(frame: DataFrame, columns: Sequence[Column], rows: int) -> SortBy:
    """Return the sort key of rows in stored form, from a sample of ``rows`` rows in the form that users see.

    Raises ``UnsupportedFeatureError`` for a type whose two forms sort differently.
    """
    hard = next((column for column in columns if column.type in _HARD), None)
    if hard is not None:
        raise UnsupportedFeatureError(f'Spark has no curve through the column "{hard.name}" of type {hard.type}')
    bits = min(8, 62 // len(columns))
    sample = frame.sample(min(1.0, _SAMPLE / max(rows, 1)), seed=1)
    lists = sample.selectExpr(
        *(f"sort_array(collect_list({_shown(column)})) AS l{i}" for i, column in enumerate(columns))
    )
    parts = (1 << bits) - 1
    place = f"CAST(1 + i * size({{0}}) DIV {parts + 1} AS INT)"
    bounds = lists.selectExpr(
        *(
            f"CASE WHEN size(l{i}) > 0 THEN transform(sequence(1, {parts}),"
            f" i -> CAST(element_at(l{i}, least(size(l{i}), {place.format(f'l{i}')})) AS STRING)) END AS b{i}"
            for i in range(len(columns))
        )
    ).first()
    terms = []
    for i, column in enumerate(columns):
        texts = list(dict.fromkeys(bounds[f"b{i}"] or ())) if bounds is not None else []
        leaves = [_spread(number, bits, i, len(columns)) for number in range(len(texts) + 1)]
        value = _stored(column)
        terms.append(f"IF({value} IS NULL, 0L, {_tree(value, [_literal(text, column) for text in texts], leaves)})")
    return SortBy(" | ".join(terms), descending=False, nulls_first=True)


def _shown(column: Column) -> str:
    name = quote(column.name)
    if column.type == "uuid":
        return f"replace({name}, '-', '')"
    return _cut(name, column)


def _stored(column: Column) -> str:
    name = quote(column.name)
    return f"lower(hex({name}))" if column.type == "uuid" else _cut(name, column)


def _cut(name: str, column: Column) -> str:
    match column.type:
        case "varchar" | "json":
            return f"left({name}, {_LONGEST})"
        case "blob":
            return f"left(hex({name}), {_LONGEST})"
        case "boolean":
            return f"CAST({name} AS INT)"
        case _:
            return name


def _literal(text: str, column: Column) -> str:
    if parse_type(column.type).base in ("varchar", "json", "blob", "uuid"):
        return literal(text)
    type_ = "INT" if column.type == "boolean" else shown_type(column, time=False)
    return f"CAST({literal(text)} AS {type_})"


def _spread(number: int, bits: int, place: int, count: int) -> int:
    """Return a number with gaps between its bits for the bits of the other columns."""
    return sum(((number >> bit) & 1) << (bit * count + count - 1 - place) for bit in range(bits))


def _tree(value: str, bounds: Sequence[str], leaves: Sequence[int]) -> str:
    """Return the SQL that finds the leaf of a value between bounds by binary search."""
    if not bounds:
        return f"{leaves[0]:d}L"
    middle = len(bounds) // 2
    low = _tree(value, bounds[:middle], leaves[: middle + 1])
    high = _tree(value, bounds[middle + 1 :], leaves[middle + 1 :])
    return f"IF({value} < {bounds[middle]}, {low}, {high})"
