"""Infer the columns of JSON and CSV messages from the first of a stream.

A type is taken only when every value of the sample is one; text takes what nothing else can.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from typing import Any

import duckdb
import pyarrow as pa

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.decoding import METADATA, literal, pointer
from quacklake.connectors.nats.stream import NatsStream
from quacklake.errors import ConfigError, InputError
from quacklake.extend.names import quote

INFERRED = ("json", "csv")
_MAX_COLUMNS = 1000
_DATE = r"\d{4}-\d\d-\d\d"
_TIME = r"[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?"
_TEXTS = (
    ("DATE", re.compile(_DATE)),
    ("TIMESTAMP", re.compile(_DATE + _TIME)),
    ("TIMESTAMPTZ", re.compile(_DATE + _TIME + r" ?(Z|[+-]\d\d(:?\d\d)?)")),
)
_WORDS = (
    ("BIGINT", re.compile(r"-?(0|[1-9]\d{0,18})")),
    ("DOUBLE", re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")),
    ("BOOLEAN", re.compile(r"true|false|True|False|TRUE|FALSE")),
    *_TEXTS,
)


def sample_columns(stream: NatsStream, connection: NatsConnection, form: str, count: int) -> str:
    """Return the columns of a stream, as in ``CREATE TABLE``, from its first ``count`` messages.

    Raise ``InputError`` when none of them is a row.
    """
    there = stream.look(connection)
    bodies: list[bytes] = []
    parts = connection.read_range(stream.name, there.first, there.last + 1, stream.subjects, batch=min(count, 10_000))
    for part in parts:
        bodies += part.data.to_pylist()
        if len(bodies) >= count:
            break
    parts.close()
    found = infer_columns(form, bodies[:count])
    if found is None:
        what = f"none of the first {len(bodies[:count])} messages" if bodies else "no message"
        raise InputError(
            f"the columns of the NATS stream {stream.name!r} cannot be inferred: it has {what} in {form}",
            hint="set schema='id BIGINT, name VARCHAR'",
        )
    return found


def infer_columns(form: str, bodies: Sequence[bytes]) -> str | None:
    """Return the columns that bodies have, None when none of them is a row."""
    if form not in INFERRED:
        raise ConfigError(f"nats: the columns of {form} cannot be inferred", hint="give a schema instead of sample")
    texts = list(_texts(bodies))
    types = _csv(texts) if form == "csv" else _json(texts)
    types = {name: kind for name, kind in types.items() if name not in METADATA.names}
    if len(types) > _MAX_COLUMNS:
        raise InputError(f"the messages have {len(types)} different keys", hint="set schema='id BIGINT, …'")
    return ", ".join(f"{quote(name)} {kind}" for name, kind in types.items()) or None


def _texts(bodies: Iterable[bytes]) -> Iterable[str]:
    for body in bodies:
        try:
            yield body.decode()
        except UnicodeDecodeError:
            continue


def _csv(texts: Sequence[str]) -> dict[str, str]:
    lines: list[list[str]] = []
    for text in texts:
        try:
            read = list(csv.reader(StringIO(text, newline=""), strict=True))
        except csv.Error:
            continue
        if len(read) == 1 and (not lines or len(read[0]) == len(lines[0])):
            lines.append(read[0])
    return {f"column{place}": _word_type(values) for place, values in enumerate(zip(*lines, strict=True))}


def _word_type(values: Iterable[str]) -> str:
    return _matching([value for value in values if value], _WORDS, _casts)


def _matching(
    values: Sequence[str], kinds: Sequence[tuple[str, re.Pattern[str]]], fits: Callable[[Sequence[str], str], bool]
) -> str:
    for kind, pattern in kinds:
        if values and all(map(pattern.fullmatch, values)) and fits(values, kind):
            return kind
    return "VARCHAR"


def _casts(values: Sequence[str], kind: str) -> bool:
    """Return whether DuckDB takes the texts for values of a type."""
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.register("given", pa.table({"v": pa.array(values, pa.string())}))
        row = connection.execute(f"SELECT count(*) = count(TRY_CAST(v AS {kind})) FROM given").fetchone()
    return row is not None and bool(row[0])


def _json(texts: Sequence[str]) -> dict[str, str]:
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.register("given", pa.table({"body": pa.array(texts, pa.string())}))
        connection.execute(
            """CREATE TEMP TABLE objects AS SELECT CAST(body AS JSON) AS body FROM given
            WHERE json_valid(body) AND CASE WHEN json_valid(body) THEN json_type(body) = 'OBJECT' ELSE false END"""
        )
        row = connection.execute("SELECT CAST(json_group_structure(body) AS VARCHAR) FROM objects").fetchone()
        structure = json.loads(row[0]) if row is not None and row[0] is not None else {}
        if not isinstance(structure, dict):
            return {}
        return {name: _json_type(connection, name, shape) for name, shape in structure.items()}


def _json_type(connection: duckdb.DuckDBPyConnection, name: str, shape: Any) -> str:
    """Return the first type that every value of a key is."""
    for kind, wanted in _candidates(connection, name, shape):
        value = f"json_extract(body, {literal(pointer(name))})"
        decoded = f"TRY(json_transform_strict({value}, {literal(json.dumps(wanted))}))"
        row = connection.execute(
            f"SELECT count(*) FROM objects WHERE json_type({value}) <> 'NULL' AND {decoded} IS NULL"
        ).fetchone()
        if row == (0,):
            return kind
    return "VARCHAR"


def _candidates(connection: duckdb.DuckDBPyConnection, name: str, shape: Any) -> list[tuple[str, Any]]:
    """Return types that the values may be, with their form for DuckDB's JSON functions."""
    if isinstance(shape, dict | list):
        kind, wanted = _infer_nested(shape)
        return [(kind, wanted)] if kind else []
    if shape in ("UBIGINT", "BIGINT", "HUGEINT"):
        return [("BIGINT", "BIGINT"), ("UBIGINT", "UBIGINT")]
    if shape in ("DOUBLE", "BOOLEAN"):
        return [(shape, shape)]
    if shape == "VARCHAR":
        rows = connection.execute(f"SELECT DISTINCT json_extract_string(body, {literal(pointer(name))}) FROM objects")
        kind = _matching([text for (text,) in rows.fetchall() if text is not None], _TEXTS, _casts)
        return [(kind, "TIMESTAMP WITH TIME ZONE" if kind == "TIMESTAMPTZ" else kind)]
    return []


def _infer_nested(shape: Any) -> tuple[str, Any]:
    """Return a nested type, an empty one for values without a common type."""
    if isinstance(shape, list):
        kind, wanted = _infer_nested(shape[0])
        return (f"{kind}[]", [wanted]) if kind else ("", None)
    if isinstance(shape, dict):
        inner = {name: _infer_nested(child) for name, child in shape.items()}
        if not inner or not all(kind for kind, _ in inner.values()):
            return "", None
        fields = ", ".join(f"{quote(name)} {kind}" for name, (kind, _) in inner.items())
        return f"STRUCT({fields})", {name: wanted for name, (_, wanted) in inner.items()}
    if shape in ("UBIGINT", "BIGINT", "HUGEINT"):
        return "BIGINT", "BIGINT"
    return (shape, shape) if shape in ("DOUBLE", "BOOLEAN", "VARCHAR") else ("", None)
