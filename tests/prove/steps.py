"""The steps of a worker of the random kills, each as a call on a lake and as a change of a plain Python model.

A worker has its own rows in two tables that all workers share, and a table that belongs to it alone. Its model therefore
needs to know nothing about the others, although they share files, inlined rows and commits.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import quacklake
from quacklake import Lake
from tests.crash.operations import MAINTENANCE

__all__ = ["STEPS", "Model", "Step", "after", "choose", "read", "setup"]

SHARED = ("t", "u")
_SCHEMA = pa.schema([("worker", pa.int64()), ("key", pa.int64()), ("n", pa.int64())])
_MAX_COUNT = 60

Step = dict[str, Any]
"""``name`` and what the step needs to know; JSON."""


@dataclass(frozen=True)
class Model:
    """The rows of a worker: key -> n in ``t`` and ``u``, and its own table's rows (None: there is no table)."""

    t: dict[int, int]
    u: dict[int, int]
    own: dict[int, list[Any]] | None = None
    wide: int = 0
    """The number of columns that were added to the worker's own table."""
    next_key: int = 0

    def put(self, **changes: Any) -> Model:
        return Model(**{**self.__dict__, **changes})


def setup(lake: Lake) -> None:
    """The shared tables."""
    for name in SHARED:
        lake.create_table(name, _SCHEMA)
    lake.create_table("log", {"n": pa.int64()})


def read(lake: Any, worker: int) -> Model:
    """Return a worker's rows in the lake, without ``next_key``. Raise ``AssertionError`` when a key is there twice."""
    found = {name: lake.table(name).to_arrow(["key", "n"], f"worker = {worker}").to_pylist() for name in SHARED}
    for name, rows in found.items():
        keys = [row["key"] for row in rows]
        assert len(keys) == len(set(keys)), f"worker {worker} has keys twice in {name}: {sorted(keys)}"
    shared = [{row["key"]: row["n"] for row in rows} for rows in found.values()]
    if f"main.own_{worker}" not in lake.tables():
        return Model(*shared)
    table = lake.table(f"own_{worker}").to_arrow()
    rows = [list(row.values()) for row in table.to_pylist()]
    assert len({row[0] for row in rows}) == len(rows), f"worker {worker} has keys twice in its own table: {rows}"
    return Model(*shared, {row[0]: row[1:] for row in rows}, table.num_columns - 2)


def _table(worker: int, rows: dict[int, int]) -> pa.Table:
    columns = [[worker] * len(rows), list(rows), list(rows.values())]
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=_SCHEMA)


def _some(step: Step) -> str:
    return f"worker = {step['worker']} AND key % {step['modulo']} = {step['rest']}"


def _hit(step: Step, key: int) -> bool:
    return bool(key % step["modulo"] == step["rest"])


def _new(step: Step) -> dict[int, int]:
    return dict.fromkeys(range(step["start"], step["start"] + step["count"]), 0)


# -- each as a call (lake, step) and as a change (model, step) ----------------------------------------------------------


def append(lake: Any, step: Step) -> None:
    lake.table(step["table"]).append(_table(step["worker"], _new(step)))


def appended(model: Model, step: Step) -> Model:
    return model.put(**{step["table"]: {**getattr(model, step["table"]), **_new(step)}})


def update(lake: Any, step: Step) -> None:
    lake.table(step["table"]).update({"n": quacklake.expr("n + 1")}, _some(step))


def updated(model: Model, step: Step) -> Model:
    rows = getattr(model, step["table"])
    return model.put(**{step["table"]: {key: n + 1 if _hit(step, key) else n for key, n in rows.items()}})


def delete(lake: Any, step: Step) -> None:
    lake.table(step["table"]).delete(_some(step))


def deleted(model: Model, step: Step) -> Model:
    rows = getattr(model, step["table"])
    return model.put(**{step["table"]: {key: n for key, n in rows.items() if not _hit(step, key)}})


def _merging(step: Step) -> dict[int, int]:
    return {**dict.fromkeys(step["known"], step["value"]), **_new(step)}


def merge(lake: Any, step: Step) -> None:
    lake.table(step["table"]).merge(_table(step["worker"], _merging(step)), on=["worker", "key"])


def merged(model: Model, step: Step) -> Model:
    return model.put(**{step["table"]: {**getattr(model, step["table"]), **_merging(step)}})


def overwrite(lake: Any, step: Step) -> None:
    lake.table(step["table"]).overwrite(_table(step["worker"], _new(step)), f"worker = {step['worker']}")


