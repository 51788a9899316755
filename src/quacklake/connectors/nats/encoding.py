"""Turn rows into messages: a subject, an id and a body each.

DuckDB encodes all rows of a table at once. What cannot be published is refused here, before anything is durable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.connectors.nats.decoding import FORMATS
from quacklake.errors import ConfigError, InputError, SchemaMismatchError
from quacklake.extend.duckdbs import arrow_table
from quacklake.extend.names import quote

MESSAGES = pa.schema([("subject", pa.string()), ("id", pa.string()), ("rows", pa.int32()), ("data", pa.binary())])
"""The columns of staged files. ``id`` is NULL unless a column gives it; a body of Arrow's has many rows."""

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_NO_TOKEN = r"[\s.*>\x00-\x1f\x7f]"
_NO_SUBJECT = r"[\s*>\x00-\x1f\x7f]|^\.|\.$|\.\."
_NO_HEADER = r"[\r\n\x00]|^\s|\s$"
_ROWS_AT_ONCE = 50_000
_ARROW_ROWS = 1000
_MAX_SUBJECT = 2000


@dataclass(frozen=True)
class SubjectTemplate:
    """A subject, parts of which are the values of columns: ``orders.{region}``.

    A value is one token of the subject, unless the values of a column are ``whole`` subjects of another stream.
    """

    text: str
    whole: bool = False

    def __post_init__(self) -> None:
        tokens = _PLACEHOLDER.sub("x", self.text).split(".")
        bad = any(not token or re.search(r"[\s*>{}\x00-\x1f\x7f]", token) for token in tokens)
        if bad or len(self.text.encode()) > _MAX_SUBJECT:
            raise ConfigError(f"nats: {self.text!r} cannot be the subject of a sink", hint="subject='orders.{region}'")

    @property
    def columns(self) -> list[str]:
        """Return the columns that the subject has values of."""
        return _PLACEHOLDER.findall(self.text)

    def fill(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the subject of each row. Raise ``InputError`` for a value that is not a valid token."""
        parts = _PLACEHOLDER.split(self.text)
        if len(parts) == 1:
            return pa.chunked_array([pa.repeat(self.text, rows.num_rows)], pa.string())
        filled = [self._values(rows, part) if place % 2 else part for place, part in enumerate(parts) if part]
        subjects = pc.binary_join_element_wise(*filled, "")
        if (pc.max(pc.binary_length(subjects)).as_py() or 0) > _MAX_SUBJECT:
            raise InputError(f"a subject of {self.text!r} is longer than {_MAX_SUBJECT} bytes")
        return subjects

    def _values(self, rows: pa.Table, name: str) -> pa.ChunkedArray:
        values = _texts(rows, name)
        never = _NO_SUBJECT if self.whole else _NO_TOKEN
        bad = pc.or_(pc.equal(pc.binary_length(values), 0), pc.match_substring_regex(values, never))
        bad = pc.fill_null(bad, True)
        if pc.any(bad).as_py():
            value = values.filter(bad)[0].as_py()
            raise InputError(
                f"{name}={value!r} cannot be a part of the subject {self.text!r}",
                hint="a token of a subject is not empty and has no space, dot, * or >",
            )
        return values


@dataclass(frozen=True)
class Encoder:
    """Encodes rows in one format; data that travels to executors. ``largest`` bounds the bytes of a body."""

    form: str
    subject: SubjectTemplate
    id_column: str | None = None
    largest: int = 1 << 20

    def check(self, schema: pa.Schema) -> None:
        """Raise ``SchemaMismatchError`` for rows that cannot be encoded."""
        assert self.form in FORMATS
        needed = [*self.subject.columns, *filter(None, [self.id_column]), *(["_data"] if self.form == "raw" else [])]
        unknown = next((name for name in needed if name not in schema.names), None)
        if unknown is not None:
            raise SchemaMismatchError(
                f"the rows have no column {unknown!r}", hint=f"they have {', '.join(schema.names)}"
            )
        if len(set(schema.names)) < len(schema.names):
            raise SchemaMismatchError("the rows have two columns of one name")
        try:
            self.messages(schema.empty_table())
        except (duckdb.Error, pa.ArrowException) as error:
            raise SchemaMismatchError(f"{self.form} cannot hold the rows: {str(error).splitlines()[0]}") from error

    def messages(self, rows: pa.Table) -> pa.Table:
        """Return the messages of rows, in their order. Raise ``InputError`` for values that cannot be published."""
        parts = [MESSAGES.empty_table()]
        for start in range(0, max(1, rows.num_rows), _ROWS_AT_ONCE):
            some = rows.slice(start, _ROWS_AT_ONCE)
            parts.extend(self._arrow(some) if self.form == "arrow" else [self._one_each(some)])
        found = pa.concat_tables(parts)
        sizes = pc.add(pc.binary_length(found.column("data")), pc.fill_null(pc.binary_length(found.column("id")), 0))
        longest = pc.max(sizes).as_py() or 0
        if longest > self.largest:
            raise InputError(
                f"a message of {longest} bytes is larger than the {self.largest} that the stream takes",
                hint="raise max_payload of the server, or max_msg_size of the stream",
            )
        return found

    def _one_each(self, rows: pa.Table) -> pa.Table:
        match self.form:
            case "raw":
                data = rows.column("_data")
                if data.null_count:
                    raise InputError("_data is NULL, which is not a message")
            case "csv":
                data = _query(rows, _csv_row(rows.schema))
            case _:
                data = _query(rows, f"CAST(to_json({_json_row(rows.schema)}) AS VARCHAR)")
        columns = [self.subject.fill(rows), self._ids(rows), pa.repeat(1, rows.num_rows).cast(pa.int32())]
        return pa.table([*columns, _binary(data)], schema=MESSAGES)

    def _ids(self, rows: pa.Table) -> pa.ChunkedArray:
        if self.id_column is None:
            return pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
        values = _texts(rows, self.id_column)
        bad = pc.or_(pc.equal(pc.binary_length(values), 0), pc.match_substring_regex(values, _NO_HEADER))
        bad = pc.fill_null(bad, True)
        if pc.any(bad).as_py():
            raise InputError(
                f"{self.id_column}={values.filter(bad)[0].as_py()!r} cannot be the id of a message",
                hint="an id is not empty, and has no line break and no space at its ends",
            )
        return values

    def _arrow(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield messages of many rows: those with one subject, in their order. An id is that of a single row."""
        subjects, ids = self.subject.fill(rows), self._ids(rows)
        most = 1 if self.id_column else _ARROW_ROWS
        for subject, places in _places(subjects, bool(self.subject.columns)):
            some = rows if places is None else rows.take(places)
            own = ids if places is None else ids.take(places)
            bodies, counts = [], []
            for start in range(0, some.num_rows, most):
                for body, count in self._bodies(some.slice(start, most)):
                    bodies.append(body)
                    counts.append(count)
            id_of_each = own if self.id_column else pa.nulls(len(bodies), pa.string())
            yield pa.table(
                [pa.repeat(subject, len(bodies)), id_of_each, pa.array(counts, pa.int32()), pa.array(bodies)],
                schema=MESSAGES,
            )

    def _bodies(self, rows: pa.Table) -> Iterator[tuple[bytes, int]]:
        """Yield the rows as a stream of Arrow's, or as two when it would be too large."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        body = sink.getvalue()
        half = rows.num_rows // 2
        if body.size <= self.largest or not half:
            yield body.to_pybytes(), rows.num_rows
            return
        yield from self._bodies(rows.slice(0, half))
        yield from self._bodies(rows.slice(half))


def _places(subjects: pa.ChunkedArray, varies: bool) -> Iterator[tuple[str, pa.Array | None]]:
    """Yield each subject with the places of its rows; None for all of them."""
    if not len(subjects):
        return
    if not varies:
        yield subjects[0].as_py(), None
        return
    numbered = pa.table({"subject": subjects, "place": pa.array(range(len(subjects)), pa.int64())})
    grouped = numbered.group_by("subject", use_threads=False).aggregate([("place", "list")])
    for subject, places in zip(grouped.column("subject"), grouped.column("place_list"), strict=True):
        yield subject.as_py(), places.values


def _texts(rows: pa.Table, name: str) -> pa.ChunkedArray:
    column = rows.column(name)
    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"the column {name!r} of the type {column.type} cannot be a text: {error}") from error


def _binary(data: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(data.type):
        data = data.cast(data.type.value_type)
    return data.cast(pa.binary())


def _query(rows: pa.Table, expression: str) -> pa.ChunkedArray:
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.register("given", rows.cast(_without_zones(rows.schema)))
        return arrow_table(connection, f"SELECT {expression} AS body FROM given").column("body")


def _without_zones(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose times are in UTC and do not say so: what DuckDB writes then depends on no setting."""

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.timestamp("ns" if kind.unit == "ns" else "us")
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(plain(field.type)) for field in kind])
        if _is_list(kind):
            return pa.list_(plain(kind.value_type))
        if pa.types.is_map(kind):
            return pa.map_(plain(kind.key_type), plain(kind.item_type))
        return kind

    return pa.schema([pa.field(field.name, plain(field.type)) for field in schema])


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _json_row(schema: pa.Schema) -> str:
    return f"struct_pack({', '.join(f'{quote(f.name)} := {_json(quote(f.name), f.type)}' for f in schema)})"


