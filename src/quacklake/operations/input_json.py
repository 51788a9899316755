"""Find the faulty line of a JSON file, because DuckDB counts lines differently."""

from __future__ import annotations

import json

from quacklake.operations.input_csv import OpenText

_LARGEST_ARRAY = 1 << 26
"""The most characters of an array to read at once when searching for a fault."""
_SAMPLE = 1 << 18


def faulty_value(open_text: OpenText) -> str | None:
    """Return the problem with the first value that is not an object, or None if there is none."""
    with open_text() as file:
        begin = file.read(_SAMPLE)
    if begin.lstrip().startswith("["):
        return _in_array(open_text)
    if not any(_in_line(0, line) is None for line in begin.splitlines()[:2]):
        return None  # objects that span several lines
    with open_text() as file:
        for number, line in enumerate(file, 1):
            fault = _in_line(number, line) if line.strip() else None
            if fault is not None:
                return fault
    return None


def _in_line(number: int, line: str) -> str | None:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        return f"line {number}, column {error.colno}: {error.msg}"
    return None if isinstance(value, dict) else f"line {number} is {_kind(value)}, not an object"


def _in_array(open_text: OpenText) -> str | None:
    with open_text() as file:
        text = file.read(_LARGEST_ARRAY + 1)
    if len(text) > _LARGEST_ARRAY:
        return None
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            return f"value {number} of the array is {_kind(value)}, not an object"
    return None


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "an array"
    return "a text" if isinstance(value, str) else json.dumps(value)
