"""Random frames of pandas, polars and Arrow, each with the rows that a table must have afterwards.

The rows are plain values, made before any frame is. A column is ``KEPT``, ``REFUSED`` with an error that names it, or
``EITHER``: where a value may have no place in a file, or depends on the other values.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import struct
import uuid
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import quacklake

KEY = "key"
EPOCH = dt.datetime(1970, 1, 1)


class Fate(enum.Enum):
    """The outcome of writing a column."""

    KEPT = enum.auto()
    REFUSED = enum.auto()
    EITHER = enum.auto()


KEPT, REFUSED, EITHER = Fate


@dataclass
class Column:
    """A column to write: what a library takes for it, and the values that come back."""

    kind: str
    given: Any
    values: list[Any]
    fate: Fate = KEPT


@dataclass
class Frame:
    """A frame, the names and values of the columns that a table must get, and those that may or must be refused."""

    library: str
    data: Any
    columns: dict[str, list[Any]]
    kinds: dict[str, str]
    refused: list[str] = field(default_factory=list)
    either: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.columns[KEY])


# -- values ------------------------------------------------------------------------------------------------------------


def _gaps(random: Random, count: int, make: Callable[[], Any], share: float | None = None) -> list[Any]:
    """Return values of which some are missing."""
    chance = random.choice([0.0, 0.3, 1.0]) if share is None else share
    return [None if random.random() < chance else make() for _ in range(count)]


def _text(random: Random) -> str:
    return random.choice(
        ["", "a", "it's", 'q"q', "NULL", "é€", "\U0001f986", "x" * 300, "1", "[a, b]", " ", "\n", "{}"]
    )


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _float(random: Random) -> float:
    return random.choice([0.0, -0.0, 1.5, -2.25, 1e300, 5e-324, math.inf, -math.inf, random.uniform(-1e6, 1e6)])


def _time_of(random: Random, step: int = 1) -> dt.datetime:
    """Return a time that every unit of pandas has, of whole multiples of some microseconds."""
    micros = random.choice([0, -1, random.randrange(-9 * 10**15, 9 * 10**15)]) // step * step
    return EPOCH + dt.timedelta(microseconds=micros)


def _span(random: Random, step: int = 1) -> dt.timedelta:
    micros = random.choice([0, 1, -1, 86_400_000_000, random.randrange(-9 * 10**15, 9 * 10**15)])
    return dt.timedelta(microseconds=micros // step * step)


def _in_files(values: Iterable[Any]) -> Fate:
    """Return the fate of spans: files have whole milliseconds, and none below zero."""
    found = [value for value in values if value is not None]
    return KEPT if all(value >= dt.timedelta() and value.microseconds % 1000 == 0 for value in found) else EITHER


_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_WIDTHS = {"8": 8, "16": 16, "32": 32, "64": 64}


def _whole(random: Random, bits: int, signed: bool) -> int:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return random.choice([low, high, 0, 1, random.randint(low, high)])


def _nested(random: Random, depth: int = 0) -> Callable[[], Any]:
    """Return a maker of values of one nested type."""
    leaves: list[Callable[[], Any]] = [lambda: _whole(random, 63, True), lambda: _text(random), lambda: random.random()]
    if depth >= 2 or random.random() < 0.4:
        return random.choice(leaves)
    inner = [_nested(random, depth + 1) for _ in range(2)]
    if random.random() < 0.5:
        return lambda: [inner[0]() for _ in range(random.randrange(1, 4))]
    return lambda: {"x": inner[0](), "y z": inner[1]()}


# -- pandas ------------------------------------------------------------------------------------------------------------


_OF_TWO = ("mixed", "lists and values")
"""Kinds that need two values to be what they are called."""


def _pandas_columns() -> dict[str, Callable[[Random, int], Column]]:
    kinds: dict[str, Callable[[Random, int], Column]] = {}

    def kind(name: str) -> Callable[[Callable[[Random, int], Any]], None]:
        def add(make: Callable[[Random, int], Any]) -> None:
            def column(random: Random, count: int) -> Column:
                given, values, *fate = make(random, count)
                return Column(name, given, values, *fate)

            kinds[name] = column

        return add

    for bits in _WIDTHS.values():
        for signed in (True, False):

            @kind(f"{'int' if signed else 'uint'}{bits}")
            def _(random: Random, count: int, bits: int = bits, signed: bool = signed) -> Any:
                values = _gaps(random, count, lambda: _whole(random, bits, signed), 0)
                return pd.Series(values, dtype=f"{'int' if signed else 'uint'}{bits}"), values

            @kind(f"{'Int' if signed else 'UInt'}{bits}")
            def _(random: Random, count: int, bits: int = bits, signed: bool = signed) -> Any:
                values = _gaps(random, count, lambda: _whole(random, bits, signed))
                return pd.Series(values, dtype=f"{'Int' if signed else 'UInt'}{bits}"), values

    @kind("float64")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: _float(random))
        return pd.Series(values, dtype="float64"), values

    @kind("Float64")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: _float(random))
        return pd.Series(values, dtype="Float64"), values

    @kind("float32")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: _single(random.uniform(-1e6, 1e6)))
        return pd.Series(values, dtype="float32"), values

    @kind("float16")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: float(np.float16(random.uniform(-1e3, 1e3))), 0)
        return pd.Series(values, dtype="float16"), values

    @kind("bool")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: random.random() < 0.5, 0)
        return pd.Series(values, dtype="bool"), values

    @kind("boolean")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: random.random() < 0.5)
        return pd.Series(values, dtype=random.choice(["boolean", "object"])), values

    @kind("text")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: _text(random))
        return pd.Series(values, dtype=random.choice(["object", "string", "str"])), values

    @kind("categories")
    def _(random: Random, count: int) -> Any:
        make = random.choice([lambda: _text(random), lambda: _whole(random, 63, True), lambda: _time_of(random)])
        values = _gaps(random, count, make)
        return pd.Series(pd.Categorical(values)), values

    @kind("sparse")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: random.choice([0, 0, 7]), 0)
        return pd.Series(pd.arrays.SparseArray(np.array(values, dtype="int64"))), values

    @kind("sparse floats")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: random.choice([0.0, 2.5]))
        return pd.Series(pd.arrays.SparseArray(np.array(values, dtype="float64"))), values

    for unit, step in _UNITS.items():

        @kind(f"times of {unit}")
        def _(random: Random, count: int, unit: str = unit, step: int = step) -> Any:
            values = _gaps(random, count, lambda: _time_of(random, step))
            return pd.Series(values, dtype=f"datetime64[{unit}]"), values

        @kind(f"zoned times of {unit}")
        def _(random: Random, count: int, unit: str = unit, step: int = step) -> Any:
            zone = random.choice(["UTC", "Europe/Paris", "America/St_Johns", "Asia/Kathmandu"])
            values = _gaps(random, count, lambda: _time_of(random, step).replace(tzinfo=dt.UTC))
            return pd.Series(values, dtype=f"datetime64[{unit}, UTC]").dt.tz_convert(zone), values

        @kind(f"spans of {unit}")
        def _(random: Random, count: int, unit: str = unit, step: int = step) -> Any:
            values = _gaps(random, count, lambda: _span(random, step))
            return pd.Series(values, dtype=f"timedelta64[{unit}]"), values, _in_files(values)

    @kind("long spans")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: dt.timedelta(days=random.randrange(100_000), milliseconds=7))
        return pd.Series(values, dtype="timedelta64[ms]"), values

    @kind("spans of odd nanoseconds")
    def _(random: Random, count: int) -> Any:
        return pd.Series([pd.Timedelta(1, "ns")] * count, dtype="timedelta64[ns]"), [None] * count, REFUSED

    @kind("times of odd nanoseconds")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: _whole(random, 60, True))
        return pd.Series(values, dtype="Int64").astype("datetime64[ns]"), [v if v is None else Nanos(v) for v in values]

    @kind("zoned times of odd nanoseconds")
    def _(random: Random, count: int) -> Any:
        return pd.Series([pd.Timestamp(1, tz="UTC")] * count), [None] * count, REFUSED

    @kind("times far away")
    def _(random: Random, count: int) -> Any:
        years = _gaps(random, count, lambda: random.randrange(10_000, 290_000))
        values = [np.datetime64(year - 1970, "Y") if year is not None else np.datetime64("NaT") for year in years]
        texts = [None if year is None else f"{year}-01-01 00:00:00" for year in years]
        return pd.Series(np.array(values, dtype="datetime64[s]")), texts

    @kind("times too far away")
    def _(random: Random, count: int) -> Any:
        given = pd.Series(np.array([np.datetime64(900_000, "Y")] * count, dtype="datetime64[s]"))
        return given, [None] * count, REFUSED

    @kind("times as objects")
    def _(random: Random, count: int) -> Any:
        make = random.choice([lambda: dt.datetime(1, 1, 1), lambda: dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)])
        values = _gaps(random, count, make)
        return pd.Series(values, dtype="object"), values

    @kind("dates")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: dt.date.fromordinal(random.randint(1, 3_652_059)))
        return pd.Series(values, dtype="object"), values

    @kind("times of the day")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: (EPOCH + abs(_span(random))).time())
        return pd.Series(values, dtype="object"), values

    @kind("decimals")
    def _(random: Random, count: int) -> Any:
        scale = random.randrange(5)
        values = _gaps(random, count, lambda: Decimal(random.randrange(-(10**20), 10**20)).scaleb(-scale))
        return pd.Series(values, dtype="object"), values

    @kind("decimals that are too long")
    def _(random: Random, count: int) -> Any:
        values = [Decimal(10) ** 40] * count
        return pd.Series(values, dtype="object"), values, REFUSED

    @kind("bytes")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: random.randbytes(random.randrange(4)))
        return pd.Series(values, dtype="object"), values

    @kind("uuids")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: uuid.UUID(int=random.getrandbits(128)))
        return pd.Series(values, dtype="object"), [None if value is None else str(value) for value in values]

    @kind("nested")
    def _(random: Random, count: int) -> Any:
        inner = _nested(random, 1)
        make = random.choice([lambda: [inner(), inner()], lambda: {"a": inner(), "B": 1}, lambda: [{"k": inner()}]])
        values = _gaps(random, count, make)
        return pd.Series(values, dtype="object"), values

    @kind("arrays of numpy")
    def _(random: Random, count: int) -> Any:
        values = _gaps(random, count, lambda: [random.random() for _ in range(random.randrange(3))])
        return pd.Series([v if v is None else np.array(v) for v in values], dtype="object"), values

    @kind("nothing")
    def _(random: Random, count: int) -> Any:
        return pd.Series([None] * count, dtype="object"), [None] * count

    @kind("types of Arrow")
    def _(random: Random, count: int) -> Any:
        found = random.choice(list(ARROW.values()))(random, count)
        return pd.Series(pd.arrays.ArrowExtensionArray(found.given)), found.values, found.fate

    refused: dict[str, Callable[[int], Any]] = {
        "periods": lambda n: pd.Series(pd.period_range("2026", periods=n, freq="M")),
        "intervals": lambda n: pd.Series(pd.interval_range(0, n)),
        "complex": lambda n: pd.Series([1j] * n),
        "mixed": lambda n: pd.Series([1, "a"] * n, dtype="object")[:n],
        "objects": lambda n: pd.Series([object()] * n, dtype="object"),
        "long numbers": lambda n: pd.Series([2**70] * n, dtype="object"),
        "surrogates": lambda n: pd.Series(["\ud800"] * n, dtype="object"),
        "lists and values": lambda n: pd.Series([[1], 1] * n, dtype="object")[:n],
        "matrices": lambda n: pd.Series([np.zeros((2, 2))] * n, dtype="object"),
        "empty structs": lambda n: pd.Series([{}] * n, dtype="object"),
    }
    for name, make in refused.items():

        @kind(name)
        def _(random: Random, count: int, make: Callable[[int], Any] = make, name: str = name) -> Any:
            given = make(count)
            return (given, list(given), KEPT) if name in _OF_TWO and count < 2 else (given, [None] * count, REFUSED)

    return kinds


@dataclass(frozen=True)
class Nanos:
    """A time as its nanoseconds since 1970, of which the standard library has no type."""

    value: int


# -- Arrow -------------------------------------------------------------------------------------------------------------


def _arrow_columns() -> dict[str, Callable[[Random, int], Column]]:
    kinds: dict[str, Callable[[Random, int], Column]] = {}

    def add(name: str, type_: pa.DataType, make: Callable[[Random], Any], fate: Any = KEPT) -> None:
        def column(random: Random, count: int) -> Column:
            values = _gaps(random, count, lambda: make(random))
            return Column(name, _array(values, type_), values, fate(values) if callable(fate) else fate)

        kinds[name] = column

    for text in _WIDTHS:
        bits = int(text)
        add(f"int{bits}", getattr(pa, f"int{bits}")(), lambda r, b=bits: _whole(r, b, True))
        add(f"uint{bits}", getattr(pa, f"uint{bits}")(), lambda r, b=bits: _whole(r, b, False))
    add("double", pa.float64(), _float)
    add("double with NaN", pa.float64(), lambda r: r.choice([math.nan, 1.0]))
    add("float", pa.float32(), lambda r: _single(r.uniform(-9, 9)))
    add("half", pa.float16(), lambda r: float(np.float16(r.uniform(-9, 9))))
    add("bool", pa.bool_(), lambda r: r.random() < 0.5)
    for make_type in (pa.string, pa.large_string, pa.string_view):
        add(str(make_type()), make_type(), _text)
    for make_type in (pa.binary, pa.large_binary, pa.binary_view):
        add(str(make_type()), make_type(), lambda r: r.randbytes(3))
    add("fixed bytes", pa.binary(2), lambda r: r.randbytes(2))
    add("dictionary", pa.dictionary(pa.int8(), pa.string()), _text)
    add("dictionary of spans", pa.dictionary(pa.int8(), pa.duration("s")), lambda r: abs(_span(r, 1_000_000)))
    add("runs", pa.run_end_encoded(pa.int32(), pa.int64()), lambda r: r.randrange(3))
    add("date32", pa.date32(), lambda r: dt.date.fromordinal(r.randint(1, 3_652_059)))
    add("date64", pa.date64(), lambda r: dt.date.fromordinal(r.randint(1, 3_652_059)))
    for unit, step in _UNITS.items():
        add(f"timestamp {unit}", pa.timestamp(unit), lambda r, s=step: _time_of(r, s))
        add(f"timestamptz {unit}", pa.timestamp(unit, "Asia/Tokyo"), lambda r, s=step: _zoned(_time_of(r, s)))
        add(f"duration {unit}", pa.duration(unit), lambda r, s=step: _span(r, s), _in_files)
    for unit, time in {"s": pa.time32("s"), "ms": pa.time32("ms"), "us": pa.time64("us")}.items():
        add(f"time {unit}", time, lambda r, s=_UNITS[unit]: (EPOCH + abs(_span(r, s))).time())
    add("time ns", pa.time64("ns"), lambda r: (EPOCH + abs(_span(r))).time(), EITHER)
    add(
        "intervals",
        pa.month_day_nano_interval(),
        lambda r: pa.MonthDayNano((r.randrange(3), r.randrange(40), 7 * 10**6)),
    )
    for make_type in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256):
        add(f"{make_type.__name__}", make_type(9, 2), lambda r: Decimal(r.randrange(-(10**9) + 1, 10**9)).scaleb(-2))
    add("decimal of 38 digits", pa.decimal128(38, 10), lambda r: Decimal(r.randrange(10**38)).scaleb(-10))
    add("decimal of 60 digits", pa.decimal256(60, 0), lambda r: Decimal(1), REFUSED)
    add("nulls", pa.null(), lambda r: None)
    lists = (pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_view(pa.int64()), pa.large_list_view(pa.int64()))
    for each in lists:
        add(str(each), each, lambda r: _gaps(r, r.randrange(4), lambda: r.randrange(9)))
    add("fixed lists", pa.list_(pa.int64(), 2), lambda r: [r.randrange(9), None])
    add(
        "structs",
        pa.struct([("a", pa.string()), ("b c", pa.list_(pa.float64()))]),
        lambda r: {"a": _text(r), "b c": [1.5]},
    )
    add("maps", pa.map_(pa.string(), pa.int64()), lambda r: [("k", r.randrange(9)), ("l", None)])
    add("lists of half", pa.list_(pa.float16()), lambda r: [float(np.float16(r.random()))])
    add("lists of zoned times", pa.list_(pa.timestamp("us", "UTC")), lambda r: [_zoned(_time_of(r))])
    add("lists of spans", pa.list_(pa.duration("us")), lambda r: [abs(_span(r, 10**6)) % dt.timedelta(days=40)])
    add("uuid", pa.uuid(), lambda r: uuid.UUID(int=r.getrandbits(128)))
    add("json", pa.json_(), lambda r: r.choice(['{"a": 1}', "[]", "null", "1"]))
    add("seconds that are too far", pa.timestamp("s"), lambda r: 2**50, REFUSED)
    add("spans that are too long", pa.duration("s"), lambda r: 2**50, REFUSED)

    def union(random: Random, count: int) -> Column:
        types = pa.array([0] * count, pa.int8())
        given = pa.UnionArray.from_sparse(types, [pa.array(range(count), pa.int64())])
        return Column("union", given, [None] * count, REFUSED)

    kinds["union"] = union
    return kinds


def _zoned(value: dt.datetime) -> dt.datetime:
    return value.replace(tzinfo=dt.UTC)


def _array(values: list[Any], type_: pa.DataType) -> Any:
    if isinstance(type_, pa.RunEndEncodedType):
        return pa.compute.run_end_encode(pa.array(values, type_.value_type))
    if isinstance(type_, pa.DictionaryType):
        return pa.array(values, type_.value_type).dictionary_encode()
    if isinstance(type_, pa.BaseExtensionType) and type_ == pa.uuid():
        return pa.array([None if v is None else v.bytes for v in values], pa.binary(16)).cast(type_)
    if type_ == pa.json_():
        return pa.array(values, pa.string()).cast(type_)
    return pa.array(values, type_)


# -- polars ------------------------------------------------------------------------------------------------------------


def _polars_columns() -> dict[str, Callable[[Random, int], Column]]:
    kinds: dict[str, Callable[[Random, int], Column]] = {}

    def add(name: str, type_: Any, make: Callable[[Random], Any], fate: Any = KEPT) -> None:
        def column(random: Random, count: int) -> Column:
            values = _gaps(random, count, lambda: make(random))
            given = pl.Series(values, dtype=type_, strict=True)
            return Column(name, given, values, fate(values) if callable(fate) else fate)

        kinds[name] = column

    for text in _WIDTHS:
        bits = int(text)
        add(f"Int{bits}", getattr(pl, f"Int{bits}"), lambda r, b=bits: _whole(r, b, True))
        add(f"UInt{bits}", getattr(pl, f"UInt{bits}"), lambda r, b=bits: _whole(r, b, False))
    add("Float64", pl.Float64, _float)
    add("Float32", pl.Float32, lambda r: _single(r.uniform(-9, 9)))
    add("Boolean", pl.Boolean, lambda r: r.random() < 0.5)
    add("String", pl.String, _text)
    add("Categorical", pl.Categorical, _text)
    add("Enum", pl.Enum(["a", "b"]), lambda r: r.choice("ab"))
    add("Binary", pl.Binary, lambda r: r.randbytes(3))
    add("Date", pl.Date, lambda r: dt.date.fromordinal(r.randint(1, 3_652_059)))
    add("Time", pl.Time, lambda r: (EPOCH + abs(_span(r))).time(), EITHER)
    for unit in ("ms", "us", "ns"):
        step = _UNITS[unit]
        add(f"Datetime {unit}", pl.Datetime(unit), lambda r, s=step: _time_of(r, s))
        add(f"zoned {unit}", pl.Datetime(unit, "UTC"), lambda r, s=step: _zoned(_time_of(r, s)))
        add(f"Duration {unit}", pl.Duration(unit), lambda r, s=step: _span(r, s), _in_files)
    add("Decimal", pl.Decimal(20, 3), lambda r: Decimal(r.randrange(10**15)).scaleb(-3))
    add("List", pl.List(pl.Int64), lambda r: _gaps(r, r.randrange(4), lambda: r.randrange(9)))
    add("Array", pl.Array(pl.Int64, 2), lambda r: [r.randrange(9), 1])
    add("Struct", pl.Struct({"a": pl.String, "b": pl.List(pl.Float64)}), lambda r: {"a": _text(r), "b": [0.5]})
    add("Null", pl.Null, lambda r: None)
    add("Int128", pl.Int128, lambda r: 2**70, REFUSED)

    def objects(random: Random, count: int) -> Column:
        return Column("Object", pl.Series([object()] * count, dtype=pl.Object), [None] * count, REFUSED)

    kinds["Object"] = objects
    return kinds


PANDAS, ARROW, POLARS = {}, _arrow_columns(), _polars_columns()
PANDAS.update(_pandas_columns())
KINDS = {"pandas": PANDAS, "polars": POLARS, "arrow": ARROW}

# -- frames ------------------------------------------------------------------------------------------------------------

_NAMES = [
    "a",
    "B",
    "a b",
    'q"q',
    "it's",
    "é",
    "select",
    "a.b",
    "index",
    "level_0",
    "\U0001f986",
    "x" * 63,
    "rowid",
    "%",
    "1",
]
_LABELS: dict[Any, str] = {
    7: "7",
    1.5: "1.5",
    ("a", 2): "('a', '2')",
    pd.Timestamp("2026-01-01"): "2026-01-01 00:00:00",
}


def make_frame(random: Random) -> Frame:
    """Return a random frame of one of the libraries."""
    library = random.choice(["pandas", "pandas", "polars", "arrow"])
    count = random.choice([0, 1, 2, 5, 12])
    kinds = KINDS[library]
    chosen = random.sample(sorted(kinds), random.randrange(1, 5))
    made = [kinds[kind](random, count) for kind in chosen]
    if random.random() < 0.7:  # most frames are whole: else nearly every one would be refused
        made = [column for column in made if column.fate is not REFUSED]
    labels: list[Any] = random.sample(_NAMES, len(made))
    names = list(labels)
    if library == "pandas" and made and random.random() < 0.2:
        labels[0] = random.choice(list(_LABELS))
        names[0] = _LABELS[labels[0]]
    keys = list(range(count))
    columns = {KEY: keys, **{name: column.values for name, column in zip(names, made, strict=True)}}
    frame = Frame(library, None, columns, {name: column.kind for name, column in zip(names, made, strict=True)})
    for name, column in zip(names, made, strict=True):
        empty = count == 0 or (column.fate is REFUSED and _all_missing(column.given))
        if column.fate is REFUSED and not empty:
            frame.refused.append(name)
        elif column.fate is not KEPT:
            frame.either.append(name)
    given = dict(zip(labels, (column.given for column in made), strict=True))
    if library == "arrow":
        frame.data = pa.table({KEY: pa.array(keys, pa.int64()), **given})
        if random.random() < 0.3:
            frame.data = pa.concat_tables([frame.data.slice(0, 1), frame.data.slice(1)])
    elif library == "polars":
        frame.data = pl.DataFrame([pl.Series(KEY, keys, dtype=pl.Int64), *(s.alias(n) for n, s in given.items())])
        if random.random() < 0.3 and not frame.refused:
            frame.data = frame.data.lazy()
    else:
        series = {label: one.reset_index(drop=True) for label, one in given.items()}
        frame.data = pd.DataFrame({KEY: pd.Series(keys, dtype="int64")})
        for label, one in series.items():
            frame.data.insert(len(frame.data.columns), label, one, allow_duplicates=True)
        _set_index(random, frame)
        _spoil_names(random, frame)
    return frame


def quiet_frame(random: Random) -> Frame:
    """Return a random frame without the warnings of pandas and polars about what it is made of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_frame(random)


