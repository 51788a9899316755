"""The targets of exports by their addresses. Each shows tables only when they are complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from quacklake import Lake, LakeAt
from quacklake.errors import InputError, MissingExtraError
from quacklake.extend.duckdbs import connect
from quacklake.extend.names import literal, quote
from quacklake.extend.schemas import Column, TableSchema
from quacklake.extend.stores import check_outside
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.new_folders import ExportFolder, described, open_folder
from quacklake.transfer.places import local
from quacklake.transfer.sources import FOLDERS, FORMATS, WORKBOOKS, kind_of
from quacklake.transfer.tables import sql_name

_FILE_BYTES = 512 * 2**20
"""The size of a file of a folder at which the next one begins."""
View = tuple[str, str, str, tuple[str, ...]]
"""The schema, name, query and columns of a view."""


@dataclass(frozen=True)
class ExportedTable:
    """A table to write."""

    schema: str
    name: str
    columns: TableSchema
    comment: str | None = None
    column_comments: Mapping[str, str] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    uuid: str = ""

    @property
    def qualified_name(self) -> str:
        """The name as reports show it."""
        return f"{self.schema}.{self.name}"

    @property
    def sql_name(self) -> str:
        """The name as SQL takes it."""
        return sql_name(self.schema, self.name)

    def folders(self) -> tuple[str, str]:
        """Return the names of the folders of the schema and the table. Raise ``InputError`` for impossible ones."""
        return part_of_path(self.schema, "schema"), part_of_path(self.name, "table")


def uuids(tables: Sequence[ExportedTable]) -> dict[str, str]:
    """Return the UUIDs of tables by their names."""
    return {table.qualified_name: table.uuid for table in tables}


class ExportTarget(Protocol):
    """Something that an export writes."""

    @property
    def place(self) -> str:
        """The address, without secrets."""

    def check(self, table: ExportedTable) -> None:
        """Raise an error for a table that is there already, or that cannot be written, before anything is."""

    def begin(self, snapshot_id: int, tables: Sequence[ExportedTable]) -> list[ExportedTable]:
        """Prepare for the tables, and return those that an interrupted export of the same rows has written."""

    def write(self, table: ExportedTable, rows: pa.RecordBatchReader) -> None:
        """Write the rows of a table, where nobody takes them for a table yet."""

    def views(self, views: Sequence[View]) -> tuple[list[str], list[LeftOut]]:
        """Write views, and return the names of those that are there now and the others with reasons."""

    def left_out(self, table: ExportedTable) -> list[LeftOut]:
        """Return what the target does not keep of a table."""

    def finish(self) -> dict[str, int]:
        """Show what was written, and return the bytes of tables where they are known."""

    def abort(self) -> None:
        """Remove what was written."""


def open_target(
    lake: Lake | LakeAt,
    address: str,
    *,
    partition_by: Sequence[str],
    replace: bool,
    options: Mapping[str, Any],
    single: bool,
) -> ExportTarget:
    """Return the target of an address. Raise ``InputError`` for one that is none, or an option that it lacks."""
    kind, place = kind_of(address, "target")
    if kind in ("sqlite", "mysql", *WORKBOOKS):
        raise InputError(f"{kind} is a source of imports, not a target of exports", hint="export to Parquet or DuckDB")
    if kind == "duckdb":
        check_outside(lake, local(place))
    if partition_by and kind not in ("parquet", "csv", "json", *FORMATS):
        raise InputError(f"{kind} targets have no partitions", hint="leave partition_by out")
    if options and kind not in FORMATS:
        raise InputError(f"{kind} targets have no options", hint="options are for Delta and Iceberg")
    try:
        if kind in FOLDERS:
            return FolderTarget(kind, open_folder(lake, place, replace=replace), partition_by)
        if kind == "duckdb":
            from quacklake.transfer.duckdb_target import DuckDBTarget

            return DuckDBTarget(local(place), replace=replace)
        if kind == "delta":
            from quacklake.transfer.delta_target import DeltaTarget

            return DeltaTarget(open_folder(lake, place, replace=replace), partition_by, options, single=single)
        if kind == "iceberg":
            from quacklake.transfer.iceberg_target import IcebergTarget

            return IcebergTarget(lake, place, partition_by, options, replace=replace)
        from quacklake.transfer.postgres_target import PostgresTarget

        return PostgresTarget(place, replace=replace)
    except ModuleNotFoundError as error:
        extra = "postgres" if kind == "postgresql" else kind
        raise MissingExtraError(
            f"exporting to {kind} needs the package {error.name}", hint=f"pip install 'quacklake[{extra}]'"
        ) from error


def part_of_path(name: str, what: str) -> str:
    """Return a name that can be a folder, and that an import reads as the name again. Raise ``InputError``."""
    if "/" in name or "\\" in name or "=" in name or name.startswith((".", "_")) or len(name.encode()) > 200:
        raise InputError(f"the {what} {name!r} cannot be the name of a folder", hint="leave it out with exclude")
    return name


class FolderTarget:
    """A folder of files: a folder for each schema, in it one for each table, in it folders for partitions."""

    _COPY: Mapping[str, str] = {"parquet": "FORMAT parquet", "csv": "FORMAT csv, HEADER", "json": "FORMAT json"}
    _OTHERS: Mapping[str, str] = {"int128": "DECIMAL(38,0)", "uint128": "DECIMAL(38,0)"}
    _TEXTS = ("interval", "timetz", "time_ns")

    def __init__(self, kind: str, folder: ExportFolder, partition_by: Sequence[str]) -> None:
        self._kind, self._keys, self._folder = kind, list(partition_by), folder
        self.place = f"{kind}:{folder.shown}"
        self._sizes: dict[str, int] = {}

    def check(self, table: ExportedTable) -> None:
        """Raise ``InputError`` for a name that no folder can have, or a table that is nothing but its partitions."""
        table.folders()
        for key in self._keys:
            part_of_path(key, "column")
        if self._keys and len(self._keys) == len(table.columns.columns):
            raise InputError(f"all columns of {table.qualified_name} are partitions", hint="leave one out")

    def begin(self, snapshot_id: int, tables: Sequence[ExportedTable]) -> list[ExportedTable]:
        """Return the tables whose folders are marked as complete."""
        self._folder.begin(described(self._kind, snapshot_id, self._keys, uuids(tables)))
        return [table for table in tables if self._folder.is_complete(*table.folders())]

    def write(self, table: ExportedTable, rows: pa.RecordBatchReader) -> None:
        """Write the files of a table, with the types that files of this format keep."""
        values = ", ".join(
            f"CAST({quote(column.name)} AS {self._type(column)}) AS {quote(column.name)}"
            for column in table.columns.columns
        )
        sized = f"FILE_SIZE_BYTES {_FILE_BYTES}"
        keys = f"PARTITION_BY ({', '.join(map(quote, self._keys))})"

        def copy(source: str, folder: Path, layout: str) -> str:
            return (
                f"COPY (SELECT {values} FROM {source}) TO {literal(str(folder))} ({self._COPY[self._kind]}, {layout})"
            )

        with self._folder.filling(*table.folders()) as folder, writing_connection() as connection:
            connection.register("rows", rows)
            run_copy(connection, copy("rows", folder, keys if self._keys else sized), table)
            if self._keys and not any(folder.rglob("*.*")):  # a table without rows has no partitions
                connection.register("nothing", rows.schema.empty_table())
                run_copy(connection, copy("nothing", folder, f"{sized}, OVERWRITE_OR_IGNORE"), table)
            files = (each for each in folder.rglob("*") if each.is_file())
            self._sizes[table.qualified_name] = sum(file.stat().st_size for file in files)

    def views(self, views: Sequence[View]) -> tuple[list[str], list[LeftOut]]:
        """Return all as left out."""
        return [], [LeftOut(f"view {schema}.{name}", "a folder has files of tables only") for schema, name, *_ in views]

    def left_out(self, table: ExportedTable) -> list[LeftOut]:
        """Return the columns with other types."""
        return [
            LeftOut(
                f"{table.qualified_name}.{column.name}",
                f"the type {column.duckdb_type()}, which became {self._type(column)}",
            )
            for column in table.columns.columns
            if self._kind == "parquet" and self._type(column) != column.duckdb_type()
        ]

    def finish(self) -> dict[str, int]:
        """Show the folder."""
        self._folder.publish()
        return self._sizes

    def abort(self) -> None:
        """Remove what was written, where it cannot be gone on with."""
        self._folder.remove()

    def _type(self, column: Column) -> str:
        if column.type in self._TEXTS:
            return "VARCHAR"
        return self._OTHERS.get(column.type, column.duckdb_type())


def writing_connection() -> duckdb.DuckDBPyConnection:
    """Return a connection that writes times in UTC, and downloads nothing."""
    connection = connect(config={"autoinstall_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def run_copy(connection: duckdb.DuckDBPyConnection, statement: str, table: ExportedTable) -> None:
    """Run a statement that writes rows. Raise ``InputError`` for a value that the target cannot hold."""
    try:
        connection.execute(statement)
    except duckdb.Error as error:
        first = next(iter(str(error).splitlines()), "")
        raise InputError(f"the rows of {table.qualified_name} cannot be written: {first}") from error
