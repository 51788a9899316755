"""Turn the bodies of messages into rows; a body that is none is kept aside with the reason.

DuckDB decodes all bodies of a batch at once. Only those that fail are tried again one by one, for the reason.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.connectors.nats.protocol import StoredMessages
from quacklake.errors import ConfigError
from quacklake.extend.duckdbs import arrow_table, wider
from quacklake.extend.names import quote

FORMATS = ("json", "csv", "raw", "arrow")
METADATA = pa.schema(
    [
        ("_subject", pa.string()),
        ("_sequence", pa.int64()),
        ("_time", pa.timestamp("us", "UTC")),
        ("_headers", pa.binary()),
    ]
)
_INTEGERS = {f"{sign}{size}" for sign in ("", "u") for size in ("tinyint", "smallint", "integer", "bigint", "hugeint")}
REJECTED = pa.schema([*METADATA, ("_data", pa.binary()), ("_reason", pa.string())])


@dataclass(frozen=True)
class Decoded:
    """The rows of good messages, with their metadata, and the bad messages with their reasons."""

    rows: pa.Table
    rejected: pa.Table


class Decoder:
    """Decodes messages of one format into columns that are given as in ``CREATE TABLE`` (``id BIGINT, v VARCHAR``).

    In JSON a key that is missing is NULL, and a key that is no column is left out. Inside a nested column every field
    must be there.
    """

    def __init__(self, form: str, columns: str | None = None) -> None:
        if form not in FORMATS:
            raise ConfigError(f"nats: the format cannot be {form!r}", hint=f"one of: {', '.join(FORMATS)}")
        if not (columns or "").strip() and form != "raw":
            hint = "schema='id BIGINT, name VARCHAR', or sample=1000 to infer the columns of JSON and CSV"
            raise ConfigError(f"nats: the format {form} needs a schema", hint=hint)
        self.form = form
        self._connection = duckdb.connect(config={"enable_external_access": "false"})
        self._types = _declare_types(self._connection, columns or "_data BLOB")
        self._connection.execute("SET TimeZone = 'UTC'")
        self._wide = self._wider()
        arrow = arrow_table(self._connection, f"SELECT {', '.join(_nulls(self._types))}").schema
        taken = [name for name in self._types if name in METADATA.names]
        if taken:
            raise ConfigError(f"nats: the schema cannot have the column {taken[0]}, which messages have themselves")
        self.columns = pa.schema([pa.field(field.name, field.type) for field in arrow])
        self.schema = pa.schema([*self.columns, *METADATA])

    def decode(self, messages: StoredMessages) -> Decoded:
        """Return the rows of messages and the messages that are none."""
        metadata = _metadata(messages)
        rows: pa.Table
        counts: list[int] | None
        bad: dict[int, str]
        match self.form:
            case "raw":
                rows, counts, bad = pa.table({"_data": messages.data}), None, {}
            case "arrow":
                rows, counts, bad = self._arrow(messages.data)
            case "csv":
                rows, counts, bad = self._csv(messages.data)
            case _:
                rows, counts, bad = self._json(messages.data)
        beside = metadata
        if bad or counts is not None:
            places = _others(len(messages), bad)
            beside = metadata.take(places if counts is None else np.repeat(places, counts))
        rows = pa.table([*rows.columns, *beside.columns], schema=self.schema)
        if not bad:
            return Decoded(rows, REJECTED.empty_table())
        bad = dict(sorted(bad.items()))
        places = pa.array(list(bad), pa.int64())
        rejected = metadata.take(places).append_column("_data", messages.data.take(places))
        return Decoded(rows, rejected.append_column("_reason", pa.array(bad.values(), pa.string())).cast(REJECTED))

    def _json(self, bodies: pa.BinaryArray) -> tuple[pa.Table, None, dict[int, str]]:
        texts, bad = _texts(bodies)
        shape = literal(json.dumps({name: _shape(self._wide.get(name, kind)) for name, kind in self._types.items()}))
        row = f"TRY(json_transform_strict(body, {shape}))"
        integers = [literal(pointer(name)) for name, kind in self._types.items() if kind.id in _INTEGERS]
        if integers:  # DuckDB would round 1.5, and take true for 1
            kinds = f"TRY(json_type(body, [{', '.join(integers)}]))"
            wrong = f"list_contains({kinds}, 'DOUBLE') OR list_contains({kinds}, 'BOOLEAN')"
            row = f"CASE WHEN NOT ({wrong}) THEN {row} END"
        query = f"SELECT {row} AS row FROM messages"
        if self._wide:
            parts, lost = [], []
            for name, kind in self._types.items():
                value = f"row.{quote(name)}"
                if name in self._wide:
                    lost.append(_would_lose(value, kind, self._wide[name]))
                    value = f"TRY_CAST({value} AS {kind})"
                parts.append(f"{quote(name)} := {value}")
            fits = f"row IS NOT NULL AND NOT ({' OR '.join(lost)})"
            query = f"SELECT CASE WHEN {fits} THEN struct_pack({', '.join(parts)}) END AS row FROM ({query})"
        found = self._query(query, texts).column("row")
        # Most bodies have every key. The others are read again, column by column.
        if found.null_count:
            missing = [place for place in np.flatnonzero(found.is_null().to_numpy()).tolist() if place not in bad]
            found = self._lenient(found.combine_chunks(), texts, missing, bad) if missing else found
        return _unpack_structs(found.take(_others(len(bodies), bad)) if bad else found, self.columns), None, bad

    def _wider(self) -> dict[str, Any]:
        """Return the columns that JSON is read into as wider types, so that nothing is rounded, cut or shifted."""
        if self.form != "json":
            return {}
        # Whole numbers are checked by the kind of the JSON value.
        others = {name: kind for name, kind in self._types.items() if kind.id not in _INTEGERS}
        wide = {name: self._connection.type(wider(kind)) for name, kind in others.items()}
        return {name: kind for name, kind in wide.items() if str(kind) != str(self._types[name])}

    def _lenient(self, found: pa.Array, texts: pa.Array, places: Sequence[int], bad: dict[int, str]) -> pa.ChunkedArray:
        """Read bodies that lack keys, and say what is wrong with those that lack more than that."""
        parts, checks = [], ["WHEN json_type(body) <> 'OBJECT' THEN 'the JSON is not an object'"]
        for name, kind in self._types.items():
            path, shape = literal(pointer(name)), literal(json.dumps(_shape(self._wide.get(name, kind))))
            value = f"json_extract(body, {path})"
            part = f"TRY(json_transform_strict({value}, {shape}))"
            reason = literal(f"{name} is not of type {kind}: ")
            wrong = f"{part} IS NULL"
            if name in self._wide:
                wrong += f" OR {_would_lose(part, kind, self._wide[name])}"
                part = f"TRY_CAST({part} AS {kind})"
            parts.append(f"{quote(name)} := {part}")
            if kind.id in _INTEGERS:
                number = f"TRY(CAST({value} AS DOUBLE))"
                wrong += f" OR json_type({value}) = 'BOOLEAN' OR {number} <> trunc({number})"
            checks.append(f"WHEN json_type({value}) <> 'NULL' AND ({wrong}) THEN {reason} || left({value}, 100)")
        query = f"""SELECT CASE WHEN NOT json_valid(body) THEN 'no JSON' {" ".join(checks)} END AS reason,
            CASE WHEN json_valid(body) THEN struct_pack({", ".join(parts)}) END AS row FROM messages"""
        again = self._query(query, texts.take(pa.array(places, pa.int64())))
        for place, reason in zip(places, again.column("reason").to_pylist(), strict=True):
            if reason is not None:
                bad[place] = reason
        kept = np.arange(len(found), dtype=np.int64)
        kept[list(places)] = len(found) + np.arange(len(places))
        return pa.chunked_array([found, again.column("row").combine_chunks().cast(found.type)]).take(pa.array(kept))

    def _csv(self, bodies: pa.BinaryArray) -> tuple[pa.Table, None, dict[int, str]]:
        """Read one line from each body by itself, so that a quote left open spoils no other. Empty means NULL."""
        texts, bad = _texts(bodies)
        rows: list[list[str | None]] = []
        places: list[int] = []
        for place, text in enumerate(texts.to_pylist()):
            try:
                lines = list(csv.reader(StringIO(text, newline=""), strict=True)) if place not in bad else []
            except csv.Error as error:
                bad[place] = f"no CSV: {error}"
                continue
            if len(lines) == 1 and len(lines[0]) == len(self._types):
                rows.append([value or None for value in lines[0]])
                places.append(place)
            else:
                bad.setdefault(place, f"not one line of {len(self._types)} values")
        columns = list(zip(*rows, strict=True)) or [()] * len(self._types)
        read = pa.table([pa.array(values, pa.string()) for values in columns], names=self.columns.names)
        parts = [f"{_from_text(quote(name), kind)} AS {quote(name)}" for name, kind in self._types.items()]
        cast = self._query(f"SELECT {', '.join(parts)} FROM messages", read)
        for name, kind in self._types.items():
            failed = pc.and_(pc.is_null(cast.column(name)), pc.is_valid(read.column(name)))
            for row in np.flatnonzero(failed.to_numpy()).tolist():
                bad.setdefault(places[row], f"{name} is not of type {kind}: {read.column(name)[row].as_py()[:100]}")
        good = pa.array([row for row, place in enumerate(places) if place not in bad], pa.int64())
        return cast.take(good).cast(self.columns), None, bad

    def _arrow(self, bodies: pa.BinaryArray) -> tuple[pa.Table, list[int], dict[int, str]]:
        """Return the rows of Arrow streams, of which each body may have many."""
        tables, counts, bad = [], [], dict[int, str]()
        for place, body in enumerate(bodies):
            try:
                rows = pa.ipc.open_stream(body.as_buffer()).read_all().select(self.columns.names).cast(self.columns)
                rows.validate(full=True)
            except (pa.ArrowException, KeyError, ValueError, OSError) as error:
                bad[place] = (str(error) or "no Arrow stream").splitlines()[0][:500]
                continue
            tables.append(rows)
            counts.append(rows.num_rows)
        return pa.concat_tables([self.columns.empty_table(), *tables]), counts, bad

    def _query(self, text: str, bodies: pa.Array | pa.Table) -> pa.Table:
        given = bodies if isinstance(bodies, pa.Table) else pa.table({"body": bodies})
        self._connection.register("messages", given)
        try:
            return arrow_table(self._connection, text)
        finally:
            self._connection.unregister("messages")


def _declare_types(connection: duckdb.DuckDBPyConnection, columns: str) -> dict[str, Any]:
    """Return the types of columns that are declared as in ``CREATE TABLE``."""
    try:
        statements = connection.extract_statements(f"CREATE TEMP TABLE declared ({columns})")
        if len(statements) != 1:
            raise ConfigError("nats: the schema is more than a list of columns")
        connection.execute(statements[0])
        described = connection.table("declared")
    except duckdb.Error as error:
        raise ConfigError(f"nats: the schema cannot be read: {str(error).splitlines()[0]}") from None
    return dict(zip(described.columns, described.types, strict=True))


def _would_lose(value: str, kind: Any, wide: Any) -> str:
    """Return a condition that is true where a value of the wider type does not fit."""
    return f"CAST(TRY_CAST({value} AS {kind}) AS {wide}) IS DISTINCT FROM {value}"


def _nulls(types: Mapping[str, Any]) -> list[str]:
    return [f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in types.items()]


def _shape(kind: Any) -> Any:
    """Return a type in the form that DuckDB's JSON functions take."""
    match kind.id:
        case "struct":
            return {name: _shape(child) for name, child in kind.children}
        case "list":
            return [_shape(kind.children[0][1])]
        case "map":
            raise ConfigError("nats: a MAP cannot be read from JSON", hint="declare the column as JSON or VARCHAR")
    return str(kind)