def overwritten(model: Model, step: Step) -> Model:
    return model.put(**{step["table"]: _new(step)})


def move(lake: Any, step: Step) -> None:
    """Rows go from one table into the other, in one transaction."""
    rows = lake.table("t").to_arrow(["key", "n"], _some(step)).to_pylist()
    lake.table("t").delete(_some(step))
    lake.table("u").delete(_some(step))
    lake.table("u").append(_table(step["worker"], {row["key"]: row["n"] for row in rows}))


def moved(model: Model, step: Step) -> Model:
    going = {key: n for key, n in model.t.items() if _hit(step, key)}
    return model.put(
        t={key: n for key, n in model.t.items() if key not in going},
        u={**{key: n for key, n in model.u.items() if not _hit(step, key)}, **going},
    )


def make(lake: Any, step: Step) -> None:
    lake.create_table(
        f"own_{step['worker']}", pa.table({"key": pa.array(list(_new(step)), pa.int64()), "n": [0.5] * step["count"]})
    )


def made(model: Model, step: Step) -> Model:
    return model.put(own={key: [0.5] for key in _new(step)}, wide=0)


def drop(lake: Any, step: Step) -> None:
    lake.drop_table(f"own_{step['worker']}")


def dropped(model: Model, step: Step) -> Model:
    return model.put(own=None, wide=0)


def evolve(lake: Any, step: Step) -> None:
    rows = [{"key": key, "n": 1.5, f"c{step['column']}": "new"} for key in _new(step)]
    lake.table(f"own_{step['worker']}").append(pa.Table.from_pylist(rows), evolve=True)


def evolved(model: Model, step: Step) -> Model:
    wide = max(model.wide, step["column"] + 1)
    old = {key: [*row, *[None] * (wide - model.wide)] for key, row in (model.own or {}).items()}
    row = [1.5, *("new" if column == step["column"] else None for column in range(wide))]
    return model.put(own={**old, **dict.fromkeys(_new(step), row)}, wide=wide)


def maintain(lake: Any, step: Step) -> None:
    {operation.name: operation for operation in MAINTENANCE}[step["operation"]].run(lake)


@dataclass(frozen=True)
class Kind:
    """One kind of step: how often, how it is done, what it means; ``block`` when it is done in a transaction."""

    often: int
    run: Callable[[Any, Step], None]
    mean: Callable[[Model, Step], Model]
    block: bool = False


STEPS: dict[str, Kind] = {
    "append": Kind(6, append, appended),
    "update": Kind(4, update, updated),
    "delete": Kind(3, delete, deleted),
    "merge": Kind(4, merge, merged),
    "overwrite": Kind(1, overwrite, overwritten),
    "move": Kind(2, move, moved, block=True),
    "make": Kind(3, make, made),
    "drop": Kind(1, drop, dropped),
    "evolve": Kind(3, evolve, evolved),
    "maintain": Kind(3, maintain, lambda model, step: model),
}


def choose(chance: random.Random, worker: int, model: Model) -> Step:
    """The next step of a worker: one that its model allows and that commits something, except maintenance."""
    table = chance.choice(SHARED)
    rows: dict[int, int] = getattr(model, table)
    possible = {
        "append": len(rows) < _MAX_COUNT,
        "merge": 0 < len(rows) < _MAX_COUNT,
        "move": bool(model.t),
        "update": bool(rows),
        "delete": bool(rows),
        "make": model.own is None,
        "drop": model.own is not None,
        "evolve": model.own is not None and len(model.own) < _MAX_COUNT,
        "maintain": bool(MAINTENANCE),
    }
    names = [name for name in STEPS if possible.get(name, True)]
    [name] = chance.choices(names, [STEPS[name].often for name in names])
    some = chance.choice(list((model.t if name == "move" else rows) or [0]))
    modulo = chance.choice((1, 2, 7, 1000))
    return {
        "name": name,
        "worker": worker,
        "table": table,
        "start": model.next_key,
        "count": chance.choice((1, 3, 14)),
        "modulo": modulo,
        "rest": some % modulo,
        "known": chance.sample(sorted(rows), min(len(rows), chance.choice((1, 2, 12)))),
        "value": chance.randrange(1000, 2000),
        "column": chance.randrange(min(6, model.wide + 1)),
        "operation": chance.choice(MAINTENANCE).name if MAINTENANCE else None,
    }


def after(model: Model, step: Step) -> Model:
    """The model after a step, whose keys are never used again."""
    return STEPS[step["name"]].mean(model, step).put(next_key=step["start"] + step["count"])
