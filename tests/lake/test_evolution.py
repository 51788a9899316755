"""Columns that come, go and change: through a table, inside transactions, with the rows, and what is refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake, Table, telemetry
from quacklake.errors import (
    CommitConflict,
    ConstraintError,
    InputError,
    InvalidNameError,
    ReadOnlyError,
    SchemaMismatchError,
)


def open_lake(folder: Path, inlining: int = 10) -> Lake:
    return quacklake.connect(
        f"sqlite:///{folder}/lake.db",
        data_path=folder / "data",
        data_inlining_row_limit=inlining,
        duckdb_threads=1,
        ducklake_retry_wait_ms=1,
    )


@pytest.fixture(params=[10, 0], ids=["inlining", "files"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    with open_lake(tmp_path, request.param) as lake:
        yield lake


@pytest.fixture(scope="module")
def one_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake for tests that leave no trace, or that use their own table names."""
    with open_lake(tmp_path_factory.mktemp("lake")) as lake:
        lake.create_table("t", ROWS)
        yield lake


ROWS = [{"id": 1, "name": "one"}, {"id": 2, "name": None}]


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("t", ROWS)


NESTED = pa.schema(
    [
        ("id", pa.int32()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("items", pa.list_(pa.struct([("price", pa.int16())]))),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
    ]
)


@pytest.fixture
def nested(lake: Lake) -> Table:
    table = lake.create_table("n", NESTED)
    rows = [
        {"id": 1, "s": {"a": 1, "b": "b"}, "items": [{"price": 5}, None], "m": [("k", {"x": 1})]},
        {"id": 2, "s": None, "items": None, "m": None},
        {"id": 3, "s": {"a": None, "b": None}, "items": [], "m": []},
    ]
    table.append(pa.Table.from_pylist(rows, schema=NESTED))
    return table


def by_id(table: Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


# -- columns -----------------------------------------------------------------------------------------------------------


def test_an_added_column_has_its_default_in_old_rows_and_in_new_ones(table: Table) -> None:
    table.add_column("n", pa.int32(), default=7)
    table.append([{"id": 3, "name": "three"}])
    table.append([{"id": 4, "name": "four", "n": 1}])
    assert [row["n"] for row in by_id(table)] == [7, 7, 7, 1]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("DECIMAL(10,2)", "1.5"),
        ("DATE", dt.date(2024, 2, 29)),
        ("VARCHAR", "it's; NULL --"),
        ("VARCHAR", "NULL"),
        ("BOOLEAN", True),
        ("BLOB", b"\x00'\xff"),
        (pa.float64(), float("inf")),
        ("STRUCT(x INTEGER, y VARCHAR[])", None),
        ("MAP(VARCHAR, DOUBLE)[]", None),
    ],
)
def test_a_column_of_any_type_with_any_default(one_lake: Lake, type_: Any, value: Any) -> None:
    table = one_lake.create_table("any", ROWS, replace=True)
    table.add_column("c", type_, value)
    found = table.to_pylist()[0]["c"]
    assert str(found) == "1.50" if type_ == "DECIMAL(10,2)" else found == value


def test_a_renamed_column_keeps_its_values_and_a_dropped_name_can_come_back(table: Table) -> None:
    table.rename_column("name", "title")
    table.add_column("name", "INTEGER")
    assert by_id(table) == [{"id": 1, "title": "one", "name": None}, {"id": 2, "title": None, "name": None}]
    table.drop_column("title")
    table.add_column("title", "VARCHAR", "new")
    assert by_id(table)[0] == {"id": 1, "name": None, "title": "new"}


def test_a_widened_column_takes_larger_values_and_is_still_pruned_right(lake: Lake) -> None:
    table = lake.create_table(
        "t", pa.table({"id": pa.array([1, 2], pa.int32()), "x": pa.array([0.1, 0.2], pa.float32())})
    )
    table.alter_column("id", pa.int64())
    table.alter_column("x", "DOUBLE")
    table.append([{"id": 2**40, "x": 0.5}])
    assert table.count(f"id = {2**40}") == 1
    assert table.count("id = 2") == 1
    exact = table.to_pylist(where="id = 1")[0]["x"]
    assert table.count(f"x = {exact!r}") == 1


