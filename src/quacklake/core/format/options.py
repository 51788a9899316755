"""The options that a lake, a schema or a table can carry in the catalog."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from quacklake.config import parse_duration, parse_size
from quacklake.errors import ConfigError, nearest

EXPOSED = "quacklake_exposed"
"""The key of a catalog (tenant) that stock DuckDB reads through views, which cannot show inlined rows: it has none."""

OptionValue = bool | int | float | str | dt.timedelta


class OptionType(enum.Enum):
    """The form of an option's text."""

    BOOLEAN = "boolean"
    COUNT = "count"
    BYTES = "bytes"
    FRACTION = "fraction"
    CODEC = "codec"
    UPDATE_MODE = "update_mode"
    VERSION = "version"
    INTERVAL = "interval"
    COLUMNS = "columns"


class Scope(enum.Enum):
    """A place where an option can be set; a narrower one wins."""

    GLOBAL = "global"
    SCHEMA = "schema"
    TABLE = "table"


_EVERYWHERE = (Scope.GLOBAL, Scope.SCHEMA, Scope.TABLE)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name in the catalog, how it is read, and what holds when it is not set."""

    name: str
    type: OptionType
    default: OptionValue | None
    help: str
    scopes: tuple[Scope, ...] = _EVERYWHERE


_T = OptionType
# fmt: off
_ENTRIES = (
    Option("auto_compact", _T.BOOLEAN, True, "include the table in maintenance of the whole lake"),
    Option("data_inlining_row_limit", _T.COUNT, 10, "writes of at most this many rows stay in the catalog"),
    Option("delete_older_than", _T.INTERVAL, None, "how old a file no longer in use must be before it is deleted",
           (Scope.GLOBAL,)),
    Option("expire_older_than", _T.INTERVAL, None, "how old a snapshot must be before it expires", (Scope.GLOBAL,)),
    Option("hive_file_pattern", _T.BOOLEAN, True, "write partitions into key=value directories"),
    Option("parquet_compression", _T.CODEC, "snappy", "compression of Parquet files"),
    Option("parquet_compression_level", _T.COUNT, 3, "level of the compression, where it has one"),
    Option("parquet_row_group_size", _T.COUNT, 122_880, "rows in a row group"),
    Option("parquet_row_group_size_bytes", _T.BYTES, None, "bytes in a row group"),
    Option("parquet_version", _T.VERSION, 1, "version of the Parquet encodings, 1 or 2"),
    Option("per_thread_output", _T.BOOLEAN, False, "let every thread write a file of its own"),
    Option("require_commit_message", _T.BOOLEAN, False, "refuse commits without an author and message"),
    Option("rewrite_delete_threshold", _T.FRACTION, 0.95, "share of deleted rows from which a file is rewritten"),
    Option("skip_stats_columns", _T.COLUMNS, "",
           "ids of columns, with commas between them, for which no bounds are kept; format 1.1", (Scope.TABLE,)),
    Option("sort_on_insert", _T.BOOLEAN, True, "sort new rows by the table's sort order"),
    Option("target_file_size", _T.BYTES, 1 << 29, "size that written and merged files aim at"),
    Option("update_mode", _T.UPDATE_MODE, "auto",
           "whether changed files are rewritten (copy_on_write) or get delete files (merge_on_read)"),
    Option("write_deletion_vectors", _T.BOOLEAN, False, "write deletes as puffin vectors instead of Parquet"),
)
# fmt: on
OPTIONS: Mapping[str, Option] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
"""Every option that can be set, by name."""

READ_ONLY_KEYS = frozenset({"created_by", "data_path", "encrypted", "version"})
"""The keys of the same catalog table that describe the lake and are never options."""

_BOOLEANS = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}
UPDATE_MODES = ("auto", "copy_on_write", "merge_on_read")
_CODECS = ("uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4", "lz4_raw")


def option(name: str) -> Option:
    """Return the option of that name, in any case. Raise :class:`ConfigError` with the nearest names."""
    entry = OPTIONS.get(name.lower())
    if entry is None:
        if name.lower() in READ_ONLY_KEYS:
            raise ConfigError(f'"{name}" describes the lake and cannot be set')
        raise ConfigError(f"Unsupported option {name}", hint=nearest(name.lower(), OPTIONS))
    return entry


def parse_option(name: str, text: str) -> OptionValue | None:
    """Return the value of an option's text, ``None`` for an empty interval. Raise ``ConfigError`` for another text."""
    entry = option(name)
    try:
        return _parse(entry, text.strip().lower())
    except (ValueError, OverflowError):
        raise ConfigError(_not_a_value(entry, text), hint=f"{entry.name}: {entry.help}") from None


