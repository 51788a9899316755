"""Files that are known to end otherwise than with the extension, and why."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["BETTER", "EXCEPTIONS"]

_PROMOTION = "widens a type that the specification does not list, with loss of values or meaning"
_STANDS = "expects a conflict where both changes can stand: here both do"
_ORPHANS = "only files with names of the lake's own kind are orphans, others are left alone"
_FLUSHED = "a compaction notes a flush too, which keeps stock clients from losing deletes beside it"
_EMPTY = "emptied tables of inlined rows stay in the catalog, for readers that are about to ask them"
_SCANS = "expects a scan where the metadata answers"
_MEMORY = "measures the extension's cache in memory"
_VARIANT = "asks for statistics of shredded variants as DuckDB's optimizer has them"

#: Files in which the extension is wrong, loses something, or fails where nothing has to.
BETTER: Mapping[str, str] = {
    "add_files/add_file_partitioned.test": "the name of a folder is no proof of the year of a file's rows: refused",
    "add_files/add_files_compaction.test": "files from elsewhere are never scheduled for removal",
    "alter/alter_timestamptz_promotion.test": _PROMOTION,
    "alter/promote_type_all.test": _PROMOTION,
    "checkpoint/checkpoint_ducklake.test": _ORPHANS,
    "checkpoint/checkpoint_updates_interleaved.test": _STANDS,
    "compaction/compaction_delete_conflict.test": _STANDS,
    "compaction/merge_files_expired_snapshots.test": _FLUSHED,
    "constraints/unsupported.test": "PRIMARY KEY is what merge goes by, not refused",
    "default/default_values.test": "the text 'NULL' as a default is that text here",
    "delete/deletion_vector.test": "a second delete of the same file is a delete file that keeps the dates of both",
    "deletion_inlining/test_deletion_inlining_compaction.test": _FLUSHED,
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
    "transaction/transaction_conflict_inlining.test": _STANDS,
}

_OTHER: Mapping[str, str] = {
    "cleanup/drop_table_cleans_delete_files.test": "counts delete files in an open transaction: they are made when it ends",
    "compaction/merge_adjacent_file_size_filter.test": "counts files of a certain size, and ours have other sizes",
    "compaction/repro_merge_adjacent_zero_output.test": "expects files without rows to stay",
    "data_inlining/empty_inlined_tables_alter_cleanup.test": _EMPTY,
    "data_inlining/superseded_inlined_table_flush_drop.test": _EMPTY,
    "default/all_types_column_default_stats.test": "the texts of statistics of truth values and huge integers",
    "delete/delete_legacy_missing_mapping_after_rename_add_files.test": "added files that have lost their name mapping",
    "deletion_inlining/test_deletion_inlining_transaction.test": "the limit of inlined deletes holds for a transaction",
    "general/detach_ducklake.test": "the metadata database cannot be detached on its own",
    "general/ducklake_metadata_logging.test": "a log of the extension's own",
    "issues/issue_852_schema_cache_growth.test": _MEMORY,
    "issues/issue_852_stats_cache_growth.test": _MEMORY,
    "merge/merge_multi_partition_timestamp.test": "few rows of a MERGE live in the catalog where stock writes a file",
    "metadata/hide_metadata_catalog.test": "the metadata database is no database of its own in listings",
    "partitioning/bucket_partitioning.test": "no buckets of structs",
    "rewrite_data_files/test_rewrite_db.test": "each table is rewritten in a snapshot of its own",
    "rewrite_data_files/test_rewrite_partitioning.test": "a MERGE writes new and changed rows into one file",
    "settings/per_thread_output.test": "one file where stock has one for each thread",
    "sorted_table/insert_sorted_sort_on_insert_option.test": "sort_on_insert = false holds for inserts of any size",
    "sorted_table/merge_adjacent_sorted_repeated.test": "the number of a table, after an order that changes nothing",
    "stats/filter_pushdown.test": "a file whose least decimal is the bound of < is read",
    "stats/global_stats.test": "inlined rows that a filter rules out are looked at",
    "stats/topn_file_pruning.test": "files are not left out by what ORDER BY and LIMIT have found so far",
    "stats/variant_mixed_type_stats.test": _VARIANT,
    "stats/variant_shredded_stats.test": _VARIANT,
}

EXCEPTIONS: Mapping[str, str] = {**BETTER, **_OTHER}
