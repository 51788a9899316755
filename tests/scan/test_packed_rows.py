"""Packed rows, of which some are damaged, are read as what they say by themselves or not at all."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from quacklake.core.catalog import InlinedRows
from quacklake.core.format.inline import LIFE, PACKED, has_width, pack
from quacklake.core.format.schema import from_arrow
from quacklake.core.scan.inlined_rows import decode_inlined
from quacklake.errors import CatalogError
from tests import seeds

SCHEMA = from_arrow(pa.schema([("a", pa.string()), ("b", pa.string())]))
ERROR = "not a list of texts|cannot be read"


def read(payloads: list[str]) -> list[tuple[str | None, ...]]:
    life = {name: pa.array([1] * len(payloads), pa.int64()) for name in LIFE}
    rows = pa.table({**life, "payload": pa.array(payloads, pa.string())})
    found = decode_inlined([InlinedRows(SCHEMA, 1, rows)], SCHEMA, PACKED)
    assert found is not None
    return list(zip(*(found.column(name).to_pylist() for name in ("c1", "c2")), strict=True))


@pytest.mark.parametrize("payload", ["", "no JSON", "1", "null", '{"a": "1"}', "[1, 2]", '[["1"], null]'])
def test_a_text_that_is_no_packed_row_is_an_error_of_ours(payload: str) -> None:
    with pytest.raises(CatalogError, match=ERROR):
        read([payload])
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
        if None in expected:
            with pytest.raises(CatalogError, match=ERROR):
                read(payloads)
        else:
            assert read(payloads) == expected
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