def _json(value: str, kind: pa.DataType, depth: int = 0) -> str:
    """Return the expression of a value as JSON has it: times in ISO 8601, bytes in base64, NaN as a text."""
    special = _scalar(value, kind)
    if special is not None:
        return special
    if pa.types.is_struct(kind) and _has_special(kind):
        fields = (f"{quote(f.name)} := {_json(f'{value}.{quote(f.name)}', f.type, depth)}" for f in kind)
        return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(fields)}) END"
    if _is_list(kind) and _has_special(kind):
        name = f"x{depth}"
        return f"list_transform({value}, lambda {name}: {_json(name, kind.value_type, depth + 1)})"
    return value


def _scalar(value: str, kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind):
        form = f"%Y-%m-%dT%H:%M:%S.{'%n' if kind.unit == 'ns' else '%f'}{'Z' if kind.tz else ''}"
        return f"strftime({value}, '{form}')"
    if pa.types.is_floating(kind):
        return f"CASE WHEN isfinite({value}) THEN to_json({value}) ELSE to_json(CAST({value} AS VARCHAR)) END"
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return f"to_base64({value})" if any(test(kind) for test in tests) else None


def _has_special(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_special(field.type) for field in kind)
    if _is_list(kind):
        return _has_special(kind.value_type)
    return _scalar("", kind) is not None


def _csv_row(schema: pa.Schema) -> str:
    values = [_csv(quote(field.name), field.type) for field in schema]
    if len(values) == 1:  # a line that is empty would be none
        return f"CASE WHEN {values[0]} = '' THEN '\"\"' ELSE {values[0]} END"
    return f"concat_ws(',', {', '.join(values)})"


def _csv(value: str, kind: pa.DataType) -> str:
    nested = pa.types.is_nested(kind)
    special = _scalar(value, kind) if not pa.types.is_floating(kind) else None
    text = f"CAST({f'to_json({_json(value, kind)})' if nested else special or value} AS VARCHAR)"
    if not nested and not _is_text(kind):
        return f"coalesce({text}, '')"
    quoted = f"""'"' || replace({text}, '"', '""') || '"'"""
    return f"""CASE WHEN {value} IS NULL THEN '' WHEN {text} = '' OR regexp_matches({text}, '[,"\\r\\n]')
        OR {text} <> trim({text}) THEN {quoted} ELSE {text} END"""


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def encoded_rows(messages: pa.Table) -> int:
    """Return how many rows the messages have."""
    return pc.sum(messages.column("rows")).as_py() or 0
