"""Ways to damage the lake of ``lakes.py``, each with the code that must report it."""

from __future__ import annotations

from quacklake.core.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID
from tests.layout import LAYOUT, inlined_rows, new_inlined_delete, new_row

from .ruin import Corruption, backwards, break_footer, damaged, scramble, shorten, sql, stored

__all__ = ["CORRUPTIONS", "Corruption"]

_T = "(SELECT table_id FROM ducklake_table WHERE table_name = 't')"
_LATEST = "(SELECT max(snapshot_id) FROM ducklake_snapshot)"
_ID = f"(SELECT column_id FROM ducklake_column WHERE table_id = {_T} AND column_name = 'id')"
_INLINED, _MINE = inlined_rows(1, 1)
_CATALOG = "catalog_id, " if LAYOUT == "shared" else ""

#: Inlined rows that do not fit their table: other columns, or packed rows of another kind.
_SHAPES = (
    tuple(
        Corruption("V042", f"a packed row that is {payload}", sql(f"UPDATE {_INLINED} SET payload = '{payload}'"))
        for payload in ("no JSON", '{"id": "1"}', "[1, 2, 3, 4]", '["1"]', '["1", "a", "1", null, "more"]')
    )
    if LAYOUT == "shared"
    else (
        Corruption("V041", "inlined rows are gone", sql(f"DROP TABLE {_INLINED}")),
        Corruption("V042", "inlined rows of another shape", sql(f"ALTER TABLE {_INLINED} RENAME COLUMN name TO nome")),
    )
)

