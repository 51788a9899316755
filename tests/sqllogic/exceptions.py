"""Test files of the extension whose result differs on purpose, and why."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EXCEPTIONS"]

_PROMOTION = "widens a type in a way that the specification does not list and that alters values"
_STANDS = "expects a conflict between two changes that Quacklake can both commit"
_ORPHANS = (
    "expects files with other names to be orphans; Quacklake removes only files named as DuckLake writers name them"
)
_FLUSHED = (
    "expects a compaction to record no flush; Quacklake records one so that stock clients lose no concurrent delete"
)
_SCANS = "expects a scan; Quacklake answers from the metadata"
_MEMORY = "measures a cache of the extension in DuckDB's memory, which Quacklake does not have"
_METADATA = (
    "lists or detaches the metadata database; in Quacklake it belongs to the lake and can only be read by its name"
)
_VARIANT = "asks DuckDB's optimizer for statistics of shredded variants, which are not part of the metadata"

EXCEPTIONS: Mapping[str, str] = {
    "add_files/add_file_partitioned.test": "adds a file by the year in its folder name; Quacklake refuses it, because the name proves nothing",
    "add_files/add_files_compaction.test": "expects added files to be scheduled for removal; Quacklake never removes them",
    "alter/alter_timestamptz_promotion.test": _PROMOTION,
    "alter/promote_type_all.test": _PROMOTION,
    "checkpoint/checkpoint_ducklake.test": _ORPHANS,
    "checkpoint/checkpoint_updates_interleaved.test": _STANDS,
    "compaction/compaction_delete_conflict.test": _STANDS,
    "compaction/merge_files_expired_snapshots.test": _FLUSHED,
    "compaction/repro_merge_adjacent_zero_output.test": "expects an INSERT of no rows to write a file; Quacklake writes none",
    "constraints/unsupported.test": "expects PRIMARY KEY to be refused; Quacklake uses it for merge and ON CONFLICT",
    "default/default_values.test": "expects the text 'NULL' as a default to mean NULL; in Quacklake it is the text",
    "delete/deletion_vector.test": "expects a second deletion vector; Quacklake writes a delete file that keeps the snapshots of both deletes",
    "deletion_inlining/test_deletion_inlining_compaction.test": _FLUSHED,
    "general/detach_ducklake.test": _METADATA,
    "general/ducklake_metadata_logging.test": "reads a log that only the extension writes",
    "issues/issue_852_schema_cache_growth.test": _MEMORY,
    "issues/issue_852_stats_cache_growth.test": _MEMORY,
    "metadata/hide_metadata_catalog.test": _METADATA,
    "migration/migration.test": "expects a lake of an older version to be refused; Quacklake opens it read-only",
    "migration/per_table_schema.test": "expects every schema version for every table; Quacklake records those at which the table changed",
    "remove_orphans/concurrent_insert_orphan_cleanup.test": _ORPHANS,
    "remove_orphans/mixed_paths.test": _ORPHANS,
    "remove_orphans/remove_orphaned_files.test": _ORPHANS,
    "rewrite_data_files/test_rewrite_transaction_conflict.test": _STANDS,
    "settings/max_retry_count.test": "expects some of many concurrent commits to fail; in Quacklake all succeed",
    "sorted_table/data_inlining_flush_sorted_macro_expression_transaction.test": (
        "expects an error that its own comment calls a bug; Quacklake runs the statement"
    ),
    "stats/min_max_optimization_compaction.test": _SCANS,
    "stats/min_max_optimization_deletes.test": _SCANS,
    "stats/variant_mixed_type_stats.test": _VARIANT,
    "stats/variant_shredded_stats.test": _VARIANT,
    "transaction/transaction_conflict_inlining.test": _STANDS,
}
