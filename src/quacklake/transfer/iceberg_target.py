"""Export to Iceberg tables: of a catalog, or without one, of a folder. Each appears with all of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.table import CreateTableTransaction, Table
from pyiceberg.table.refs import MAIN_BRANCH

from quacklake import Lake, LakeAt
from quacklake.connectors.iceberg.catalogs import IcebergTable, failing
from quacklake.connectors.iceberg.files import data_file, iceberg_stage, storage_of
from quacklake.connectors.iceberg.partitions import partition_record, partition_spec
from quacklake.connectors.iceberg.schemas import with_ids
from quacklake.connectors.object_store import open_store
from quacklake.connectors.options import ConnectorOptions
from quacklake.errors import AlreadyExistsError, InputError
from quacklake.extend import reporting
from quacklake.extend.stores import check_outside
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.delta_target import changed_types, converted, delta_columns
from quacklake.transfer.new_folders import RemoteFolder, described, remote_store
from quacklake.transfer.places import local
from quacklake.transfer.targets import ExportedTable, View, uuids

_LEAVE = "leave the table out with exclude"
_TARGET = 128 * 1000**2
_IN_MEMORY = {"catalog_type": "sql", "catalog_uri": "sqlite:///:memory:"}
"""A catalog that is gone after the export: the tables are found by their metadata files."""


class IcebergTarget:
    """A catalog that the options name, or a folder whose tables are found by their metadata files."""

    def __init__(
        self,
        lake: Lake | LakeAt,
        place: str,
        partition_by: Sequence[str],
        options: Mapping[str, Any],
        *,
        replace: bool,
    ) -> None:
        if replace:
            raise InputError("an export does not replace Iceberg tables", hint="drop them in their catalog first")
        self._keys = list(partition_by)
        self._remote = RemoteFolder(remote_store(lake, place)) if "://" in place else None
        self._path = local(place) if place and self._remote is None else None
        if self._path is not None:
            check_outside(lake, self._path)
            if not self._path.parent.is_dir():
                raise InputError(f"the folder {self._path.parent} does not exist", hint="create it first")
            options = {**_IN_MEMORY, "warehouse": self._path.as_uri(), **options}
        elif self._remote is not None:
            options = {**_IN_MEMORY, "warehouse": self._remote.shown, **self._remote.storage, **options}
        self._place = IcebergTable.of(ConnectorOptions("iceberg", {**options, "namespace": "n", "table_name": "t"}))
        shown = self._path or (self._remote.shown if self._remote is not None else options.get("catalog_name", ""))
        self.place = f"iceberg:{shown}"
        self._staged: list[CreateTableTransaction] = []
        self._sizes: dict[str, int] = {}
        self._written: list[tuple[Table, list[str]]] = []

    def check(self, table: ExportedTable) -> None:
        """Raise ``AlreadyExistsError`` for a table that is there."""
        namespace, name = table.folders()
        if "." in namespace:
            raise InputError(f"the schema {namespace!r} cannot be a namespace of Iceberg", hint=_LEAVE)
        with failing("the Iceberg catalog cannot be read"):
            known = self._place.catalog.table_exists((namespace, name))
        if known or (self._path is not None and Path(self._path, namespace, name, "metadata").exists()):
            raise AlreadyExistsError(f"the Iceberg table {namespace}.{name} exists already", hint=_LEAVE)
        with_ids(delta_columns(table.columns.to_arrow(), table.columns.columns))
        for column in table.columns.columns:
            if any(leaf.type == "timestamp_ns" for leaf in column.leaves()):
                raise InputError(
                    f'Iceberg has no nanoseconds for the column "{column.name}" of {table.qualified_name}',
                    hint=_LEAVE,
                )

    def begin(self, snapshot_id: int, tables: Sequence[ExportedTable]) -> list[ExportedTable]:
        """Return the tables of an object store that have a metadata file, which is written last."""
        if self._remote is None:
            return []
        self._remote.begin(described("iceberg", snapshot_id, self._keys, uuids(tables)))
        done = []
        for table in tables:
            listed = self._remote.store.list("/".join((*table.folders(), "metadata")))
            if any(entry.path.endswith(".metadata.json") for entry in listed):
                done.append(table)
            else:
                self._remote.clear(*table.folders())
        return done

    def write(self, table: ExportedTable, rows: pa.RecordBatchReader) -> None:
        """Write the files of a table."""
        schema = delta_columns(rows.schema, table.columns.columns)
        numbered = with_ids(schema)
        catalog = self._place.catalog
        with failing("the Iceberg table cannot be created"):
            with suppress(NamespaceAlreadyExistsError):
                catalog.create_namespace((table.schema,))
            transaction = catalog.create_table_transaction(
                (table.schema, table.name), numbered, partition_spec=partition_spec(self._keys, numbered)
            )
        staged, metadata = transaction._table, transaction.table_metadata
        stage = iceberg_stage(
            metadata.location,
            storage_of(staged),
            metadata.schema(),
            metadata.spec(),
            columns=schema.names,
            upsert=False,
            target_bytes=_TARGET,
            compression="zstd",
        )
        for batch in rows:
            stage.add(converted(batch, schema))
        files = stage.take()
        self._written.append((staged, [file.path for file in files]))
        with failing("the Iceberg table cannot be written"):
            store = open_store(metadata.location, storage_of(staged))
            if files:
                with transaction.update_snapshot(branch=MAIN_BRANCH).fast_append() as append:
                    for file in files:
                        record = partition_record(file, metadata.spec(), metadata.schema())
                        append.append_data_file(data_file(store, file.path, file.bytes, record, metadata))
        self._staged.append(transaction)
        self._sizes[table.qualified_name] = sum(file.bytes for file in files)

    def views(self, views: Sequence[View]) -> tuple[list[str], list[LeftOut]]:
        """Return all as left out."""
        return [], [
            LeftOut(f"view {schema}.{name}", "tables only are exported to Iceberg") for schema, name, *_ in views
        ]

    def left_out(self, table: ExportedTable) -> list[LeftOut]:
        """Return the columns with other types."""
        return changed_types(table, delta_columns(table.columns.to_arrow(), table.columns.columns))

    def finish(self) -> dict[str, int]:
        """Show the tables, one after the other."""
        with failing("the Iceberg table cannot be committed"):
            for transaction in self._staged:
                transaction.commit_transaction()
                reporting.reach("export.committed")
        if self._remote is not None:
            self._remote.publish()
        return self._sizes

    def abort(self) -> None:
        """Remove the files that were written."""
        for staged, paths in self._written:
            open_store(staged.metadata.location, storage_of(staged)).delete(paths)
