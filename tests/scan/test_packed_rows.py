"""Packed rows that are damaged."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from quacklake.errors import CatalogError
from quacklake.format.inline import LIFE, has_width, pack, unpack
from quacklake.format.schema import from_arrow
from tests import seeds

SCHEMA = from_arrow(pa.schema([("a", pa.int64()), ("b", pa.string())]))


@pytest.mark.parametrize("payload", ["", "no JSON", "1", "null", '{"a": "1"}', "[1, 2]", '[["1"], null]'])
def test_a_text_that_is_no_packed_row_is_an_error_of_ours(payload: str) -> None:
    rows = pa.table({**{name: pa.array([1], pa.int64()) for name in LIFE}, "payload": [payload]})
    with pytest.raises(CatalogError, match="not a list of texts"):
        unpack(rows, SCHEMA)
    assert not has_width(payload, 2)


def test_a_packed_row_has_as_many_values_as_it_was_made_of() -> None:
    payload = pack([1, None])
    assert [has_width(payload, width) for width in (1, 2, 3)] == [False, True, False]


#: Parts of texts that look like rows, or like what stands around one while they are read.
PARTS = [
    *(
        '["a","b"]',
        '["x",null]',
        '[null,"y"]',
        '["a","b","c"]',
        '["a"]',
        "null",
        "1",
        "true",
        "NaN",
        " ",
        "\n",
        "\r",
        "\t",
    ),
    *(
        "[",
        "]",
        "{",
        "}",
        ",",
        '"',
        '"a"',
        '"r":',
        '"z":1',
        "\\",
        "\\u0000",
        "\\ud83d\\ude00",
        "\\n",
        "é",
        "\x00",
        "//",
        "/*",
    ),
    *('{"r":["q","w"]}', '],["', '["a","b"]}', '{"r":["a","b"]', "\u2028", "\ufeff"),
]


def test_texts_are_rows_by_themselves_whatever_their_neighbours_are() -> None:
    draw = seeds.chance("packed rows")
    taken = 0
    for _ in range(1_000):
        payloads = [
            json.dumps(
                [draw.choice(["a", "é\n", "\0", '"]}', "😀", ""]), draw.choice([None, "v"])][
                    : draw.choice((1, 2, 2, 2))
                ]
            )
            if draw.random() < 0.6
            else "".join(draw.choices(PARTS, k=draw.randint(1, 5)))
            for _ in range(draw.randint(1, 3))
        ]
        expected = [_row(payload) for payload in payloads]
        rows = _packed(payloads)
        if None in expected:
            with pytest.raises(CatalogError, match="not a list of texts"):
                unpack(rows, SCHEMA)
        else:
            found = unpack(rows, SCHEMA)
            assert list(zip(*(found.column(name).to_pylist() for name in ("c1", "c2")), strict=True)) == expected
            taken += 1
    assert taken > 150


def _row(payload: str) -> tuple[str | None, ...] | None:
    """Return a row of two values as it should be read; None for what is no row."""
    try:
        values = json.loads(payload)
    except ValueError:
        return None
    if not isinstance(values, list) or not all(value is None or isinstance(value, str) for value in values):
        return None
    return tuple([*values, None, None][:2])


def _packed(payloads: list[str]) -> pa.Table:
    life = {name: pa.array([1] * len(payloads), pa.int64()) for name in LIFE}
    return pa.table({**life, "payload": pa.array(payloads, pa.string())})
