"""Values of parameters as JSON, without loss: what JSON has no word for is an object with a type and a text.

>>> to_json([1, "a", b"x", {"n": None}])
[1, 'a', {'type': 'BLOB', 'value': 'eA=='}, {'type': 'STRUCT', 'value': {'n': None}}]
>>> from_json(to_json([1, "a", b"x", {"n": None}]))
[1, 'a', b'x', {'n': None}]
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
import numbers
import uuid
from collections.abc import Callable
from typing import Any

from quacklake.errors import InputError

__all__ = ["from_json", "to_json"]

_DEEPEST = 64
"""The most lists and objects around a value."""


def to_json(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON has it. Raise ``InputError`` for one of a type that cannot be sent."""
    if depth > _DEEPEST:
        raise InputError(f"the values of parameters are nested more than {_DEEPEST} deep")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, list | tuple):
        return [to_json(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return _tag_type("STRUCT", {str(key): to_json(each, depth + 1) for key, each in value.items()})
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return float(value) if math.isfinite(value) else _tag_type("DOUBLE", str(float(value)))
    for kind, name, text in _TEXTS:
        if isinstance(value, kind):
            return None if _is_missing(value) else _tag_type(name, text(value))
    raise InputError(
        f"a parameter of type {type(value).__name__} cannot be sent", hint="pass a number, text, bytes, time or list"
    )


def from_json(value: Any, depth: int = 0) -> Any:
    """Return the value that ``to_json`` was given. Raise ``InputError`` for what it does not make."""
    if depth > _DEEPEST:
        raise InputError(f"the values of parameters are nested more than {_DEEPEST} deep")
    if isinstance(value, list):
        return [from_json(each, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {"type", "value"}:
        raise InputError("an object among the values of parameters needs type and value")
    kind, text = value["type"], value["value"]
    if kind == "STRUCT" and isinstance(text, dict):
        return {key: from_json(each, depth + 1) for key, each in text.items()}
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None or not isinstance(text, str):
        raise InputError("a value of a parameter has an unknown type", hint=", ".join(["STRUCT", *_READERS]))
    try:
        return read(text)
    except (ValueError, ArithmeticError):
        raise InputError(f"a value of a parameter is no {kind}") from None


def _tag_type(kind: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "value": value}


def _is_missing(value: Any) -> bool:
    """Return True for pandas' time that is none, which is not equal to itself."""
    return isinstance(value, dt.date | dt.timedelta) and bool(value != value)


def _duration(value: dt.timedelta) -> str:
    return f"{value.days} {value.seconds} {value.microseconds}"


def _read_duration(text: str) -> dt.timedelta:
    days, seconds, microseconds = map(int, text.split())
    return dt.timedelta(days, seconds, microseconds)


_TEXTS: tuple[tuple[Any, str, Callable[[Any], str]], ...] = (
    (bytes | bytearray | memoryview, "BLOB", lambda value: base64.b64encode(value).decode()),
    (decimal.Decimal, "DECIMAL", str),
    (dt.datetime, "TIMESTAMP", lambda value: value.isoformat(timespec="microseconds")),
    (dt.date, "DATE", dt.date.isoformat),
    (dt.time, "TIME", dt.time.isoformat),
    (dt.timedelta, "INTERVAL", _duration),
    (uuid.UUID, "UUID", str),
)
_READERS: dict[str, Callable[[str], Any]] = {
    "BLOB": lambda text: base64.b64decode(text, validate=True),
    "DECIMAL": decimal.Decimal,
    "DOUBLE": float,
    "TIMESTAMP": dt.datetime.fromisoformat,
    "DATE": dt.date.fromisoformat,
    "TIME": dt.time.fromisoformat,
    "INTERVAL": _read_duration,
    "UUID": uuid.UUID,
}
