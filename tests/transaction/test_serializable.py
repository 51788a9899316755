"""Two concurrent transactions have a serial result, or the later one gets a conflict."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import CommitConflict, QuacklakeError
from tests.seeds import LONG, chance
from tests.transaction import model
from tests.transaction.model import Operation, State, State_of

OPERATIONS = {
    "append few": model.append([(200, "a"), (201, "b")]),
    "append many": model.append([(n, "m") for n in range(300, 320)]),
    "append what others look for": model.append([(1000 + n, "w") for n in range(3)]),
    "delete in a file": model.delete("id = 3", lambda id_: id_ == 3),
    "delete another in the file": model.delete("id = 4", lambda id_: id_ == 4),
    "delete in another file": model.delete("id = 23", lambda id_: id_ == 23),
    "delete an inlined row": model.delete("id = 101", lambda id_: id_ == 101),
    "delete many": model.delete("id < 15", lambda id_: id_ < 15),
    "delete what is not there yet": model.delete("id >= 1000", lambda id_: id_ >= 1000),
    "delete all": model.delete_all(),
    "update in a file": model.update("id = 3", lambda id_: id_ == 3),
    "update an inlined row": model.update("id = 102", lambda id_: id_ == 102),
    "update all": model.update("true", lambda id_: True, "?"),
    "merge": model.merge([(3, "merged"), (200, "merged"), (1001, "merged")]),
    "overwrite": model.overwrite([(n, "new") for n in range(30)]),
    "drop": model.drop(),
    "rename": model.rename(),
    "create": model.create("mine"),
}
#: Pairs that must not conflict: neither looks at what the other does.
FREE = {("append few", other) for other in OPERATIONS if other not in ("drop", "rename")} | {
    ("delete in a file", "delete in another file"),
    ("delete in a file", "append few"),
    ("delete an inlined row", "delete in a file"),
    ("update in a file", "append many"),
    ("update in a file", "update an inlined row"),
    ("create", "append few"),
    ("rename", "append few"),
    ("rename", "update all"),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    with quacklake.connect(f"sqlite:///{folder / 'lake.db'}", data_path=folder / "data") as lake:
        model.prepare(lake)
        assert State_of(lake) == model.START
    return folder


def after(state: State, *operations: Operation) -> State | None:
    """Return the state after these operations in turn, or None when one cannot be done."""
    try:
        for operation in operations:
            state = operation.mean(state)
    except LookupError:
        return None
    return state


def files_of(folder: Path) -> set[str]:
    return {path.name for path in (folder / "data").rglob("*.parquet")}


def named_files(folder: Path) -> set[str]:
    """The files that the catalog names."""
    with contextlib.closing(sqlite3.connect(folder / "lake.db")) as connection:
        rows = connection.execute("SELECT path FROM ducklake_data_file UNION SELECT path FROM ducklake_delete_file")
        return {row[0] for row in rows}


@pytest.mark.parametrize("mine", OPERATIONS)
def test_a_transaction_beside_any_other_is_as_if_alone_or_a_conflict(mine: str, template: Path, tmp_path: Path) -> None:
    for number, other in enumerate(OPERATIONS):
        if LONG or mine == other or (mine, other) in FREE or chance(mine, other).random() < 0.12:
            folder = tmp_path / str(number)
            shutil.copytree(template, folder)
            _beside(mine, other, folder)


def _beside(mine: str, other: str, folder: Path) -> None:
    a, b = OPERATIONS[mine], OPERATIONS[other]
    url = f"sqlite:///{folder / 'lake.db'}"
    place = {"data_path": folder / "data", "override_data_path": True, "duckdb_threads": 1}
    with quacklake.connect(url, **place) as lake, quacklake.connect(url, **place) as elsewhere:  # type: ignore[arg-type]
        conflict: QuacklakeError | None = None
        try:
            with lake.transaction() as tx:
                a.run(tx)
                b.run(elsewhere)
        except CommitConflict as error:
            conflict = error
        found = State_of(elsewhere)
        if conflict is not None:
            assert found == after(model.START, b), f"{mine} beside {other}: a conflict, but not without a trace"
            assert (mine, other) not in FREE, f"{mine} beside {other}: {conflict}"
            assert files_of(folder) == named_files(folder), f"{mine} beside {other}: files were left behind"
        else:
            serial = [after(model.START, b, a), after(model.START, a, b)]
            if (mine, other) == ("drop", "rename"):
                serial.append(State(()))  # the same table, whatever its name
            assert found in serial, f"{mine} beside {other}: not as if one came after the other"
        # what is left can go on
        if "t" in dict(found.tables):
            elsewhere.table("t").append(model.rows([(9999, "last")]))


@pytest.mark.parametrize(
    ("mine", "other"), list(itertools.product(["update in a file", "merge", "delete many"], repeat=2))
)
def test_an_operation_alone_is_planned_again_until_it_fits(
    mine: str, other: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a transaction block, nobody sees conflicts: both operations are done in turn."""
    shutil.copytree(template, tmp_path / "lake")
    url = f"sqlite:///{tmp_path / 'lake' / 'lake.db'}"
    place = {"data_path": tmp_path / "lake" / "data", "override_data_path": True}
    with quacklake.connect(url, **place) as lake, quacklake.connect(url, **place) as elsewhere:  # type: ignore[arg-type]
        real, interfered = lake.handle.seal, []

        def seal(*arguments: Any, **options: Any) -> object:
            if not interfered:
                interfered.append(True)
                OPERATIONS[other].run(elsewhere)
            return real(*arguments, **options)

        monkeypatch.setattr(lake.handle, "seal", seal)
        OPERATIONS[mine].run(lake)
        assert State_of(lake) == after(model.START, OPERATIONS[other], OPERATIONS[mine])