def test_filters_on_an_added_column_find_its_default_in_files_without_statistics(table: Table) -> None:
    table.add_column("n", "INTEGER", 7)
    table.add_column("empty", "INTEGER")
    table.append([{"id": 9, "name": "nine", "n": 100, "empty": 1}])
    assert table.count("n = 7") == 2
    assert table.count("n > 7") == 1
    assert table.count("empty IS NULL") == 2
    assert table.count("n IS NULL") == 0


def test_every_snapshot_has_its_own_columns(lake: Lake, table: Table) -> None:
    first = lake.current_snapshot()
    table.add_column("n", "INTEGER")
    table.rename_column("name", "title")
    table.drop_column("id")
    assert [lake.at(version=first + i).table("t").columns for i in range(4)] == [
        ["id", "name"],
        ["id", "name", "n"],
        ["id", "title", "n"],
        ["title", "n"],
    ]
    assert lake.at(version=first).table("t").to_pylist() == [{"id": 1, "name": "one"}, {"id": 2, "name": None}]


def test_column_ids_are_never_used_again(lake: Lake, table: Table) -> None:
    table.add_column("x", "STRUCT(a INTEGER)")
    table.drop_column("x")
    table.add_column("y", "INTEGER")
    assert table.info.schema.find("y").id == 5
    with lake.transaction() as tx:
        mine = tx.table("t")
        mine.add_column("z", "INTEGER", 1)
        mine.append([{"id": 7, "name": "z", "y": 1, "z": 5}] * 20)
        mine.drop_column("z")
        mine.add_column("w", "INTEGER")
    assert table.info.schema.find("w").id == 7
    assert table.to_pylist(columns=["w"], where="id = 7") == [{"w": None}] * 20


def test_an_alter_touches_no_file_and_takes_the_same_statements_whatever_the_table_holds(tmp_path: Path) -> None:
    counts = []
    with open_lake(tmp_path, 0) as lake:
        for name, files in (("few", 1), ("many", 30)):
            table = lake.create_table(name, [{"id": 1}])
            with lake.transaction() as tx:
                for _ in range(files):
                    tx.table(name).append([{"id": 2}])
            before = sorted(tmp_path.glob("data/**/*.parquet"))
            started = telemetry.snapshot().counters["catalog.statements"]
            table.add_column("x", "INTEGER", 3)
            counts.append(telemetry.snapshot().counters["catalog.statements"] - started)
            assert sorted(tmp_path.glob("data/**/*.parquet")) == before
    assert counts[0] == counts[1]


# -- defaults and constraints ------------------------------------------------------------------------------------------


def test_a_default_holds_for_new_rows_only(table: Table) -> None:
    table.set_default("name", "later")
    table.append([{"id": 3}])
    table.drop_default("name")
    with pytest.raises(SchemaMismatchError, match='missing column "name"'):
        table.append([{"id": 4}])
    assert [row["name"] for row in by_id(table)] == ["one", None, "later"]


def test_an_expression_is_a_default_anew_for_every_row(table: Table) -> None:
    table.add_column("at", "TIMESTAMPTZ")
    table.set_default("at", quacklake.expr("now()"))
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    table.append([{"id": 3, "name": "three"}])
    found = table.to_pylist(where="id = 3")[0]["at"]
    assert before < found.replace(tzinfo=found.tzinfo or dt.UTC)
    assert table.to_pylist(where="id = 1")[0]["at"] is None


@pytest.mark.parametrize("sql", ["no_such_function()", "1; DROP TABLE x", "name", "'text'::DATE", "", "(SELECT"])
def test_an_expression_that_gives_no_value_is_no_default(one_lake: Lake, sql: str) -> None:
    before = one_lake.current_snapshot()
    with pytest.raises(InputError):
        one_lake.table("t").set_default("id", quacklake.expr(sql))
    assert one_lake.current_snapshot() == before


