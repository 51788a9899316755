"""Packed rows that are damaged."""

from __future__ import annotations

import pyarrow as pa
import pytest

from quacklake.errors import CatalogError
from quacklake.format.inline import LIFE, has_width, pack, unpack
from quacklake.format.schema import from_arrow

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
