"""On PostgreSQL: views ``lakehouse.*`` over the metadata, for people who look with SQL."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

__all__ = ["VIEWS", "create_views", "drop_views"]

#: View -> its query over the stock tables of the public schema.
VIEWS = {
    "catalogs": "SELECT 0::bigint AS catalog_id, 'main'::text AS catalog_name, value AS data_path"
    " FROM ducklake_metadata WHERE key = 'data_path' AND scope IS NULL",
    "schemas": "SELECT schema_id, schema_uuid, schema_name, path, begin_snapshot, end_snapshot FROM ducklake_schema",
    "tables": "SELECT t.table_id, t.table_uuid, s.schema_name, t.table_name, t.path, t.begin_snapshot, t.end_snapshot"
    " FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)",
    "snapshots": "SELECT s.snapshot_id, s.snapshot_time, s.schema_version, c.changes_made, c.author, c.commit_message,"
    " c.commit_extra_info FROM ducklake_snapshot s LEFT JOIN ducklake_snapshot_changes c USING (snapshot_id)",
    "manifests": "SELECT f.data_file_id, f.table_id, f.begin_snapshot, f.end_snapshot, f.path, f.record_count,"
    " f.file_size_bytes, d.path AS delete_path, d.delete_count FROM ducklake_data_file f"
    " LEFT JOIN ducklake_delete_file d ON d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL",
    "partitions": "SELECT v.table_id, v.data_file_id, v.partition_key_index, v.partition_value, c.column_id,"
    " c.transform FROM ducklake_file_partition_value v JOIN ducklake_data_file f USING (data_file_id)"
    " LEFT JOIN ducklake_partition_column c ON c.partition_id = f.partition_id"
    " AND c.partition_key_index = v.partition_key_index",
}


def create_views(connection: Connection) -> None:
    """Create or refresh the views."""
    connection.execute(sa.text("CREATE SCHEMA IF NOT EXISTS lakehouse"))
    for name, query in VIEWS.items():
        connection.execute(sa.text(f"CREATE OR REPLACE VIEW lakehouse.{name} AS {query}"))


def drop_views(connection: Connection) -> None:
    """Remove the views, before the tables under them are removed."""
    for name in VIEWS:
        connection.execute(sa.text(f"DROP VIEW IF EXISTS lakehouse.{name}"))
