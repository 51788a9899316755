"""Types and values between the format and Spark SQL, as pure text.

A Parquet column is *read* as one Spark type (``spark_type``), *shown* to users as another where Spark lacks the
type or has a better one, and *stored* by Spark in a form that every client of the format casts back.

| type                       | shown as                  | stored by Spark as            |
|----------------------------|---------------------------|-------------------------------|
| uint8, uint16, uint32      | smallint, int, bigint     | the same                      |
| uint64                     | decimal(20,0)             | the same                      |
| int128, uint128            | double, as in every file  | double                        |
| time                       | time(6), or string        | time(6)                       |
| timetz, interval           | string                    | string                        |
| timestamp_s, timestamp_ms  | timestamp_ntz             | timestamp_ntz, rounded        |
| timestamp_ns               | bigint of nanoseconds     | timestamp_ntz                 |
| uuid                       | string                    | binary of 16 bytes            |
| json                       | string                    | string                        |
| geometry                   | binary (WKB)              | not at all                    |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from quacklake.core.format.layout import Transform
from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.schemas import Column, parse_type

EPOCH_NTZ = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
TEXT_KEYS = ("uuid", "time")
"""Types to which DuckDB casts a text that is compared with them, and which Spark may show as text."""
RAISED = "quacklake: "  # prefix of error messages that a write raises inside Spark; they end with a line break

_TYPES: Mapping[str, str] = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "int128": "DOUBLE",
    "uint8": "SMALLINT",
    "uint16": "INT",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20,0)",
    "uint128": "DOUBLE",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "time": "TIME(6)",
    "timetz": "BIGINT",
    "time_ns": "STRING",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamp_s": "TIMESTAMP_NTZ",
    "timestamp_ms": "TIMESTAMP_NTZ",
    "timestamp_ns": "BIGINT",
    "timestamptz": "TIMESTAMP_LTZ",
    "timestamptz_ns": "TIMESTAMP_LTZ",
    "null": "INT",
    "interval": "BINARY",
    "varchar": "STRING",
    "blob": "BINARY",
    "json": "STRING",
    "uuid": "BINARY",
    "variant": "VARIANT",
    "geometry": "BINARY",
    "unknown": "VOID",
}
"""The types that Spark reads from files."""
_SHOWN: Mapping[str, str] = {"timetz": "STRING", "time_ns": "STRING", "uuid": "STRING", "interval": "STRING"}
_STORED: Mapping[str, str] = {"timetz": "STRING", "interval": "STRING", "timestamp_ns": "TIMESTAMP_NTZ"}
_IN_FILES: Mapping[str, str] = {"timetz": "varchar", "interval": "varchar", "timestamp_ns": "timestamp", "uuid": "blob"}
_UNSIGNED: Mapping[str, int] = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_STAMPS = ("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns")
_TIMES = ("time", "timetz", "time_ns")
_ROUNDED: Mapping[str, int] = {"timestamp_s": 1_000_000, "timestamp_ms": 1_000}
_CLOCK = "^[0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}([.][0-9]{1,6})?)?$"
_UUID = "^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$"
_BLOB_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
#: Types whose values Spark returns in the same form, so that rows that were read can be appended.
_ADOPTED = (*_TIMES, "uint64", "interval", "timestamp_ns", "int128", "uint128", "geometry", "uuid", "json")


def quote(name: str) -> str:
    """Return a name in backticks.

    Raise ``UnsupportedFeatureError`` for one that Spark would read as a variable.
    """
    if "${" in name:
        raise UnsupportedFeatureError(f"Spark would replace ${{ in the name {name!r} by a setting")
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a string literal that means the same under all settings of a session."""
    if "'" in text or "\\" in text or "$" in text or not text.isprintable():
        return f"decode(X'{text.encode().hex()}', 'UTF-8')"
    return f"'{text}'"


# -- types -------------------------------------------------------------------------------------------------------------


