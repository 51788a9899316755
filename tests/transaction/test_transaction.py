"""Transactions: what they see, what they leave behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.format.bounds import compare, every
from quacklake.core.format.schema import Column
from quacklake.core.transaction.commit import any_may_match
from quacklake.errors import AlreadyExistsError, CommitConflict, InputError, NotFoundError, ReadOnlyError
from tests.seeds import chance


@pytest.fixture(params=[0, 10], ids=["files", "inlined"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=request.param
    ) as lake:
        yield lake


def _files(lake: quacklake.Lake) -> list[str]:
    return sorted(entry.path for entry in lake._context.store.list())


def test_a_transaction_sees_its_own_changes_and_others_do_not(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(30), "v": ["a"] * 30}))
    with lake.transaction() as tx:
        mine = tx.table("t")
        mine.append([{"id": 100, "v": "new"}, {"id": 101, "v": "new"}])
        assert mine.update({"v": "b"}, "id IN (1, 100)") == 2
        assert mine.delete("id IN (2, 101)") == 2
        assert mine.update({"v": quacklake.expr("v || '!'")}, "id = 100") == 1
        assert mine.merge([{"id": 3, "v": "m"}, {"id": 200, "v": "m"}], on="id") == quacklake.MergeResult(1, 1)
        expected = dict.fromkeys(range(30), "a") | {1: "b", 3: "m", 100: "b!", 200: "m"}
        del expected[2]
        assert {row["id"]: row["v"] for row in mine.to_pylist()} == expected
        assert table.count() == 30
    assert {row["id"]: row["v"] for row in table.to_pylist()} == expected
    assert lake.current_snapshot() == 2
    assert len({row["rowid"] for row in table.scan(row_ids=True).to_pylist()}) == len(expected)


def test_tables_made_in_a_transaction_can_be_filled_renamed_and_dropped_in_it(lake: quacklake.Lake) -> None:
    lake.create_table("old", [{"id": 1}])
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.create_table("s.a", pa.table({"id": range(20)}))
        tx.rename_table("s.a", "b")
        tx.table("s.b").append([{"id": 99}])
        tx.create_table("s.gone", [{"id": 1}])
        tx.drop_table("s.gone")
        tx.drop_table("old")
        tx.create_table("old", [{"name": "another"}])
        assert tx.tables() == ["main.old", "s.b"]
        assert tx.table("s.b").count() == 21
        with pytest.raises(AlreadyExistsError):
            tx.create_table("s.b", [{"id": 1}])
        with pytest.raises(NotFoundError):
            tx.table("s.a").count()
    assert lake.tables() == ["main.old", "s.b"]
    assert lake.table("old").columns == ["name"]
    assert lake.table("s.b").count() == 21
    assert lake.at(version=1).table("old").to_pylist() == [{"id": 1}]


def test_a_rolled_back_transaction_leaves_neither_rows_nor_files(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(100)}))
    before, snapshot = _files(lake), lake.current_snapshot()
    with pytest.raises(ZeroDivisionError), lake.transaction() as tx:
        tx.table("t").append(pa.table({"id": range(1000)}))
        tx.table("t").delete("id < 50")
        tx.table("t").update({"id": -1}, "id >= 50")
        tx.create_table("u", pa.table({"id": range(100)}))
        raise ZeroDivisionError
    assert _files(lake) == before
    assert lake.current_snapshot() == snapshot
    assert table.count() == 100


def test_a_transaction_that_changes_nothing_makes_no_snapshot(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(20)}))
    with lake.transaction() as tx:
        assert tx.table("t").delete("id > 1000") == 0
        tx.table("t").append(pa.table({"id": pa.array([], pa.int64())}))
    assert table.append([]) == 0
    assert lake.current_snapshot() == 1


def test_two_transactions_that_change_the_same_rows_cannot_both_commit(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(100), "v": [0] * 100}))
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("t").update({"v": 1}, "id = 5")
        table.update({"v": 2}, "id = 5")
    assert table.to_pylist(where="id = 5") == [{"id": 5, "v": 2}]


def test_transactions_on_different_files_both_commit(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(100)}))
    table.append(pa.table({"id": range(1000, 1100)}))
    with lake.transaction() as tx:
        tx.table("t").delete("id BETWEEN 10 AND 40")
        table.delete("id BETWEEN 1010 AND 1040")
    assert table.count() == 200 - 62


def test_a_blind_append_goes_through_beside_anything_but_a_change_of_its_table(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(100)}))
    with lake.transaction() as tx:
        tx.table("t").append(pa.table({"id": range(500, 600)}))
        table.delete("id < 50")
        lake.create_table("other", [{"id": 1}])
    assert table.count() == 150
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("t").append(pa.table({"id": range(500, 600)}))
        lake.drop_table("t")
    assert lake.tables() == ["main.other"]


def test_two_upserts_of_one_new_key_leave_one_row(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(100), "v": [0] * 100}))
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("t").merge([{"id": 777, "v": 1}], on="id")
        table.merge([{"id": 777, "v": 2}], on="id")
    assert table.to_pylist(where="id = 777") == [{"id": 777, "v": 2}]


def test_an_update_that_read_rows_which_another_inserts_is_a_conflict(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(100), "v": [0] * 100}))
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("t").update({"v": 1}, "id >= 90")
        table.append(pa.table({"id": [95], "v": [0]}))
    with lake.transaction() as tx:
        tx.table("t").update({"v": 1}, "id >= 90 AND id < 99")
        table.append(pa.table({"id": [5000], "v": [0]}))
    assert table.count("v = 1") == 10


@pytest.mark.parametrize(("id_", "conflicts"), [(4, False), (5, True)])
def test_rows_on_both_sides_of_what_an_update_has_read_are_no_conflict(
    tmp_path: Path, id_: int, conflicts: bool
) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", pa.table({"id": [5], "name": ["five"]}))
        with pytest.raises(CommitConflict) if conflicts else contextlib.nullcontext(), lake.transaction() as tx:
            tx.table("t").update({"name": "changed"}, "id = 5")
            for other in (1, 9, id_):
                table.append([{"id": other, "name": "new"}])
        assert table.count("name = 'changed'") == (not conflicts)


def test_new_rows_are_compared_one_by_one_with_what_was_read() -> None:
    columns = Column(1, "a", "int64"), Column(2, "b", "varchar")
    for round_ in range(200):
        random = chance("new rows", round_)
        rows = [(random.choice([*range(8), None]), random.choice("abc")) for _ in range(random.randint(1, 30))]
        wanted, letter = random.randrange(8), random.choice("abc")
        reads = every([compare(columns[0], "=", wanted), compare(columns[1], "<=", letter)])
        given = pa.table({"c1": pa.array([row[0] for row in rows], pa.int64()), "c2": [row[1] for row in rows]})
        known = any(a == wanted and b <= letter for a, b in rows)
        unknown = any(a is None and b <= letter for a, b in rows)  # without a bound, a row may match
        found = any_may_match(reads, given, columns)
        assert found if known else not found or unknown


def test_an_ended_transaction_and_a_past_snapshot_take_no_writes(lake: quacklake.Lake) -> None:
    lake.create_table("t", [{"id": 1}])
    with lake.transaction() as tx:
        tx.table("t").append([{"id": 2}])
    with pytest.raises(InputError):
        tx.table("t").append([{"id": 3}])
    with pytest.raises(ReadOnlyError):
        lake.at(version=1).table("t").append([{"id": 3}])
    assert lake.table("t").count() == 2


def test_renaming_a_table_twice_at_once_is_a_conflict(lake: quacklake.Lake) -> None:
    lake.create_table("t", [{"id": 1}])
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.rename_table("t", "a")
        lake.rename_table("t", "b")
    assert lake.tables() == ["main.b"]


def test_everything_can_be_deleted_and_appended_again_in_one_transaction(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(100)}))
    table.append([{"id": 100}])
    table.overwrite(pa.table({"id": range(5000, 5050)}))
    assert sorted(row["id"] for row in table.to_pylist()) == list(range(5000, 5050))
    assert table.files().num_rows == 1
    table.overwrite([{"id": 1}], where="id < 5010")
    assert table.count() == 41
    assert lake.at(version=2).table("t").count() == 101


def test_rows_that_a_transaction_inserts_updates_and_deletes_are_those_and_no_others(tmp_path: Path) -> None:
    """Stock DuckLake deletes another of its uncommitted rows here."""
    with quacklake.connect(
        f"sqlite:///{tmp_path}/few.db", data_path=tmp_path / "few", data_inlining_row_limit=3
    ) as lake:
        lake.create_table("t", {"id": pa.int64(), "value": pa.int64()})
        with lake.transaction() as tx:
            table = tx.table("t")
            table.append([{"id": i, "value": i} for i in range(33, 56)])
            table.append([{"id": i, "value": i} for i in range(56, 59)])
            table.update({"value": 0}, "id = 33")
            table.delete("id = 33")
        assert sorted(lake.table("t").to_arrow().column("id").to_pylist()) == list(range(34, 59))
