"""The bounds of a table's files, read once and remembered: a filter that leaves few files then asks for these alone.

Bounds are texts in the format, which no index orders as values: a database has to look at those of every file. But
they never change, so that a process needs them once, and later those of new files only. What is remembered only ever
rules files out. Those that remain are asked for in the same transaction as ever, which decides what is visible.

To fetch bounds takes a little longer than to let the database compare them: those of a column are fetched when a second
filter speaks of it. Blocks of files have bounds, too, so that a filter looks into few blocks of a large table.

Three things make it safe. A file that was committed later has an id of at least ``next_file_id``: such files are looked
for each time, so that none is missed, whatever compaction did. What was read when ``newest`` was the newest snapshot is
used for that one and later ones only: a transaction that is older may see files that were gone by then. And nothing is
believed for ever: a lake may be repaired in place, or replaced by an older state.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from quacklake import telemetry
from quacklake.core import forks
from quacklake.core.catalog.reading.pruning import NAN, NULLS, Arrays, Facet, facets_of, may_match, summary, typed
from quacklake.core.catalog.statements import Queries, Step
from quacklake.core.format.bounds import Predicate, coarse
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.snapshots import Snapshot

if TYPE_CHECKING:
    from quacklake.core.catalog.reading.reader import Reader

SECONDS = 10.0
"""The age from which on bounds are read anew, unless that would take more than a hundredth of the time."""
MAX_SECONDS = 300.0
"""The age from which on they are read anew in any case."""
LEAST = 500
"""The files that a lake has had from which on bounds are remembered: before, one statement is quicker."""
ASKED_BEFORE = 1
"""The plans of a column that are left to the database before its bounds are remembered."""
ASKED_SECONDS = 60.0
"""The age from which on such a plan counts no more."""
BLOCK = 1_024
"""The files of a table that are ruled out together where their common bounds allow it."""
WINDOW = 1_024
"""The ids of files that are listed together for filters that leave few files of many."""
MAX_WINDOWS = 4
"""The windows that one list of files may have: a filter that leaves more needs the list of all files."""

Window = tuple[int, int]
"""The first and the last of ids that are listed together."""

_LEAST = 4_096
"""The bytes that every table counts for."""
_MAX_ASKED = 1_000
"""The columns of all tables whose plans are counted."""
_PAGE = 100_000
"""The files whose bounds one statement fetches."""
_IDS = {"data_file_id": pa.int64()}
_BOUNDS = {**_IDS, "min_value": pa.string(), "max_value": pa.string()}
_NAN = {**_IDS, "contains_nan": pa.bool_()}
_NULLS = {**_IDS, "value_count": pa.int64(), "null_count": pa.int64()}


@dataclass(frozen=True, slots=True)
class TableBounds:
    """Known facts about the files of a table, those that have ended among them.

    ``ids`` are in order, and all below ``next_file_id``; each facet has as many entries as it was read for, and
    ``blocks`` the same of each block of files that is full. It was read from ``since`` on, which took ``cost`` seconds
    in all. The facets in ``refused`` have no room in the memory, and where ``too_large`` is true nothing has.
    """

    since: float
    cost: float
    newest: Snapshot
    ids: pa.Array
    facets: Arrays
    blocks: Arrays = field(default_factory=dict)
    refused: frozenset[Facet] = frozenset()
    too_large: bool = False

    @property
    def nbytes(self) -> int:
        known = (*self.facets.values(), *self.blocks.values())
        return int(self.ids.nbytes + sum(array.nbytes for arrays in known for array in arrays))

    @property
    def believed(self) -> bool:
        return time.monotonic() - self.since < min(max(SECONDS, 100 * self.cost), MAX_SECONDS)

    def with_facet(self, facet: Facet, arrays: tuple[pa.Array, ...]) -> TableBounds:
        """Return these bounds with a facet of every file, of which some may have been known before."""
        known = self.blocks.get(facet)
        done = 0 if known is None else len(known[0])
        new = tuple(
            summary(array[done * BLOCK :], BLOCK, lowest=at < len(arrays) - 1) for at, array in enumerate(arrays)
        )
        blocks = new if known is None else tuple(map(_concat, known, new))
        return replace(self, facets={**self.facets, facet: arrays}, blocks={**self.blocks, facet: blocks})

    def matching(self, predicate: Predicate) -> pa.Array:
        """Return the ids of the files that may match a predicate, all of whose facets are known."""
        wanted, whole = facets_of(predicate), len(self.ids) // BLOCK
        full = pc.indices_nonzero(may_match(predicate, self.blocks, whole)) if wanted and whole else None
        if full is None or len(full) * 2 > whole:
            return self.ids.filter(may_match(predicate, self.facets, len(self.ids)))
        starts = [block * BLOCK for block in full.to_pylist()]

        def chosen(array: pa.Array) -> pa.Array:
            return pa.concat_arrays([*(array.slice(start, BLOCK) for start in starts), array[whole * BLOCK :]])

        ids = chosen(self.ids)
        return ids.filter(may_match(predicate, {key: tuple(map(chosen, self.facets[key])) for key in wanted}, len(ids)))


@dataclass(frozen=True, slots=True)
class Judgement:
    """The files of a table as bounds see them, which were read at the very snapshot that is planned.

    ``found`` are the ids of the files that may match where these are in few ``windows``; both are None elsewhere.
    """

    known: TableBounds
    predicate: Predicate
    windows: tuple[Window, ...] | None
    found: pa.Array | None

    @property
    def listed(self) -> int:
        """The most files that a list of the windows, or else of the whole table, has."""
        return len(self.known.ids) if self.windows is None else sum(last - first + 1 for first, last in self.windows)

    def chosen(self, ids: pa.Array) -> pa.Array:
        """Return for each file of such a list whether it may match: one that is unknown may."""
        known = self.known
        if self.found is not None:
            later = pc.greater_equal(ids, known.newest.next_file_id)
            return pc.or_(later, pc.is_in(ids, value_set=self.found))
        matches = may_match(self.predicate, known.facets, len(known.ids))
        if ids.equals(known.ids):  # no file has ended
            return matches
        return pc.invert(pc.is_in(ids, value_set=known.ids.filter(pc.invert(matches))))


class BoundsMemory:
    """Bounds of tables, up to a number of bytes. Safe to share between threads."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._known: OrderedDict[tuple[int, str], tuple[int, TableBounds]] = OrderedDict()
        self._asked: OrderedDict[tuple[int, str, Facet], tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()
        forks.watch(self, forks.new_lock)

    @property
    def most_bytes(self) -> int:
        return self._most

    def get(self, table: TableInfo) -> TableBounds | None:
        """Return what is known of a table and still believed."""
        key = (table.id, table.uuid)
        with self._lock:
            _, known = self._known.get(key, (0, None))
            if known is None or not known.believed:
                return None
            self._known.move_to_end(key)
            return known

    def judge(self, snapshot: Snapshot, table: TableInfo, predicate: Predicate) -> Judgement | None:
        """Return what is known of the files of a table, without a look into the catalog.

        None to ask otherwise: only bounds that were read at that very snapshot tell.
        """
        known, coarser = self.get(table), coarse(predicate)
        if known is None or known.newest != snapshot:
            return None
        facets = [known.facets.get(facet) for facet in facets_of(coarser)]
        if any(arrays is None or len(arrays[0]) < len(known.ids) for arrays in facets):
            return None
        most = MAX_WINDOWS * WINDOW
        if len(known.ids) > most and len(found := known.matching(coarser)) <= most:
            numbers = sorted({id_ // WINDOW for id_ in found.to_pylist()})
            if len(numbers) <= MAX_WINDOWS:
                windows = tuple((number * WINDOW, (number + 1) * WINDOW - 1) for number in numbers)
                return Judgement(known, coarser, windows, found)
        return Judgement(known, coarser, None, None)

    def asked_before(self, table: TableInfo, wanted: Iterable[Facet]) -> bool:
        """Note that a plan needs facets; return whether enough plans of the last time have needed all of them."""
        now, enough = time.monotonic(), True
        with self._lock:
            for facet in wanted:
                last, count = self._asked.pop((table.id, table.uuid, facet), (now, 0))
                count = count if now - last < ASKED_SECONDS else 0
                enough = enough and count >= ASKED_BEFORE
                self._asked[table.id, table.uuid, facet] = now, min(count + 1, ASKED_BEFORE)
            while len(self._asked) > _MAX_ASKED:
                self._asked.popitem(last=False)
        return enough

    def put(self, table: TableInfo, known: TableBounds) -> None:
        """Remember what is known of a table, or that it is too large for that."""
        size = known.nbytes
        if size > self._most:
            known = replace(known, ids=known.ids[:0], facets={}, blocks={}, too_large=True)
            size = 0
        with self._lock:
            self._known.pop((table.id, table.uuid), None)
            self._known[table.id, table.uuid] = size + _LEAST, known
            while len(self._known) > 1 and sum(each for each, _ in self._known.values()) > self._most:
                self._known.popitem(last=False)

    def forget(self, table: TableInfo) -> None:
        with self._lock:
            self._known.pop((table.id, table.uuid), None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()
            self._asked.clear()


class KnownBounds(Queries):
    """Rules out files by remembered bounds, inside one read transaction."""

    _sql: Reader

    def __init__(self, sql: Reader, memory: BoundsMemory) -> None:
        super().__init__(sql)
        self._memory = memory

    def candidates(self, snapshot: Snapshot, table: TableInfo, predicate: Predicate) -> tuple[pa.Array, int] | None:
        """Return the ids of the files that may match, in order, and how many files there are; None to ask otherwise.

        Some of them may have ended, or may not be there yet. Two statements when they are first fetched, one later; one
        more for each facet and page of files, and three more after a commit.
        """
        if not self._memory.most_bytes or snapshot.next_file_id < LEAST or self.backend.name == "duckdb":
            return None  # DuckDB itself compares texts in bulk
        known = self._memory.get(table)
        if known is not None and (known.too_large or snapshot.id < known.newest.id):
            return None
        wanted = facets_of(predicate)
        if known is not None and not wanted.isdisjoint(known.refused):
            return None
        missing = wanted if known is None else wanted - known.facets.keys()
        if (known is None or missing) and not self._memory.asked_before(table, missing):
            return None
        if known is not None and snapshot != known.newest:
            known = self._add_new_files(table, known)
        if known is None:
            known = self._load(table)
            if snapshot.id < known.newest.id:
                return None
        known = self._with_facets(table, known, wanted)
        if known.too_large or not wanted.isdisjoint(known.refused):
            return None
        later = self._later_files(table, known)
        telemetry.count("scan.bounds_remembered")
        found = known.matching(predicate)
        return (pa.concat_arrays([found, later]) if len(later) else found), len(known.ids) + len(later)

    def _load(self, table: TableInfo) -> TableBounds:
        """Return the files of a table, as the newest snapshot has them."""
        start = time.monotonic()
        newest = self._sql.snapshots.latest()
        f = self.meta["data_file"]
        statement = self._sql.cached(
            "known_files", lambda: sa.select(f.c.data_file_id).where(f.c.table_id == sa.bindparam("table"))
        )
        ids = self._rows("known_files", statement, {"table": table.id}, _IDS).column(0).combine_chunks()
        ids = ids.filter(pc.less(ids, newest.next_file_id))
        return TableBounds(start, time.monotonic() - start, newest, ids.take(pc.sort_indices(ids)), {})

    def _add_new_files(self, table: TableInfo, known: TableBounds) -> TableBounds | None:
        """Return what is known, with the files that came since; None when the catalog has another past."""
        then = self._sql.snapshots.find(known.newest.id)
        if then != known.newest:
            self._memory.forget(table)
            return None
        newest = self._sql.snapshots.latest()
        if newest.id < known.newest.id:
            return None
        later = self._later_files(table, known)
        ids = pa.concat_arrays([known.ids, later.filter(pc.less(later, newest.next_file_id))])
        known = replace(known, newest=newest, ids=ids)
        self._memory.put(table, known)
        return known

    def _later_files(self, table: TableInfo, known: TableBounds) -> pa.Array:
        """Return the ids of the files that were committed after the newest snapshot that is known."""
        f = self.meta["data_file"]
        statement = self._sql.cached(
            "later_files",
            lambda: (
                sa.select(f.c.data_file_id)
                # not by the index of tables: that would look at every file of this one
                .where(f.c.table_id + 0 == sa.bindparam("table"), f.c.data_file_id >= sa.bindparam("next"))
                .order_by(f.c.data_file_id)
            ),
        )
        given = {"table": table.id, "next": known.newest.next_file_id}
        return pa.array([row[0] for row in self._sql.run("later_files", statement, given)], pa.int64())

    def _with_facets(self, table: TableInfo, known: TableBounds, wanted: frozenset[Facet]) -> TableBounds:
        """Return what is known, with these facets of every file, or with those refused that there is no room for."""
        start, before = time.monotonic(), known
        for facet in sorted(wanted):
            arrays = known.facets.get(facet)
            done = 0 if arrays is None else len(arrays[0])
            if arrays is None or done < len(known.ids):
                others = {key: value for key, value in known.facets.items() if key != facet}
                room = self._memory.most_bytes - _LEAST - replace(known, facets=others).nbytes
                whole = self._pages(table, facet, arrays, known.ids[done:], room)
                if whole is None:
                    blocks = {key: value for key, value in known.blocks.items() if key != facet}
                    known = replace(known, facets=others, blocks=blocks, refused=known.refused | {facet})
                else:
                    known = known.with_facet(facet, whole)
        if known is before:
            return known
        known = replace(known, cost=known.cost + time.monotonic() - start)
        self._memory.put(table, known)
        return known

    def _pages(
        self, table: TableInfo, facet: Facet, known: tuple[pa.Array, ...] | None, ids: pa.Array, room: int
    ) -> tuple[pa.Array, ...] | None:
        """Return what is known of a facet and that of further files, in as many statements as they have pages.

        None when it needs more bytes than there is room for, which is seen as soon as that is so.
        """
        parts = [] if known is None else [known]
        used = sum(array.nbytes for array in known or ())
        for first in range(0, max(len(ids), 1), _PAGE):
            parts.append(self._facet(table, facet, ids[first : first + _PAGE]))
            used += sum(array.nbytes for array in parts[-1])
            if used > room:
                return None
        return tuple(map(pa.concat_arrays, zip(*parts, strict=True)))

    def _facet(self, table: TableInfo, facet: Facet, ids: pa.Array) -> tuple[pa.Array, ...]:
        """Return a facet of some files, which follow each other."""
        column, what = facet
        types = {NAN: _NAN, NULLS: _NULLS}.get(what, _BOUNDS)
        if not len(ids):
            rows = pa.schema(list(types.items())).empty_table()
        else:
            statement = self._sql.cached(("known_facet", *types), lambda: self._select_facet(types))
            given = {"table": table.id, "column": column, "first": ids[0].as_py(), "last": ids[-1].as_py()}
            rows = self._rows("known_facet", statement, given, types)
        known = rows.column("data_file_id").combine_chunks()
        columns = [rows.column(name).combine_chunks() for name in list(types)[1:]]
        if not known.equals(ids):  # most often each file has one row, and they come in order
            if pc.count_distinct(known).as_py() < len(known):
                known = known.slice(0, 0)  # two texts for one bound: neither is sure
            at = pc.index_in(ids, value_set=known)
            columns = [column.take(at) for column in columns]
        if what == NAN:
            return (columns[0],)
        if what == NULLS:
            values, nulls = columns
            # stock DuckLake writes 0 and 0 for types that it does not count
            return (pc.or_kleene(pc.greater(nulls, 0), pc.equal(values, 0)),)
        return tuple(typed(texts, what) for texts in columns)

    def _select_facet(self, types: Mapping[str, pa.DataType]) -> sa.Select[Any]:
        s = self.meta["file_column_stats"]
        return sa.select(*(s.c[name] for name in types)).where(
            s.c.table_id == sa.bindparam("table"),
            s.c.column_id == sa.bindparam("column"),
            s.c.data_file_id.between(sa.bindparam("first"), sa.bindparam("last")),
        )

    def _rows(
        self,
        name: str,
        statement: sa.Select[Any],
        given: Mapping[str, int],
        types: Mapping[str, pa.DataType],
    ) -> pa.Table:
        """Return rows of numbers and texts."""
        with Step(name, statement):
            rows = self.backend.fetch_texts(self._sql.connection, statement, given)
        return pa.table([rows.column(at).cast(type_) for at, type_ in enumerate(types.values())], names=list(types))


def _concat(known: pa.Array, more: pa.Array) -> pa.Array:
    return pa.concat_arrays([known, more])