def read_type(column: Column, *, time: bool) -> str:
    """Return the Spark type for reading a column of a Parquet file."""
    return _spell_type(column, lambda type_: _read(type_, time=time))


def shown_type(column: Column, *, time: bool) -> str:
    """Return the Spark type that users see. ``time`` says whether the session has the type TIME."""
    return _spell_type(column, lambda type_: _show_type(type_, time=time))


def stored_type(column: Column) -> str:
    """Return the Spark type for writing a column. Raise ``UnsupportedFeatureError`` when Spark cannot write it."""
    return _spell_type(column, _store_type)


def as_stored(column: Column) -> Column:
    """Return the column as it is read back from a file that Spark wrote."""
    return retyped(column, lambda type_: _IN_FILES.get(type_, type_))


def retyped(column: Column, leaf: Callable[[str], str]) -> Column:
    children = tuple(retyped(child, leaf) for child in column.children)
    return Column(column.id, column.name, leaf(column.type), children=children)


def plain_in_parquet(column: Column) -> bool:
    """Return True when Spark's files have field ids at every depth, and the same types as files of other clients."""
    return all(node.type not in ("list", "map", *_STORED) for node in column.walk())


def _spell_type(column: Column, leaf: Callable[[str], str]) -> str:
    match column.type:
        case "list":
            return f"ARRAY<{_spell_type(column.children[0], leaf)}>"
        case "map":
            return f"MAP<{_spell_type(column.children[0], leaf)}, {_spell_type(column.children[1], leaf)}>"
        case "struct":
            fields = ", ".join(f"{quote(child.name)}: {_spell_type(child, leaf)}" for child in column.children)
            return f"STRUCT<{fields}>"
        case _:
            return leaf(column.type)


def spark_type(text: str) -> str:
    """Return the Spark SQL type of a scalar type. Raise ``InputError`` for another."""
    found = parse_type(text)
    return str(found).upper() if found.base == "decimal" else _TYPES[found.base]


def _read(type_: str, *, time: bool) -> str:
    if type_ == "time_ns" or (type_ == "time" and not time):
        return "BIGINT"  # readable as a number when the session has no such type
    return spark_type(type_)


def _show_type(type_: str, *, time: bool) -> str:
    if type_ == "time":
        return "TIME(6)" if time else "STRING"
    return _SHOWN.get(type_, spark_type(type_))


def _store_type(type_: str) -> str:
    if type_ in ("geometry", "time_ns"):
        raise UnsupportedFeatureError(
            f"Spark cannot write columns of type {type_} in a form that other clients read",
            hint="append such rows with table.append",
        )
    return _STORED.get(type_, spark_type(type_))


# -- reading -----------------------------------------------------------------------------------------------------------


def initial_value(column: Column, *, time: bool) -> str:
    """Return the value of a column in rows that are older than the column."""
    type_ = shown_type(column, time=time)
    text = column.initial_default
    if text is None or column.nested:
        return f"CAST(NULL AS {type_})"
    if column.type in ("blob", "geometry"):
        raw = _BLOB_ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text.encode())
        return f"X'{raw.hex()}'"
    if column.type == "variant":
        return f"parse_json({literal(text)})"
    if column.type == "timestamp_ns":
        micros = f"timestampdiff(MICROSECOND, {EPOCH_NTZ}, CAST({literal(text[:26])} AS TIMESTAMP_NTZ))"
        digits = (text.partition(".")[2] + "000000000")[6:9]
        return f"({micros} * 1000 + {int(digits):d})"
    return literal(text) if type_ == "STRING" else f"CAST({literal(text)} AS {type_})"


