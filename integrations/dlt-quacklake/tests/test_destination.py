"""Pipelines of dlt into a lake."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import dlt
import pytest
from dlt.pipeline.exceptions import PipelineStepFailed
from dlt_quacklake import quacklake as destination

import quacklake

HOSTILE = ["'", '"; DROP TABLE shop.items; --', "%s", "?", "a;b\nc", "\\", "€🦆", "", "{}", "$1"]


def _rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with quacklake.connect(url) as lake:
        rows: list[tuple[Any, ...]] = lake.sql(query).fetchall()
        return rows


def test_appended_rows_keep_their_values_and_new_columns_are_added(pipeline: dlt.Pipeline, url: str) -> None:
    day, time = dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    first = {"id": 1, "day": day, "moment": time, "price": Decimal("1.50"), "blob": b"\x00x", "ok": True, "note": None}
    pipeline.run([first], table_name="items")
    pipeline.run([{"id": 2, "colour": "red", "size": {"w": 1.5, "h": 2}, "tags": ["a", "b"]}], table_name="items")
    query = "SELECT id, day, moment, price, blob, ok, colour, size__w, size__h FROM shop.items ORDER BY id"
    assert _rows(url, query) == [
        (1, day, time, Decimal("1.50"), b"\x00x", True, None, None, None),
        (2, None, None, None, None, None, "red", 1.5, 2),
    ]
    assert _rows(url, "SELECT value FROM shop.items__tags ORDER BY value") == [("a",), ("b",)]
    assert _rows(url, "SELECT count(*) FROM shop._dlt_loads") == [(2,)]
    assert _rows(url, "SELECT count(*) FROM shop._dlt_quacklake_jobs") == [(0,)]


def test_a_column_with_values_of_another_type_gets_a_column_beside_it(pipeline: dlt.Pipeline, url: str) -> None:
    pipeline.run([{"id": 1, "x": 1}], table_name="items")
    pipeline.run([{"id": 2, "x": "many"}], table_name="items")
    assert _rows(url, "SELECT x, x__v_text FROM shop.items ORDER BY id") == [(1, None), (None, "many")]


def test_hostile_texts_and_names_stay_what_they_are(pipeline: dlt.Pipeline, url: str) -> None:
    rows = [{"id": number, "text": text} for number, text in enumerate(HOSTILE)]
    pipeline.run(rows, table_name="it\"e'm; s")
    (name,) = (name for name in pipeline.default_schema.data_table_names())
    pipeline.run(rows, table_name="it\"e'm; s", write_disposition="merge", primary_key="id")
    with quacklake.connect(url) as lake:
        found = lake.table(f"shop.{name}").to_pylist(columns=["id", "text"])
    assert sorted((row["id"], row["text"]) for row in found) == list(enumerate(HOSTILE))


@pytest.mark.parametrize("strategy", ["delete-insert", "upsert"])
def test_merges_are_what_a_dictionary_says(pipeline: dlt.Pipeline, url: str, strategy: str) -> None:
    chance, model = random.Random(strategy), dict[int, tuple[str, list[int]]]()
    for _ in range(3):
        chosen = chance.sample(range(12), chance.randrange(1, 8))
        batch = [
            {
                "id": key,
                "name": f"n{chance.random()}",
                "parts": [chance.randrange(9)],
                "gone": key in model and chance.random() < 0.4,
            }
            for key in chosen
        ]
        pipeline.run(
            batch,
            table_name="items",
            write_disposition={"disposition": "merge", "strategy": strategy},  # type: ignore[misc]
            primary_key="id",
            columns={"gone": {"hard_delete": True, "data_type": "bool"}},
        )
        for row in batch:
            if row["gone"]:
                model.pop(row["id"], None)
            else:
                model[row["id"]] = (row["name"], row["parts"])
        found = _rows(url, "SELECT id, name FROM shop.items ORDER BY id")
        assert found == [(key, model[key][0]) for key in sorted(model)]
        parts = _rows(
            url, "SELECT i.id, p.value FROM shop.items__parts p JOIN shop.items i ON p._dlt_root_id = i._dlt_id"
        )
        assert sorted(parts) == [(key, model[key][1][0]) for key in sorted(model)]
    assert _rows(url, "SELECT count(*) FROM shop.items__parts") == [(len(model),)]


def test_an_insert_only_merge_never_changes_a_row_that_is_there(pipeline: dlt.Pipeline, url: str) -> None:
    chance, model = random.Random("insert-only"), dict[int, str]()
    for _ in range(3):
        batch = [{"id": key, "name": f"n{chance.random()}"} for key in chance.sample(range(12), chance.randrange(1, 8))]
        pipeline.run(
            batch,
            table_name="items",
            write_disposition={"disposition": "merge", "strategy": "insert-only"},  # type: ignore[misc]
            primary_key="id",
        )
        for row in batch:
            model.setdefault(row["id"], row["name"])
        assert _rows(url, "SELECT id, name FROM shop.items ORDER BY id") == sorted(model.items())


def test_scd2_keeps_every_state_of_a_row_with_its_time(pipeline: dlt.Pipeline, url: str) -> None:
    chance, states = random.Random("scd2"), list[dict[int, str]]()
    for _ in range(4):
        state = {key: chance.choice("ab") for key in chance.sample(range(8), chance.randrange(1, 8))}
        pipeline.run(
            [{"id": key, "name": name} for key, name in state.items()],
            table_name="items",
            write_disposition={"disposition": "merge", "strategy": "scd2"},  # type: ignore[misc]
        )
        states.append(state)
        now = _rows(url, "SELECT id, name FROM shop.items WHERE _dlt_valid_to IS NULL ORDER BY id")
        assert now == sorted(state.items())
    runs = _rows(url, "SELECT to_timestamp(load_id::DOUBLE) FROM shop._dlt_loads ORDER BY 1")
    assert len(runs) == len(states)
    for (run,), state in zip(runs, states, strict=True):
        at = f"TIMESTAMPTZ '{run}'"
        found = _rows(
            url,
            f"SELECT id, name FROM shop.items WHERE _dlt_valid_from <= {at} AND coalesce(_dlt_valid_to > {at}, true)"
            " ORDER BY id",
        )
        assert found == sorted(state.items())


def test_replaced_rows_change_in_one_commit(pipeline: dlt.Pipeline, url: str) -> None:
    for generation in range(3):
        rows = [{"generation": generation, "id": number} for number in range(5)]
        pipeline.run(rows, table_name="items", write_disposition="replace")
    with quacklake.connect(url) as lake:
        seen = []
        for snapshot in lake.snapshots()["snapshot_id"].to_pylist():
            if "shop.items" in lake.at(snapshot).tables():
                table = lake.at(snapshot).table("shop.items")
                seen.append(sorted((row["generation"], row["id"]) for row in table.to_pylist()))
    whole = [[(generation, number) for number in range(5)] for generation in range(3)]
    assert [rows for at, rows in enumerate(seen) if rows and rows != seen[at - 1]] == whole
    assert [] not in seen[seen.index(whole[0]) :]


def test_rows_that_a_merge_could_not_find_stop_it(pipeline: dlt.Pipeline) -> None:
    rows = [{"id": 1, "parts": [1]}]
    pipeline.run(rows, table_name="items")
    with pytest.raises(PipelineStepFailed, match="refresh='drop_resources'"):
        pipeline.run(rows, table_name="items", write_disposition="merge", primary_key="id")


def test_a_dataset_is_read_back(pipeline: dlt.Pipeline) -> None:
    pipeline.run([{"id": number, "name": str(number)} for number in range(10)], table_name="items")
    items = pipeline.dataset().table("items")
    assert items.arrow().num_rows == 10
    assert sorted(items.select("name").fetchall()) == sorted((str(number),) for number in range(10))
    assert [table.num_rows for table in items.iter_arrow(chunk_size=4)] == [4, 4, 2]


def test_a_second_machine_goes_on_where_the_first_one_stopped(tmp_path: Path, url: str) -> None:
    def numbers(at: Any = dlt.sources.incremental("id", initial_value=0)) -> Any:  # noqa: B008 - as dlt has it
        yield [{"id": number} for number in range(at.last_value, at.last_value + 3)]

    for machine in ("one", "two"):
        lake = destination(url, data_path=f"{tmp_path}/data")
        other = dlt.pipeline("numbers", destination=lake, dataset_name="shop", pipelines_dir=str(tmp_path / machine))
        other.run(dlt.resource(numbers, name="numbers", primary_key="id"))
    assert _rows(url, "SELECT id FROM shop.numbers ORDER BY id") == [(number,) for number in range(5)]
