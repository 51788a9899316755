"""Change sets: what they say they change, in the words of the format, and what of it is a conflict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.format.bounds import ANYTHING
from quacklake.core.format.objects import SchemaInfo, TableInfo
from quacklake.core.format.schema import from_arrow
from quacklake.core.format.snapshots import Change, ChangeKind, Snapshot, parse_changes, render_changes
from quacklake.core.transaction import AlteredTable, ChangeSet, InlinedInsert, NewDataFile, NewDeleteFile, TableChange
from quacklake.errors import CommitConflict
from tests.catalog.stock import Stock

BASE = Snapshot(5, None, 2, 9, 30)
SCHEMA = from_arrow(pa.schema([("x", pa.int64())]))
FILE = NewDataFile(-1, "a.parquet", 1, 100, 10, ())
DELETES = NewDeleteFile(7, "b.parquet", 1, 100, 10, None)
ROWS = InlinedInsert(pa.table({"x": [1]}), ((1,),), (None,), ())


def table(id_: int, name: str = "t") -> TableInfo:
    return TableInfo(id_, "uuid", 0, "main", name, f"{name}/", True, SCHEMA, 2, "main/", True)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, []),
        ({"data_files": (FILE,)}, [ChangeKind.INSERTED_INTO_TABLE]),
        ({"inlined": (ROWS,)}, [ChangeKind.INLINED_INSERT]),
        ({"delete_files": (DELETES,)}, [ChangeKind.DELETED_FROM_TABLE]),
        ({"ended_files": (3,)}, [ChangeKind.DELETED_FROM_TABLE]),
        ({"inlined_deletes": ((3, 0),)}, [ChangeKind.INLINED_DELETE]),
        ({"ended_rows": {2: (1,)}}, [ChangeKind.INLINED_DELETE]),
        ({"touched": {3: None}, "reads": ANYTHING}, []),
        (
            {"data_files": (FILE,), "inlined": (ROWS,), "ended_files": (1,), "inlined_deletes": ((2, 0),)},
            [
                ChangeKind.INSERTED_INTO_TABLE,
                ChangeKind.DELETED_FROM_TABLE,
                ChangeKind.INLINED_INSERT,
                ChangeKind.INLINED_DELETE,
            ],
        ),
    ],
)
def test_a_table_change_is_described_by_what_it_holds(change: dict[str, Any], kinds: list[ChangeKind]) -> None:
    made = TableChange(table(1), **change)
    assert list(made.kinds()) == kinds
    changes = ChangeSet("token", BASE, tables=(made,))
    assert changes.empty == (not kinds)
    assert changes.changes() == [Change(kind, id=1) for kind in kinds]
    assert not changes.alters_schema


def test_new_tables_have_their_real_ids_in_the_words_of_the_format() -> None:
    changes = ChangeSet(
        "token",
        BASE,
        created_schemas=(SchemaInfo(-1, "u", 'odd "name"', "x/", True),),
        created_tables=(table(-2, "new"),),
        altered_tables=(AlteredTable(table(4), replace(table(4), name="renamed")),),
        dropped_tables=(table(3),),
        dropped_schemas=(SchemaInfo(6, "u", "gone", "x/", True),),
        tables=(TableChange(table(-2, "new"), inlined=(ROWS,)),),
    )
    assert changes.alters_schema
    assert render_changes(changes.changes({-1: 9, -2: 10})) == (
        'dropped_schema:6,dropped_table:3,created_schema:"odd ""name""",created_table:"main"."new",'
        'created_table:"main"."renamed",inlined_insert:10'
    )
    # before the commit nobody can speak of what has no id yet
    assert ChangeKind.INLINED_INSERT not in {change.kind for change in changes.changes()}
    assert not changes.empty


def changes_of(url: str) -> list[set[Change]]:
    with quacklake.connect(url) as lake:
        return [set(parse_changes(text)) for text in lake.snapshots().column("changes").to_pylist()]