def shown(value: str, stored: Column, wanted: Column, *, time: bool, depth: int = 0) -> str:
    """Convert a value of the column ``stored`` of a file to the form in which ``wanted`` is shown.

    Fields are matched by id at every depth. A value that already has that form is returned unchanged, so that Spark
    still reads only the requested fields, and uses filters while it reads.
    """
    if not wanted.nested:
        return _shown_leaf(value, stored.type, wanted.type, time=time)
    if _same(stored, wanted, time=time):
        return value
    known = {child.id: child for child in stored.children}
    have = [known.get(child.id) for child in wanted.children] if wanted.type == "struct" else stored.children

    def convert(part: str, _: str, old: Column | None, new: Column, depth: int) -> str:
        return initial_value(new, time=time) if old is None else shown(part, old, new, time=time, depth=depth)

    return _rebuilt(value, have, wanted, depth, convert)


def _rebuilt(
    value: str,
    have: Sequence[Column | None],
    wanted: Column,
    depth: int,
    convert: Callable[[str, str, Column | None, Column, int], str],
) -> str:
    """Convert the parts of a nested value. ``have`` are the columns of the parts, with None for a missing field.

    ``convert`` gets a part and its name, its columns before and afterwards, and its depth.
    """
    item, children = f"ql_{depth}", wanted.children
    match wanted.type:
        case "list":
            return f"transform({value}, {item} -> {convert(item, 'element', have[0], children[0], depth + 1)})"
        case "map":
            key, one = (
                convert(f"{item}.{side}", side, have[i], children[i], depth + 1)
                for i, side in enumerate(("key", "value"))
            )
            return f"map_from_entries(transform(map_entries({value}), {item} -> struct({key}, {one})))"
        case _:
            fields = []
            for old, new in zip(have, children, strict=True):
                part = "" if old is None else f"{value}.{quote(old.name)}"
                fields.append(f"{literal(new.name)}, {convert(part, new.name, old, new, depth)}")
            return f"IF({value} IS NULL, NULL, named_struct({', '.join(fields)}))"


def _same(stored: Column, wanted: Column, *, time: bool) -> bool:
    """Return True when a value is shown exactly as it is read from the file, including names."""
    if not wanted.nested:
        return _shown_leaf("v", stored.type, wanted.type, time=time) == "v"
    return (
        stored.type == wanted.type
        and len(stored.children) == len(wanted.children)
        and all(
            (wanted.type != "struct" or (one.id, one.name) == (two.id, two.name)) and _same(one, two, time=time)
            for one, two in zip(stored.children, wanted.children, strict=True)
        )
    )


def _shown_leaf(value: str, stored: str, wanted: str, *, time: bool) -> str:
    if wanted == "uuid" and stored in ("uuid", "blob"):
        groups = "'^(.{8})(.{4})(.{4})(.{4})(.{12})$', '$1-$2-$3-$4-$5'"
        return f"regexp_replace(lower(hex({value})), {groups})"
    if wanted == "uuid":
        return f"lower({value})"
    if wanted in _TIMES and stored in (*_TIMES, "int64"):
        return _shown_time(value, stored, wanted, time=time)
    if wanted == "interval" and stored == "interval":
        return _shown_interval(value)
    if wanted in _STAMPS and stored in (*_STAMPS, "int64"):
        return _shown_stamp(value, stored, wanted)
    if wanted == "variant" and stored != "variant":
        return f"parse_json({value})"
    have, want = _read(stored, time=time), _show_type(wanted, time=time)
    return value if have == want else f"CAST({value} AS {want})"


def _shown_time(value: str, stored: str, wanted: str, *, time: bool) -> str:
    """Convert times, which are mostly read as micro- or nanoseconds since midnight."""
    if stored == "time" and time:
        return value if wanted == "time" else f"CAST({value} AS STRING)"
    micros = f"({value} DIV 1000)" if stored == "time_ns" else value
    text = f"substr(CAST({_stamp(micros)} AS STRING), 12)"
    if wanted == "timetz":
        return f"concat({text}, '+00')"
    return f"CAST({text} AS TIME(6))" if time and wanted == "time" else text


