"""Columns that a database hands over as lists in JSON, as Arrow.

Python makes an object of every value in JSON. So a list of very many numbers or plain texts is cut into pieces by
Arrow, and only one that has anything else in it is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Convert = Callable[[Sequence[Any]], pa.Array]


def from_json(text: str, type_: pa.DataType, convert: Convert) -> pa.Array:
    """Return a list of integers, flags as numbers, or texts; ``convert`` makes the array of one that has others."""
    if text == "[]" or (text.startswith("[null") and '"' not in text and 5 * text.count("null") + 1 == len(text)):
        return pa.nulls(len(text) // 5, type_)
    found = _texts(text) if pa.types.is_string(type_) else _numbers(text)
    return convert(json.loads(text)) if found is None else found.cast(type_)


def _texts(text: str) -> pa.Array | None:
    if "\\" in text or not (text.startswith('["') and text.endswith('"]')):
        return None
    whole = text[2:-2]
    found = _pieces(whole, '","')
    # a quote that is not between two texts stands beside something else
    return found if whole.count('"') == 2 * (len(found) - 1) else None


def _numbers(text: str) -> pa.Array | None:
    try:
        return _pieces(text[1:-1], ",").cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _pieces(text: str, separator: str) -> pa.Array:
    return pc.list_flatten(pc.split_pattern(pa.array([text], pa.large_string()), separator))
