"""Files that end otherwise than with the extension on purpose, and why."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EXCEPTIONS"]

_PROMOTION = "widens a type that the specification does not list, with loss of values or meaning"
_STANDS = "expects a conflict where both changes can stand: here both do"
_ORPHANS = "only files with names of the lake's own kind are orphans, others are left alone"
_FLUSHED = "a compaction notes a flush too, which keeps stock clients from losing deletes beside it"
_SCANS = "expects a scan where the metadata answers"
_MEMORY = "measures the cache that the extension keeps in DuckDB's memory: there is none here"
_METADATA = "the metadata database belongs to the lake: it is read by its name, and not listed or detached on its own"
_VARIANT = "asks DuckDB's optimizer for statistics of shredded variants, which are no part of the metadata"

EXCEPTIONS: Mapping[str, str] = {
    "add_files/add_file_partitioned.test": "the name of a folder is no proof of the year of a file's rows: refused",
    "add_files/add_files_compaction.test": "files from elsewhere are never scheduled for removal",
    "alter/alter_timestamptz_promotion.test": _PROMOTION,
    "alter/promote_type_all.test": _PROMOTION,
    "checkpoint/checkpoint_ducklake.test": _ORPHANS,
    "checkpoint/checkpoint_updates_interleaved.test": _STANDS,
    "compaction/compaction_delete_conflict.test": _STANDS,
    "compaction/merge_files_expired_snapshots.test": _FLUSHED,
    "compaction/repro_merge_adjacent_zero_output.test": "expects an INSERT of no rows to write a file: none is written",
    "constraints/unsupported.test": "PRIMARY KEY is what merge and ON CONFLICT go by, not refused",
    "default/default_values.test": "the text 'NULL' as a default is that text here",
    "delete/deletion_vector.test": "a second delete of the same file is a delete file that keeps the dates of both",
    "deletion_inlining/test_deletion_inlining_compaction.test": _FLUSHED,
    "general/detach_ducklake.test": _METADATA,
    "general/ducklake_metadata_logging.test": "reads a log that the extension writes about itself",
    "issues/issue_852_schema_cache_growth.test": _MEMORY,
    "issues/issue_852_stats_cache_growth.test": _MEMORY,
    "metadata/hide_metadata_catalog.test": _METADATA,
    "migration/migration.test": "a lake of an older version opens read-only instead of not at all",
    "migration/per_table_schema.test": "a migration gives each table the schema versions that it had itself",
    "remove_orphans/concurrent_insert_orphan_cleanup.test": _ORPHANS,
    "remove_orphans/mixed_paths.test": _ORPHANS,
    "remove_orphans/remove_orphaned_files.test": _ORPHANS,
    "rewrite_data_files/test_rewrite_transaction_conflict.test": _STANDS,
    "settings/max_retry_count.test": "expects some of many commits at the same time to fail: here all come through",
    "sorted_table/data_inlining_flush_sorted_macro_expression_transaction.test": (
        "expects an error that its own comment calls one to be fixed: it works"
    ),
    "stats/min_max_optimization_compaction.test": _SCANS,
    "stats/min_max_optimization_deletes.test": _SCANS,
    "stats/variant_mixed_type_stats.test": _VARIANT,
    "stats/variant_shredded_stats.test": _VARIANT,
    "transaction/transaction_conflict_inlining.test": _STANDS,
}