def _shown_interval(value: str) -> str:
    """Convert the three numbers of a Parquet interval to text that DuckDB and Spark both read as an interval."""
    # in little-endian order; Spark could only reverse the bytes as a text
    turned = (f"regexp_replace(hex(substr({value}, {at}, 4)), '(..)(..)(..)(..)', '$4$3$2$1')" for at in (1, 5, 9))
    months, days, millis = (f"CAST(conv({text}, 16, 10) AS BIGINT)" for text in turned)
    # the first two are signed 32-bit numbers
    signed = [f"IF({part} > 2147483647, {part} - 4294967296, {part})" for part in (months, days, millis)]
    seconds = f"CAST(CAST({signed[2]} AS DECIMAL(20,3)) / 1000 AS DECIMAL(20,3))"
    return f"concat({signed[0]}, ' months ', {signed[1]}, ' days ', {seconds}, ' seconds')"


def _shown_stamp(value: str, stored: str, wanted: str) -> str:
    """Convert times without a zone, read as such or as numbers: nanoseconds from a file, else microseconds."""
    number = stored in ("timestamp_ns", "int64")
    if wanted == "timestamp_ns":
        return value if number else f"(timestampdiff(MICROSECOND, {EPOCH_NTZ}, {value}) * 1000)"
    if not number:
        return value
    micros = value if stored == "int64" else f"({value} DIV 1000)"
    return _stamp(micros)


def _stamp(micros: str) -> str:
    """Convert microseconds since 1970 to a time without a zone. Spark 3.5's ``timestampadd`` rejects large numbers."""
    return f"({EPOCH_NTZ} + ({micros}) * make_dt_interval(0, 0, 0, 0.000001BD))"


# -- writing -----------------------------------------------------------------------------------------------------------


def adopted(given: Column, wanted: Column, *, time: bool) -> Column:
    """Return a column of the rows with the table's type if Spark shows that type in the same form."""
    if given.nested:
        if given.type != wanted.type:
            return given
        known = {child.name.lower(): child for child in wanted.children}
        others = (
            [known.get(each.name.lower()) for each in given.children] if given.type == "struct" else wanted.children
        )
        pairs = zip(given.children, others, strict=True)
        children = tuple(one if two is None else adopted(one, two, time=time) for one, two in pairs)
        return Column(given.id, given.name, given.type, children=children)
    if wanted.nested or parse_type(wanted.type).base not in _ADOPTED or given.type == "unknown":
        return given
    alike = _show_type(wanted.type, time=time) == spark_type(given.type)
    return Column(given.id, given.name, wanted.type) if alike else given


def stored(value: str, given: Column, wanted: Column, path: str, *, time: bool, depth: int = 0) -> str:
    """Convert a value to the stored type of ``wanted``; one that does not fit raises ``RAISED`` inside Spark."""
    if given.type == "unknown":
        return f"CAST(NULL AS {stored_type(wanted)})"
    if not wanted.nested:
        return _stored_leaf(value, given, wanted.type, path, time=time)
    by_name = {child.name.lower(): child for child in given.children}
    have = [by_name.get(child.name.lower()) for child in wanted.children] if wanted.type == "struct" else given.children

    def convert(part: str, name: str, old: Column | None, new: Column, depth: int) -> str:
        if old is None:
            return f"CAST(NULL AS {stored_type(new)})"
        return stored(part, old, new, f"{path}.{name}", time=time, depth=depth)

    return _rebuilt(value, have, wanted, depth, convert)


def _stored_leaf(value: str, given: Column, wanted: str, path: str, *, time: bool) -> str:
    if wanted == "variant":
        if given.type == "variant":
            return value
        return f"to_variant_object({value})" if given.nested else f"CAST({value} AS VARIANT)"
    target = _store_type(wanted)
    have = spark_type(given.type) if given.type != wanted else _show_type(wanted, time=time)
    if wanted == "uuid" and have == "STRING":
        made = f"unhex(replace({value}, '-', ''))"
        return _unless(f"{value} RLIKE '{_UUID}'", value, made, path, wanted)
    if wanted == "json":
        return _unless(f"try_parse_json({value}) IS NOT NULL", value, value, path, wanted)
    if wanted == "timestamp_ns" and given.type == wanted:
        made = _stamp(f"{value} DIV 1000")
        return _unless(f"{value} % 1000 = 0", value, made, path, f"{wanted} that Spark can store, to the microsecond,")
    if wanted in _ROUNDED and given.type not in _ROUNDED:
        return _round_time(f"CAST({value} AS TIMESTAMP_NTZ)", _ROUNDED[wanted])
    return _in_range(value if have == target else f"try_cast({value} AS {target})", value, wanted, path)


