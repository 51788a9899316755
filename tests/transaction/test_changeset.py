"""Change sets: what a transaction will change, in the words of the format."""

from __future__ import annotations

import datetime as dt

from quacklake.format.changes import render
from quacklake.format.objects import SchemaInfo, TableInfo
from quacklake.format.schema import Column, TableSchema
from quacklake.format.snapshots import Snapshot
from quacklake.transaction import ChangeSet, NewDataFile, TableChange

_BASE = Snapshot(7, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), 3, 5, 9)
_SCHEMA = TableSchema((Column(1, "id", "int64"),))


def _table(id_: int, name: str = "t") -> TableInfo:
    return TableInfo(id_, "u", 0, "main", name, f"{name}/", True, _SCHEMA, 3, "main/", True)


def _file(id_: int) -> NewDataFile:
    return NewDataFile(id_, "a.parquet", 10, 100, 20, ())


def test_an_empty_change_set_has_nothing_to_commit() -> None:
    assert ChangeSet("t", _BASE).empty
    assert ChangeSet("t", _BASE, tables=(TableChange(_table(1)),)).empty


def test_rows_of_existing_tables_are_named_by_id() -> None:
    changes = ChangeSet(
        "t",
        _BASE,
        tables=(TableChange(_table(4), data_files=(_file(-1),), ended_files=(3,), inlined_deletes=((8, 1),)),),
    )
    assert render(changes.changes()) == "inserted_into_table:4,deleted_from_table:4,inlined_delete:4"
    assert not changes.alters_schema


def test_local_ids_appear_only_once_they_are_real() -> None:
    table = _table(-2, "new")
    changes = ChangeSet("t", _BASE, tables=(TableChange(table, data_files=(_file(-3),)),), created_tables=(table,))
    assert render(changes.changes()) == 'created_table:"main"."new"'
    assert render(changes.changes({-2: 12})) == 'created_table:"main"."new",inserted_into_table:12'
    assert changes.alters_schema


def test_schema_changes_use_the_words_of_the_format() -> None:
    changes = ChangeSet(
        "t",
        _BASE,
        created_schemas=(SchemaInfo(-1, "u", 'we"ird', "x/", True),),
        renamed_tables=(_table(4, "renamed"),),
        dropped_tables=(_table(5),),
        dropped_schemas=(SchemaInfo(2, "u", "old", "old/", True),),
    )
    words = 'dropped_schema:2,dropped_table:5,created_schema:"we""ird",created_table:"main"."renamed"'
    assert render(changes.changes()) == words


def test_a_signature_changes_nothing_else() -> None:
    changes = ChangeSet("t", _BASE, tables=(TableChange(_table(4), data_files=(_file(-1),)),))
    signed = changes.signed(author="a", message="m", extra="e")
    assert (signed.author, signed.message, signed.extra) == ("a", "m", "e")
    assert signed.tables == changes.tables
    assert signed.token == changes.token
