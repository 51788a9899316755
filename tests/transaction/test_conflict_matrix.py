"""The published conflict table, executed: a transaction beside maintenance, of ours and of stock DuckLake, and ALTER.

What the table says must happen: a conflict, or both. In between, where files or rows decide, both must stand as if one
had come after the other. No delete is lost, no row comes back or twice, and stock DuckLake sees the same rows.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.format.conflicts import Check, compare
from quacklake.core.format.snapshots import Change, parse_changes
from quacklake.errors import CommitConflict
from tests.catalog.stock import Stock
from tests.layout import move
from tests.transaction import model
from tests.transaction.model import Operation, State

pytestmark = pytest.mark.daily(0.45)

LONG = os.environ.get("QUACKLAKE_TEST_PROFILE") == "long"
_GONE = model.delete("id BETWEEN 20 AND 32", lambda id_: 20 <= id_ <= 32)
START = _GONE.mean(model.START)
MINE: dict[str, Operation] = {
    "insert few": model.append([(200, "a"), (201, "b")]),
    "insert many": model.append([(n, "m") for n in range(300, 320)]),
    "delete few": model.delete("id = 3", lambda id_: id_ == 3),
    "delete few where rows are deleted": model.delete("id = 35", lambda id_: id_ == 35),
    "delete many": model.delete("id < 15", lambda id_: id_ < 15),
    "delete inlined": model.delete("id = 101", lambda id_: id_ == 101),
    "update few": model.update("id = 4", lambda id_: id_ == 4),
    "update inlined": model.update("id = 102", lambda id_: id_ == 102),
    "update all": model.update("true", lambda id_: True, "?"),
    "merge": model.merge([(3, "merged"), (200, "merged")]),
    "merge that matches nothing": model.merge([(700, "merged")]),
    "drop": model.drop(),
    "create": model.create("mine"),
}
READING = ("delete", "update", "merge")


@dataclass(frozen=True)
class Other:
    """An action of another client that changes no row."""

    run: Callable[[quacklake.Lake, Stock, str], object]


def _stock(statement: str) -> Other:
    return Other(lambda lake, stock, url: stock.run(url, statement))


OTHERS: dict[str, Other] = {
    "flush": _stock("CALL ducklake_flush_inlined_data('l')"),
    "merge adjacent": _stock("CALL ducklake_merge_adjacent_files('l')"),
    "rewrite": _stock("CALL ducklake_rewrite_data_files('l', delete_threshold => 0)"),
    "our flush": Other(lambda lake, stock, url: lake.maintenance.flush_inlined_data()),
    "our merge adjacent": Other(lambda lake, stock, url: lake.maintenance.merge_adjacent_files()),
    "our rewrite": Other(lambda lake, stock, url: lake.maintenance.rewrite_data_files(delete_threshold=0)),
    "alter": Other(lambda lake, stock, url: lake.table("t").add_column("more", pa.int32())),
    "alter by stock": _stock("ALTER TABLE t ADD COLUMN more INTEGER"),
}


@dataclass
class Place:
    url: str
    folder: Path

    def connect(self) -> quacklake.Lake:
        return quacklake.connect(self.url, data_path=self.folder / "data", override_data_path=True, duckdb_threads=1)


def prepare(place: Place) -> None:
    with place.connect() as lake:
        model.prepare(lake)
        _GONE.run(lake)
        assert state_of(lake) == START


def copied(template: Path, folder: Path) -> Place:
    """A copy of a lake in SQLite that knows where it is."""
    shutil.copytree(template, folder)
    with closing(sqlite3.connect(folder / "lake.db")) as connection:
        move(connection, f"{folder}/data/")
        connection.commit()
    return Place(f"sqlite:///{folder / 'lake.db'}", folder)


def state_of(lake: Any) -> State:
    found = []
    for name in sorted(lake.tables()):
        rows = lake.table(name).to_arrow(["id", "v"]).to_pylist()
        found.append((name.removeprefix("main."), tuple(sorted((row["id"], row["v"]) for row in rows))))
    return State(tuple(found))


def newest_changes(lake: quacklake.Lake, since: int | None = None) -> tuple[Change, ...]:
    """The changes of the newest snapshot, or of all after one."""
    texts = lake.snapshots().column("changes").to_pylist()
    chosen = texts[-1:] if since is None else texts[since + 1 :]
    return tuple(change for text in chosen for change in parse_changes(text or ""))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("matrix")
    prepare(Place(f"sqlite:///{folder / 'lake.db'}", folder))
    return folder


def verdict(mine: str, changes: tuple[Change, ...], others: tuple[Change, ...]) -> set[Check]:
    reads = mine.startswith(READING)
    return {compare(one, two, reads=reads, schema_ids={"main": 0}) for one in changes for two in others}


def beside(mine: str, other: str, place: Place, alone: tuple[Change, ...], stock: Stock) -> None:
    operation = MINE[mine]
    with place.connect() as lake, place.connect() as elsewhere:
        conflict = None
        try:
            with lake.transaction() as tx:
                operation.run(tx)
                last = elsewhere.current_snapshot()
                OTHERS[other].run(elsewhere, stock, place.url)
                others = newest_changes(elsewhere, last)
        except CommitConflict as error:
            conflict = error
        checks = verdict(mine, alone, others)
        what = f"{mine} beside {other}: {sorted(check.value for check in checks)}, {conflict}"
        if Check.CONFLICT in checks:
            assert conflict is not None, what
        if checks <= {Check.OK}:
            assert conflict is None, what
        expected = START if conflict is not None else operation.mean(START)
        assert state_of(elsewhere) == expected, what
    seen = {name.removeprefix("main."): tuple(row[:2] for row in rows) for name, rows in stock.rows(place.url).items()}
    assert {name: tuple(sorted(rows)) for name, rows in seen.items()} == dict(expected.tables), what


@pytest.mark.parametrize("mine", MINE)
def test_the_table_holds_beside_maintenance_and_alter(mine: str, template: Path, tmp_path: Path, stock: Stock) -> None:
    with copied(template, tmp_path / "alone").connect() as lake:
        MINE[mine].run(lake)
        alone = newest_changes(lake)
    first = list(MINE).index(mine)
    for number, other in enumerate(OTHERS):
        if not LONG and (first + number) % 3:
            continue
        beside(mine, other, copied(template, tmp_path / other.replace(" ", "_")), alone, stock)


@pytest.mark.daily(0.2)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("mine", ["delete few where rows are deleted", "update inlined", "insert few"])
def test_the_table_holds_on_postgres(
    mine: str, other: str, template: Path, postgres_url: str, tmp_path: Path, stock: Stock
) -> None:
    with copied(template, tmp_path / "alone").connect() as lake:
        MINE[mine].run(lake)
        alone = newest_changes(lake)
    place = Place(postgres_url, tmp_path)
    prepare(place)
    beside(mine, other, place, alone, stock)


@pytest.mark.parametrize("other", OTHERS)
def test_two_upserts_of_one_new_key_leave_one_row(other: str, template: Path, tmp_path: Path, stock: Stock) -> None:
    place = copied(template, tmp_path / "lake")
    with place.connect() as lake, place.connect() as elsewhere:
        with pytest.raises(CommitConflict), lake.transaction() as tx:
            tx.table("t").merge(model.rows([(900, "mine")]), on="id")
            elsewhere.table("t").merge(model.rows([(900, "other")]), on="id")
            OTHERS[other].run(elsewhere, stock, place.url)
        assert elsewhere.table("t").to_pylist(["id", "v"], "id = 900") == [{"id": 900, "v": "other"}]


# -- maintenance is mine -----------------------------------------------------------------------------------------------

MAINTENANCE: dict[str, Callable[[quacklake.Table], object]] = {
    "flush": lambda table: table.flush_inlined_data(),
    "merge adjacent": lambda table: table.merge_adjacent_files(),
    "rewrite": lambda table: table.rewrite_data_files(0),
    "optimize": lambda table: table.optimize(),
}


@contextmanager
def _meanwhile(operation: Operation, elsewhere: quacklake.Lake) -> Iterator[None]:
    """Something happens elsewhere when the first files of a compaction are written and nothing is committed."""
    done: list[str] = []

    def hook(name: str) -> None:
        if name == "compaction.group.after" and not done:
            done.append(name)
            operation.run(elsewhere)

    with faults._hooked(hook):
        yield
    assert done


@pytest.mark.parametrize("mine", MAINTENANCE)
def test_maintenance_keeps_what_others_commit_while_it_writes(
    mine: str, template: Path, tmp_path: Path, stock: Stock
) -> None:
    """Both changes are kept in the end, whatever the table says: maintenance is planned again, or leaves files alone."""
    names = [name for name in MINE if not name.startswith(("drop", "create"))]
    first = list(MAINTENANCE).index(mine)
    for number, other in enumerate(names):
        if not LONG and (first + number) % 4:
            continue
        place = copied(template, tmp_path / other.replace(" ", "_"))
        operation = MINE[other]
        with place.connect() as lake, place.connect() as elsewhere:
            if mine == "merge adjacent":
                lake.table("t").flush_inlined_data()  # so that there are two files without deletes
            with _meanwhile(operation, elsewhere):
                MAINTENANCE[mine](lake.table("t"))
            expected = operation.mean(START)
            assert state_of(lake) == state_of(elsewhere) == expected, f"{mine} beside {other}"
        seen = [tuple(row[:2]) for row in stock.rows(place.url)["main.t"]]
        assert tuple(sorted(seen)) == expected.rows("t"), f"{mine} beside {other}"
