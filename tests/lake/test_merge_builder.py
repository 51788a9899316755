"""The builder of merges: the clauses of plain DuckDB's MERGE, on a lake."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import quacklake
from quacklake import Lake, MergeResult, Table, errors, expr


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")


def _filled(lake: Lake, rows: list[tuple[int, int | None, str]], *, inlined: bool = True) -> Table:
    if not inlined:
        lake.options.set("data_inlining_row_limit", 0)
    table = lake.create_table("t", {"id": "BIGINT", "n": "INTEGER", "s": "VARCHAR"})
    if rows:
        table.append([{"id": a, "n": b, "s": c} for a, b, c in rows])
    return table


def _rows(table: Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


_ROWS: list[tuple[int, int | None, str]] = [(1, 10, "a"), (2, 20, "b"), (3, None, "c"), (4, 40, "d")]
_SOURCE = pa.table({"id": [2, 3, 9], "n": pa.array([200, 300, None], pa.int64()), "s": ["B", "C", "Z"]})


def test_each_kind_of_clause_changes_its_rows(lake: Lake) -> None:
    table = _filled(lake, _ROWS)
    done = (
        table.merge_builder(_SOURCE, "id")
        .when_matched_delete("target.n IS NULL")
        .when_matched_update({"n": expr("target.n + source.n"), "s": expr("source.s")}, "source.n > 100")
        .when_not_matched_insert({"id": expr("source.id"), "n": -1})
        .when_not_matched_by_source_update({"s": expr("target.s || '!'")}, "target.id = 4")
        .when_not_matched_by_source_delete()
        .execute()
    )
    assert done == MergeResult(updated=2, inserted=1, deleted=2)
    assert _rows(table) == [(2, 220, "B"), (4, 40, "d!"), (9, -1, None)]


def test_updated_rows_keep_their_row_ids_and_the_feed_shows_updates(lake: Lake) -> None:
    table = _filled(lake, _ROWS, inlined=False)
    before = {row["id"]: row["rowid"] for row in table.scan(row_ids=True).to_pylist()}
    since = lake.snapshots().num_rows
    table.merge_builder(_SOURCE, "id").when_matched_update_all().when_not_matched_by_source_delete().execute()
    after = {row["id"]: row["rowid"] for row in table.scan(row_ids=True).to_pylist()}
    assert after == {id_: before[id_] for id_ in (2, 3)}
    kinds = table.changes(since).to_arrow().column("change_type").to_pylist()
    assert sorted(kinds) == ["delete"] * 2 + ["update_postimage"] * 2 + ["update_preimage"] * 2


def test_a_condition_may_say_what_matches(lake: Lake) -> None:
    table = _filled(lake, _ROWS)
    builder = table.merge_builder([{"low": 15, "high": 30}], "target.n BETWEEN source.low AND source.high")
    assert builder.when_matched_update({"s": expr("'hit'")}).execute() == MergeResult(updated=1)
    assert (2, 20, "hit") in _rows(table)


def test_a_row_that_several_rows_of_the_source_change_is_an_error_with_its_key(lake: Lake) -> None:
    table = _filled(lake, _ROWS)
    twice = [{"id": 2, "n": 1, "s": "x"}, {"id": 2, "n": 2, "s": "y"}]
    with pytest.raises(errors.ConstraintError, match=r"several rows of the source match one row of main\.t \(id\): 2"):
        table.merge_builder(twice, "id").when_matched_update_all().execute()
    assert _rows(table) == sorted(_ROWS, key=repr)
    table.merge_builder(twice, "id").when_matched_update_all("source.n = 2").execute()
    assert (2, 2, "y") in _rows(table)
    assert table.merge_builder(twice, "id").when_matched_delete().execute() == MergeResult(deleted=1)


def test_without_on_the_primary_key_matches(lake: Lake) -> None:
    table = lake.create_table("k", {"id": "BIGINT", "v": "VARCHAR"}, primary_key="id")
    table.append([{"id": 1, "v": "a"}])
    table.merge_builder([{"id": 1, "v": "b"}, {"id": 2, "v": "c"}]).when_not_matched_insert_all().execute()
    assert _rows(table) == [(1, "a"), (2, "c")]


def test_a_transaction_holds_a_merge_until_it_ends(lake: Lake) -> None:
    table = _filled(lake, _ROWS)
    with lake.transaction() as tx:
        mine = tx.table("t")
        mine.append([{"id": 9, "n": 9, "s": "own"}])
        mine.merge_builder(_SOURCE, "id").when_matched_update_all().execute()
        assert (9, None, "Z") in _rows(mine)
        assert (9, None, "Z") not in _rows(table)
    assert {row[0]: row[2] for row in _rows(table)} == {1: "a", 2: "B", 3: "C", 4: "d", 9: "Z"}


def test_evolution_adds_the_columns_of_the_source(lake: Lake) -> None:
    table = _filled(lake, _ROWS)
    source = [{"id": 1, "more": 1.5}, {"id": 7, "more": 2.5}]
    builder = table.merge_builder(source, "id").when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(errors.SchemaMismatchError, match="more"):
        builder.execute()
    builder.with_schema_evolution().execute()
    assert {row["id"]: (row["s"], row["more"]) for row in table.to_pylist() if row["more"]} == {
        1: ("a", 1.5),
        7: (None, 2.5),
    }


def test_null_in_a_required_column_changes_nothing(lake: Lake) -> None:
    table = lake.create_table("r", {"id": "BIGINT", "v": "VARCHAR NOT NULL"})
    table.append([{"id": 1, "v": "a"}])
    source = [{"id": 1, "v": None}, {"id": 2, "v": None}]
    for builder in (
        table.merge_builder(source, "id").when_matched_update_all(),
        table.merge_builder(source, "id").when_not_matched_insert({"id": expr("source.id")}),
        table.merge_builder(source, "id").when_not_matched_insert_all(),
    ):
        with pytest.raises(errors.ConstraintError, match="NOT NULL"):
            builder.execute()
    assert _rows(table) == [(1, "a")]


@pytest.mark.parametrize(
    "condition", ["target.nothing > 1", "target.n IN (SELECT 1)", "getenv('HOME') = ''", "read_text('x') = ''", "n >"]
)
def test_a_condition_reaches_nothing_but_the_row(lake: Lake, condition: str) -> None:
    table = _filled(lake, _ROWS)
    with pytest.raises(errors.QuacklakeError):
        table.merge_builder(_SOURCE, "id").when_matched_delete(condition).execute()
    assert _rows(table) == sorted(_ROWS, key=repr)


def test_a_builder_refuses_what_it_cannot_mean(lake: Lake) -> None:
    table = _filled(lake, _ROWS)
    with pytest.raises(errors.InputError, match="may be meant as SQL or as a value"):
        table.merge_builder(_SOURCE, "id").when_matched_update({"s": "source.s"})
    with pytest.raises(errors.InputError, match="nothing is set"):
        table.merge_builder(_SOURCE, "id").when_matched_update({})
    with pytest.raises(errors.InputError, match="at least one clause"):
        table.merge_builder(_SOURCE, "id").execute()
    with pytest.raises(errors.SchemaMismatchError, match="lack the key column 'id'"):
        table.merge_builder([{"x": 1}], "id").when_matched_delete().execute()
    with pytest.raises(errors.InputError, match="pyarrow"):
        table.merge_builder(_SOURCE, "id").when_matched_delete(pc.field("n") > 1)
    with pytest.raises(errors.InputError, match="must be SQL text, not int"):
        table.merge_builder(_SOURCE, "id").when_matched_delete(1).execute()


def test_values_of_python_arrive_as_they_are(lake: Lake) -> None:
    table = lake.create_table("v", {"id": "BIGINT", "d": "DOUBLE", "b": "BLOB", "l": "DOUBLE[]", "t": "VARCHAR"})
    values = {"d": 0.1 + 0.2, "b": b"\0'x", "l": [1e-7, float("inf")], "t": expr("'a' || chr(0)")}
    table.merge_builder([{"id": 1}], "id").when_not_matched_insert({"id": expr("source.id"), **values}).execute()
    assert table.to_pylist() == [{"id": 1, **values, "t": "a\0"}]
    table.update({"t": "it's\0", "d": 1e308})
    assert table.to_pylist()[0]["t"] == "it's\0"
    assert table.to_pylist()[0]["d"] == 1e308


# -- against plain DuckDB ----------------------------------------------------------------------------------------------

_CONDITIONS = {
    "both": ["target.n > source.n", "source.n IS NULL", "target.s <> source.s", "target.n % 2 = 0"],
    "source": ["source.n > 5", "source.s IN ('a', 'b')", "source.n IS NOT NULL"],
    "target": ["target.n < 5", "target.s = 'a'", "target.n IS NULL"],
}
_SETS = {
    "both": {"n": "source.n + 1", "s": "target.s || source.s"},
    "target": {"n": "target.n * 2", "s": "NULL"},
}


def _clauses(choose: random.Random) -> list[tuple[str, str, str | None]]:
    """Return clauses as (kind of rows, action, condition); only the last of a kind is without a condition."""
    found: list[tuple[str, str, str | None]] = []
    for kind, actions in (
        ("both", ["update", "all", "delete"]),
        ("source", ["insert", "all"]),
        ("target", ["update", "delete"]),
    ):
        for condition in choose.sample(_CONDITIONS[kind], choose.randrange(3)):
            found.append((kind, choose.choice(actions), condition))
        if choose.random() < 0.5:
            found.append((kind, choose.choice(actions), None))
    return found or [("both", "delete", None)]


def _in_duckdb(connection: duckdb.DuckDBPyConnection, clauses: list[tuple[str, str, str | None]]) -> None:
    words = {"both": "MATCHED", "source": "NOT MATCHED", "target": "NOT MATCHED BY SOURCE"}
    text = "MERGE INTO t AS target USING src AS source ON target.id = source.id"
    for kind, action, condition in clauses:
        text += f" WHEN {words[kind]}{f' AND {condition}' if condition else ''} THEN "
        if action == "delete":
            text += "DELETE"
        elif action == "update":
            text += "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in _SETS[kind].items())
        elif action == "insert":
            text += "INSERT (id, s) VALUES (source.id, upper(source.s))"
        else:
            text += "UPDATE BY NAME" if kind == "both" else "INSERT BY NAME"
    connection.execute(text)


def _in_lake(table: Table, source: pa.Table, clauses: list[tuple[str, str, str | None]]) -> None:
    builder = table.merge_builder(source, "id")
    for kind, action, condition in clauses:
        sets = {name: expr(value) for name, value in _SETS.get(kind, {}).items()}
        match kind, action:
            case "both", "update":
                builder.when_matched_update(sets, condition)
            case "both", "all":
                builder.when_matched_update_all(condition)
            case "both", _:
                builder.when_matched_delete(condition)
            case "source", "insert":
                builder.when_not_matched_insert({"id": expr("source.id"), "s": expr("upper(source.s)")}, condition)
            case "source", _:
                builder.when_not_matched_insert_all(condition)
            case _, "update":
                builder.when_not_matched_by_source_update(sets, condition)
            case _:
                builder.when_not_matched_by_source_delete(condition)
    builder.execute()


@pytest.mark.parametrize("inlined", [True, False])
def test_any_clauses_do_what_plain_duckdb_does(lake: Lake, inlined: bool) -> None:
    choose = random.Random(20261117 + inlined)
    table = _filled(lake, [], inlined=inlined)
    oracle = duckdb.connect()
    oracle.execute("CREATE TABLE t (id BIGINT, n INTEGER, s VARCHAR)")

    def some() -> pa.Table:
        ids = choose.sample(range(20), 8)
        numbers = [choose.choice([None, *range(10)]) for _ in ids]
        texts = [choose.choice([None, "a", "b", "c"]) for _ in ids]
        return pa.table(
            {"id": pa.array(ids, pa.int64()), "n": pa.array(numbers, pa.int32()), "s": pa.array(texts, pa.string())}
        )

    for _ in range(12):
        source, clauses = some(), _clauses(choose)
        oracle.register("src", source)
        _in_duckdb(oracle, clauses)
        _in_lake(table, source, clauses)
        expected = sorted(oracle.execute("FROM t").fetchall(), key=repr)
        assert _rows(table) == expected, clauses


# -- filters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inlined", [True, False])
def test_delete_update_and_overwrite_take_arrow_expressions(lake: Lake, inlined: bool) -> None:
    table = _filled(lake, _ROWS, inlined=inlined)
    assert table.update({"s": "big"}, pc.field("n") >= 20) == 2
    assert table.delete(pc.field("n").is_null()) == 1
    assert _rows(table) == [(1, 10, "a"), (2, 20, "big"), (4, 40, "big")]
    table.overwrite([{"id": 8, "n": 8, "s": "new"}], pc.field("s") == "big")
    assert _rows(table) == [(1, 10, "a"), (8, 8, "new")]
    with pytest.raises(errors.PredicateError):
        table.delete(pc.field("nothing") > 1)