def _all_missing(given: Any) -> bool:
    return (
        given.null_count == len(given) if hasattr(given, "null_count") else bool(getattr(given, "isna", list)().all())
    )


def _spoil_names(random: Random, frame: Frame) -> None:
    """Give a column a name that a table cannot have."""
    if random.random() > 0.1 or len(frame.data.columns) < 2:
        return
    labels = list(frame.data.columns)
    labels[-1] = random.choice([KEY, KEY.upper(), "", None, math.nan, pd.NaT])
    frame.data.columns = pd.Index(labels, dtype="object")
    named = labels[-1] if isinstance(labels[-1], str) and labels[-1] else f"column {len(labels)}"
    frame.refused.append(named)


_INDEXES = [
    *["default"] * 3,
    "range",
    "named_range",
    "labels",
    "numbers",
    "texts",
    "unnamed",
    "times",
    "levels",
    "unnamed_levels",
    "categories",
    "spans",
    "floats",
    "column",
    "conflict",
    "periods",
    "intervals",
    "left_out",
]


def _set_index(random: Random, frame: Frame) -> None:
    """Give a frame of pandas an index, and its levels the columns that they become."""
    count, taken = frame.rows, {name.lower() for name in frame.columns}
    unnamed = "level_0" if "index" in taken else "index"
    texts = [f"t{i}" for i in range(count)]
    days = [EPOCH + dt.timedelta(days=i) for i in range(count)]
    numbers = [3 * i * i for i in range(count)]
    kind = random.choice(_INDEXES)
    index: Any
    levels: dict[str, list[Any]] = {}
    match kind:
        case "default":
            return
        case "range":
            index = pd.RangeIndex(5, 5 + 2 * count, 2)
        case "named_range":
            index, levels = pd.RangeIndex(count, name="ix"), {"ix": list(range(count))}
        case "labels":
            index = pd.Index(numbers, dtype="int64")
        case "numbers":
            index, levels = pd.Index(numbers, dtype="int64", name=0), {"0": numbers}
        case "texts" | "left_out":
            index, levels = pd.Index(texts, dtype="object", name="ix"), {"ix": texts}
        case "unnamed":
            index, levels = pd.Index(texts, dtype="str"), {unnamed: texts}
        case "times":
            index = pd.DatetimeIndex(days, tz="UTC", name="ix").tz_convert("Asia/Tokyo")
            levels = {"ix": [_zoned(day) for day in days]}
        case "levels":
            index = pd.MultiIndex.from_arrays([texts, numbers], names=["one", ("two", 2)])
            levels = {"one": texts, "('two', '2')": numbers}
        case "unnamed_levels":
            index = pd.MultiIndex.from_arrays([texts, numbers], names=["ix", None])
            levels = {"ix": texts, "level_1": numbers}
        case "categories":
            index, levels = pd.CategoricalIndex(texts, name="ix"), {"ix": texts}
        case "spans":
            spans = [dt.timedelta(hours=i) for i in range(count)]
            index, levels = pd.to_timedelta(spans).rename("ix"), {"ix": spans}
        case "floats":
            index, levels = (
                pd.Index([i / 2 for i in range(count)], dtype="float64"),
                {unnamed: [i / 2 for i in range(count)]},
            )
        case "column":
            index = pd.Index(list(range(count)), dtype="int64", name=KEY)
        case "conflict":
            index = pd.Index([i + 1 for i in range(count)], dtype="int64", name=KEY)
            frame.refused += [KEY] if count else []
        case "periods":
            index = pd.period_range("2026", periods=count, freq="D", name="ix")
            frame.refused.append("ix")
        case _:
            index = pd.interval_range(0, count, name="ix") if count else pd.IntervalIndex([], name="ix")
            frame.refused.append("ix")
    frame.data.index = index
    if kind == "left_out":
        frame.options["index"] = False
        return
    if taken & {name.lower() for name in levels}:
        frame.refused += [name for name in levels if name.lower() in taken]
    frame.columns.update({name: values for name, values in levels.items() if name not in frame.columns})
    frame.kinds.update(dict.fromkeys(levels, f"index: {kind}"))


