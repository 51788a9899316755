"""The difference of two states is what a comparison of all their rows shows."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import quacklake
from quacklake.errors import NotFoundError
from tests.seeds import chance

Row = dict[str, Any]


def read_state(lake: quacklake.Lake, version: int, name: str, columns: list[str]) -> dict[int, Row]:
    """Return the rows of a table by their row ids, with these columns."""
    rows = lake.at(version=version).table(name).scan(row_ids=True).to_arrow().to_pylist()
    return {row["rowid"]: {column: row.get(column) for column in columns} for row in rows}


def model(before: dict[int, Row], after: dict[int, Row], key: str | None) -> list[tuple[str, Row]]:
    """Compare all rows of two states, as plain Python does it."""
    if key is None:
        pairs = [(before.get(id_), after.get(id_)) for id_ in before.keys() | after.keys()]
    else:
        old, new = ({row[key]: row for row in rows.values()} for rows in (before, after))
        pairs = [(old.get(value), new.get(value)) for value in old.keys() | new.keys()]
    found: list[tuple[str, Row]] = []
    for one, two in pairs:
        if one == two:
            continue
        if one is not None:
            found.append(("delete" if two is None else "update_preimage", one))
        if two is not None:
            found.append(("insert" if one is None else "update_postimage", two))
    return found


def sort_key(change: tuple[str, Row]) -> str:
    return repr(change)


def change(random: random.Random, lake: quacklake.Lake, fresh: Callable[[], int]) -> None:
    """Change the table, or only move its rows."""
    table = lake.table("t")
    rows = [{"id": fresh(), "v": random.choice([None, 1.5, 2.0])} for _ in range(random.randrange(1, 5))]
    kind = random.randrange(9)
    if kind < 3:
        table.append(rows)
    elif kind == 3:
        table.update({"v": random.choice([None, 0.5, 1.5])}, f"id % 3 = {random.randrange(3)}")
    elif kind == 4:
        table.delete(f"id % 4 = {random.randrange(4)}")
    elif kind == 5:
        kept = [{"id": row["id"], "v": row["v"]} for row in table.to_pylist() if random.random() < 0.8]
        table.overwrite([*kept, *rows] if kept else rows)
    elif kind == 6:
        table.restore(to=random.choice([v for v in lake.snapshots().column("snapshot_id").to_pylist() if v > 0]))
    elif kind == 7:
        table.flush_inlined_data()
    else:
        table.rewrite_data_files(delete_threshold=0.0)
        table.merge_adjacent_files()


@pytest.mark.parametrize("number", range(16))
@pytest.mark.parametrize("expired", [False, True], ids=["whole history", "expired in between"])
def test_random_histories_differ_as_their_rows_do(lake: quacklake.Lake, number: int, expired: bool) -> None:
    rng = chance("diff", number)
    key = "id" if rng.random() < 0.5 else None
    lake.create_table("t", {"id": "int", "v": "double"}, primary_key=key)
    ids = iter(range(1, 1000))
    for _ in range(14):
        change(rng, lake, lambda: next(ids))
    versions = [v for v in lake.snapshots().column("snapshot_id").to_pylist() if v > 1]
    ends = rng.sample(versions, 2)
    if expired:
        lake.expire_snapshots(versions=[v for v in versions if v not in ends and v != versions[-1]])
    found = lake.diff(*ends)
    wanted = model(*(read_state(lake, version, "t", ["id", "v"]) for version in ends), key)
    rows = found.rows("t").to_pylist()
    got = [(row["change_type"], {"id": row["id"], "v": row["v"]}) for row in rows]
    assert sorted(got, key=sort_key) == sorted(wanted, key=sort_key)
    counts = Counter(kind for kind, _ in wanted)
    assert [(t.inserted, t.deleted, t.updated) for t in found.tables] == (
        [(counts["insert"], counts["delete"], counts["update_postimage"])] if wanted else []
    )


def test_tables_columns_and_names_differ(lake: quacklake.Lake) -> None:
    one = lake.create_table("one", {"a": "int32", "b": "string"})
    one.append([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    lake.create_table("two", [{"c": 1}])
    lake.create_table("same", [{"d": 1}])
    first = lake.current_snapshot()
    one.add_column("extra", "int", default=7)
    one.rename_column("b", "text")
    one.alter_column("a", "int64")
    lake.rename_table("one", "uno")
    lake.drop_table("two")
    lake.create_table("three", [{"e": 1}, {"e": 2}])
    lake.table("same").append([{"d": 2}])
    lake.table("same").delete("d = 2")
    found = lake.diff(first)
    assert bool(found)
    by_name = {table.table: table for table in found.tables}
    assert sorted(by_name) == ["main.three", "main.two", "main.uno"]
    assert (by_name["main.three"].kind, by_name["main.three"].inserted) == ("created", 2)
    assert (by_name["main.two"].kind, by_name["main.two"].deleted) == ("dropped", 1)
    uno = by_name["main.uno"]
    assert (uno.was, uno.inserted, uno.deleted, uno.updated) == ("main.one", 0, 0, 0)
    assert "added extra int32" in uno.columns
    assert "renamed b to text" in uno.columns
    assert "changed a from int32 to int64" in uno.columns
    assert [row["change_type"] for row in found.rows("three").to_pylist()] == ["insert", "insert"]
    assert found.rows("two").to_pylist() == [{"change_type": "delete", "rowid": 0, "c": 1}]
    assert found.rows("same").num_rows == 0
    back = lake.diff(lake.current_snapshot(), first)
    assert {table.table: table.kind for table in back.tables} == {
        "main.three": "dropped",
        "main.two": "created",
        "main.one": "changed",
    }
    assert not lake.diff(first, first)
    with pytest.raises(NotFoundError, match=r'no table "main\.nothing" in either state'):
        found.rows("nothing")


def test_a_replaced_table_is_another_one(lake: quacklake.Lake) -> None:
    lake.create_table("t", [{"a": 1}])
    lake.create_table("t", [{"a": 1}, {"a": 2}], replace=True)
    found = lake.diff(1)
    assert sorted((table.table, table.kind) for table in found.tables) == [("main.t", "created"), ("main.t", "dropped")]
    assert [row["a"] for row in found.rows("t").to_pylist()] == [1, 2]


def test_odd_names_and_values_differ(lake: quacklake.Lake) -> None:
    rows = [{'a"b': 1, "b.rowid": math.nan, "change_type": [1, None]}, {'a"b': 2, "b.rowid": 0.0, "change_type": []}]
    table = lake.create_table('"odd""name"', rows)
    table.update({"b.rowid": quacklake.expr('"b.rowid"')})
    assert not lake.diff(1)
    table.update({"b.rowid": 5.0}, '"a""b" = 2')
    found = lake.diff(1)
    assert [table.updated for table in found.tables] == [1]
    names = found.rows('"odd""name"').column_names
    assert names[:2] == ["change_type", "rowid"]
    assert 'a"b' in names


def test_the_table_of_counts_is_arrow(lake: quacklake.Lake) -> None:
    lake.create_table("t", [{"a": 1}])
    (row,) = lake.diff(0).to_arrow().to_pylist()
    assert row == {
        "table": "main.t",
        "kind": "created",
        "inserted": 1,
        "deleted": 0,
        "updated": 0,
        "columns": [],
        "was": None,
    }
    assert "main.t" in lake.diff(0)._repr_html_()
