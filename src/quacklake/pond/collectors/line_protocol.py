"""Line protocol, as Telegraf and InfluxDB clients send it: text becomes rows, by measurement.

``weather,site=dock temp=4.5,rain=0i 1704067200000000000`` is a row of ``weather`` with the tag ``site``. Lines of one
time and the same tags are one row.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from quacklake.errors import ConstraintError, InputError, LimitError, SchemaMismatchError
from quacklake.extend.names import check_name, fold

PRECISIONS = {"ns": 1, "n": 1, "us": 1_000, "u": 1_000, "µ": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9}
"""The nanoseconds of each precision that a request can name."""
TIME = "timestamp"
_TYPES = {"float": pa.float64(), "integer": pa.int64(), "unsigned": pa.uint64(), "boolean": pa.bool_()}
_TRUE, _FALSE = ("t", "T", "true", "True", "TRUE"), ("f", "F", "false", "False", "FALSE")
_INTEGER = re.compile(r"[+-]?\d{1,20}[iu]")
_FLOAT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_KEY = re.compile(r"((?:\\.|[^\\,= ])+)=")
_TAG_VALUE = re.compile(r"((?:\\.|[^\\, ])+)")
_MEASUREMENT = re.compile(r"((?:\\.|[^\\, ])+)")
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
_BARE = re.compile(r"[^, ]+")
_HEAD = re.compile(r"(?:\\.|[^\\ ])+")
_STAMP = re.compile(r"[+-]?\d{1,19}")
_EXAMPLE = "weather,site=dock temp=4.5 1704067200000000000"
_MAX_VALUE = 2**63


class _MeasurementRows:
    """The rows of one measurement."""

    def __init__(self) -> None:
        self.tags: dict[str, None] = {}
        self.fields: dict[str, str] = {}
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}


@dataclass(slots=True)
class _Lines:
    """The points of a request so far. Senders repeat measurement and tags: each such head is parsed once."""

    factor: int
    now: int
    max_columns: int
    found: dict[str, _MeasurementRows] = field(default_factory=dict)
    heads: dict[str, tuple[_MeasurementRows, tuple[tuple[str, str], ...]]] = field(default_factory=dict)


def parse(text: str, precision: str, now: int, *, max_rows: int, max_columns: int) -> dict[str, pa.Table]:
    """Return the rows of each measurement. ``now`` (nanoseconds) is the time of lines without one.

    Raise ``InputError`` and its kin, with the number of the line; ``LimitError`` for too much of anything.
    """
    factor = PRECISIONS.get(precision)
    if factor is None:
        raise InputError(f"there is no precision {precision[:10]!r}", hint=f"one of {', '.join(PRECISIONS)}")
    lines = _Lines(factor, now, max_columns)
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip("\r ")
        if not line or line.startswith("#"):
            continue
        count += 1
        if count > max_rows:
            raise LimitError(f"a request has more than {max_rows} lines", hint="send smaller batches")
        try:
            _take(lines, line)
        except (InputError, LimitError) as error:
            raise type(error)(f"line {number}: {error.message}", hint=error.hint) from None
    return {name: _table(name, rows) for name, rows in lines.found.items()}


def _take(lines: _Lines, line: str) -> None:
    words = line.split(" ")
    if len(words) <= 3 and "\\" not in line and '"' not in line:
        head, stamp = words[0], words[2] if len(words) == 3 else ""
        if len(words) < 2:
            raise InputError("there are no fields", hint=_EXAMPLE)
        fields = [_bare_field(part) for part in words[1].split(",")]
    else:
        match = _HEAD.match(line)
        if match is None or match.end() >= len(line):
            raise InputError("there are no fields", hint=_EXAMPLE)
        head = match[0]
        fields, position = _fields(line, match.end() + 1)
        stamp = line[position:].strip()
    if head not in lines.heads:
        lines.heads[head] = _head(lines, head)
    rows, tags = lines.heads[head]
    if stamp and not _STAMP.fullmatch(stamp):
        raise InputError(
            f"{stamp[:30]!r} is not a time", hint="times are whole numbers, of the precision of the request"
        )
    moment = int(stamp) * lines.factor if stamp else lines.now
    if not -_MAX_VALUE <= moment < _MAX_VALUE:
        raise ConstraintError(f"{stamp} is not a time of this precision", hint="say precision=s, ms, us or ns")
    _add(rows, tags, moment, fields, lines.max_columns)


def _head(lines: _Lines, text: str) -> tuple[_MeasurementRows, tuple[tuple[str, str], ...]]:
    """Return the rows of the measurement of a head, and its tags in the order of names."""
    match = _MEASUREMENT.match(text)
    if match is None:
        raise InputError("there is no measurement")
    rows = lines.found.setdefault(_plain(match[1]), _MeasurementRows())
    position = match.end()
    tags: list[tuple[str, str]] = []
    while position < len(text):
        if text[position] != ",":
            raise InputError(f"something follows the tags: {text[position : position + 20]!r}")
        key, position = _key(text, position + 1)
        value = _TAG_VALUE.match(text, position)
        if value is None:
            raise InputError(f"the tag {key[:40]!r} has no value")
        tags.append((key, _plain(value[1])))
        position = value.end()
    rows.tags.update(dict.fromkeys(key for key, _ in tags))
    return rows, tuple(sorted(tags))


def _bare_field(text: str) -> tuple[str, str, Any]:
    """Return a field without quotes and escapes."""
    key, equals, word = text.partition("=")
    if not key or not equals:
        raise InputError(f"{text[:20]!r} is not a key and a value")
    return (key, *_word(word, key))


def _fields(line: str, position: int) -> tuple[list[tuple[str, str, Any]], int]:
    fields = []
    while True:
        key, position = _key(line, position)
        kind, value, position = _value(line, position, key)
        fields.append((key, kind, value))
        if position >= len(line) or line[position] == " ":
            return fields, position
        if line[position] != ",":
            raise InputError(f"something follows the field {key[:40]!r}")
        position += 1


def _key(line: str, position: int) -> tuple[str, int]:
    match = _KEY.match(line, position)
    if match is None:
        raise InputError(f"{line[position : position + 20]!r} is not a key and a value")
    return _plain(match[1]), match.end()


def _value(line: str, position: int, key: str) -> tuple[str, Any, int]:
    text = _STRING.match(line, position)
    if text is not None:
        return "string", re.sub(r'\\(["\\])', r"\1", text[1]), text.end()
    match = _BARE.match(line, position)
    if match is None:
        raise InputError(f"the field {key[:40]!r} has no value")
    return (*_word(match[0], key), match.end())


def _word(word: str, key: str) -> tuple[str, Any]:
    """Return the type and the value of a number or truth."""
    if _FLOAT.fullmatch(word):
        number = float(word)
        if math.isinf(number):
            raise ConstraintError(f"the field {key[:40]!r} is out of range: {word[:30]}")
        return "float", number
    if _INTEGER.fullmatch(word):
        kind, whole = ("integer" if word[-1] == "i" else "unsigned"), int(word[:-1])
        low, high = (-_MAX_VALUE, _MAX_VALUE) if kind == "integer" else (0, 2 * _MAX_VALUE)
        if not low <= whole < high:
            raise ConstraintError(f"the field {key[:40]!r} is out of range: {word[:30]}")
        return kind, whole
    if word in _TRUE or word in _FALSE:
        return "boolean", word in _TRUE
    raise InputError(f"{word[:30]!r} is not a value of the field {key[:40]!r}", hint='4.5, 4i, 4u, true or "text"')


def _add(
    rows: _MeasurementRows,
    tags: tuple[tuple[str, str], ...],
    moment: int,
    fields: list[tuple[str, str, Any]],
    most: int,
) -> None:
    for key, kind, _ in fields:
        known = rows.fields.setdefault(key, kind)
        if known != kind:
            raise SchemaMismatchError(f"the field {key[:40]!r} is {kind}, and was {known} before")
    if len(rows.tags) + len(rows.fields) > most:
        raise LimitError(f"a measurement has more than {most} columns")
    row = rows.rows.setdefault((moment, tags), {})
    for key, _, value in fields:
        if row.setdefault(key, value) != value:
            raise ConstraintError(f"the field {key[:40]!r} has two values at one time")


def _table(name: str, rows: _MeasurementRows) -> pa.Table:
    names = [TIME, *rows.tags, *rows.fields]
    if len({fold(check_name(each, "column")) for each in names}) < len(names):
        raise SchemaMismatchError(
            f"{name[:60]!r} has two columns of one name", hint="tags, fields and timestamp share one row"
        )
    moments = pa.array([moment // 1000 for moment, _ in rows.rows], pa.timestamp("us", "UTC"))
    labels = [dict(tags) for _, tags in rows.rows]
    columns = [moments]
    columns += [pa.array([label.get(tag) for label in labels], pa.string()) for tag in rows.tags]
    columns += [
        pa.array([row.get(key) for row in rows.rows.values()], _TYPES.get(kind, pa.string()))
        for key, kind in rows.fields.items()
    ]
    return pa.table(columns, names=names)


def _plain(text: str) -> str:
    """Return a name without the signs that escape commas, spaces and equals signs."""
    return re.sub(r"\\([,= ])", r"\1", text) if "\\" in text else text