# -- comparison --------------------------------------------------------------------------------------------------------


_NO_NUMPY = ("times far away", "lists of zoned times", "types of Arrow")
"""Kinds of values that arrays of numpy show without their zone, or not at all."""
_NO_PYTHON = ("times far away",)
"""Kinds of values that Python has not: lists show them as texts."""
_NO_POLARS = ("maps", *_NO_PYTHON)
"""Kinds of values that lists of polars show in another form."""
_NO_DURATIONS = ("intervals", "lists of spans")
"""Kinds of intervals that polars has not."""


def compare(table: quacklake.Table, frame: Frame) -> None:
    """Raise ``AssertionError`` unless a table has the rows of a frame, in each form in which they are read."""
    order = table.to_arrow([KEY]).column(KEY).to_pylist()
    assert sorted(order) == frame.columns[KEY]
    _same({name: [row[name] for row in table.to_pylist()] for name in table.columns}, frame, order)
    rows = table.to_pandas()
    far = [name for name, kind in frame.kinds.items() if kind in _NO_NUMPY]
    _same({name: rows[name].tolist() for name in rows.columns}, frame, order, far, missing=True)
    if any(kind in _NO_DURATIONS for kind in frame.kinds.values()):
        return
    polars = table.to_polars()
    other = [name for name, kind in frame.kinds.items() if kind in _NO_POLARS or "odd nano" in kind]
    _same({name: polars[name].to_list() for name in polars.columns if name not in other}, frame, order, other)