def test_not_null_is_checked_against_the_rows_and_then_against_new_ones(table: Table) -> None:
    with pytest.raises(ConstraintError, match="1 rows are NULL"):
        table.set_not_null("name")
    table.update({"name": "two"}, "id = 2")
    table.set_not_null("name")
    with pytest.raises(ConstraintError):
        table.append([{"id": 3, "name": None}])
    with pytest.raises(InputError, match="already has a NOT NULL constraint"):
        table.set_not_null("name")
    table.drop_not_null("name")
    table.append([{"id": 3, "name": None}])
    assert table.count() == 3


def test_not_null_sees_the_rows_of_its_own_transaction(lake: Lake, table: Table) -> None:
    with lake.transaction() as tx:
        mine = tx.table("t")
        mine.delete("name IS NULL")
        mine.set_not_null("name")
        with pytest.raises(ConstraintError):
            mine.append([{"id": 3, "name": None}])
    assert not table.info.schema.find("name").nullable


# -- fields ------------------------------------------------------------------------------------------------------------


def test_fields_change_inside_structs_lists_and_maps(nested: Table) -> None:
    nested.add_column("s.c", "BIGINT", default=5)
    nested.rename_column("s.b", "text")
    nested.drop_column("s.a")
    nested.rename_column("items.element.price", "cents")
    nested.alter_column("items.element.cents", pa.int64())
    nested.add_column("items.element.currency", "VARCHAR", default="EUR")
    nested.add_column("m.value.y", "DATE")
    nested.rename_column("m.value.x", "number")
    assert by_id(nested) == [
        {
            "id": 1,
            "s": {"text": "b", "c": 5},
            "items": [{"cents": 5, "currency": "EUR"}, None],
            "m": [("k", {"number": 1, "y": None})],
        },
        {"id": 2, "s": None, "items": None, "m": None},
        {"id": 3, "s": {"text": None, "c": 5}, "items": [], "m": []},
    ]
    rows = [{"id": 4, "s": {"text": "t", "c": 1}, "items": [{"cents": 2**40, "currency": "USD"}], "m": []}]
    nested.append(pa.Table.from_pylist(rows, schema=nested.schema))
    assert nested.to_pylist(where="s.c = 1") == rows


def test_fields_that_swap_their_names_keep_their_values(nested: Table) -> None:
    nested.rename_column("s.a", "tmp")
    nested.rename_column("s.b", "a")
    nested.rename_column("s.tmp", "b")
    assert by_id(nested)[0]["s"] == {"b": 1, "a": "b"}
    nested.drop_column("s.a")
    nested.add_column("s.a", "DOUBLE")
    assert by_id(nested)[0]["s"] == {"b": 1, "a": None}


def test_a_struct_whose_fields_were_all_replaced_is_null_where_it_was(nested: Table) -> None:
    nested.add_column("s.c", "INTEGER")
    nested.drop_column("s.a")
    nested.drop_column("s.b")
    assert [row["s"] for row in by_id(nested)] == [{"c": None}, None, {"c": None}]


def test_a_whole_type_says_which_fields_there_are(nested: Table) -> None:
    nested.alter_column("s", "STRUCT(b VARCHAR, a BIGINT, c STRUCT(d INTEGER))")
    assert by_id(nested)[0]["s"] == {"a": 1, "b": "b", "c": None}
    nested.add_column("s.c.e", "INTEGER", 1)
    nested.alter_column("s", "STRUCT(a BIGINT)")
    assert by_id(nested)[0]["s"] == {"a": 1}


