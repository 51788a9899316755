"""Files that are known to end otherwise than with the extension, and why."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EXCEPTIONS"]

_STATS = "asks DuckDB's optimizer for statistics that only the extension's own scans give it"
_METADATA = "changes metadata tables by hand; here they can only be read"
_PLAN = "looks for operators of the extension's own scans in the plan"
_RESERVED = "column names that stock reserves are ordinary ones here"
_ORDER = "expects rows without ORDER BY in the order of the extension's scans"
_PROMOTION = "widens a type that the specification does not list"
_IN_TRANSACTION = "upkeep is not part of a transaction that has changed the lake"
_MACRO_ORDER = "an order that calls a macro"
_GROUPS = "upkeep tells one row for each table, not for each group of files"
_INLINED = "rows stay in the catalog where stock writes a file"
_AT_COMMIT = "files are made and removed when the transaction ends, not with each statement"
_GEOMETRY = "geometries: the form of their statistics, and nested ones"
_VARIANT = "variants in a DuckDB catalog need a newer storage version than ours are made with"
_DELETES = "delete files hold the same deletes with other bookkeeping"

EXCEPTIONS: Mapping[str, str] = {
    "add_files/add_file_partitioned.test": "a folder's name is no proof of the year of a file's rows: refused",
    "add_files/add_files.test": _ORDER,
    "add_files/add_files_compaction.test": "files from elsewhere are never scheduled for removal",
    "add_files/add_files_hive.test": _PLAN,
    "add_files/add_files_nested_list_struct_nulls.test": "counts of values in lists of added files",
    "alter/alter_timestamptz_promotion.test": _PROMOTION,
    "alter/issue_944.test": _RESERVED,
    "alter/multi_alter_same_column_transaction.test": _IN_TRANSACTION,
    "alter/promote_type_all.test": _PROMOTION,
    "checkpoint/checkpoint_ducklake.test": "files that nobody names are left alone for a while",
    "checkpoint/checkpoint_updates_interleaved.test": _IN_TRANSACTION,
    "cleanup/create_drop_cleanup.test": _AT_COMMIT,
    "cleanup/drop_table_cleans_delete_files.test": _AT_COMMIT,
    "comments/comment_preserves_other_tags.test": _METADATA,
    "compaction/compaction_alter_table.test": _GROUPS,
    "compaction/compaction_delete_conflict.test": "what stock refuses, and can stand, stands",
    "compaction/compaction_partitioned_non_adjacent.test": _GROUPS,
    "compaction/compaction_partitioned_table.test": _GROUPS,
    "compaction/compaction_schema_version_per_table.test": _GROUPS,
    "compaction/merge_adjacent_file_size_filter.test": "sizes of files",
    "compaction/merge_files_expired_snapshots.test": "merging flushes rows of the catalog in the same snapshot",
    "compaction/repro_merge_adjacent_zero_output.test": "files without rows end",
    "constraints/unsupported.test": "PRIMARY KEY is what merge goes by, not refused",
    "data_inlining/basic_data_inlining.test": "the number of the place of uncommitted rows",
    "data_inlining/data_inlining_partitions.test": _ORDER,
    "data_inlining/data_inlining_update.test": _STATS,
    "data_inlining/data_inlining_variant.test": _VARIANT,
    "data_inlining/empty_inlined_tables_alter_cleanup.test": "empty tables of inlined rows stay",
    "data_inlining/inlining_reserved_column_names.test": _RESERVED,
    "data_inlining/superseded_inlined_table_flush_drop.test": "empty tables of inlined rows stay",
    "default/all_types_column_default_stats.test": "the texts of statistics of truth values and huge integers",
    "default/default_values.test": "the text 'NULL' as a default is that text here",
    "delete/delete_ignore_extra_columns.test": "a delete file without field ids",
    "delete/delete_legacy_missing_mapping_after_rename_add_files.test": _METADATA,
    "delete/deletion_vector.test": "only the first delete file of a data file is a vector",
    "deletion_inlining/test_deletion_from_file_and_inserted_inlining.test": _DELETES,
    "deletion_inlining/test_deletion_from_file_and_inserted_inlining_non_sequential.test": _DELETES,
    "deletion_inlining/test_deletion_inlining.test": _DELETES,
    "deletion_inlining/test_deletion_inlining_compaction.test": "merging flushes in the same snapshot",
    "deletion_inlining/test_deletion_inlining_transaction.test": _DELETES,
    "functions/ducklake_snapshots.test": _IN_TRANSACTION,
    "general/database_size.test": "the size of a database is DuckDB's own",
    "general/detach_ducklake.test": "the metadata database cannot be detached on its own",
    "general/ducklake_metadata_logging.test": "a log of the extension's own",
    "geo/ducklake_geometry.test": _GEOMETRY,
    "geo/ducklake_geometry_add_files.test": _GEOMETRY,
    "geo/ducklake_geometry_nested_list.test": _GEOMETRY,
    "geo/ducklake_geometry_nested_map.test": _GEOMETRY,
    "geo/ducklake_geometry_nested_struct.test": _GEOMETRY,
    "geo/ducklake_geometry_stats.test": _STATS,
    "issues/corrupted_catalog_fault_isolation.test": _METADATA,
    "issues/issue_852_stats_cache_growth.test": "measures the extension's cache",
    "issues/options_unknown_metadata_key.test": _METADATA,
    "merge/merge_multi_partition_timestamp.test": _INLINED,
    "migration/migration.test": "a lake of an older version opens read-only instead of not at all",
    "migration/per_table_schema.test": "a migration tells each table's own schema versions",
    "migration/test_compaction.test": "a migration of a compacted lake in a DuckDB catalog",
    "migration/v01_partitioned.test": "partitioned writes into a table whose folder is the data path itself",
    "partitioning/bucket_partitioning.test": "no buckets of structs",
    "partitioning/year_month_day.test": "expects groups without ORDER BY in one order; passes now and then",
    "quack/server_side_commit_atomicity.test": _METADATA,
    "remove_orphans/mixed_paths.test": "only files with names of the lake's own kind are orphans",
    "remove_orphans/remove_orphaned_files.test": "only files with names of the lake's own kind are orphans",
    "rewrite_data_files/test_rewrite_db.test": _DELETES,
    "rewrite_data_files/test_rewrite_partitioning.test": _GROUPS,
    "rewrite_data_files/test_rewrite_transaction_conflict.test": "what stock refuses, and can stand, stands",
    "secrets/ducklake_secrets.test": "no secrets of the type DUCKLAKE",
    "settings/per_thread_output.test": "one file where stock has one for each thread",
    "sorted_table/data_inlining_flush_sorted_alter_table.test": _IN_TRANSACTION,
    "sorted_table/data_inlining_flush_sorted_expression_deletes_999_transaction.test": _IN_TRANSACTION,
    "sorted_table/data_inlining_flush_sorted_macro_errors.test": _MACRO_ORDER,
    "sorted_table/data_inlining_flush_sorted_macro_expression_transaction.test": _MACRO_ORDER,
    "sorted_table/data_inlining_flush_sorted_reset.test": _IN_TRANSACTION,
    "sorted_table/data_inlining_flush_sorted_transaction_renamed.test": _IN_TRANSACTION,
    "sorted_table/insert_sorted_macro_expression.test": _MACRO_ORDER,
    "sorted_table/insert_sorted_sort_on_insert_option.test": _ORDER,
    "sorted_table/merge_adjacent_sorted_basic.test": _ORDER,
    "sorted_table/merge_adjacent_sorted_expression.test": _ORDER,
    "sorted_table/merge_adjacent_sorted_macro_expression.test": _MACRO_ORDER,
    "sorted_table/merge_adjacent_sorted_macro_expression_transaction.test": _MACRO_ORDER,
    "sorted_table/merge_adjacent_sorted_repeated.test": _ORDER,
    "sorted_table/merge_adjacent_sorted_transaction_alter_table_unrelated.test": _ORDER,
    "sorted_table/merge_adjacent_sorted_transaction_renamed.test": _ORDER,
    "stats/filter_pushdown.test": "a file whose least value is the bound of < is read",
    "stats/global_stats.test": _STATS,
    "stats/global_stats_transactions.test": _STATS,
    "stats/min_max_optimization_basic.test": _PLAN,
    "stats/min_max_optimization_compaction.test": _PLAN,
    "stats/min_max_optimization_deletes.test": _PLAN,
    "stats/min_max_optimization_inlined.test": _PLAN,
    "stats/min_max_optimization_time_travel.test": _PLAN,
    "stats/table_stats_without_column_stats.test": _METADATA,
    "stats/topn_file_pruning.test": _PLAN,
    "stats/variant_mixed_type_stats.test": _STATS,
    "stats/variant_shredded_stats.test": _STATS,
    "types/list.test": _STATS,
    "types/struct.test": _STATS,
    "types/variant.test": _VARIANT,
    "metadata/hide_metadata_catalog.test": "the metadata database is no database of its own in listings",
}
