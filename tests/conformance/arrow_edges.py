"""Arrow arrays of every type with values at its edges, and values in a form that compares by meaning."""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["EDGES", "meaning"]

_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_INT64 = (-(2**63), -(2**63) + 1, -(2**63) + 2, -(2**62), -1, 0, 1, 2**62, 2**63 - 2, 2**63 - 1)
_INT32 = (-(2**31), -(2**31) + 1, -(2**31) + 2, -1, 0, 2**31 - 2, 2**31 - 1)


def _raw(value: int, type_: pa.DataType) -> pa.Array:
    return pa.array([value], pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)


def _integers() -> Iterator[tuple[str, pa.Array]]:
    for unit in _NANOS:
        for type_ in (pa.timestamp(unit), pa.timestamp(unit, "UTC"), pa.timestamp(unit, "+05:30"), pa.duration(unit)):
            for value in _INT64:
                yield f"{type_}/{value}", _raw(value, type_)
    for type_ in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        day = 86_400 * 10**9 // _NANOS[type_.unit]
        for value in (-1, 0, 1, day - 1, day, day + 1):
            yield f"{type_}/{value}", _raw(value, type_)
    for value in _INT32:
        yield f"date32/{value}", _raw(value, pa.date32())
    for value in (*_INT64, 86_400_000, 86_400_001, -86_400_000):
        yield f"date64/{value}", _raw(value, pa.date64())


def _scalars() -> Iterator[tuple[str, pa.Array]]:
    for bits in (8, 16, 32, 64):
        yield f"int{bits}", pa.array([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, None], f"int{bits}")
        yield f"uint{bits}", pa.array([0, 2**bits - 1, None], f"uint{bits}")
    for type_, most in ((pa.float16(), 65504.0), (pa.float32(), 3.4028234663852886e38), (pa.float64(), 5e-324)):
        yield str(type_), pa.array([0.0, -0.0, most, math.inf, -math.inf, math.nan, None], type_)
    for type_, text in (
        (pa.decimal32(9, 2), "9999999.99"),
        (pa.decimal64(18, 2), "-9999999999999999.99"),
        (pa.decimal128(38, 0), "9" * 38),
        (pa.decimal128(38, 38), "0." + "9" * 38),
        (pa.decimal128(5, -2), "12300"),
        (pa.decimal256(38, 2), "9" * 36 + ".99"),
        (pa.decimal256(40, 2), "1.00"),
        (pa.decimal256(76, 0), "9" * 76),
    ):
        yield str(type_), pa.array([Decimal(text), None], type_)
    for months, days, nanos in (
        (1, 2, 3_000_000),
        (1, 2, 3000),
        (0, 0, 1),
        (2**31 - 1, 2**31 - 1, 2**63 - 1),
        (-(2**31), -(2**31), -(2**63)),
        (12, -3, -1000),
        (0, 0, 50 * 86_400 * 10**9),
    ):
        span = pa.MonthDayNano([months, days, nanos])
        yield f"interval/{months},{days},{nanos}", pa.array([span, None], pa.month_day_nano_interval())
    for type_ in (pa.string(), pa.large_string(), pa.string_view()):
        yield str(type_), pa.array(["", "\0", "'\"\\", "\U0001f600", "NULL", "x" * 10_000, None], type_)
    for type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield str(type_), pa.array([b"", b"\0", b"\xff\xfe", b"'\\x", b"x" * 10_000, None], type_)
    yield "binary(3)", pa.array([b"abc", None], pa.binary(3))
    yield "bool", pa.array([True, False, None])
    yield "null", pa.nulls(2)
    yield "uuid", pa.array([uuid.UUID(int=0).bytes, uuid.UUID(int=2**128 - 1).bytes, None], pa.uuid())
    yield "json", pa.array(['{"a":1}', "null", None], pa.json_())
    yield "broken json", pa.array(['{"a":'], pa.json_())
    yield "bool8", pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, None], pa.int8()))
    yield "opaque", pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "x", "y"), pa.array([5]))
    yield "union", pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])


