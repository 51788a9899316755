"""The sources of imports by their addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quacklake import CsvOptions, Lake
from quacklake.errors import InputError, MissingExtraError
from quacklake.extend.names import TableRef
from quacklake.transfer.tables import ImportSource

FOLDERS = ("parquet", "csv", "json")
WORKBOOKS = ("excel",)
"""Folders that are read, but not written."""
FORMATS = ("delta", "iceberg")
DATABASES = ("duckdb", "sqlite")
SERVERS = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
"""Servers by the schemes of their URLs."""
_HINT = (
    'write "parquet:FOLDER", "csv:FOLDER", "json:FOLDER", "excel:FOLDER", "duckdb:FILE", "sqlite:FILE", "delta:PLACE",'
    ' "iceberg:PLACE", "postgresql://…" or "mysql://…"'
)


def kind_of(address: str, what: str) -> tuple[str, str]:
    """Return the kind and the place of an address. Raise ``InputError``."""
    kind, colon, place = str(address).partition(":")
    kind = kind.strip().lower()
    known = kind in (*FOLDERS, *WORKBOOKS, *FORMATS, *DATABASES, *SERVERS)
    if not colon or not known or not (place.strip() or kind == "iceberg"):
        raise InputError(f"{address.partition('@')[0]!r} is not the {what} of rows", hint=_HINT)
    return (SERVERS[kind], f"{SERVERS[kind]}:{place}") if kind in SERVERS else (kind, place.strip())


def open_source(
    lake: Lake,
    address: str,
    named: TableRef | None,
    *,
    in_place: bool,
    map_types: Mapping[str, str],
    options: Mapping[str, Any],
    csv: CsvOptions | None = None,
) -> ImportSource:
    """Return the source of an address. Raise ``InputError`` for one that is none, or an option that it lacks."""
    kind, place = kind_of(address, "source")
    if in_place and kind not in ("parquet", *FORMATS):
        raise InputError(
            f"the files of {kind} sources cannot stay in place", hint="leave in_place out to copy the rows"
        )
    if options and kind not in FORMATS:
        raise InputError(f"{kind} sources have no options", hint="options are for Delta and Iceberg")
    if csv is not None and kind not in ("csv", "json", *WORKBOOKS):
        raise InputError(
            f"{kind} sources take no options of files",
            hint="csv is for CSV and Excel files, and for the encoding of JSON",
        )
    try:
        if kind in (*FOLDERS, *WORKBOOKS):
            from quacklake.transfer.folders import FolderSource

            return FolderSource(lake, place, kind, named, in_place=in_place, map_types=map_types, csv=csv)
        if kind == "duckdb":
            from quacklake.transfer.duckdb_files import DuckDBSource

            return DuckDBSource(place, map_types)
        if kind == "sqlite":
            from quacklake.transfer.sqlite_files import SQLiteSource

            return SQLiteSource(place, map_types)
        if kind == "mysql":
            from quacklake.transfer.mysql import MySQLSource

            return MySQLSource(place, map_types)
        if kind in FORMATS:
            from quacklake.transfer.formats import FormatSource

            return FormatSource(kind, place, named, options)
        from quacklake.transfer.postgres import PostgresSource

        return PostgresSource(place, map_types)
    except ModuleNotFoundError as error:
        extra = "postgres" if kind == "postgresql" else kind
        raise MissingExtraError(
            f"importing from {kind} needs the package {error.name}", hint=f"pip install 'quacklake[{extra}]'"
        ) from error
