"""Line protocol, as Telegraf and InfluxDB clients send it: text becomes rows, by measurement.

``weather,site=dock temp=4.5,rain=0i 1704067200000000000`` is a row of ``weather`` with the tag ``site``. Lines of one
time and the same tags are one row.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from quacklake.errors import ConstraintError, InputError, LimitError, SchemaMismatchError
from quacklake.format.names import check_name, fold

PRECISIONS = {"ns": 1, "n": 1, "us": 1_000, "u": 1_000, "µ": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9}
"""The nanoseconds of each precision that a request can name."""
TIME = "timestamp"
_TYPES = {"float": pa.float64(), "integer": pa.int64(), "unsigned": pa.uint64(), "boolean": pa.bool_()}
_TRUE, _FALSE = ("t", "T", "true", "True", "TRUE"), ("f", "F", "false", "False", "FALSE")
_INTEGER = re.compile(r"[+-]?\d+[iu]")
_FLOAT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_KEY = re.compile(r"((?:\\.|[^\\,= ])+)=")
_TAG_VALUE = re.compile(r"((?:\\.|[^\\, ])+)")
_MEASUREMENT = re.compile(r"((?:\\.|[^\\, ])+)")
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
_BARE = re.compile(r"[^, ]+")
_LARGEST = 2**63


class _Rows:
    """The rows of one measurement."""

    def __init__(self) -> None:
        self.tags: dict[str, None] = {}
        self.fields: dict[str, str] = {}
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}


def parse(text: str, precision: str, now: int, *, max_rows: int, max_columns: int) -> dict[str, pa.Table]:
    """Return the rows of each measurement. ``now`` (nanoseconds) is the time of lines without one.

    Raises ``InputError`` and its kin, with the number of the line; ``LimitError`` for too much of anything.
    """
    factor = PRECISIONS.get(precision)
    if factor is None:
        raise InputError(f"there is no precision {precision[:10]!r}", hint=f"one of {', '.join(PRECISIONS)}")
    found: dict[str, _Rows] = {}
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip("\r ")
        if not line or line.startswith("#"):
            continue
        count += 1
        if count > max_rows:
            raise LimitError(f"a request has more than {max_rows} lines", hint="send smaller batches")
        try:
            _take(line, found, factor, now, max_columns)
        except (InputError, LimitError) as error:
            raise type(error)(f"line {number}: {error.message}", hint=error.hint) from None
    return {name: _table(name, rows) for name, rows in found.items()}


def _take(line: str, found: dict[str, _Rows], factor: int, now: int, max_columns: int) -> None:
    match = _MEASUREMENT.match(line)
    if match is None:
        raise InputError("there is no measurement")
    rows = found.setdefault(_plain(match[1]), _Rows())
    position = match.end()
    tags: list[tuple[str, str]] = []
    while position < len(line) and line[position] == ",":
        key, position = _key(line, position + 1)
        value = _TAG_VALUE.match(line, position)
        if value is None:
            raise InputError(f"the tag {key[:40]!r} has no value")
        tags.append((key, _plain(value[1])))
        position = value.end()
    if position >= len(line) or line[position] != " ":
        raise InputError("there are no fields", hint="weather,site=dock temp=4.5 1704067200000000000")
    fields, position = _fields(line, position + 1)
    stamp = line[position:].strip()
    if stamp and not re.fullmatch(r"[+-]?\d{1,19}", stamp):
        raise InputError(f"{stamp[:30]!r} is no time", hint="times are whole numbers, of the precision of the request")
    moment = int(stamp) * factor if stamp else now
    if not -_LARGEST <= moment < _LARGEST:
        raise ConstraintError(f"{stamp} is no time of this precision", hint="say precision=s, ms, us or ns")
    _add(rows, tuple(sorted(tags)), moment, fields, max_columns)


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
        raise InputError(f"{line[position : position + 20]!r} is no key and value")
    return _plain(match[1]), match.end()


def _value(line: str, position: int, key: str) -> tuple[str, Any, int]:
    text = _STRING.match(line, position)
    if text is not None:
        return "string", text[1].replace('\\"', '"').replace("\\\\", "\\"), text.end()
    match = _BARE.match(line, position)
    word = "" if match is None else match[0]
    if match is not None and _INTEGER.fullmatch(word):
        kind, number = ("integer" if word[-1] == "i" else "unsigned"), int(word[:-1])
        low, high = (-_LARGEST, _LARGEST) if kind == "integer" else (0, 2 * _LARGEST)
        if not low <= number < high:
            raise ConstraintError(f"the field {key[:40]!r} is out of range: {word[:30]}")
        return kind, number, match.end()
    if match is not None and _FLOAT.fullmatch(word):
        return "float", float(word), match.end()
    if match is not None and word in (*_TRUE, *_FALSE):
        return "boolean", word in _TRUE, match.end()
    raise InputError(
        f"the field {key[:40]!r} has no value that is one: {word[:30]!r}", hint='4.5, 4i, 4u, true or "text"'
    )


def _add(
    rows: _Rows, tags: tuple[tuple[str, str], ...], moment: int, fields: list[tuple[str, str, Any]], most: int
) -> None:
    rows.tags.update(dict.fromkeys(key for key, _ in tags))
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


def _table(name: str, rows: _Rows) -> pa.Table:
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