def test_rows_with_old_fields_are_found_changed_and_deleted(nested: Table) -> None:
    nested.rename_column("s.a", "z")
    nested.add_column("s.c", "INTEGER", 9)
    assert nested.update({"id": quacklake.expr("id + 10")}, "s.z = 1 AND s.c = 9") == 1
    assert nested.delete("s.c = 9 AND s.z IS NULL") == 1
    assert [row["id"] for row in by_id(nested)] == [2, 11]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: t.add_column("name", "INTEGER"), InputError, "already exists"),
        (lambda t: t.add_column("NAME", "INTEGER"), InputError, "already exists"),
        (lambda t: t.add_column("x", "INTEGR"), InputError, "unsupported type INTEGR"),
        (lambda t: t.add_column("x", "int8"), InputError, "different things"),
        (lambda t: t.add_column("x", 5), InputError, "5 is not a type of a column"),
        (lambda t: t.add_column("x", pa.dense_union([])), InputError, "no scalar counterpart"),
        (lambda t: t.add_column("x", "INTEGER", "text"), InputError, "is not a int32 value"),
        (lambda t: t.add_column("x", "INTEGER", quacklake.expr("1")), InputError, "non-literal default"),
        (lambda t: t.add_column("x", "STRUCT(a INTEGER)", {"a": 1}), InputError, "STRUCT type not supported"),
        (lambda t: t.add_column("", "INTEGER"), InvalidNameError, "not a column name"),
        (lambda t: t.add_column("id.x", "INTEGER"), InputError, "Fields can only be added to structs"),
        (lambda t: t.drop_column("nmae"), InputError, "does not exist"),
        (lambda t: t.rename_column("id", "name"), InputError, "already exists"),
        (lambda t: t.rename_column("id", ""), InvalidNameError, "empty"),
        (lambda t: t.alter_column("id", "INTEGER"), InputError, "only widening"),
        (lambda t: t.alter_column("id", "VARCHAR"), InputError, "only widening"),
        (lambda t: t.alter_column("id", "STRUCT(a INTEGER)"), InputError, "only widening"),
        (lambda t: t.set_default("id", "x"), InputError, "is not a int64 value"),
        (lambda t: t.drop_not_null("id"), InputError, "no NOT NULL constraint"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    one_lake: Lake, change: Callable[[Table], None], error: type[Exception], message: str
) -> None:
    before = one_lake.current_snapshot()
    with pytest.raises(error, match=message):
        change(one_lake.table("t"))
    assert one_lake.current_snapshot() == before


def test_the_last_column_stays_and_so_does_the_last_field(lake: Lake, nested: Table) -> None:
    nested.drop_column("s.a")
    with pytest.raises(InputError, match="the only one"):
        nested.drop_column("s.b")
    only = lake.create_table("only", {"x": pa.int32()})
    with pytest.raises(InputError, match="only has one column remaining"):
        only.drop_column("x")


def test_the_past_cannot_be_altered(one_lake: Lake) -> None:
    with pytest.raises(ReadOnlyError):
        one_lake.at(version=one_lake.current_snapshot()).table("t").add_column("x", "INTEGER")


def test_a_change_to_what_is_already_so_makes_no_snapshot(one_lake: Lake) -> None:
    before = one_lake.current_snapshot()
    one_lake.table("t").rename_column("id", "id")
    one_lake.table("t").alter_column("id", "BIGINT")
    one_lake.table("t").drop_default("id")
    assert one_lake.current_snapshot() == before


# -- evolving with the rows --------------------------------------------------------------------------------------------


def test_rows_that_do_not_fit_are_refused_with_every_difference(table: Table) -> None:
    with pytest.raises(SchemaMismatchError, match='unknown column "extra"; "id" is varchar') as caught:
        table.append([{"id": "x", "name": "y", "extra": 1}])
    assert "evolve=True" in str(caught.value.hint)


def test_append_adds_missing_columns_and_widens_types_in_one_snapshot(lake: Lake) -> None:
    table = lake.create_table("t", pa.table({"id": pa.array([1], pa.int32()), "s": [{"a": 1}], "left": ["out"]}))
    before = lake.current_snapshot()
    assert table.append([{"id": 2**40, "s": {"a": 2, "b": "new"}, "x": 0.5, "none": None}], evolve=True) == 1
    assert lake.current_snapshot() == before + 1
    assert by_id(table) == [
        {"id": 1, "s": {"a": 1, "b": None}, "left": "out", "x": None, "none": None},
        {"id": 2**40, "s": {"a": 2, "b": "new"}, "left": None, "x": 0.5, "none": None},
    ]
    assert table.append([{"id": 3, "s": {"b": "only"}}], evolve=True) == 1
    assert table.to_pylist(["s"], "id = 3") == [{"s": {"a": None, "b": "only"}}]
    assert lake.snapshots().to_pylist()[-1]["changes"] in ("inlined_insert:1", "inserted_into_table:1")


