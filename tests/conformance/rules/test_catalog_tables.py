"""The tables of the catalog: both clients make the same ones and write the same rows into them."""

from __future__ import annotations

from .books import Books

_LIFE = "begin_snapshot, end_snapshot"


def test_f1_1_metadata_has_settings_with_a_scope(books: Books) -> None:
    books.columns("metadata", "key, value, scope, scope_id")
    found = books.same("metadata", where="key NOT IN ('created_by', 'data_path')")
    schema, table = (
        books.each(f"SELECT {kind}_id FROM ducklake_{kind} WHERE {kind}_name = '{name}'")[0][0][0]
        for kind, name in (("schema", "s"), ("table", "optional"))
    )
    assert ("version", "1.0", None, None) in found
    assert ("encrypted", "false", None, None) in found
    assert ("parquet_compression", "zstd", None, None) in found
    assert ("data_inlining_row_limit", "7", "schema", schema) in found
    assert ("target_file_size", "10485760", "table", table) in found
    for rows in books.each("SELECT value FROM ducklake_metadata WHERE key = 'data_path'"):
        assert rows[0][0].endswith("/")


def test_f1_2_snapshots_count_versions_and_ids(books: Books) -> None:
    books.columns("snapshot", "snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id")
    found = books.same("snapshot", "snapshot_id, schema_version, next_catalog_id")
    assert found[0] == (0, 0, 1)
    assert [row[0] for row in found] == [*range(len(found))]
    for rows in books.each("SELECT next_file_id FROM ducklake_snapshot ORDER BY snapshot_id"):
        assert rows == sorted(rows)
    for rows in books.each("SELECT snapshot_time::VARCHAR FROM ducklake_snapshot ORDER BY snapshot_id"):
        assert rows == sorted(rows)


def test_f1_3_changes_of_a_snapshot_with_author_and_message(books: Books) -> None:
    books.columns("snapshot_changes", "snapshot_id, changes_made, author, commit_message, commit_extra_info")
    found = books.same("snapshot_changes", where="author IS NOT NULL")
    assert [row[2:] for row in found] == [("me", "why", '{"a": 1}')]


def test_f1_4_schemas_live_and_have_a_folder(books: Books) -> None:
    books.columns("schema", f"schema_id, schema_uuid, {_LIFE}, schema_name, path, path_is_relative")
    found = books.same("schema", f"schema_id, {_LIFE}, schema_name, path_is_relative::INTEGER")
    assert [row[0:4] for row in found[:2]] == [(0, 0, None, "main"), (1, 1, None, "s")]
    assert all(len(set(rows)) == len(found) for rows in books.each("SELECT schema_uuid FROM ducklake_schema"))


def test_f1_5_a_renamed_table_is_another_row_of_the_same_id(books: Books) -> None:
    books.columns("table", f"table_id, table_uuid, {_LIFE}, schema_id, table_name, path, path_is_relative")
    books.same("table", f"table_id, {_LIFE}, schema_id, table_name, path_is_relative::INTEGER")
    query = (
        "SELECT count(*), count(DISTINCT table_id), count(DISTINCT table_uuid), count(DISTINCT path),"
        " max(end_snapshot) = max(begin_snapshot) FROM ducklake_table WHERE table_name IN ('place', 'moved')"
    )
    assert books.each(query) == [[(2, 1, 1, 1, True)]] * len(books.books)
    books.check("objects")


def test_f1_6_views_have_sql_and_names_of_columns(books: Books) -> None:
    books.columns("view", f"view_id, view_uuid, {_LIFE}, schema_id, view_name, dialect, sql, column_aliases")
    found = books.same("view", f"view_name, {_LIFE}, schema_id, dialect, sql, column_aliases")
    assert [row[0] for row in found] == ["v", "v2", "w"]
    expected = [(50, "signed")]
    for book in books.books:
        assert [tuple(row.values()) for row in book.site.lake().view("v2").to_pylist()][-1:] == expected
        assert book.site.lake().view("s.w").columns == ["x", 'y "z']
        if book.site.kind != "mysql":
            assert book.site.stock().execute("SELECT * FROM l.v2 ORDER BY id DESC LIMIT 1").fetchall() == expected


def test_f1_7_columns_live_with_types_and_defaults(books: Books) -> None:
    books.columns(
        "column",
        f"column_id, {_LIFE}, table_id, column_order, column_name, column_type, initial_default, default_value,"
        " nulls_allowed, parent_column, default_value_type, default_value_dialect",
    )
    # stock DuckLake says of a field added to a struct that it takes no NULL, which holds for nobody
    added = "parent_column IS NULL OR begin_snapshot = (SELECT min(c.begin_snapshot) FROM ducklake_column c WHERE c.table_id = ducklake_column.table_id)"
    books.same("column", "* REPLACE (nulls_allowed::INTEGER AS nulls_allowed)", added)
    books.same("column", "* EXCLUDE (nulls_allowed)")
    books.check("evolution")


