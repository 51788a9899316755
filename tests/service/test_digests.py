"""Digests of rows: equal exactly where the values are."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from quacklake.service.digests import json_digest, rows_digest
from tests.seeds import SEED

_TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [0, 1, -(2**62)]),
    "int8": (pa.int8(), [0, 1, -128]),
    "double": (pa.float64(), [0.0, 1.5, float("inf")]),
    "bool": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", "a", "äöü", "a\0b", "ab"]),
    "view": (pa.string_view(), ["", "a", "a text that is longer than twelve bytes"]),
    "blob": (pa.binary(), [b"", b"\0", b"ab"]),
    "fixed": (pa.binary(3), [b"abc", b"\0\0\0"]),
    "date": (pa.date32(), [dt.date(2026, 1, 1), dt.date(1970, 1, 1)]),
    "ts": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
    "time": (pa.time64("us"), [dt.time(1, 2, 3)]),
    "decimal": (pa.decimal128(20, 3), [Decimal("1.250"), Decimal("0.000")]),
    "list": (pa.list_(pa.int32()), [[], [1], [1, None]]),
    "struct": (pa.struct([("a", pa.string())]), [{"a": "x"}, {"a": None}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1)], []]),
    "nothing": (pa.null(), [None]),
}


def _table(rng: random.Random, rows: int) -> pa.Table:
    names = rng.sample(sorted(_TYPES), 5)
    columns = {
        name: pa.array([rng.choice([*_TYPES[name][1], None]) for _ in range(rows)], _TYPES[name][0]) for name in names
    }
    return pa.table(columns)


def _otherwise(rng: random.Random, table: pa.Table) -> pa.Table:
    """Return the same rows in other buffers: sliced, divided, with dictionaries, other bytes under NULL."""
    padded = pa.concat_tables([table.slice(0, 1), table, table.slice(0, 2)]).combine_chunks()
    whole = padded.slice(min(1, table.num_rows), table.num_rows)
    cuts = sorted(rng.randint(0, table.num_rows) for _ in range(rng.randint(0, 3)))
    ends = [0, *cuts, table.num_rows]
    parts = [whole.slice(first, last - first) for first, last in itertools.pairwise(ends)]
    again = pa.concat_tables(parts) if parts else whole
    columns = rng.sample(again.column_names, again.num_columns)
    return again.select(columns)


@pytest.mark.parametrize("number", range(30))
def test_digests_are_equal_exactly_where_rows_are(number: int) -> None:
    rng = random.Random(f"{SEED}-{number}")
    table = _table(rng, rng.randint(1, 12))
    assert rows_digest(_otherwise(rng, table)) == rows_digest(table)
    for name in table.column_names:
        at = rng.randrange(table.num_rows)
        values = table.column(name).to_pylist()
        others = [value for value in [*_TYPES[name][1], None] if value != values[at]]
        for other in others:
            changed = [*values[:at], other, *values[at + 1 :]]
            place = table.column_names.index(name)
            made = table.set_column(place, name, pa.array(changed, _TYPES[name][0]))
            assert rows_digest(made) != rows_digest(table), (name, values, changed)
    assert rows_digest(table.slice(0, table.num_rows - 1)) != rows_digest(table)


def test_values_do_not_run_into_each_other() -> None:
    assert rows_digest(pa.table({"a": ["ab", "c"]})) != rows_digest(pa.table({"a": ["a", "bc"]}))
    assert rows_digest(pa.table({"a": ["x"], "b": ["y"]})) != rows_digest(pa.table({"a": ["y"], "b": ["x"]}))
    assert rows_digest(pa.table({"a": [None, ""]})) != rows_digest(pa.table({"a": ["", None]}))
    words = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    assert rows_digest(words) == rows_digest(pa.table({"a": ["x", "y", "x"]}))


def test_json_may_be_written_in_another_way() -> None:
    first = json_digest(b'[{"a": 1, "b": "x"}]', lines=False)
    assert first == json_digest(b' [ {"b":"\\u0078" , "a":1} ]\n', lines=False)
    assert first != json_digest(b'[{"a": 1, "b": "y"}]', lines=False)
    assert first != json_digest(b'[{"a": "1", "b": "x"}]', lines=False)
    assert json_digest(b'{"a":1}\n\n{"a":2}', lines=True) == json_digest(b'{"a": 1}\r\n{"a": 2}\n', lines=True)
    assert json_digest(b"[" * 100_000, lines=False) is None