def _same(
    found: dict[str, list[Any]], frame: Frame, order: list[int], left_out: Sequence[str] = (), *, missing: bool = False
) -> None:
    expected = {name: values for name, values in frame.columns.items() if name not in left_out}
    assert [name for name in found if name not in left_out] == list(expected)
    for name, values in expected.items():
        wanted = [plain(values[key], missing=missing) for key in order]
        got = [plain(value, missing=missing) for value in found[name]]
        if missing:  # of numpy, which makes floats of whole numbers with gaps
            wanted = [float(one) if isinstance(two, float) else one for one, two in zip(wanted, got, strict=True)]
        assert got == wanted, f"{frame.kinds.get(name)}: {name}: {got} instead of {wanted}"


def plain(value: Any, *, missing: bool = False) -> Any:
    """Return a value as one that equals those of other libraries; with ``missing``, NaN is none."""
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    match value:
        case bool() | np.bool_():
            return bool(value)
        case float() | np.floating():
            number = float(value)
            return ("NaN" if not missing else None) if math.isnan(number) else number
        case int() | np.integer() | Decimal():
            return value if isinstance(value, Decimal) else int(value)
        case Nanos():
            return "time", value.value
        case pd.Timestamp():
            return "instant" if value.tz else "time", _nanos(value.tz_convert(None) if value.tz else value)
        case dt.datetime():
            return "instant" if value.tzinfo else "time", _micros(value) * 1000
        case np.datetime64():
            return plain(pd.Timestamp(value), missing=missing)
        case pa.MonthDayNano():
            return "span", (value.months, value.days * 86_400 * 10**9 + value.nanoseconds)
        case pd.Timedelta():
            return "span", (0, value.as_unit("ns").value if value.unit == "ns" else _span_micros(value) * 1000)
        case dt.timedelta():
            return "span", (0, _span_micros(value) * 1000)
        case np.timedelta64():
            return plain(pd.Timedelta(value), missing=missing)
        case pd.DateOffset():
            parts = {"months": 0, "days": 0, "nanoseconds": 0, **value.kwds}
            return "span", (parts["months"], parts["days"] * 86_400 * 10**9 + parts["nanoseconds"])
        case uuid.UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case dict():
            return {name: plain(each, missing=missing) for name, each in value.items()}
        case str() | dt.date() | dt.time():
            return value
        case Sequence() | np.ndarray() | pl.Series():
            return [plain(each, missing=missing) for each in value]
    raise TypeError(f"{type(value).__name__} is not known")


def _nanos(value: pd.Timestamp) -> int:
    return _micros(value.to_pydatetime(warn=False)) * 1000 + value.nanosecond


def _micros(value: dt.datetime) -> int:
    if value.tzinfo is not None:
        value = value.astimezone(ZoneInfo("UTC")).replace(tzinfo=None)
    return (value - EPOCH) // dt.timedelta(microseconds=1)


def _span_micros(value: dt.timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
