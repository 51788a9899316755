"""Every operation that is crashed, run beside others, and run on a bad store; and the lake it runs on.

One entry in ``OPERATIONS`` is all that a new operation needs to join the whole proof::

    (Operation("optimize", lambda lake: lake.table("t").optimize(), keeps, block=False),)

- ``run`` does it, on a :class:`~quacklake.Lake` that :func:`prepare` has filled: ``t`` and ``u`` with files, deletes and
  inlined rows, the schema ``s``, and ``log``, which no operation may touch. With ``block=False`` it is never given an
  open transaction instead: for what opens its own, or cannot be part of one.
- ``mean`` says what it does, as plain Python: it gets what a user can see (``{"main.t": rows, …}``) and returns what is
  seen afterwards. ``keeps`` is for what changes no row: maintenance. It raises ``LookupError`` where the operation must
  be refused, such as when its table is gone.
- ``prepare`` makes more than there is in every lake, such as a snapshot to go back to.
- ``check`` gets the home of the lake after each crash and each run, for what rows do not tell: that a backup is whole or
  none, say. It raises ``AssertionError``.
- ``snapshots=False``: it takes snapshots away, as expiry does, so their number is not checked, and the random kills, which
  count commits by them, do without it.
- ``past=True``: it goes back to a snapshot, and is rightly refused beside one that takes snapshots away.
- ``touches``: the tables it reads or changes, ``*`` for all of the lake; the pairs look closer at operations that meet
  in one.

What joins by that: the exhaustive crashes (``tests/crash/test_crashes.py``), the pairs (``tests/prove/pairs.py``), the bad
stores (``tests/prove/stores.py``), and, when it ``keeps`` and prepares nothing, the random kills
(``tests/prove/kills.py``): there several processes run it at once on a lake with other rows in ``t`` and ``u``, and an
error that says "try again" (``transient``) is no failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

import quacklake
from quacklake import Lake, dbapi
from quacklake.core import faults
from tests.catalog.stock import Rows
from tests.crash.homes import Home, look

__all__ = [
    "MAINTENANCE",
    "OPERATIONS",
    "Operation",
    "discard",
    "keeps",
    "note",
    "operate",
    "prepare",
    "rehearse",
    "rows",
]

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Operation:
    """An operation, and what it means; see the head of this module."""

    name: str
    run: Callable[[Any], object]
    mean: Callable[[Rows], Rows]
    block: bool = True
    prepare: Callable[[Lake], object] | None = None
    check: Callable[[Home], None] | None = None
    snapshots: bool = True
    past: bool = False
    touches: tuple[str, ...] = ("main.t",)

    def __repr__(self) -> str:
        return self.name

    def meets(self, other: Operation) -> bool:
        """True when both touch one table, and so have more in common than the queue of commits."""
        return "*" in self.touches + other.touches or not set(self.touches).isdisjoint(other.touches)


def rows(start: int, stop: int, value: str = "x") -> pa.Table:
    """Rows of the table ``t``."""
    ids = list(range(start, stop))
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"{value}{i}" for i in ids], "x": [i / 4 for i in ids]})


def prepare(lake: Lake) -> None:
    """A lake with every kind of thing an operation may meet: files with and without deletes, inlined rows."""
    t = lake.create_table("t", rows(0, 60))
    t.append(rows(60, 100))
    t.delete("id >= 20 AND id < 40")
    t.append(rows(1000, 1003))
    u = lake.create_table("u", rows(0, 30))
    u.append(rows(500, 502))
    lake.create_schema("s")
    lake.create_table("log", {"n": pa.int64()})
    note(lake, 0)


def note(lake: Lake, n: int) -> None:
    """A small append to a table that no operation touches."""
    lake.table("log").append([{"n": n}])


# -- what they do ------------------------------------------------------------------------------------------------------


def merged() -> pa.Table:
    return pa.concat_tables([rows(55, 75, "merged"), rows(1000, 1001, "merged"), rows(300, 303)])


def alter(lake: Any) -> None:
    lake.table("t").append([{"id": 3000, "v": "evolved", "more": 1.5}], evolve=True)


def transaction(lake: Lake) -> None:
    with lake.transaction(message="all at once", author="somebody") as tx:
        tx.table("t").append(rows(200, 230))
        tx.table("t").delete("id IN (1, 61, 1001, 205)")
        tx.create_schema("fresh")
        tx.create_table("fresh.made", rows(0, 4))
        tx.rename_table("u", "renamed_u")
        tx.table("renamed_u").append(rows(600, 602))


def insert_rows(lake: Lake) -> None:
    with dbapi.connect(lake, autocommit=True) as connection:
        values = [tuple(row.values()) for row in rows(2000, 2030).to_pylist()]
        connection.cursor().executemany("INSERT INTO t VALUES (?, ?, ?)", values)


def partition(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.table("t").set_partitioned_by("bucket(2, id)", "v")
        tx.table("t").append(rows(300, 311))
        tx.table("u").set_partitioned_by("bucket(2, id)")
        tx.table("u").set_sorted_by("id DESC")
        tx.table("u").append(rows(700, 711))


def describe(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_view("s.view", "SELECT id FROM main.t WHERE id < 10")
        tx.create_macro("s.twice", {"n": 1}, "n * 2")
        tx.table("t").set_comment("what it is")
        tx.table("t").set_column_comment("v", "a value")


def discard(lake: Lake) -> None:
    """Leave files that are no longer needed."""
    lake.table("t").rewrite_data_files(delete_threshold=0.1)
    lake.expire_snapshots(keep_last=1)


def lose(lake: Lake) -> None:
    """Drop a table that somebody will miss."""
    lake.create_table("gone", rows(0, 40))
    lake.drop_table("gone")


def single(lake: Lake) -> None:
    """Tables for those who meet in one file: one with a delete file, and two small ones that a merge makes one of."""
    one = lake.create_table("one", rows(0, 100))
    one.delete("id >= 80")
    two = lake.create_table("two", rows(0, 20))
    two.append(rows(20, 40))


def follow(lake: Lake) -> None:
    """A materialized view that lacks changes of its table: rows that came, and rows that went."""
    table = lake.create_table("followed", rows(0, 60))
    lake.create_materialized_view("sums", "SELECT id % 7 AS k, count(*) AS n FROM followed GROUP BY ALL")
    table.delete("id >= 50")
    table.append(rows(100, 120))


def grow(lake: Lake) -> None:
    """New rows, which a merge puts into one file with the rows that others have read."""
    lake.table("two").append(rows(200, 220))
    lake.table("two").merge_adjacent_files()


# -- what that means ---------------------------------------------------------------------------------------------------


def keeps(tables: Rows) -> Rows:
    """Nothing a user can see changes."""
    return tables


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _put(tables: Rows, name: str, found: list[Row]) -> Rows:
    return {**tables, name: sorted(found, key=repr)}


def _new(tables: Rows, name: str, found: list[Row]) -> Rows:
    if name in tables:
        raise LookupError(f"{name} is there")
    return _put(tables, name, found)


def _without(tables: Rows, name: str) -> Rows:
    tables[name]
    return {key: found for key, found in tables.items() if key != name}


def _fitting(tables: Rows, given: pa.Table) -> list[Row]:
    """Rows for the table ``t``; after ``alter`` it has a column that they lack."""
    if len(tables["main.t"][0]) > given.num_columns:
        raise LookupError("a column is missing")
    return _rows(given)


def _appends(given: pa.Table, name: str = "main.t") -> Callable[[Rows], Rows]:
    def mean(tables: Rows) -> Rows:
        new = _fitting(tables, given) if name == "main.t" else _rows(given)
        return _put(tables, name, [*tables[name], *new])

    return mean


def _deletes(gone: Callable[[int], bool], name: str = "main.t") -> Callable[[Rows], Rows]:
    return lambda tables: _put(tables, name, [row for row in tables[name] if not gone(row[0])])


def _updates(tables: Rows) -> Rows:
    def changed(row: Row) -> Row:
        return (row[0], "changed", None if row[2] is None else row[2] + 1, *row[3:]) if row[0] % 35 == 2 else row

    return _put(tables, "main.t", [changed(row) for row in tables["main.t"]])


def _renews(name: str) -> Callable[[Rows], Rows]:
    """The first twenty rows of a table get another value."""
    return lambda tables: _put(tables, name, [(id_, "new" if id_ < 20 else v, x) for id_, v, x in tables[name]])


def _refreshes(tables: Rows) -> Rows:
    counts = Counter(row[0] % 7 for row in tables["main.followed"])
    return _put(tables, "main.sums", list(counts.items()))


def _merges(tables: Rows) -> Rows:
    given = {row[0]: row for row in _rows(merged())}
    kept = [(*given[row[0]], *row[3:]) if row[0] in given else row for row in tables["main.t"]]
    known = {row[0] for row in kept}
    return _put(tables, "main.t", [*kept, *(row for row in _fitting(tables, merged()) if row[0] not in known)])


def _overwrites(tables: Rows) -> Rows:
    return _put(tables, "main.t", _fitting(tables, rows(0, 20, "new")))


def _renames(tables: Rows) -> Rows:
    return _new(_without(tables, "main.t"), "main.renamed", tables["main.t"])


def _alters(tables: Rows) -> Rows:
    old = [row if len(row) == 4 else (*row, None) for row in tables["main.t"]]
    return _put(tables, "main.t", [*old, (3000, "evolved", None, 1.5)])


def _partitions(tables: Rows) -> Rows:
    return _appends(rows(700, 711), "main.u")(_appends(rows(300, 311))(tables))


def _transacts(tables: Rows) -> Rows:
    tables = _appends(rows(200, 230))(tables)
    tables = _deletes(lambda id_: id_ in (1, 61, 1001, 205))(tables)
    tables = _new(tables, "fresh.made", _rows(rows(0, 4)))
    return _new(_without(tables, "main.u"), "main.renamed_u", [*tables["main.u"], *_rows(rows(600, 602))])


def _describes(tables: Rows) -> Rows:
    tables["main.t"]
    return _new(tables, "view s.view", [])


def _optimizes(tables: Rows) -> Rows:
    tables["main.u"]
    return tables


def _restores(tables: Rows) -> Rows:
    tables["main.t"]
    return _put(tables, "main.t", _rows(rows(0, 100)))


def _reverts(tables: Rows) -> Rows:
    name = "main.t" if "main.t" in tables else "main.renamed"
    return _deletes(lambda id_: 60 <= id_ < 100, name)(tables)


def _undrops(tables: Rows) -> Rows:
    return _new(tables, "main.gone", _rows(rows(0, 40)))


# -- all of them -------------------------------------------------------------------------------------------------------

_ALL, _U, _ONE, _TWO = ("*",), ("main.u",), ("main.one",), ("main.two",)

_USUAL = [
    Operation("append_few", lambda lake: lake.table("t").append(rows(2000, 2003)), _appends(rows(2000, 2003))),
    Operation("append_many", lambda lake: lake.table("t").append(rows(2000, 2030)), _appends(rows(2000, 2030))),
    Operation(
        "delete_few", lambda lake: lake.table("t").delete("id IN (2, 70, 1001)"), _deletes(lambda n: n in (2, 70, 1001))
    ),
    Operation("delete_many", lambda lake: lake.table("t").delete("id % 3 = 0"), _deletes(lambda n: n % 3 == 0)),
    Operation(
        "update",
        lambda lake: lake.table("t").update({"v": "changed", "x": quacklake.expr("x + 1")}, "id % 35 = 2"),
        _updates,
    ),
    Operation("merge", lambda lake: lake.table("t").merge(merged(), on="id"), _merges),
    Operation("overwrite", lambda lake: lake.table("t").overwrite(rows(0, 20, "new")), _overwrites),
    Operation(
        "create",
        lambda lake: lake.create_table("s.made", rows(0, 3)),
        lambda tables: _new(tables, "s.made", _rows(rows(0, 3))),
        touches=("s.made",),
    ),
    Operation("rename", lambda lake: lake.rename_table("t", "renamed"), _renames),
    Operation("drop", lambda lake: lake.drop_table("t"), lambda tables: _without(tables, "main.t")),
    Operation("alter", alter, _alters),
    Operation("insert_rows", insert_rows, _appends(rows(2000, 2030)), block=False),
    Operation("partition", partition, _partitions, block=False, touches=("main.t", "main.u")),
    Operation("transaction", transaction, _transacts, block=False, touches=("main.t", "main.u")),
    Operation(
        "refresh",
        lambda lake: lake.refresh("sums"),
        _refreshes,
        block=False,
        prepare=follow,
        touches=("main.followed", "main.sums"),
    ),
    Operation("describe", describe, _describes, block=False),
    Operation("optimize", lambda lake: lake.table("u").optimize(order_by=["id"]), _optimizes, block=False, touches=_U),
    Operation("flush", lambda lake: lake.maintenance.flush_inlined_data(), keeps, block=False, touches=_ALL),
    Operation("merge_files", lambda lake: lake.maintenance.merge_adjacent_files(), keeps, block=False, touches=_ALL),
    Operation(
        "rewrite",
        lambda lake: lake.maintenance.rewrite_data_files(delete_threshold=0.1),
        keeps,
        block=False,
        touches=_ALL,
    ),
    Operation(
        "expire", lambda lake: lake.expire_snapshots(keep_last=2), keeps, block=False, snapshots=False, touches=_ALL
    ),
    Operation("orphans", lambda lake: lake.delete_orphaned_files(), keeps, block=False, touches=_ALL),
    Operation(
        "cleanup",
        lambda lake: lake.cleanup_old_files(cleanup_all=True),
        keeps,
        block=False,
        prepare=discard,
        touches=_ALL,
    ),
    Operation("restore", lambda lake: lake.table("t").restore(to=2), _restores, block=False, past=True),
    Operation("revert", lambda lake: lake.revert(2, on_conflict="theirs"), _reverts, block=False, past=True),
    Operation(
        "undrop",
        lambda lake: lake.undrop("gone"),
        _undrops,
        block=False,
        prepare=lose,
        past=True,
        touches=("main.gone",),
    ),
]

# Of one file each: what was read of it, and what is written in its place, is all there is to get wrong.
_IN_FILES = [
    Operation(
        "file_delete",
        lambda lake: lake.table("one").delete("id >= 60"),
        _deletes(lambda n: n >= 60, "main.one"),
        prepare=single,
        touches=_ONE,
    ),
    Operation(
        "file_few",
        lambda lake: lake.table("one").delete("id = 30"),
        _deletes(lambda n: n == 30, "main.one"),
        prepare=single,
        touches=_ONE,
    ),
    Operation(
        "file_update",
        lambda lake: lake.table("one").update({"v": "new"}, "id < 20"),
        _renews("main.one"),
        prepare=single,
        touches=_ONE,
    ),
    Operation(
        "file_optimize", lambda lake: lake.table("one").optimize(), keeps, block=False, prepare=single, touches=_ONE
    ),
    Operation("files_grow", grow, _appends(rows(200, 220), "main.two"), block=False, prepare=single, touches=_TWO),
    Operation(
        "files_update",
        lambda lake: lake.table("two").update({"v": "new"}, "id < 20"),
        _renews("main.two"),
        prepare=single,
        touches=_TWO,
    ),
    Operation(
        "files_optimize", lambda lake: lake.table("two").optimize(), keeps, block=False, prepare=single, touches=_TWO
    ),
]

OPERATIONS: Mapping[str, Operation] = {operation.name: operation for operation in (*_USUAL, *_IN_FILES)}

MAINTENANCE = [
    operation for operation in _USUAL if operation.mean is keeps and operation.prepare is None and operation.snapshots
]
"""Operations that any lake allows at any time; they change no row, and not the history that counts commits."""


def operate(url: str, operation: str, fault: str | None = None) -> list[str]:
    """Open a lake, then run an operation on it with a fault armed; returns the points it reached."""
    armed = nullcontext() if fault is None else faults.arm(faults.Fault.parse(fault))
    with Home(url, None).connect() as lake:  # type: ignore[arg-type]
        with faults.record() as points, armed:
            OPERATIONS[operation].run(lake)
    return points


def rehearse() -> None:
    """Do some of everything on a lake that is then removed, so that forks need not warm up."""
    with TemporaryDirectory(prefix="quacklake-rehearsal-") as folder:
        home = Home(f"sqlite:///{folder}/lake.db", Path(folder, "data"))
        quacklake.connect(home.url, data_path=home.data).close()
        with home.connect() as lake:
            prepare(lake)
            for name in ("append_many", "delete_few", "update", "merge", "alter", "flush", "rewrite"):
                OPERATIONS[name].run(lake)
            look(lake)