def _not_a_value(entry: Option, text: str) -> str:
    """Return what the reference implementation says of such a text, and of which option it is."""
    match entry.type:
        case OptionType.CODEC:
            return f'Unsupported codec "{text}" for parquet, supported options are {", ".join(_CODECS)}'
        case OptionType.FRACTION:
            return f"The {entry.name} must be between 0 and 1, not {text!r}"
        case OptionType.INTERVAL:
            return f"{entry.name} is not a valid interval value. It is {text!r}"
        case OptionType.VERSION if text.lower().removeprefix("v").isdecimal():
            return f"Only Parquet version 1 and 2 are supported, not {text!r}"
        case OptionType.BOOLEAN:
            return f"Could not convert string {text!r} to BOOL for the option {entry.name}"
        case OptionType.UPDATE_MODE:
            return f"Unsupported mode {text!r} for the option {entry.name}: it is one of {', '.join(UPDATE_MODES)}"
        case _:
            return f"Could not convert string {text!r} to UINT64 for the option {entry.name}"


def _parse(entry: Option, text: str) -> OptionValue | None:
    """Return the value of a text in lower case. Raise ``ValueError`` if it is not valid for the option."""
    value: OptionValue | None
    match entry.type:
        case OptionType.BOOLEAN:
            value = _BOOLEANS.get(text)
            valid = value is not None
        case OptionType.COUNT:
            value = int(text)
            valid = value > 0 or (value == 0 and entry.name != "parquet_row_group_size")
        case OptionType.BYTES:
            value = parse_size(text)
            valid = value > 0 or entry.name != "parquet_row_group_size_bytes"
        case OptionType.FRACTION:
            value = float(text)
            valid = 0 <= value <= 1
        case OptionType.CODEC:
            value, valid = text, text in _CODECS
        case OptionType.UPDATE_MODE:
            value, valid = text, text in UPDATE_MODES
        case OptionType.VERSION:
            value = int(text.removeprefix("v"))
            valid = value in (1, 2)
        case OptionType.INTERVAL:
            return parse_duration(text, bare=False) if text else None
        case OptionType.COLUMNS:
            return ",".join(str(id_) for id_ in column_ids(text))
    if not valid:
        raise ValueError(text)
    return value


def column_ids(text: str) -> list[int]:
    """Return the ids in the text of an option that lists columns. Raise ``ValueError``.

    >>> column_ids("3, 1")
    [3, 1]
    """
    return [int(part) for part in text.split(",")] if text.strip() else []


def format_option(name: str, value: OptionValue) -> str:
    """Return the text that the reference implementation writes for a value. Raise ``ConfigError``."""
    entry = option(name)
    if isinstance(value, dt.timedelta):
        text = f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    else:
        text = str(value).strip()
    parsed = parse_option(name, text)
    match entry.type:
        case OptionType.BOOLEAN:
            return "true" if parsed else "false"
        case OptionType.VERSION:
            return f"V{parsed}"
        case OptionType.INTERVAL:
            return text
        case _:
            return str(parsed)


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One row of ``ducklake_metadata``; ``scope`` is ``None``, ``schema`` or ``table``."""

    key: str
    value: str
    scope: str | None = None
    scope_id: int | None = None


def effective(
    rows: Iterable[OptionRow],
    name: str,
    *,
    schema_id: int | None = None,
    table_id: int | None = None,
    otherwise: OptionValue | None = None,
) -> OptionValue | None:
    """Return the value of an option for a table: its own, its schema's, the lake's, ``otherwise``, or the default.

    Raise ``ConfigError`` for an unknown option or a stored text that is no value of it.
    """
    entry = option(name)
    found: dict[str, str] = {}
    for row in rows:
        if row.key.lower() != entry.name:
            continue
        if row.scope is None:
            found["global"] = row.value
        elif row.scope_id is not None and row.scope_id == {"schema": schema_id, "table": table_id}.get(row.scope):
            found[row.scope] = row.value
    for scope in ("table", "schema", "global"):
        if scope in found:
            return parse_option(entry.name, found[scope])
    return entry.default if otherwise is None else otherwise
