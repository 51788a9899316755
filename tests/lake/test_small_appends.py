"""Small appends, one after the other, of rows that are alike and of rows that only look so."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import ConstraintError, SchemaMismatchError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("seen", pa.timestamp("us")),
        pa.field("share", pa.float64()),
    ]
)
EARLY = -(1 << 63) + 5  # before the first timestamp of DuckDB


@pytest.fixture(params=["sqlite", "postgres"])
def lake(request: pytest.FixtureRequest, new_url: Callable[[str], str], tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(new_url(request.param), data_path=tmp_path / "data") as made:
        yield made


def _rows(dice: random.Random, count: int) -> pa.Table:
    start = dt.datetime(1969, 12, 31, 23, 59, 59)
    values: dict[str, list[Any]] = {
        "id": [dice.randrange(1_000_000) for _ in range(count)],
        "name": [dice.choice((None, "", "a", "it's", "\U0001f986")) for _ in range(count)],
        "seen": [
            dice.choice((None, start + dt.timedelta(microseconds=dice.randrange(3_000_000)))) for _ in range(count)
        ],
        "share": [dice.choice((None, 0.5, -1e300, float("inf"))) for _ in range(count)],
    }
    return pa.table(values, schema=SCHEMA)


_SHAPES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "alike": lambda rows: rows,
    "in another order": lambda rows: rows.select(["share", "id", "seen", "name"]),
    "narrower": lambda rows: rows.set_column(0, pa.field("id", pa.int32()), rows["id"].cast(pa.int32())),
    "in other units": lambda rows: rows.set_column(2, "seen", rows["seen"].cast(pa.timestamp("ns"))),
    "in two pieces": lambda rows: pa.concat_tables([rows.slice(0, 1), rows.slice(1)]),
    "in a dictionary": lambda rows: rows.set_column(1, "name", rows["name"].dictionary_encode()),
    "a part of more": lambda rows: pa.concat_tables([rows, rows]).combine_chunks().slice(rows.num_rows),
}


def test_rows_of_every_shape_come_back_as_plain_duckdb_has_them(lake: quacklake.Lake) -> None:
    table, dice, plain = lake.create_table("t", SCHEMA), random.Random(20261118), duckdb.connect()
    plain.execute("CREATE TABLE t (id BIGINT, name VARCHAR, seen TIMESTAMP, share DOUBLE)")
    for shape in [dice.choice(list(_SHAPES)) for _ in range(20)]:
        rows = _SHAPES[shape](_rows(dice, dice.randrange(1, 6)))
        assert table.append(rows) == rows.num_rows
        plain.register("given", rows)
        plain.execute("INSERT INTO t BY NAME FROM given")
    found = table.to_arrow()
    plain.register("found", found.cast(SCHEMA))
    for one, two in (("t", "found"), ("found", "t")):
        assert plain.execute(f"FROM {one} EXCEPT ALL FROM {two}").fetchall() == []
    bounds = plain.execute("SELECT min(id), max(id), min(seen), max(seen) FROM t").fetchone()
    assert lake.sql("SELECT min(id), max(id), min(seen), max(seen) FROM t").fetchone() == bounds
    plain.close()


def test_what_does_not_fit_is_refused_after_rows_that_did(lake: quacklake.Lake) -> None:
    table, good = lake.create_table("t", SCHEMA), _rows(random.Random(1), 3)
    refused: list[tuple[pa.Table, type[Exception]]] = [
        (good.set_column(0, SCHEMA.field(0), pa.array([1, None, 3], pa.int64())), ConstraintError),
        (good.set_column(2, SCHEMA.field(2), pa.array([EARLY] * 3).view(pa.timestamp("us"))), ConstraintError),
        (good.set_column(1, "name", pa.array([1, 2, 3])), SchemaMismatchError),
        (good.drop_columns(["share"]), SchemaMismatchError),
    ]
    for number, (bad, error) in enumerate(refused):
        table.append(good)
        with pytest.raises(error):
            table.append(bad)
        assert table.count() == 3 * (number + 1)
