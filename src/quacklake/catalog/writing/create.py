"""Creating the tables of a new lake, exactly as stock DuckLake does, and ours beside them."""

from __future__ import annotations

import datetime as dt
import uuid

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateTable

from quacklake.catalog import lakehouse
from quacklake.catalog.databases.database import Database
from quacklake.catalog.tables import Tables
from quacklake.catalog.writing.writer import Writer
from quacklake.format.objects import SchemaInfo
from quacklake.format.options import OptionRow
from quacklake.format.snapshots import Change, ChangeKind, Snapshot


def create_tables(writer: Writer, tables: Tables, database: Database) -> None:
    """Create every table of a lake, empty."""
    schema = tables.metadata.schema
    # on MySQL a failed creation may have left some tables
    fresh = database.name != "mysql"
    if schema is not None:
        writer.run("create_metadata_schema", sa.schema.CreateSchema(schema, if_not_exists=True))
    for table in tables.stock():
        writer.run("create_table", CreateTable(table, if_not_exists=not fresh))
    create_own(writer._connection, tables, database, fresh=fresh)


def create_own(connection: Connection, tables: Tables, database: Database, *, fresh: bool = False) -> None:
    """Create our tables and indexes, where they are missing unless the lake is ``fresh``."""
    schema = tables.metadata.schema
    for table in tables.own.values():
        connection.execute(CreateTable(table, if_not_exists=True))
    if database.name != "duckdb":
        # DuckDB scans columns fast without one, and an index there makes updates of a row fail in one transaction
        have = set() if fresh else database.index_names(connection, schema)
        for index in tables.indexes(database.name):
            if index.name not in have:
                connection.execute(sa.schema.CreateIndex(index))
    if database.name == "postgres":
        lakehouse.create_views(connection, schema)


def add_first_rows(writer: Writer, data_path: str, *, encrypted: bool) -> None:
    """Insert the metadata of the lake, and its first snapshot with the schema ``main``."""
    rows = {"version": writer._t.version, "created_by": "quacklake", "data_path": data_path}
    rows["encrypted"] = "true" if encrypted else "false"
    writer.add_options([OptionRow(key, value) for key, value in rows.items()])
    first = Snapshot(0, dt.datetime.now(dt.UTC), 0, 1, 0)
    writer.snapshots.add(first, [Change(ChangeKind.CREATED_SCHEMA, schema="main")], None, None, None)
    writer.tables.add_schemas([SchemaInfo(0, str(uuid.uuid4()), "main", "main/", True)], 0)
