"""The facts of a lake in one form: as its own methods return them, and as the views over its metadata show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

import quacklake

__all__ = ["Facts", "Query", "shown", "told", "write"]

Facts = dict[str, list[tuple[Any, ...]]]
"""View -> what it says of the newest snapshot, or of all snapshots, sorted."""
Query = Callable[[str], list[tuple[Any, ...]]]


def write(lake: quacklake.Lake, word: str, files: int = 1) -> None:
    """Give a lake something for every view: ids of objects are the same in each, what they mean differs."""
    lake.create_schema(f"s_{word}")
    rows = [{"id": i, "day": f"{word} {i % 3}"} for i in range(30)]
    t = lake.create_table(f"s_{word}.t_{word}", rows, partition_by=["day"])
    for _ in range(files):
        t.append(rows)
    t.delete("id % 2 = 0")
    lake.create_table("gone", rows)
    lake.drop_table("gone")
    with lake.transaction(message=f"of {word}", author=word) as tx:
        tx.create_table("t", rows)


def told(lake: quacklake.Lake) -> Facts:
    """Return what the lake's own methods tell."""
    files, partitions = [], []
    for name in lake.tables():
        manifest = pa.ipc.open_file(lake.table(name).manifest()).read_all().to_pylist()
        for row in manifest:
            end = row["path"].rpartition("/")[2]
            files.append((row["data_file_id"], name, end, row["record_count"], row["delete_count"]))
            values = row["partition_values"] or []
            partitions += [(row["data_file_id"], name, *value.values()) for value in values]
    snapshots = lake.snapshots().select(["snapshot_id", "schema_version", "author", "commit_message"]).to_pylist()
    return {
        "catalogs": [(lake.data_path,)],
        "schemas": sorted((name,) for name in lake.schemas()),
        "tables": sorted((name,) for name in lake.tables()),
        "snapshots": sorted((tuple(row.values()) for row in snapshots), key=repr),
        "manifests": sorted(files, key=repr),
        "partitions": sorted(partitions, key=repr),
    }


def shown(query: Query, prefix: str = "lakehouse.", catalog_id: int | None = None) -> Facts:
    """Return what the views show, for one catalog if there are several; ``prefix`` precedes their names."""
    mine = "true" if catalog_id is None else f"x.catalog_id = {catalog_id}"
    key = "table_id" if catalog_id is None else "catalog_id, table_id"
    tables = f"{prefix}tables t USING ({key})"
    named = "t.schema_name || '.' || t.table_name"
    alive = f"{mine} AND x.end_snapshot IS NULL"
    queries = {
        "catalogs": f"SELECT data_path FROM {prefix}catalogs x WHERE {mine}",
        "schemas": f"SELECT schema_name FROM {prefix}schemas x WHERE {alive}",
        "tables": f"SELECT schema_name || '.' || table_name FROM {prefix}tables x WHERE {alive}",
        "snapshots": f"SELECT snapshot_id, schema_version, author, commit_message FROM {prefix}snapshots x WHERE {mine}",
        "manifests": f"SELECT data_file_id, {named}, regexp_replace(x.path, '.*/', ''), record_count, delete_count"
        f" FROM {prefix}manifests x JOIN {tables} WHERE {alive} AND t.end_snapshot IS NULL",
        "partitions": f"SELECT x.data_file_id, {named}, x.partition_key_index, x.partition_value"
        f" FROM {prefix}partitions x JOIN {tables} JOIN {prefix}manifests f USING ({key}, data_file_id)"
        f" WHERE {mine} AND t.end_snapshot IS NULL AND f.end_snapshot IS NULL",
    }
    return {view: sorted(query(text), key=repr) for view, text in queries.items()}
