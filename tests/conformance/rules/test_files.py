"""Data files, delete files and the ids of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .books import Book, Books
from .topics import ODD

ROW_ID, SNAPSHOT_ID = "_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"
RESERVED = {ROW_ID: 2147483540, SNAPSHOT_ID: 2147483539, "file_path": 2147483646, "pos": 2147483645}


def field_ids(path: Path) -> dict[str, int]:
    """Return the field ids of a Parquet file by the dotted names of its nodes, in any naming of lists and maps."""
    found: dict[str, int] = {}

    def walk(field: pa.Field, prefix: str) -> None:
        name = f"{prefix}{field.name}"
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            found[name] = int(number)
        for index in range(field.type.num_fields):
            walk(field.type.field(index), f"{name}.")

    for field in pq.ParquetFile(path).schema_arrow:
        walk(field, "")
    return found


def deletes(books: Books, table: str) -> Iterator[tuple[Book, Path, dict[str, Any]]]:
    for book in books.books:
        found = [(path, row) for path, row in book.files(table, "delete") if row["format"] == "parquet"]
        assert found
        for path, row in found:
            yield book, path, row


def test_f5_1_columns_are_found_by_field_id(books: Books) -> None:
    for book in books.books:
        first, *_, last = [path for path, _ in book.files("fields")]
        old, new = field_ids(first), field_ids(last)
        assert (old["id"], old["small"], old["s.b"], old["gone"]) == (1, 2, 6, 12)
        assert (new["id"], new["large"], new["s.b"], new["added"], new["s.c"]) == (1, 2, 6, 13, 14)
        assert "gone" not in new
        rows = {row["id"]: row for row in book.site.lake().table("fields").to_pylist()}
        assert (rows[3]["large"], rows[3]["added"], rows[3]["s"]) == (3, 7, {"a": 3, "b": "b3", "c": None})
    books.check("evolution")


def test_f5_2_internal_columns_have_reserved_field_ids(upkept: Books) -> None:
    for book in upkept.books:
        for table in ("flushed", "merged"):
            paths = [path for kind in ("data", "delete") for path, _ in book.files(table, kind)]
            found = {name: id_ for path in paths if path.exists() for name, id_ in field_ids(path).items()}
            assert {name: id_ for name, id_ in found.items() if name in RESERVED} == {
                name: RESERVED[name] for name in found if name in RESERVED
            }
            assert set(RESERVED) <= set(found), table


def test_f5_3_row_ids_are_embedded_or_counted(books: Books) -> None:
    for book in books.books:
        updated = [(path, row) for path, row in book.files("things") if ROW_ID in field_ids(path)]
        assert updated, "an update of many rows keeps their ids in its file"
        ids = [id_ for path, _ in updated for id_ in pq.ParquetFile(path).read([ROW_ID]).column(0).to_pylist()]
        assert sorted(ids) == [*range(35, 50)]
        starts = [row["row_id_start"] for path, row in book.files("things") if ROW_ID not in field_ids(path)]
        assert starts == sorted(starts)
    books.check("deletes")


def test_f5_4_a_delete_file_has_paths_and_sorted_positions(books: Books) -> None:
    for book, path, row in deletes(books, "things"):
        table = pq.ParquetFile(path).read()
        assert table.column_names[:2] == ["file_path", "pos"]
        positions = table.column("pos").to_pylist()
        assert len(set(positions)) == len(positions) == row["delete_count"]
        ((data,),) = book.rows(f"SELECT path FROM ducklake_data_file WHERE data_file_id = {row['data_file_id']}")
        assert {Path(text).name for text in table.column("file_path").to_pylist()} == {data}
        visible = book.rows(
            "SELECT count(*) FROM ducklake_delete_file a JOIN ducklake_delete_file b USING (data_file_id)"
            " WHERE a.delete_file_id < b.delete_file_id AND a.end_snapshot IS NULL AND b.end_snapshot IS NULL"
        )
        assert visible == [(0,)], "at most one delete file is visible for a data file"
    books.check("deletes")


def test_f5_5_a_second_delete_keeps_the_snapshots_of_the_first(books: Books) -> None:
    for _, path, row in deletes(books, "things"):
        if row["partial_max"] is None:
            continue
        snapshots = pq.ParquetFile(path).read().column(SNAPSHOT_ID)
        assert pc.min(snapshots).as_py() == row["begin_snapshot"]
        assert pc.max(snapshots).as_py() == row["partial_max"]
    for rows in books.each("SELECT count(*) FROM ducklake_delete_file WHERE partial_max > begin_snapshot"):
        assert rows[0][0] >= 1
    books.check("deletes")


def test_f5_6_flushed_deletes_keep_their_snapshots(upkept: Books) -> None:
    for _, path, row in deletes(upkept, "flushed"):
        table = pq.ParquetFile(path).read()
        assert table.column_names == ["file_path", "pos", SNAPSHOT_ID]
        assert pc.min(table.column(SNAPSHOT_ID)).as_py() == row["begin_snapshot"]
        newest = pc.max(table.column(SNAPSHOT_ID)).as_py()
        assert row["partial_max"] == (None if newest == row["begin_snapshot"] else newest)
    upkept.check("flush")


def test_f5_7_a_file_of_several_snapshots_shows_each_its_rows(upkept: Books) -> None:
    for book in upkept.books:
        partial = [(path, row) for path, row in book.files("merged") if row["partial_max"] is not None]
        assert partial
        for path, row in partial:
            table = pq.ParquetFile(path).read()
            assert SNAPSHOT_ID in table.column_names
            assert (row["row_id_start"] is None) == (ROW_ID in table.column_names), (
                "merged rows have ids in a row, or own"
            )
            assert pc.min(table.column(SNAPSHOT_ID)).as_py() == row["begin_snapshot"]
            assert pc.max(table.column(SNAPSHOT_ID)).as_py() == row["partial_max"]
    upkept.check("merge")


def test_f5_8_a_deletion_vector_is_a_bare_blob(books: Books) -> None:
    for book in books.books:
        ((path, row),) = book.files("vectors", "delete")
        assert (row["format"], row["delete_count"], row["footer_size"]) == ("puffin", 26, 0)
        assert path.name.endswith("-delete.puffin")
        assert path.read_bytes()[4:8] == b"\xd1\xd3\x39\x64", "length, then the magic of a deletion vector"
        assert path.stat().st_size == row["file_size_bytes"]
    books.check("vectors")


def test_f5_9_a_file_without_rows_left_ends(books: Books) -> None:
    for book in books.books:
        ended = [row for _, row in book.files("things") if row["row_id_start"] == 60]
        assert [row["end_snapshot"] is not None for row in ended] == [True]
        whole = f"SELECT count(*) FROM ducklake_delete_file WHERE data_file_id = {ended[0]['data_file_id']}"
        assert book.rows(whole) == [(0,)]
        changes = f"SELECT changes_made FROM ducklake_snapshot_changes WHERE snapshot_id = {ended[0]['end_snapshot']}"
        assert "deleted_from_table" in book.rows(changes)[0][0]
    books.check("deletes")


def test_f5_10_an_update_keeps_row_ids(books: Books) -> None:
    for book in books.books:
        rows = book.site.lake().at(version=book.versions["deletes"][8]).table("things").to_pylist(["rowid", "id"])
        ids = {row["id"]: row["rowid"] for row in rows}
        assert (ids[35], ids[49], ids[2], ids[201]) == (35, 49, 2, 81)
    books.check("deletes")


def test_f5_12_added_files_stay_where_they_are(books: Books) -> None:
    for book in books.books:
        added = [row for _, row in book.files("added") if row["mapping_id"] is not None]
        assert len(added) == 2
        for row in added:
            assert Path(row["path"]).is_absolute()
            assert not row["path_is_relative"]
    books.check("added")


def test_f5_13_paths_follow_names_where_these_are_plain(books: Books) -> None:
    for book in books.books:
        paths = dict(book.rows("SELECT schema_name, path FROM ducklake_schema"))
        assert (paths["main"], paths["s"]) == ("main/", "s/")
        odd = paths[ODD.strip('"').replace('""', '"')]
        assert odd.endswith("/") and len(odd.strip("/")) == 36, "a name that is not plain becomes a UUID"
        tables = dict(book.rows("SELECT table_name, path FROM ducklake_table"))
        assert (tables["moved"], tables["things"]) == ("place/", "things/")
        assert len(tables["t, 1"].strip("/")) == 36
        for name in ("place", "things", "vectors"):
            table = "moved" if name == "place" else name
            for kind, ending in (("data", ".parquet"), ("delete", ("-delete.parquet", "-delete.puffin"))):
                for path, _ in book.files(table, kind):
                    assert path.name.startswith("ducklake-") and path.name.endswith(ending)
                    assert path.parent.name == name
