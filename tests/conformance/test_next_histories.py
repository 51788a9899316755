"""The same random changes on lakes of 1.0, of 1.1, and of one that goes back and forth: all answer alike.

What is in a lake at each snapshot does not depend on its version, its database or its layout, and after the way back to 1.0
the extension reads it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import quacklake
from tests.catalog.stock import Stock
from tests.layout import plain_only
from tests.seeds import LONG, SEED

NewUrl = Callable[[str], str]
Lake = quacklake.Lake

DATABASES = [
    "sqlite",
    "duckdb",
    "postgres",
    "mysql",
]
STEPS = 16


def _append(dice: random.Random, lake: Lake) -> None:
    start = dice.randrange(1000)
    count = dice.choice((1, 3, 40))
    lake.sql(f"INSERT INTO t BY NAME SELECT i AS id, 'n' || i AS name FROM range({start}, {start + count}) r(i)")


def _delete(dice: random.Random, lake: Lake) -> None:
    low = dice.randrange(1000)
    lake.table("t").delete(f"id BETWEEN {low} AND {low + dice.choice((0, 5, 200))}")


def _update(dice: random.Random, lake: Lake) -> None:
    low = dice.randrange(1000)
    lake.table("t").update({"name": f"u{low}"}, f"id BETWEEN {low} AND {low + dice.choice((3, 60))}")


def _merge(dice: random.Random, lake: Lake) -> None:
    first = dice.randrange(1000)
    rows = [{"id": first + i, "name": f"m{i}"} for i in range(dice.choice((2, 20)))]
    with lake.transaction() as tx:
        tx.table("t").delete(f"id BETWEEN {first} AND {first + len(rows)}")
        tx.sql("INSERT INTO t BY NAME SELECT unnest($ids) AS id, unnest($names) AS name", _columns(rows))


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {"ids": [row["id"] for row in rows], "names": [row["name"] for row in rows]}


def _evolve(dice: random.Random, lake: Lake) -> None:
    columns = lake.table("t").columns
    if "extra" in columns:
        lake.table("t").drop_column("extra")
    else:
        lake.table("t").add_column("extra", "int32", default=dice.randrange(5))


def _layout(dice: random.Random, lake: Lake) -> None:
    table = lake.table("t")
    if table.partitioned_by:
        table.reset_partitioned_by()
    else:
        table.set_partitioned_by("bucket(3, id)")


def _maintain(dice: random.Random, lake: Lake) -> None:
    table = lake.table("t")
    dice.choice((lake.maintenance.flush_inlined_data, table.merge_adjacent_files, table.rewrite_data_files))()


ACTIONS = (_append, _append, _append, _delete, _delete, _update, _merge, _evolve, _layout, _maintain)


def _states(lake: Lake) -> list[Any]:
    """Return the rows of a lake at every snapshot, and the changes that the snapshots record."""
    found: list[Any] = []
    for version in range(1, lake.current_snapshot() + 1):
        rows = lake.at(version).table("t").to_arrow()
        found.append((rows.schema.names, sorted(map(str, rows.to_pylist()))))
    return [*found, lake.snapshots().column("changes").to_pylist()]


def _play(lakes: dict[str, Lake], seed: str) -> None:
    for number in range(STEPS):
        action = random.Random(f"{seed} {number}").choice(ACTIONS)
        for name, lake in lakes.items():
            action(random.Random(f"{seed} {number} {action.__name__}"), lake)
            if name == "turns" and number % 4 == 3:
                lake.migrate("1.0" if lake.version == "1.1" else "1.1")


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("shared", [False, True], ids=["plain", "shared"])
@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("sample", range(3 if LONG else 1))
def test_f14_13_every_version_of_a_history_is_the_same(
    sample: int, database: str, shared: bool, new_url: NewUrl, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    plain_only("both layouts are tested here")
    seed = f"{SEED} {sample} next"
    with ExitStack() as stack:
        lakes: dict[str, Lake] = {}
        for name, version in (("old", "1.0"), ("new", "1.1"), ("turns", "1.0")):
            place: dict[str, Any] = {"catalog": "acme", "create": True} if shared else {}
            url = new_url(database)
            lakes[name] = stack.enter_context(
                quacklake.connect(url, data_path=tmp_path / name, format_version=version, **place)
            )
            lakes[name].sql("CREATE TABLE t (id BIGINT, name VARCHAR)")
            if name == "turns":
                turning = url
        _play(lakes, seed)
        expected = _states(lakes["old"])
        assert [lakes[name].version for name in ("old", "new")] == ["1.0", "1.1"]
        for name in ("new", "turns"):
            assert _states(lakes[name]) == expected
            assert lakes[name].verify(deep=True).findings == ()
        lakes["turns"].migrate("1.0")
        assert _states(lakes["turns"]) == expected
        assert lakes["turns"].verify().findings == ()
    if not shared and database != "mysql":
        stock: Stock = request.getfixturevalue("stock")
        for version in range(1, len(expected)):
            found = stock.run(turning, f"SELECT count(*), sum(id), min(name) FROM t AT (VERSION => {version})")
            rows = expected[version - 1][1]
            assert found[0][0] == len(rows)
        stock.run(turning, "INSERT INTO t (id, name) VALUES (7777, 'stock')")
        assert stock.run(turning, "SELECT name FROM t WHERE id = 7777") == [("stock",)]