CORRUPTIONS = (
    Corruption(
        "V001", "changes of a snapshot are gone", sql("DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = 3")
    ),
    Corruption(
        "V001", "a snapshot is gone", sql(new_row("ducklake_snapshot_changes", snapshot_id=999, changes_made=""))
    ),
    Corruption(
        "V002",
        "a word of nobody",
        sql("UPDATE ducklake_snapshot_changes SET changes_made = 'optimised:1' WHERE snapshot_id = 4"),
    ),
    Corruption(
        "V003",
        "a change of nothing",
        sql("UPDATE ducklake_snapshot_changes SET changes_made = 'inserted_into_table:999' WHERE snapshot_id = 4"),
    ),
    Corruption(
        "V004",
        "catalog ids are given again",
        sql(f"UPDATE ducklake_snapshot SET next_catalog_id = 2 WHERE snapshot_id = {_LATEST}"),
        repairable=True,
    ),
    Corruption(
        "V005",
        "file ids are given again",
        sql(f"UPDATE ducklake_snapshot SET next_file_id = 2 WHERE snapshot_id = {_LATEST}"),
        repairable=True,
    ),
    Corruption(
        "V006",
        "row ids are given again",
        sql(f"UPDATE ducklake_table_stats SET next_row_id = 20 WHERE table_id = {_T}"),
        repairable=True,
    ),
    Corruption(
        "V007", "a counter falls", sql("UPDATE ducklake_snapshot SET next_file_id = 1000 WHERE snapshot_id = 4")
    ),
    Corruption("V008", "every snapshot is gone", sql("DELETE FROM ducklake_snapshot")),
    Corruption(
        "V010",
        "an end before the beginning",
        sql("UPDATE ducklake_data_file SET end_snapshot = 0 WHERE data_file_id = 0"),
    ),
    Corruption("V010", "a beginning to come", sql("UPDATE ducklake_view SET begin_snapshot = 1000")),
    Corruption(
        "V011", "a table twice", sql("INSERT INTO ducklake_table SELECT * FROM ducklake_table WHERE table_name = 'n'")
    ),
    Corruption(
        "V011",
        "a column twice",
        sql(f"INSERT INTO ducklake_column SELECT * FROM ducklake_column WHERE column_id = {_ID} AND table_id = {_T}"),
    ),
    Corruption(
        "V012", "two tables of one name", sql("UPDATE ducklake_table SET table_name = 'T' WHERE table_name = 'n'")
    ),
    Corruption("V012", "a view named as a table", sql("UPDATE ducklake_view SET view_name = 't'")),
    Corruption(
        "V012",
        "two columns of one name",
        sql(f"UPDATE ducklake_column SET column_name = 'ID' WHERE column_name = 'name' AND table_id = {_T}"),
    ),
    Corruption(
        "V020", "a table without schema", sql("UPDATE ducklake_table SET schema_id = 77 WHERE table_name = 'n'")
    ),
    Corruption(
        "V020", "a schema that ended", sql("UPDATE ducklake_schema SET end_snapshot = 12 WHERE schema_name = 'other'")
    ),
    Corruption(
        "V021", "a file without table", sql("UPDATE ducklake_data_file SET table_id = 77 WHERE data_file_id = 0")
    ),
    Corruption("V021", "columns without table", sql("DELETE FROM ducklake_table WHERE table_name = 'n'")),
    Corruption("V022", "deletes of no file", sql("UPDATE ducklake_delete_file SET data_file_id = 777")),
    Corruption(
        "V023",
        "a parent of nobody",
        sql("UPDATE ducklake_column SET parent_column = 99 WHERE column_name = 'a' AND parent_column IS NOT NULL"),
    ),
    Corruption(
        "V023",
        "a type of nobody",
        sql("UPDATE ducklake_column SET column_type = 'quaternion' WHERE column_name = 'day'"),
    ),
    Corruption("V023", "one place for two", sql(f"UPDATE ducklake_column SET column_order = 1 WHERE table_id = {_T}")),
    Corruption(
        "V028",
        "statistics of no column",
        sql("UPDATE ducklake_file_column_stats SET column_id = 99 WHERE data_file_id = 0 AND column_id = 1"),
    ),
    Corruption("V024", "a mapping to no column", sql("UPDATE ducklake_name_mapping SET target_field_id = 99")),
    Corruption(
        "V025",
        "statistics of no file",
        sql("UPDATE ducklake_file_column_stats SET data_file_id = 999 WHERE data_file_id = 0"),
        repairable=True,
    ),
    Corruption(
        "V026",
        "a partitioning of nobody",
        sql("UPDATE ducklake_data_file SET partition_id = 99 WHERE partition_id IS NOT NULL"),
    ),
    Corruption("V026", "a value of no key", sql("UPDATE ducklake_file_partition_value SET partition_key_index = 7")),
    Corruption(
        "V027",
        "a mapping of nobody",
        sql("UPDATE ducklake_data_file SET mapping_id = 99 WHERE mapping_id IS NOT NULL"),
    ),
    Corruption(
        "V030",
        "two delete files",
        sql(
            f"INSERT INTO ducklake_delete_file SELECT {_CATALOG}delete_file_id + 500, table_id, begin_snapshot, end_snapshot, data_file_id,"
            " 'x-' || path, path_is_relative, format, delete_count, file_size_bytes, footer_size, encryption_key, partial_max"
            " FROM ducklake_delete_file ORDER BY delete_file_id LIMIT 1"
        ),
    ),
    Corruption(
        "V031", "fewer rows than none", sql("UPDATE ducklake_data_file SET record_count = -1 WHERE data_file_id = 0")
    ),
    Corruption("V031", "more deletes than rows", sql("UPDATE ducklake_delete_file SET delete_count = 5000")),
    Corruption(
        "V032", "row ids of two files", sql("UPDATE ducklake_data_file SET row_id_start = 20 WHERE data_file_id = 1")
    ),
    Corruption(
        "V033",
        "an inlined row twice",
        sql(f"INSERT INTO {_INLINED} SELECT * FROM {_INLINED} WHERE end_snapshot IS NULL AND {_MINE} LIMIT 1"),
    ),
    Corruption(
        "V034",
        "a bound that is no number",
        sql("UPDATE ducklake_file_column_stats SET min_value = 'many' WHERE data_file_id = 0 AND column_id = 1"),
        repairable=True,
    ),
    Corruption(
        "V034",
        "a bound of a table that is no date",
        sql(f"UPDATE ducklake_table_column_stats SET max_value = 'soon' WHERE column_id = 4 AND table_id = {_T}"),
        repairable=True,
    ),
    Corruption(
        "V035",
        "bounds the wrong way round",
        sql(
            "UPDATE ducklake_file_column_stats SET min_value = '99', max_value = '0' WHERE data_file_id = 0 AND column_id = 1"
        ),
        repairable=True,
    ),
    Corruption("V036", "no totals", sql(f"DELETE FROM ducklake_table_stats WHERE table_id = {_T}"), repairable=True),
    Corruption(
        "V037",
        "totals too low",
        sql(f"UPDATE ducklake_table_stats SET record_count = 3 WHERE table_id = {_T}"),
        repairable=True,
    ),
    Corruption(
        "V038",
        "totals twice",
        sql("INSERT INTO ducklake_table_stats SELECT * FROM ducklake_table_stats"),
        repairable=True,
    ),
    Corruption(
        "V040",
        "versions in disorder",
        sql(new_row("ducklake_schema_versions", begin_snapshot=1, schema_version=900, table_id=1)),
    ),
    Corruption(
        "V041",
        "inlined rows are elsewhere",
        sql("UPDATE ducklake_inlined_data_tables SET table_name = 'ducklake_inlined_data_1_9' WHERE table_id = 1"),
    ),
    *_SHAPES,
    Corruption("V043", "inlined rows of nobody", sql("DELETE FROM ducklake_inlined_data_tables WHERE table_id = 1")),
    Corruption("V044", "an inlined row to come", sql(f"UPDATE {_INLINED} SET begin_snapshot = 1000 WHERE {_MINE}")),
    Corruption(
        "V045",
        "deletes of a file that is gone",
        sql(new_inlined_delete(1, file_id=555, row_id=1, begin_snapshot=5)),
        repairable=True,
    ),
    Corruption("V046", "a delete behind the end", sql(new_inlined_delete(1, file_id=1, row_id=5000, begin_snapshot=6))),
    Corruption(
        "V047",
        "a delete that came too late",
        sql("UPDATE ducklake_data_file SET end_snapshot = 4 WHERE data_file_id = 1"),
    ),
    Corruption("V050", "an option of nobody", sql(new_row("ducklake_metadata", key="colour", value="blue"))),
    Corruption(
        "V051", "a value of no use", sql("UPDATE ducklake_metadata SET value = 'heavy' WHERE key = 'target_file_size'")
    ),
    Corruption(
        "V052", "an option for nothing", sql("UPDATE ducklake_metadata SET scope_id = 999 WHERE scope = 'table'")
    ),
    Corruption("V053", "no data path", sql("DELETE FROM ducklake_metadata WHERE key = 'data_path'")),
    Corruption(
        "V060",
        "a path out of the lake",
        sql("UPDATE ducklake_data_file SET path = '../../../etc/passwd' WHERE data_file_id = 0"),
    ),
    Corruption(
        "V061",
        "a file in two rows",
        sql(
            "UPDATE ducklake_data_file SET path = (SELECT path FROM ducklake_data_file WHERE data_file_id = 0) WHERE data_file_id = 1"
        ),
    ),
    Corruption(
        "V062",
        "a file in use is to be deleted",
        sql(
            new_row(
                "ducklake_files_scheduled_for_deletion",
                data_file_id=0,
                path="main/t/x",
                path_is_relative=1,
                schedule_start="2026-01-01 00:00:00+00",
            )
        ),
        repairable=True,
    ),
    Corruption(
        "V063",
        "a key that is none",
        sql("UPDATE ducklake_data_file SET encryption_key = 'c2VjcmV0' WHERE data_file_id = 0"),
    ),
    Corruption("V070", "a file is gone", damaged(lambda path: path.unlink())),
    Corruption(
        "V070",
        "a delete file is gone",
        damaged(lambda path: path.unlink(), "1 = 1 ORDER BY delete_file_id", "delete_file"),
    ),
    Corruption(
        "V071",
        "a size that is not so",
        sql("UPDATE ducklake_data_file SET file_size_bytes = 5 WHERE data_file_id = 0"),
    ),
    Corruption("V072", "a file without end", damaged(shorten)),
    Corruption("V072", "a footer that is none", damaged(break_footer)),
    Corruption(
        "V073", "a footer of another size", sql("UPDATE ducklake_data_file SET footer_size = 5 WHERE data_file_id = 0")
    ),
    Corruption(
        "V074", "another number of rows", sql("UPDATE ducklake_data_file SET record_count = 99 WHERE data_file_id = 0")
    ),
    Corruption(
        "V074", "another number of deletes", sql("UPDATE ducklake_delete_file SET delete_count = delete_count - 1")
    ),
    Corruption(
        "V075",
        "columns of another table",
        sql(
            f"DELETE FROM ducklake_column WHERE column_name = 'day' AND table_id = {_T}",
            "DELETE FROM ducklake_file_column_stats WHERE column_id = 4",
            "DELETE FROM ducklake_table_column_stats WHERE column_id = 4",
        ),
    ),
    Corruption(
        "V080",
        "a bound too narrow",
        sql("UPDATE ducklake_file_column_stats SET max_value = '98' WHERE data_file_id = 0 AND column_id = 1"),
        deep=True,
        repairable=True,
    ),
    Corruption(
        "V080",
        "text out of bounds",
        sql("UPDATE ducklake_file_column_stats SET min_value = 'n5' WHERE data_file_id = 0 AND column_id = 2"),
        deep=True,
        repairable=True,
    ),
    Corruption(
        "V081",
        "NULLs that are not there",
        sql("UPDATE ducklake_file_column_stats SET null_count = 4 WHERE data_file_id = 0 AND column_id = 1"),
        deep=True,
        repairable=True,
    ),
    Corruption(
        "V082",
        "NaN that is denied",
        sql("UPDATE ducklake_file_column_stats SET contains_nan = 0 WHERE data_file_id = 1 AND column_id = 3"),
        deep=True,
        repairable=True,
    ),
    Corruption("V083", "deletes out of order", backwards, deep=True),
    Corruption(
        "V085",
        "a row id of two rows",
        sql(
            f"UPDATE {_INLINED} SET row_id = 70"
            f" WHERE rowid = (SELECT max(rowid) FROM {_INLINED} WHERE end_snapshot IS NULL AND {_MINE})"
        ),
        deep=True,
    ),
    Corruption(
        "V084",
        "a row of a snapshot to come",
        stored("_ducklake_internal_snapshot_id", FIELD_SNAPSHOT_ID, 9),
        deep=True,
    ),
    Corruption(
        "V086",
        "a table out of bounds",
        sql(f"UPDATE ducklake_table_column_stats SET max_value = '5' WHERE column_id = {_ID} AND table_id = {_T}"),
        deep=True,
        repairable=True,
    ),
    Corruption(
        "V087",
        "a row id that will be assigned again",
        stored("_ducklake_internal_row_id", FIELD_ROW_ID, 10_000),
        deep=True,
        repairable=True,
    ),
    Corruption("V088", "rows that cannot be read", damaged(scramble), deep=True),
)
