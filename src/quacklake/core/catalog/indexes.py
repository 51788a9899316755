"""The indexes that we add to the tables of a lake, by their columns; those of names are in ``name_keys``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: Indexes that we add; name -> (table, columns). They do not disturb stock DuckLake.
INDEXES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "quacklake_data_file_table": ("data_file", ("table_id", "begin_snapshot")),
        "quacklake_delete_file_table": ("delete_file", ("table_id", "data_file_id")),
        "quacklake_delete_file_file": ("delete_file", ("data_file_id",)),
        "quacklake_file_stats": ("file_column_stats", ("table_id", "column_id", "data_file_id")),
        "quacklake_file_stats_file": ("file_column_stats", ("data_file_id",)),
        "quacklake_column_table": ("column", ("table_id", "begin_snapshot")),
        "quacklake_table_id": ("table", ("table_id", "begin_snapshot")),
        "quacklake_table_schema": ("table", ("schema_id", "begin_snapshot")),
        "quacklake_table_stats": ("table_stats", ("table_id",)),
        "quacklake_column_stats": ("table_column_stats", ("table_id", "column_id")),
        "quacklake_partition_value": ("file_partition_value", ("table_id", "data_file_id")),
        "quacklake_schema_versions": ("schema_versions", ("table_id", "schema_version")),
        "quacklake_inlined_tables": ("inlined_data_tables", ("table_id",)),
        **{
            f"quacklake_{table}": (table, (key,))
            for key, tables in {
                "object_id": "tag",
                "table_id": "column_tag partition_info partition_column column_mapping sort_info sort_expression",
                "mapping_id": "name_mapping",
            }.items()
            for table in tables.split()
        },
    }
)

#: Columns that an index also holds where the database allows it.
COVERED: Mapping[str, tuple[str, ...]] = MappingProxyType({"quacklake_file_stats": ("min_value", "max_value")})