def _from_text(value: str, kind: Any) -> str:
    """Return the expression of a value in CSV; nested ones may be JSON."""
    cast = f"TRY_CAST({value} AS {kind})"
    if kind.id in _INTEGERS:  # DuckDB would round 1.5
        number = f"TRY_CAST({value} AS DOUBLE)"
        return f"CASE WHEN {number} = trunc({number}) THEN {cast} END"
    if kind.id in ("struct", "list"):
        return f"coalesce(TRY(json_transform_strict({value}, {literal(json.dumps(_shape(kind)))})), {cast})"
    wide = wider(kind)
    if wide == str(kind):
        return cast
    told = f"TRY_CAST({value} AS {wide})"
    return f"CASE WHEN NOT ({_would_lose(told, kind, wide)}) THEN TRY_CAST({told} AS {kind}) END"


def literal(text: str) -> str:
    """Return a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def pointer(name: str) -> str:
    """Return the JSON pointer to a key."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _texts(bodies: pa.BinaryArray) -> tuple[pa.Array, dict[int, str]]:
    """Return bodies as texts; those that are none are empty, with the reason."""
    try:
        return bodies.cast(pa.string()), {}
    except pa.ArrowInvalid:
        bad, texts = dict[int, str](), []
        for place, body in enumerate(bodies.to_pylist()):
            try:
                texts.append(body.decode())
            except UnicodeDecodeError as error:
                texts.append("")
                bad[place] = f"no text in UTF-8: {error.reason}"
        return pa.array(texts, pa.string()), bad


def _others(count: int, places: Iterable[int]) -> npt.NDArray[np.int64]:
    """Return the numbers below a count without some of them."""
    kept = np.ones(count, np.bool_)
    kept[list(places)] = False
    return np.flatnonzero(kept)


def _unpack_structs(structs: pa.ChunkedArray | pa.StructArray, schema: pa.Schema) -> pa.Table:
    array = structs.combine_chunks() if isinstance(structs, pa.ChunkedArray) else structs
    return pa.table([array.field(place) for place in range(len(schema))], names=schema.names).cast(schema)


def _metadata(messages: StoredMessages) -> pa.Table:
    return pa.table(
        [
            messages.subjects.cast(pa.string()),
            pa.array(messages.sequences),
            pa.array(messages.times // 1000).cast(METADATA.field("_time").type),
            messages.headers,
        ],
        schema=METADATA,
    )


def raw_batch(messages: StoredMessages) -> pa.RecordBatch:
    """Return messages as they are: ``_data`` beside the metadata."""
    metadata = _metadata(messages)
    return pa.record_batch(
        [messages.data, *(column.combine_chunks() for column in metadata.columns)], ["_data", *METADATA.names]
    )