def test_every_operation_says_the_same_as_stock_ducklake(stock: Stock, tmp_path: Path) -> None:
    ours, theirs = f"sqlite:///{tmp_path / 'ours.db'}", f"sqlite:///{tmp_path / 'theirs.db'}"
    stock.run(
        theirs,
        "CREATE SCHEMA s",
        "CREATE TABLE s.t (x BIGINT)",
        "INSERT INTO s.t SELECT range FROM range(40)",
        "INSERT INTO s.t VALUES (100)",
        "DELETE FROM s.t WHERE x = 5",
        "DELETE FROM s.t WHERE x = 100",
        "DELETE FROM s.t WHERE x < 30 AND x > 10",
        "UPDATE s.t SET x = 1000 WHERE x = 1",
        "DELETE FROM s.t",
        "ALTER TABLE s.t RENAME TO u",
        "CREATE TABLE s.made AS SELECT 1 AS x",
        "DROP TABLE s.u",
        "DROP TABLE s.made",
        "DROP SCHEMA s",
        options=[f"DATA_PATH '{tmp_path / 'theirs'}/'"],
    )
    with quacklake.connect(ours, data_path=tmp_path / "ours") as lake:
        lake.create_schema("s")
        t = lake.create_table("s.t", {"x": pa.int64()})
        t.append([{"x": n} for n in range(40)])
        t.append([{"x": 100}])
        t.delete("x = 5")
        t.delete("x = 100")
        t.delete("x < 30 AND x > 10")
        t.update({"x": 1000}, "x = 1")
        t.delete()
        lake.rename_table("s.t", "u")
        lake.create_table("s.made", [{"x": 1}])
        lake.drop_table("s.u")
        lake.drop_table("s.made")
        lake.drop_schema("s")
    assert changes_of(ours) == changes_of(theirs)


# -- conflicts ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[quacklake.Lake, quacklake.Lake]]:
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with quacklake.connect(url, data_path=tmp_path / "data") as one, quacklake.connect(url) as other:
        one.create_table("t", [{"x": n} for n in range(40)])
        yield one, other


@pytest.mark.parametrize(
    ("mine", "theirs", "reason"),
    [
        ("tx.table('t').append([{'x': 1}])", "lake.drop_table('t')", "has dropped it"),
        ("tx.drop_table('t')", "lake.drop_table('t')", "has dropped it"),
        ("tx.create_table('u', [{'x': 1}])", "lake.create_table('u', [{'y': 1}])", 'create table "main"."u"'),
        ("tx.create_schema('s')", "lake.create_schema('s')", 'create schema "s"'),
        ("tx.create_schema('s')", "lake.create_schema('S')", 'create schema "s"'),
        ("tx.table('t').delete('x = 1')", "lake.table('t').delete('x = 2')", "same file"),
        ("tx.table('t').delete('x < 20')", "lake.table('t').delete('x > 25')", "a file of it was changed"),
        ("tx.table('t').delete('x = 1')", "lake.table('t').delete()", "a file of it was changed"),
        ("tx.table('t').delete('x > 38')", "lake.table('t').append([{'x': 101}])", "rows it depends on"),
        ("tx.rename_table('t', 'a')", "lake.rename_table('t', 'b')", "renamed or dropped"),
        ("tx.rename_table('t', 'a')", "lake.create_table('a', [{'x': 1}])", 'create table "main"."a"'),
    ],
)
def test_a_conflict_says_what_got_in_the_way(
    two: tuple[quacklake.Lake, quacklake.Lake], mine: str, theirs: str, reason: str
) -> None:
    one, lake = two
    with pytest.raises(CommitConflict) as caught, one.transaction() as tx:
        eval(mine, {"tx": tx})
        eval(theirs, {"lake": lake})
    assert reason in str(caught.value)
    assert caught.value.transient


def test_dropping_a_schema_and_making_a_table_in_it_exclude_each_other(
    two: tuple[quacklake.Lake, quacklake.Lake],
) -> None:
    one, other = two
    one.create_schema("s")
    with pytest.raises(CommitConflict, match="dropped this schema"), one.transaction() as tx:
        tx.create_table("s.t", [{"x": 1}])
        other.drop_schema("s")
    one.create_schema("r")
    with pytest.raises(CommitConflict, match="has created"), one.transaction() as tx:
        tx.drop_schema("r")
        other.create_table("r.t", [{"x": 1}])


def test_a_lake_that_is_older_than_the_transaction_is_a_conflict(tmp_path: Path) -> None:
    """As after a restored backup: nothing of what was planned can be trusted."""
    import shutil

    with quacklake.connect(f"sqlite:///{tmp_path / 'lake.db'}", data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"x": 1}])
    shutil.copy(tmp_path / "lake.db", tmp_path / "backup.db")
    with quacklake.connect(f"sqlite:///{tmp_path / 'lake.db'}") as lake:
        lake.table("t").append([{"x": 2}])
        base = lake._context.latest()
    with quacklake.connect(f"sqlite:///{tmp_path / 'backup.db'}") as restored:
        tx = restored.handle.begin(base)
        tx.drop_table(tx.find_table("main", "t"))
        with pytest.raises(CommitConflict, match="older"):
            restored.handle.commit(tx)