def _encoded() -> Iterator[tuple[str, pa.Array]]:
    yield "dictionary", pa.array(["a", None, "b"]).dictionary_encode()
    yield "dictionary with null", pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    yield "dictionary of structs", pa.DictionaryArray.from_arrays(pa.array([0, 0, None]), pa.array([{"a": 1}]))
    yield "dictionary of halves", pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([1.5], pa.float16()))
    yield "runs", pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None]))


def _nested() -> Iterator[tuple[str, pa.Array]]:
    for type_ in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        yield str(type_(pa.int64())), pa.array([[], [1, None], None], type_(pa.int64()))
    yield "array", pa.array([[1, 2], None, [None, 3]], pa.list_(pa.int64(), 2))
    yield "list of nothing", pa.array([[], [None], None], pa.list_(pa.null()))
    yield "list of ns", pa.array([[2**62, -(2**63) + 2]]).cast(pa.list_(pa.timestamp("ns")))
    yield "list of halves", pa.array([[1.5, None]], pa.list_(pa.float16()))
    yield "list of decimal256", pa.array([[Decimal("1.5")]], pa.list_(pa.decimal256(10, 2)))
    yield "list of intervals", pa.array([[pa.MonthDayNano([0, 0, 3000])]], pa.list_(pa.month_day_nano_interval()))
    yield "list of dictionaries", pa.array([["a", "b"]], pa.list_(pa.dictionary(pa.int32(), pa.string())))
    yield "struct", pa.array([{"a": 1, "b": "x"}, {"a": None, "b": None}, None])
    yield "struct of broken json", pa.StructArray.from_arrays([pa.array(['{"a":'], pa.json_())], names=["a"])
    yield "empty struct", pa.array([{}, None], pa.struct([]))
    yield "struct without a name", pa.array([{"": 1}])
    yield "struct with a name twice", pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "A"])
    yield "map", pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int64()))
    yield "map with a key twice", pa.array([[("b", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    yield "map in a list", pa.array([[[("a", 1), ("a", 2)]]], pa.list_(pa.map_(pa.string(), pa.int64())))
    yield (
        "map of structs",
        pa.array([[({"a": 1}, "x"), ({"a": 2}, "x")]], pa.map_(pa.struct([("a", pa.int64())]), pa.string())),
    )


EDGES: dict[str, pa.Array] = dict((*_integers(), *_scalars(), *_encoded(), *_nested()))
"""Name a value by its type, and by the integer inside if that is the edge."""


def meaning(value: Any) -> Any:
    """Return an Arrow scalar in a form that is equal for equal values of any type."""
    if isinstance(value, pa.RunEndEncodedScalar):
        found = value.as_py()
        return None if found is None else meaning(pa.scalar(found, value.type.value_type))
    if not value.is_valid:
        return None
    if isinstance(value, pa.ExtensionScalar):
        return str(value.as_py()) if value.type.extension_name == "arrow.uuid" else meaning(value.value)
    if isinstance(value, pa.DictionaryScalar):
        return meaning(value.value)
    arrow = value.type
    if pa.types.is_timestamp(arrow) or pa.types.is_time(arrow):
        return value.value * _NANOS[arrow.unit]
    if pa.types.is_date32(arrow):
        return value.value
    if pa.types.is_date64(arrow):
        return value.value / 86_400_000
    if pa.types.is_duration(arrow):
        return 0, 0, value.value * _NANOS[arrow.unit]
    if pa.types.is_floating(arrow):
        return "NaN" if math.isnan(value.as_py()) else struct.pack("<d", value.as_py())
    if pa.types.is_map(arrow):
        return [(meaning(entry[0]), meaning(entry[1])) for entry in value.values]
    if pa.types.is_struct(arrow):
        return {field.name: meaning(value[index]) for index, field in enumerate(arrow)}
    if pa.types.is_nested(arrow) and not pa.types.is_union(arrow):
        return [meaning(each) for each in value.values]
    return tuple(value.as_py()) if arrow == pa.month_day_nano_interval() else value.as_py()
