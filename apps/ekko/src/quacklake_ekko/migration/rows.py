"""Turn the rows of Arrow files into rows of ``blockchain.transactions``, and back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import ConstraintError, InputError, SchemaMismatchError, nearest
from quacklake_ekko.migration import layout
from quacklake_ekko.transactions import ROWS

_NAMES = {"from_address": "from", "to_address": "to"}
_NUMBERS = ("value", "gas_price", "gas_limit", "nonce")
_PARTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "hour": pc.hour,
}
_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_timestamp,
    pa.types.is_boolean,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
)
_REQUIRED = [field.name for field in ROWS if field.name not in ("to_address", "input_data", "ingested_at", *_PARTS)]


def from_arrow(batch: pa.RecordBatch, created: datetime) -> pa.Table:
    """Return the rows of an Arrow file as the lake has them: ``created`` is when they were ingested.

    Numbers are decimal texts, times are in UTC, and what is empty is NULL. Raise ``SchemaMismatchError`` for other
    columns or types, ``ConstraintError`` for a NULL that the table does not take.
    """
    columns: dict[str, pa.Array] = {}
    for field in ROWS:
        name = _NAMES.get(field.name, field.name)
        if field.name in _PARTS or field.name == "ingested_at":
            continue
        columns[field.name] = _cast(batch, name, layout.SCHEMA.field(name).type, field.type)
    for name in _REQUIRED:
        if columns[name].null_count:
            raise ConstraintError(f"its column {_NAMES.get(name, name)!r} has NULL")
    for name in ("tx_hash", "network", "subnet", "vm_type"):
        if len(batch) and pc.min(pc.binary_length(columns[name])).as_py() == 0:
            raise ConstraintError(f"its column {name!r} has an empty text")
    columns |= {name: part(columns["block_time"]).cast(pa.int32()) for name, part in _PARTS.items()}
    columns |= {name: _decimal(columns[name], name) for name in _NUMBERS}
    to = columns["to_address"]
    columns["to_address"] = pc.if_else(pc.equal(to, ""), pa.scalar(None, pa.string()), to)
    columns["input_data"] = _bytes(columns["input_data"])
    columns["ingested_at"] = pa.repeat(pa.scalar(created, ROWS.field("ingested_at").type), len(batch))
    return pa.table([columns[name] for name in ROWS.names], schema=ROWS)


def to_arrow(rows: pa.Table) -> pa.Table:
    """Return rows of the lake as an Arrow file has them."""
    columns = []
    for field in layout.SCHEMA:
        name = next((ours for ours, theirs in _NAMES.items() if theirs == field.name), field.name)
        column = rows.column(name)
        if field.name == "to":
            column = pc.fill_null(column, "")
        elif field.name == "input_data":
            texts = [b"" if value is None else b"0x" + value.hex().encode() for value in column.to_pylist()]
            column = pa.chunked_array([pa.array(texts, pa.binary())])
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=layout.SCHEMA)


def _cast(batch: pa.RecordBatch, name: str, expected: pa.DataType, wanted: pa.DataType) -> pa.Array:
    if batch.schema.names.count(name) != 1:
        hint = nearest(name, batch.schema.names)
        raise SchemaMismatchError(f"it does not have one column {name!r}", hint=hint)
    column = batch.column(name)
    if not any(is_kind(column.type) and is_kind(expected) for is_kind in _KINDS):
        raise SchemaMismatchError(f"its column {name!r} has the type {column.type}, not {expected}")
    try:
        return column.cast(wanted)
    except pa.ArrowException as error:
        raise SchemaMismatchError(f"its column {name!r} does not fit: {str(error).splitlines()[0][:200]}") from None


def _decimal(column: pa.Array, name: str) -> pa.Array:
    """Return numbers as decimal texts; those of the old writer may be hexadecimal."""
    if not pc.any(pc.invert(pc.match_substring_regex(column, "^(0|[1-9][0-9]{0,77})$"))).as_py():
        return column
    known = {text: _number(text, name) for text in column.unique().to_pylist()}
    return pa.array([known[text] for text in column.to_pylist()], pa.string())


def _number(text: str, name: str) -> str:
    try:
        if len(text) > 80 or not text.isascii() or not text.isalnum():
            raise ValueError
        number = int(text, 16 if text[:2].lower() == "0x" else 10)
        if number >> 256:
            raise ValueError
    except ValueError:
        raise InputError(f"its column {name!r} has {text[:80]!r}, which is not a number from 0 to 2^256 - 1") from None
    return str(number)


def _bytes(column: pa.Array) -> pa.Array:
    """Return the bytes that hexadecimal texts stand for; those that are none are bytes already."""

    def decode(value: bytes | None) -> bytes | None:
        if value in (None, b"", b"0x"):
            return None
        try:
            return bytes.fromhex(value[2:].decode("ascii")) if value[:2] == b"0x" else value
        except (UnicodeDecodeError, ValueError):
            return value

    return pa.array([decode(value) for value in column.to_pylist()], pa.binary())