def _round_time(value: str, unit: int) -> str:
    """Round a time to the nearest second or millisecond, with halves away from 1970, as DuckDB does."""
    micros, half = f"timestampdiff(MICROSECOND, {EPOCH_NTZ}, {value})", unit // 2
    units = f"IF({micros} < 0, -(({half}L - {micros}) DIV {unit}L), ({micros} + {half}L) DIV {unit}L)"
    return _stamp(f"{units} * {unit}L")


def _in_range(made: str, value: str, wanted: str, path: str) -> str:
    """Return the value, or an error when it became NULL or does not fit the type."""
    bits = _UNSIGNED.get(wanted)
    if made == value and bits is None:
        return value
    fits = f"{made} IS NOT NULL" if bits is None else f"{made} BETWEEN 0 AND {(1 << bits) - 1}"
    if wanted == "float32":  # Spark turns a number that is too large into infinity
        fits += f" AND (abs({made}) <> double('inf') OR abs({value}) = double('inf'))"
    return _unless(fits, value, made, path, wanted)


def _unless(fits: str, value: str, made: str, path: str, wanted: str) -> str:
    message = literal(f'{RAISED}a value does not fit the column "{path}": it is not a valid {wanted}\n')
    return f"CASE WHEN {value} IS NULL THEN NULL WHEN {fits} THEN {made} ELSE raise_error({message}) END"


def as_shown(value: str, given: Column, wanted: Column, path: str, *, time: bool) -> str:
    """Convert a value to the shown form of ``wanted``, equal for equal stored values, with errors as ``stored``."""
    if given.type == wanted.type == "timestamp_ns":
        return value
    if given.type == wanted.type == "time" and not time:  # a text, because the session lacks the type
        stamp = f"try_cast(concat('1970-01-01 ', {value}) AS TIMESTAMP_NTZ)"
        fits = f"{value} RLIKE '{_CLOCK}' AND {stamp} IS NOT NULL"
        return _unless(fits, value, f"substr(CAST({stamp} AS STRING), 12)", path, wanted.type)
    made = stored(value, given, wanted, path, time=time)
    return shown(made, as_stored(wanted), wanted, time=time)


def text_as_key(value: str, column: Column, *, time: bool) -> str:
    """Convert a text compared with a column of ``TEXT_KEYS`` to its shown form, with errors as ``stored``."""
    as_text = shown_type(column, time=time) == "STRING"
    given = column if as_text else Column(column.id, column.name, "varchar")
    return as_shown(value, given, column, column.name, time=time)


def required(value: str, name: str) -> str:
    message = literal(f'{RAISED}NOT NULL constraint failed: NULL in the NOT NULL column "{name}"\n')
    return f"coalesce({value}, raise_error({message}))"


# -- partitions --------------------------------------------------------------------------------------------------------


def key_expression(transform: Transform, value: str, type_: str) -> str | None:
    """Return a partition key as text that DuckDB reads, in UTC whatever the session's zone; None for buckets."""
    if transform.name == "bucket":
        return None
    base = parse_type(type_).base
    if base == "timestamptz":
        local = _stamp(f"unix_micros({value})")
        value = local if transform.name != "identity" else f"concat(CAST({local} AS STRING), '+00')"
    if transform.name != "identity":
        return f"CAST({transform.name}({value}) AS STRING)"
    return _shown_leaf(value, "blob", "uuid", time=False) if base == "uuid" else f"CAST({value} AS STRING)"