def test_f1_8_tags_of_objects_and_columns_live(books: Books) -> None:
    books.columns("tag", f"object_id, {_LIFE}, key, value")
    books.columns("column_tag", f"table_id, column_id, {_LIFE}, key, value")
    found = books.same("tag")
    assert [row[3:] for row in found if row[3] == "comment"] == [
        ("comment", "first"),
        ("comment", "second"),
        ("comment", "it's a view"),
    ]
    assert [row[4:] for row in books.same("column_tag")] == [("comment", "who")]
    for book in books.books:
        table = book.site.lake().table("moved")
        assert (table.comment, table.column_comments) == ("second", {"name": "who"})


def test_f1_9_data_files_with_their_life_and_sizes(books: Books) -> None:
    books.columns(
        "data_file",
        f"data_file_id, table_id, {_LIFE}, file_order, path, path_is_relative, file_format, record_count,"
        " file_size_bytes, footer_size, row_id_start, partition_id, encryption_key, mapping_id, partial_max",
    )
    kept = f"table_id, {_LIFE}, file_order, file_format, record_count, row_id_start, encryption_key, partial_max"
    # rows of partitions have other ids, and stock DuckLake does not end a file whose last rows are inlined deletes
    other = "SELECT table_id FROM ducklake_table WHERE table_name IN ('parts', 'things')"
    books.same("data_file", kept, f"table_id NOT IN ({other})")
    for book in books.books:
        sizes = {path.name: path.stat().st_size for path in book.site.folder.rglob("*.parquet")}
        found = book.rows("SELECT parse_filename(path), file_size_bytes, footer_size FROM ducklake_data_file")
        assert found
        for name, size, footer in found:
            assert 0 < footer < size
            assert name == "f.parquet" or sizes[name] == size


def test_f1_10_delete_files_with_their_counts(books: Books) -> None:
    books.columns(
        "delete_file",
        f"delete_file_id, table_id, {_LIFE}, data_file_id, path, path_is_relative, format, delete_count,"
        " file_size_bytes, footer_size, encryption_key, partial_max",
    )
    for rows in books.each("SELECT DISTINCT format, path_is_relative::INTEGER FROM ducklake_delete_file ORDER BY 1"):
        assert rows == [("parquet", 1), ("puffin", 1)]
    books.check("deletes")


def test_f1_11_files_that_are_no_longer_needed_are_scheduled(upkept: Books) -> None:
    upkept.columns("files_scheduled_for_deletion", "data_file_id, path, path_is_relative, schedule_start")
    for rows in upkept.each("SELECT path_is_relative::INTEGER, path FROM ducklake_files_scheduled_for_deletion"):
        assert rows
        assert all(relative and path.startswith("main/") for relative, path in rows)


def test_f1_12_inlined_tables_are_listed_by_schema_version(books: Books) -> None:
    books.columns("inlined_data_tables", "table_id, table_name, schema_version")
    for book in books.books:
        for table, name, version in book.rows("FROM ducklake_inlined_data_tables"):
            assert name == f"ducklake_inlined_data_{table}_{version}"
            assert book.rows(f"SELECT count(*) FROM {name}")
    books.check("objects")


def test_f1_13_inlined_rows_and_deletes_have_tables_of_their_own(books: Books) -> None:
    for book in books.books:
        ((table,),) = book.rows("SELECT DISTINCT table_id FROM ducklake_table WHERE table_name = 'things'")
        (name,) = book.rows(f"SELECT max(table_name) FROM ducklake_inlined_data_tables WHERE table_id = {table}")[0]
        found = [row[0] for row in book.rows(f"DESCRIBE {name}")]
        assert found == ["row_id", "begin_snapshot", "end_snapshot", "id", "name", "amount"]
        assert [row[0] for row in book.rows(f"DESCRIBE ducklake_inlined_delete_{table}")] == [
            "file_id",
            "row_id",
            "begin_snapshot",
        ]


def test_f1_14_name_mappings_count_the_names_of_a_file(books: Books) -> None:
    books.columns("column_mapping", "mapping_id, table_id, type")
    books.columns("name_mapping", "mapping_id, column_id, source_name, target_field_id, parent_column, is_partition")
    assert [row[2] for row in books.same("column_mapping")] == ["map_by_name"]
    found = books.same("name_mapping", "column_id, source_name, target_field_id, parent_column, is_partition::INTEGER")
    assert found == [(0, "id", 1, None, 0), (1, "NAME", 2, None, 0), (2, "part", 3, None, 1)]


def test_f1_15_totals_of_tables_know_the_next_row_id(books: Books) -> None:
    books.columns("table_stats", "table_id, record_count, next_row_id, file_size_bytes")
    assert books.same("table_stats", "table_id, record_count, next_row_id")


