"""An open transaction sees its own changes, and the lake has them all, once, when it ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quacklake
from tests.catalog.stock import Stock
from tests.transaction import model
from tests.transaction.model import Operation, State, State_of

ids = st.sampled_from([0, 1, 3, 19, 20, 39, 100, 102, 500, 501, 530, 599])


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    kind = draw(
        st.sampled_from(["append", "append", "delete", "delete", "update", "update", "merge", "all", "overwrite"])
    )
    start = draw(ids)
    count = draw(st.sampled_from([1, 3, 9, 15]))
    pairs = [(n, f"{kind[0]}{n}") for n in range(start, start + count)]
    if kind == "append":
        return model.append(pairs)
    if kind == "merge":
        return model.merge(pairs)
    if kind == "overwrite":
        return model.overwrite(pairs)
    if kind == "all":
        return model.delete_all()
    where = f"id >= {start} AND id < {start + count}"
    if kind == "delete":
        return model.delete(where, lambda id_: start <= id_ < start + count)
    return model.update(where, lambda id_: start <= id_ < start + count)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    with quacklake.connect(f"sqlite:///{folder / 'lake.db'}", data_path=folder / "data") as lake:
        model.prepare(lake)
        lake.table("t").delete("id >= 8 AND id < 19")
        lake.table("t").delete("id IN (21, 22)")
    return folder


def _mergeable(state: State, operation: Operation) -> bool:
    """A merge into a table that has a key twice updates both rows: the model does not say so."""
    ids_ = [row[0] for row in state.rows("t")]
    return not operation.name.startswith("merge") or len(ids_) == len(set(ids_))


@settings(
    max_examples=400 if os.environ.get("QUACKLAKE_TEST_PROFILE") == "long" else 20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(operations(), min_size=1, max_size=6))
def test_any_sequence_of_changes_is_seen_inside_and_committed_whole(
    template: Path, stock: Stock, steps: list[Operation]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "lake"
        shutil.copytree(template, folder)
        url = f"sqlite:///{folder / 'lake.db'}"
        with quacklake.connect(url, data_path=folder / "data", override_data_path=True, duckdb_threads=1) as lake:
            before = expected = State_of(lake)
            old_ids = _row_ids(lake)
            with lake.transaction() as tx:
                for step in steps:
                    if not _mergeable(expected, step):
                        continue
                    step.run(tx)
                    expected = step.mean(expected)
                    assert State_of(tx) == expected, steps
                    assert tx.table("t").count() == len(expected.rows("t"))
                assert State_of(lake) == before
            assert State_of(lake) == expected
            new_ids = _row_ids(lake)
            # no id twice, and a row that was only changed keeps its own
            assert len({row_id for _, row_id in new_ids}) == len(new_ids) == len(expected.rows("t"))
            if all(step.name.startswith(("update", "merge")) for step in steps):
                assert set(old_ids) <= set(new_ids)
            past = lake.at(version=lake.current_snapshot() - (0 if expected == before else 1))
            assert State_of(past) == before or expected == before
            files = {path.name for path in folder.rglob("*.parquet")}
        theirs = stock.run(
            url,
            "SELECT id, v FROM t ORDER BY ALL",
            options=[f"DATA_PATH '{folder / 'data'}/'", "OVERRIDE_DATA_PATH true"],
        )
        assert tuple(theirs) == expected.rows("t")
        assert len(files) >= 2


def _row_ids(lake: quacklake.Lake) -> list[tuple[int, int]]:
    """(id, row id) of every row."""
    found = lake.table("t").scan(["id"], row_ids=True).to_arrow()
    return list(zip(found.column("id").to_pylist(), found.column("rowid").to_pylist(), strict=True))


def test_a_block_that_raises_leaves_no_trace(template: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    shutil.copytree(template, folder)
    with quacklake.connect(
        f"sqlite:///{folder / 'lake.db'}", data_path=folder / "data", override_data_path=True
    ) as lake:
        before, files = State_of(lake), {*folder.rglob("*.parquet")}
        count = lake.snapshots().num_rows
        with pytest.raises(ZeroDivisionError), lake.transaction() as tx:
            tx.table("t").append(model.rows([(n, "x") for n in range(50)]))
            tx.table("t").delete("id < 5")
            tx.create_table("u", model.rows([(n, "x") for n in range(50)]))
            1 / 0  # noqa: B018
        assert State_of(lake) == before
        assert {*folder.rglob("*.parquet")} == files
        assert lake.snapshots().num_rows == count


def test_an_empty_transaction_makes_no_snapshot(template: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    shutil.copytree(template, folder)
    with quacklake.connect(
        f"sqlite:///{folder / 'lake.db'}", data_path=folder / "data", override_data_path=True
    ) as lake:
        before = lake.current_snapshot()
        with lake.transaction() as tx:
            tx.table("t").delete("id = -1")
            tx.table("t").update({"v": "x"}, "id = -1")
            tx.table("t").append(model.rows([]))
            tx.create_table("gone", model.rows([(1, "x")]))
            tx.drop_table("gone")
        assert lake.current_snapshot() == before