def test_overwrite_and_merge_evolve_too(table: Table) -> None:
    assert table.merge([{"id": 1, "n": 5}, {"id": 3, "n": 6}], on="id", evolve=True).updated == 1
    assert by_id(table) == [
        {"id": 1, "name": "one", "n": 5},
        {"id": 2, "name": None, "n": None},
        {"id": 3, "name": None, "n": 6},
    ]
    table.overwrite([{"id": 9, "flag": True}], evolve=True)
    assert table.to_pylist() == [{"id": 9, "name": None, "n": None, "flag": True}]


def test_evolving_never_narrows_or_converts(table: Table) -> None:
    with pytest.raises(SchemaMismatchError, match='"name" is'):
        table.append([{"id": 1, "name": 5}], evolve=True)
    assert table.columns == ["id", "name"]


def test_a_stream_evolves_the_table_too(table: Table) -> None:
    rows = pa.table({"id": range(100), "name": ["x"] * 100, "n": range(100)})
    table.append(rows.to_reader(), evolve=True)
    assert table.count("n >= 0") == 100


# -- transactions ------------------------------------------------------------------------------------------------------


def test_rows_of_one_transaction_before_and_after_a_change(lake: Lake, table: Table) -> None:
    with lake.transaction() as tx:
        mine = tx.table("t")
        mine.append([{"id": 10, "name": "before"}])
        mine.update({"name": "updated"}, "id = 1")
        mine.add_column("n", "INTEGER", 3)
        mine.rename_column("name", "title")
        mine.append([{"id": 11, "title": "after", "n": 4}])
        mine.delete("id = 2")
        mine.alter_column("n", "BIGINT")
        mine.update({"n": 2**40}, "id = 10")
        expected = [
            {"id": 1, "title": "updated", "n": 3},
            {"id": 10, "title": "before", "n": 2**40},
            {"id": 11, "title": "after", "n": 4},
        ]
        assert by_id(mine) == expected
        assert by_id(table) == [{"id": 1, "name": "one"}, {"id": 2, "name": None}]
    assert by_id(table) == expected
    ids = table.scan(["id"], row_ids=True).to_arrow().sort_by("id").column("rowid").to_pylist()
    assert ids[0] == 0
    assert len(set(ids)) == 3


def test_files_of_one_transaction_are_read_by_the_fields_they_have(lake: Lake, nested: Table) -> None:
    many = [{"id": i, "s": {"a": i, "b": "x"}, "items": [], "m": []} for i in range(100, 130)]
    with lake.transaction() as tx:
        mine = tx.table("n")
        mine.append(pa.Table.from_pylist(many, schema=NESTED))
        mine.rename_column("s.a", "tmp")
        mine.rename_column("s.b", "a")
        mine.add_column("s.c", "INTEGER", 1)
        assert mine.to_pylist(["s"], "id = 100") == [{"s": {"tmp": 100, "a": "x", "c": 1}}]
        mine.update({"id": 1000}, "s.tmp = 101")
    assert by_id(nested)[-1]["s"] == {"tmp": 101, "a": "x", "c": 1}
    assert nested.to_pylist(["s"], "id = 102") == [{"s": {"tmp": 102, "a": "x", "c": 1}}]


def test_a_table_made_in_the_same_transaction_changes_too(lake: Lake) -> None:
    with lake.transaction() as tx:
        made = tx.create_table("made", [{"id": 1, "s": {"a": 1}}])
        made.append([{"id": i, "s": {"a": i}} for i in range(2, 30)])
        made.add_column("n", "INTEGER", 5)
        made.rename_column("s.a", "b")
        made.drop_column("id")
        assert made.count("s.b > 1 AND n = 5") == 28
    made = lake.table("made")
    assert made.columns == ["s", "n"]
    assert made.count("s.b > 0 AND n = 5") == 29
    assert lake.snapshots().to_pylist()[-1]["changes"].startswith('created_table:"main"."made"')


