"""Undo after any history: the state of the version that was asked for, and every older snapshot as it was."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import quacklake
from quacklake.errors import InputError
from tests.conformance.clients import LONG
from tests.conformance.conftest import HISTORIES

#: A possible next change; the number chooses rows or columns.
STEPS = st.tuples(
    st.sampled_from(
        (
            "few",
            "many",
            "update",
            "delete",
            "delete_all",
            "add",
            "drop",
            "rename",
            "nest",
            "replace",
            "undrop",
            "restore",
        )
    ),
    st.integers(0, 7),
)


def take(lake: quacklake.Lake, step: str, n: int) -> None:
    """Take one step; one that is not possible is left out."""
    table = lake.table("t")
    first = table.columns[0]
    match step:
        case "few" | "many":
            count = 2 if step == "few" else 12
            ids = pa.array(range(100 * n, 100 * n + count), pa.int64())
            table.append(pa.table({first: ids}), evolve=True)
        case "update":
            table.update({first: quacklake.expr(f"{first} + 1")}, f"{first} % 5 = {n % 5}")
        case "delete":
            table.delete(f"{first} % 8 = {n}")
        case "delete_all":
            table.delete()
        case "add":
            table.add_column(f"c{n}", "INTEGER", default=n)
        case "drop":
            table.drop_column(table.columns[-1] if n % 2 else "s.b")
        case "rename":
            table.rename_column(table.columns[-1], f"r{n}")
        case "nest":
            table.add_column("s.b", "VARCHAR")
        case "replace":
            lake.create_table("t", pa.table({"id": pa.array([n], pa.int64())}), replace=True)
        case "undrop":
            lake.drop_table("t")
            lake.undrop("t")
        case "restore":
            known = lake.current_snapshot()
            table.restore(to=1 + n * known // 8)


def look(view: Any) -> dict[str, Any]:
    found = {}
    for name in view.tables():
        table = view.table(name)
        rows = table.to_arrow(["rowid", *table.columns]).to_pylist()
        found[name] = (table.info.schema, sorted(map(repr, rows)))
    return found


@settings(max_examples=60 if LONG else 3, **HISTORIES)
@given(steps=st.lists(STEPS, min_size=3, max_size=10), limit=st.sampled_from((0, 5)), to=st.integers(1, 10))
def test_any_version_of_any_history_can_come_back(steps: list[tuple[str, int]], limit: int, to: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        quacklake.connect(
            f"sqlite:///{folder}/lake.db",
            data_path=Path(folder, "data"),
            data_inlining_row_limit=limit,
            duckdb_threads=1,
        ) as lake,
    ):
        start = pa.table({"id": pa.array(range(12), pa.int64()), "s": [{"a": i, "b": f"b{i}"} for i in range(12)]})
        lake.create_table("t", start)
        for step, n in steps:
            try:
                take(lake, step, n)
            except (InputError, quacklake.errors.NotFoundError):
                continue  # a column that is not there, or a table that was another one then
        last = lake.current_snapshot()
        before = {version: look(lake.at(version=version)) for version in range(1, last + 1)}
        version = 1 + to * last // 11
        lake.rollback(to=version)
        assert look(lake) == before[version]
        lake.rollback(to=last)
        assert look(lake) == before[last]
        assert {number: look(lake.at(version=number)) for number in range(1, last + 1)} == before
