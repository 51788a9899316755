"""Data files of an Iceberg table: where they are staged, how manifests describe them, and how files replace others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import Record

from quacklake.connectors.iceberg.partitions import iceberg_split
from quacklake.connectors.object_store import open_store
from quacklake.connectors.staging import FileStage
from quacklake.extend.stores import Store


def iceberg_stage(
    location: str,
    storage: Mapping[str, str],
    schema: Schema,
    spec: PartitionSpec,
    *,
    columns: Sequence[str],
    upsert: bool,
    target_bytes: int,
    compression: str,
) -> FileStage:
    """Return the stage of a sink for rows with some of the columns, in any process: the arguments are plain data.

    Rows of an upsert are set aside, because only the merge makes files of the table.
    """
    return FileStage(
        open_store(location, storage),
        folder=stage_folder(upsert=upsert),
        split=None if upsert else iceberg_split(spec, schema),
        target_bytes=target_bytes,
        compression=compression,
        schema=schema_to_pyarrow(schema.select(*columns)),
        aside="quacklake/",
    )


def stage_folder(*, upsert: bool) -> str:
    """Return the folder of staged files: rows to merge are no files of the table."""
    return "quacklake/" if upsert else "data/"


def storage_of(table: Table) -> dict[str, str]:
    """Return the options of a table's store: those of its catalog, and the keys that the catalog lends."""
    return {key: str(value) for key, value in table.io.properties.items()}


def data_file(store: Store, path: str, size: int, partition: Record, metadata: TableMetadata) -> DataFile:
    """Return the description of a Parquet file below the table, with the statistics of its footer."""
    with store.open_input(path) as source:
        footer = pq.read_metadata(source)
    statistics = data_file_statistics_from_parquet_metadata(
        footer,
        stats_columns=compute_statistics_plan(metadata.schema(), metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(metadata.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{metadata.location.rstrip('/')}/{path}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


class ReplaceFiles(_OverwriteFiles):
    """Files in the place of others with the same rows: a snapshot that readers of changes skip.

    The library writes such snapshots with the operation ``overwrite`` only.
    """

    @classmethod
    def of(cls, transaction: Transaction, properties: Mapping[str, str]) -> ReplaceFiles:
        """Begin a snapshot of the main branch."""
        return cls(
            operation=Operation.OVERWRITE,
            transaction=transaction,
            io=transaction._table.io,
            branch=MAIN_BRANCH,
            snapshot_properties=dict(properties),
        )

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        counted = super()._summary(snapshot_properties or {})
        return Summary(operation=Operation.REPLACE, **counted.additional_properties)
