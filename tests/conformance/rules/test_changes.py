"""Snapshots record what changed in them."""

from __future__ import annotations

from quacklake.core.format.snapshots import ChangeKind, parse_changes

from .books import Books
from .topics import ODD

#: Changes that stock DuckLake adds to an update of a partitioned table.
_EXTRA = {ChangeKind.DELETED_FROM_TABLE}


def test_f8_1_changes_are_of_known_kinds(books: Books) -> None:
    """Both clients record the same kinds of changes of the same objects, so that each can read those of the other."""
    found = [
        {version: set(parse_changes(text)) for version, text in rows}
        for rows in books.each("SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes ORDER BY 1")
    ]
    partitioned = set(books.books[0].versions["partitions"])
    first, *others = found
    for other in others:
        assert set(other) == set(first)
        for version, changes in other.items():
            difference = {change.kind for change in changes ^ first[version]}
            assert difference <= (_EXTRA if version in partitioned else set()), version
    told = {change.kind for changes in first.values() for change in changes}
    assert told >= {
        *(ChangeKind.CREATED_SCHEMA, ChangeKind.CREATED_TABLE, ChangeKind.CREATED_VIEW, ChangeKind.ALTERED_TABLE),
        *(ChangeKind.ALTERED_VIEW, ChangeKind.INSERTED_INTO_TABLE, ChangeKind.DELETED_FROM_TABLE),
        *(ChangeKind.DROPPED_TABLE, ChangeKind.INLINED_INSERT, ChangeKind.INLINED_DELETE),
        *(ChangeKind.CREATED_SCALAR_MACRO, ChangeKind.CREATED_TABLE_MACRO, ChangeKind.DROPPED_SCALAR_MACRO),
    }


def test_f8_2_names_in_changes_are_quoted(books: Books) -> None:
    for rows in books.each("SELECT changes_made FROM ducklake_snapshot_changes"):
        texts = [text for (text,) in rows]
        assert f"created_schema:{ODD}" in texts
        assert f'created_table:{ODD}."t, 1"' in texts


def test_f8_3_compaction_is_told_by_its_own_kinds(upkept: Books) -> None:
    for rows in upkept.each("SELECT changes_made FROM ducklake_snapshot_changes"):
        told = {change.kind for (text,) in rows for change in parse_changes(text)}
        assert {ChangeKind.INLINE_FLUSH, ChangeKind.MERGE_ADJACENT} <= told