def test_a_column_that_cannot_be_inlined_sends_uncommitted_rows_to_files(lake: Lake, table: Table) -> None:
    with lake.transaction() as tx:
        mine = tx.table("t")
        mine.append([{"id": 3, "name": "x"}])
        mine.update({"name": "y"}, "id IN (1, 3)")
        mine.add_column("place", "GEOMETRY")
        mine.append([{"id": 4, "name": "z", "place": None}])
    assert [(row["id"], row["name"]) for row in by_id(table)] == [(1, "y"), (2, None), (3, "y"), (4, "z")]
    ids = table.scan(["id"], row_ids=True).to_arrow().sort_by("id").column("rowid").to_pylist()
    assert ids[:2] == [0, 1]
    assert len(set(ids)) == 4


def test_a_transaction_that_fails_leaves_the_columns_alone(lake: Lake, table: Table) -> None:
    with pytest.raises(RuntimeError), lake.transaction() as tx:
        tx.table("t").add_column("x", "INTEGER")
        raise RuntimeError
    assert table.columns == ["id", "name"]


def test_create_or_replace_ends_the_old_table(lake: Lake, table: Table) -> None:
    old, before = table.info.id, lake.current_snapshot()
    lake.create_table("t", [{"other": 1.5}], replace=True)
    assert table.to_pylist() == [{"other": 1.5}]
    assert table.info.id != old
    assert lake.current_snapshot() == before + 1
    assert lake.at(version=before).table("t").count() == 2
    with pytest.raises(InputError, match="not both"):
        lake.create_table("t", {"x": pa.int32()}, replace=True, if_not_exists=True)


def test_a_table_is_dropped_and_made_again_in_one_transaction(lake: Lake, table: Table) -> None:
    with lake.transaction() as tx:
        tx.table("t").add_column("x", "INTEGER")
        tx.drop_table("t")
        tx.create_table("t", {"y": pa.int32()})
        tx.table("t").add_column("z", "INTEGER", 2)
        tx.table("t").append([{"y": 1}])
    assert table.to_pylist() == [{"y": 1, "z": 2}]


# -- others at the same time -------------------------------------------------------------------------------------------


def test_an_append_next_to_an_alter_is_planned_again(lake: Lake, table: Table, tmp_path: Path) -> None:
    with open_lake(tmp_path) as other:
        other.table("t").count()
        table.add_column("n", "INTEGER", 5)
        table.rename_column("name", "title")
        with pytest.raises(SchemaMismatchError):
            other.table("t").append([{"id": 3, "name": "x"}])
        other.table("t").append([{"id": 3, "title": "x"}])
    assert by_id(table)[-1] == {"id": 3, "title": "x", "n": 5}


def test_a_transaction_that_inserts_next_to_an_alter_conflicts(lake: Lake, table: Table) -> None:
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("t").append([{"id": 3, "name": "x"}])
        table.drop_column("name")
    assert table.to_pylist() == [{"id": 1}, {"id": 2}]


def test_two_alters_conflict_and_one_of_them_is_planned_again(lake: Lake, table: Table) -> None:
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("t").add_column("x", "INTEGER")
        table.add_column("y", "INTEGER")
    table.add_column("x", "INTEGER")
    assert [column.id for column in table.info.schema.columns] == [1, 2, 3, 4]


def test_an_alter_stands_beside_an_insert(lake: Lake, table: Table) -> None:
    with lake.transaction() as tx:
        tx.table("t").add_column("n", "INTEGER", 5)
        table.append([{"id": 3, "name": "x"}])
        tx.table("t").append([{"id": 4, "name": "y", "n": 6}])
    assert [row["n"] for row in by_id(table)] == [5, 5, 5, 6]


def test_not_null_conflicts_with_a_null_that_came_meanwhile_and_with_nothing_else(lake: Lake, table: Table) -> None:
    table.delete("name IS NULL")
    with lake.transaction() as tx:
        tx.table("t").set_not_null("name")
        table.append([{"id": 3, "name": "x"}])
    table.drop_not_null("name")
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("t").set_not_null("name")
        table.append([{"id": 4, "name": None}])
    assert table.info.schema.find("name").nullable
