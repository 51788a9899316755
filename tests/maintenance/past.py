"""A lake with a past of many kinds of changes, and what its snapshots, its catalog and its folder hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

import quacklake
from quacklake.core.catalog import parse_url
from quacklake.core.catalog.tables import SPEC
from tests.layout import folder

__all__ = ["Past", "State", "files_named", "files_on_disk", "make_past", "metadata", "numbers", "state", "states"]

State = dict[str, list[str]]


@dataclass(frozen=True)
class Past:
    """The folder of a lake with a past, and the state of each of its snapshots."""

    folder: Path
    states: dict[int, State]


def numbers(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "g": [i % 3 for i in range(count)]})


def make_past(lake: quacklake.Lake) -> None:
    """Rows in files and in the catalog, deletes of each kind, and objects that come, change and go."""
    t = lake.create_table("t", numbers(0, 60))
    t.append(numbers(100, 3))
    t.delete("id < 20")
    t.delete("id = 30")
    t.delete("id = 101")
    t.delete("id BETWEEN 30 AND 45")
    with lake.transaction() as tx:
        tx.create_table("dropped", numbers(0, 30), partition_by=["g"])
        tx.create_view("v", "SELECT id FROM t")
        tx.create_macro("m", ["a"], "a + 1")
        tx.table("t").set_partitioned_by("g")
        tx.table("t").set_comment("first")
    with lake.transaction() as tx:
        tx.table("dropped").append(numbers(50, 2))
        tx.table("dropped").delete("id = 1")
        tx.table("t").append(numbers(200, 30))
        tx.table("t").set_comment("second")
        tx.drop_view("v")
        tx.drop_macro("m")
    t.set_sorted_by("id")
    with lake.transaction() as tx:
        tx.drop_table("dropped")
        tx.table("t").add_column("extra", pa.int64())
        tx.table("t").reset_sorted_by()
    t.append(pa.table({"id": [900], "g": [1], "extra": [7]}))
    t.drop_column("extra")
    with lake.transaction() as tx:
        tx.table("t").reset_partitioned_by()
        tx.rename_table("t", "renamed")
        tx.create_schema("s")
        tx.create_table("s.other", numbers(0, 2))
    t = lake.table("renamed")
    t.update({"g": 9}, "id > 200")
    t.overwrite(numbers(500, 40))
    lake.drop_schema("s", cascade=True)
    t.append(numbers(600, 2))


def state(view: quacklake.Lake | quacklake.LakeAt) -> State:
    """Every table with its rows, as text."""
    return {name: sorted(map(repr, view.table(name).to_pylist())) for name in view.tables()}


def states(lake: quacklake.Lake) -> dict[int, State]:
    """Return the state of every snapshot."""
    return {id_: state(lake.at(version=id_)) for id_ in lake.snapshots().column("snapshot_id").to_pylist()}


def metadata(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of the stock tables, and of those for inlined rows; not when something was scheduled."""
    with sa.create_engine(parse_url(url).url, poolclass=sa.NullPool).connect() as connection:
        names = [f"ducklake_{name}" for name in SPEC]
        names += [name for name in sa.inspect(connection).get_table_names() if name.startswith("ducklake_inlined_d")]
        duck = connection.dialect.name == "duckdb"
        found = {}
        for name in dict.fromkeys(names):
            columns = "CAST(COLUMNS(*) AS VARCHAR)" if duck else "*"
            rows = [tuple(map(str, row)) for row in connection.exec_driver_sql(f"SELECT {columns} FROM {name}")]
            found[name] = sorted(row[:-1] if name.endswith("scheduled_for_deletion") else row for row in rows)
    return found


def files_on_disk(data: Path) -> set[str]:
    """The files below a data path, as the lake calls them."""
    root = folder(data)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def files_named(lake: quacklake.Lake) -> set[str]:
    """The files that some snapshot reads."""
    found: set[str] = set()
    for id_ in lake.snapshots().column("snapshot_id").to_pylist():
        view = lake.at(version=id_)
        for name in view.tables():
            files = view.table(name).plan().files
            found.update(files.column("path").to_pylist(), files.column("delete_path").to_pylist())
    return found - {None}