def test_f1_16_statistics_of_table_columns(books: Books) -> None:
    books.columns(
        "table_column_stats", "table_id, column_id, contains_null, contains_nan, min_value, max_value, extra_stats"
    )
    for rows in books.each(
        "SELECT min_value, max_value FROM ducklake_table_column_stats s JOIN ducklake_table t USING (table_id)"
        " WHERE t.table_name = 'moved' AND column_id = 1"
    ):
        assert rows == [("0", "50")]


def test_f1_17_statistics_of_file_columns(books: Books) -> None:
    books.columns(
        "file_column_stats",
        "data_file_id, table_id, column_id, column_size_bytes, value_count, null_count, min_value, max_value,"
        " contains_nan, extra_stats",
    )
    found = books.same(
        "file_column_stats",
        "column_id, value_count, null_count, min_value, max_value, contains_nan",
        "table_id IN (SELECT table_id FROM ducklake_table WHERE table_name IN ('place', 'ordered', 'vectors'))",
    )
    assert (1, 30, 0, "0", "29", None) in found


def test_f1_18_statistics_of_shredded_variants(books: Books) -> None:
    books.columns(
        "file_variant_stats",
        "data_file_id, table_id, column_id, variant_path, shredded_type, column_size_bytes, value_count, null_count,"
        " min_value, max_value, contains_nan, extra_stats",
    )
    found = books.same(
        "file_variant_stats", "column_id, variant_path, shredded_type, value_count, null_count, min_value, max_value"
    )
    assert [row[1] for row in found] == ['"a"', '"b".element']


def test_f1_19_partitionings_live_and_files_keep_their_values(books: Books) -> None:
    books.columns("partition_info", f"partition_id, table_id, {_LIFE}")
    books.columns("partition_column", "partition_id, table_id, partition_key_index, column_id, transform")
    books.columns("file_partition_value", "data_file_id, table_id, partition_key_index, partition_value")
    assert [row[3] is None for row in books.same("partition_info")] == [False, False, True]
    assert [row[4] for row in books.same("partition_column")] == ["bucket(4)", "year", "identity", "month"]
    assert books.same("file_partition_value", "partition_key_index, partition_value")


def test_f1_20_orders_live_with_direction_and_nulls(books: Books) -> None:
    books.columns("sort_info", f"sort_id, table_id, {_LIFE}")
    books.columns(
        "sort_expression",
        "sort_id, table_id, sort_key_index, expression, dialect, sort_direction, null_order",
    )
    assert len(books.same("sort_info")) == 1
    assert [row[4:] for row in books.same("sort_expression")] == [
        ("duckdb", "DESC", "NULLS_FIRST"),
        ("duckdb", "ASC", "NULLS_LAST"),
    ]


def test_f1_21_schema_versions_belong_to_tables(books: Books) -> None:
    books.columns("schema_versions", "begin_snapshot, schema_version, table_id")
    assert books.same("schema_versions")


def test_f1_22_macros_with_variants_and_parameters(books: Books) -> None:
    books.columns("macro", f"schema_id, macro_id, macro_name, {_LIFE}")
    books.columns("macro_impl", "macro_id, impl_id, dialect, sql, type")
    books.columns(
        "macro_parameters",
        "macro_id, impl_id, column_id, parameter_name, parameter_type, default_value, default_value_type",
    )
    assert sorted(row[2] for row in books.same("macro")) == ["above", "two"]
    assert [row[4] for row in books.same("macro_impl")] == ["scalar", "table"]
    assert [row[3:] for row in books.same("macro_parameters")] == [
        ("x", "unknown", "NULL", "unknown"),
        ("y", "unknown", "5", "int32"),
        ("z", "unknown", "it's", "varchar"),
        ("n", "unknown", "NULL", "unknown"),
    ]
    for book in books.books:
        assert [macro.name for macro in book.site.lake().macros()] == ["above"]
        if book.site.kind != "mysql":
            assert book.site.stock().execute("SELECT count(*) FROM above(10)").fetchall() == [(4,)]


def test_f1_2_ids_are_given_once(books: Books) -> None:
    """Catalog ids and file ids are never reused, and never run ahead of the counters of their snapshot."""
    for book in books.books:
        ((next_catalog, next_file),) = book.rows(
            "SELECT max(next_catalog_id), max(next_file_id) FROM ducklake_snapshot"
        )
        files = book.rows(
            "SELECT data_file_id FROM ducklake_data_file UNION ALL SELECT delete_file_id FROM ducklake_delete_file"
        )
        assert len(set(files)) == len(files)
        assert max(files)[0] < next_file
        objects = book.rows("SELECT DISTINCT table_id FROM ducklake_table UNION SELECT view_id FROM ducklake_view")
        assert max(objects)[0] < next_catalog
