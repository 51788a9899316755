"""Operations on a lake, and what they mean as plain Python: the judge of transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

import quacklake

__all__ = ["START", "Operation", "State", "State_of", "prepare", "rows"]

Row = tuple[int, str]


@dataclass(frozen=True)
class State:
    """The tables of the model: name -> rows, sorted. None for a table that is not there."""

    tables: tuple[tuple[str, tuple[Row, ...]], ...]

    def rows(self, name: str) -> tuple[Row, ...]:
        found = dict(self.tables).get(name)
        if found is None:
            raise LookupError(name)
        return found

    def put(self, name: str, rows: list[Row]) -> State:
        return State(tuple(sorted({**dict(self.tables), name: tuple(sorted(rows))}.items())))

    def drop(self, name: str) -> State:
        self.rows(name)
        return State(tuple(entry for entry in self.tables if entry[0] != name))


@dataclass(frozen=True)
class Operation:
    """A change, for a lake or an open transaction (``run``) and for the model (``mean``)."""

    name: str
    run: Callable[[Any], object]
    mean: Callable[[State], State]

    def __repr__(self) -> str:
        return self.name


def rows(pairs: list[Row]) -> pa.Table:
    return pa.table(
        {"id": pa.array([id_ for id_, _ in pairs], pa.int64()), "v": pa.array([v for _, v in pairs], pa.string())}
    )


def _pairs(start: int, stop: int, text: str = "x") -> list[Row]:
    return [(n, f"{text}{n}") for n in range(start, stop)]


_FIRST, _SECOND, _INLINED = _pairs(0, 20), _pairs(20, 40), _pairs(100, 103)
START = State((("t", tuple(sorted([*_FIRST, *_SECOND, *_INLINED]))),))


def prepare(lake: Any) -> None:
    """The table of ``START``: two files and a few inlined rows."""
    t = lake.create_table("t", rows(_FIRST))
    t.append(rows(_SECOND))
    t.append(rows(_INLINED))


def State_of(lake: Any) -> State:
    """The state of a lake, a past snapshot or an open transaction."""
    found = []
    for name in sorted(lake.tables()):
        table = lake.table(name).to_arrow()
        pairs = zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True)
        found.append((name.removeprefix("main."), tuple(sorted(pairs))))
    return State(tuple(found))


# -- operations on the table t ------------------------------------------------------------------------------------------


def append(pairs: list[Row]) -> Operation:
    return Operation(
        f"append {pairs[0]}*{len(pairs)}",
        lambda lake: lake.table("t").append(rows(pairs)),
        lambda state: state.put("t", [*state.rows("t"), *pairs]),
    )


def delete(where: str, gone: Callable[[int], bool]) -> Operation:
    return Operation(
        f"delete {where}",
        lambda lake: lake.table("t").delete(where),
        lambda state: state.put("t", [row for row in state.rows("t") if not gone(row[0])]),
    )


def delete_all() -> Operation:
    return Operation(
        "delete all", lambda lake: lake.table("t").delete(), lambda state: (state.rows("t"), state.put("t", []))[1]
    )


def update(where: str, hit: Callable[[int], bool], text: str = "!") -> Operation:
    """Add something to the text of the rows that are hit, so that two updates of a row show."""
    return Operation(
        f"update {where} {text}",
        lambda lake: lake.table("t").update({"v": quacklake.expr(f"v || '{text}'")}, where),
        lambda state: state.put("t", [(id_, v + text if hit(id_) else v) for id_, v in state.rows("t")]),
    )


def merge(pairs: list[Row]) -> Operation:
    def mean(state: State) -> State:
        given = dict(pairs)
        kept = [(id_, given.get(id_, v)) for id_, v in state.rows("t")]
        known = {id_ for id_, _ in kept}
        return state.put("t", [*kept, *((id_, v) for id_, v in pairs if id_ not in known)])

    return Operation(f"merge {pairs[0]}*{len(pairs)}", lambda lake: lake.table("t").merge(rows(pairs), on="id"), mean)


def overwrite(pairs: list[Row]) -> Operation:
    return Operation(
        f"overwrite {pairs[0]}*{len(pairs)}",
        lambda lake: lake.table("t").overwrite(rows(pairs)),
        lambda state: (state.rows("t"), state.put("t", list(pairs)))[1],
    )


def drop() -> Operation:
    return Operation("drop", lambda lake: lake.drop_table("t"), lambda state: state.drop("t"))


def rename() -> Operation:
    def mean(state: State) -> State:
        found = list(state.rows("t"))
        if "renamed" in dict(state.tables):
            raise LookupError("taken")
        return state.drop("t").put("renamed", found)

    return Operation("rename", lambda lake: lake.rename_table("t", "renamed"), mean)


def create(text: str) -> Operation:
    def mean(state: State) -> State:
        if "made" in dict(state.tables):
            raise LookupError("taken")
        return state.put("made", _pairs(0, 2, text))

    return Operation(f"create {text}", lambda lake: lake.create_table("made", rows(_pairs(0, 2, text))), mean)


def named(operation: Operation, name: str) -> Operation:
    return replace(operation, name=name)
