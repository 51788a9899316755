"""Is a history of transactions serialisable? A checker for lists that are appended to, in the manner of Elle.

Transactions append unique values to lists and read whole lists. A list shows the order in which its values came, so the
reads tell which transaction came after which on each list: ``ww`` (appended after), ``wr`` (read what was appended) and
``rw`` (read before it was appended). ``rt`` says that one ended before the other began. In a serialisable history these
never form a circle, and in a strictly serialisable one not with ``rt`` either. Pure: no lake, no clock.

What is found, by name:

=================== ==================================================================================================
G0                  a circle of ww: two transactions each wrote before the other
G1a                 a value was read that was never committed
G1b                 some of what a transaction appended to a list was read, but not all
G1c                 a circle of ww and wr: each saw the other
G-single            a circle with one rw: a transaction saw some of another's changes and missed others (read skew)
lost update         two transactions read the same list and both appended to it, without seeing each other
G2                  a circle with several rw: write skew
G-nonadjacent       a circle with several rw, never two in a row: what even snapshot isolation forbids
real-time           a circle that needs rt: a transaction did not see what was done before it began
lost append         a committed value is in no list at the end
duplicate           a value is twice in a list
torn                a transaction whose end nobody heard is there in part
order               two reads of one list have their values in different orders
internal            a transaction does not see its own appends, or a list changes while it looks
garbage             a value was read that nobody appended
=================== ==================================================================================================

``Level.SNAPSHOT`` is snapshot isolation in real time: it allows a circle only with two rw in a row, which is what write
skew has.
"""

from __future__ import annotations

import enum
import itertools
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Anomaly", "Append", "Level", "Read", "Status", "Transaction", "check"]

Key = Any
Value = Any
Lists = dict[Key, tuple[Value, ...]]


class Status(enum.Enum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Level(enum.Enum):
    STRICT = "strict"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True)
class Append:
    key: Key
    value: Value


@dataclass(frozen=True)
class Read:
    key: Key
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Transaction:
    """The operations of one transaction between ``begin`` and ``end``; an unknown one may still run after its end."""

    id: int
    begin: float
    end: float
    operations: tuple[Append | Read, ...]
    status: Status = Status.OK

    def appends(self, key: Key) -> list[Value]:
        return [one.value for one in self.operations if isinstance(one, Append) and one.key == key]

    @property
    def keys(self) -> set[Key]:
        """The lists it appends to."""
        return {one.key for one in self.operations if isinstance(one, Append)}


@dataclass(frozen=True)
class Anomaly:
    """A violation of isolation, and the transactions that show it."""

    kind: str
    text: str
    transactions: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def check(history: Sequence[Transaction], final: Lists, level: Level = Level.STRICT) -> list[Anomaly]:
    """Everything wrong with a history; ``final`` are the lists after its end."""
    return _Check(history, final, level).run()


class _Check:
    def __init__(self, history: Sequence[Transaction], final: Lists, level: Level) -> None:
        self.level = level
        self.final = final
        self.by_id = {one.id: one for one in history}
        assert len(self.by_id) == len(history), "two transactions have one id"
        self.writer: dict[tuple[Key, Value], Transaction] = {}
        for one in history:
            for key in one.keys:
                for value in one.appends(key):
                    assert (key, value) not in self.writer, f"{value} is appended twice to {key}"
                    self.writer[key, value] = one
        seen = {(key, value) for key, values in final.items() for value in values}
        seen |= {
            (one.key, value)
            for each in history
            if each.status is Status.OK
            for one in each.operations
            if isinstance(one, Read)
            for value in one.values
            if (one.key, value) not in self.writer or self.writer[one.key, value].id != each.id
        }
        self.committed = [
            one
            for one in history
            if one.status is Status.OK
            or (one.status is Status.UNKNOWN and any((key, v) in seen for key in one.keys for v in one.appends(key)))
        ]
        self.found: list[Anomaly] = []
        self.edges: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))

    def run(self) -> list[Anomaly]:
        for key, values in self.final.items():
            self._values(key, values, None)
        for one in self.committed:
            self._reads(one)
            self._whole(one)
        if not self.found:
            self._lost_updates()
            self._relate()
            self._circles()
        return self.found

    def _report(self, kind: str, text: str, *transactions: int) -> None:
        self.found.append(Anomaly(kind, text, transactions))

    # -- each read by itself ------------------------------------------------------------------------------------------

    def _observed(self, one: Transaction) -> Iterator[tuple[Key, tuple[Value, ...]]]:
        """Yield what a transaction read of others: its reads without its own appends."""
        if one.status is not Status.OK:
            return
        for read in one.operations:
            if isinstance(read, Read):
                mine = set(one.appends(read.key))
                yield read.key, tuple(value for value in read.values if value not in mine)

    def _reads(self, one: Transaction) -> None:
        expected: dict[Key, tuple[Value, ...]] = {}
        mine: dict[Key, tuple[Value, ...]] = defaultdict(tuple)
        if one.status is not Status.OK:
            return
        for operation in one.operations:
            key = operation.key
            if isinstance(operation, Append):
                mine[key] += (operation.value,)
                if key in expected:
                    expected[key] += (operation.value,)
                continue
            own = mine[key]
            values = operation.values
            known = expected.get(key)
            if (known is not None and values != known) or (own and values[-len(own) :] != own):
                self._report("internal", f"{one.id} read {values} of {key} after {known or own}", one.id)
            expected[key] = values
        for key, values in self._observed(one):
            self._values(key, values, one)

    def _values(self, key: Key, values: tuple[Value, ...], reader: Transaction | None) -> None:
        who = "at the end" if reader is None else f"{reader.id}"
        also = () if reader is None else (reader.id,)
        if len(set(values)) != len(values):
            self._report("duplicate", f"{who}: {key} is {values}", *also)
        writers: dict[int, list[Value]] = defaultdict(list)
        for value in values:
            writer = self.writer.get((key, value))
            if writer is None:
                self._report("garbage", f"{who}: {value} in {key}", *also)
            elif writer.status is Status.FAILED:
                self._report("G1a", f"{who}: {value} in {key}, which {writer.id} never committed", writer.id, *also)
            else:
                writers[writer.id].append(value)
        for id_, found in writers.items():
            wanted = self.by_id[id_].appends(key)
            if found != wanted and set(found) != set(wanted):
                self._report("G1b", f"{who}: {found} of {wanted} that {id_} appended to {key}", id_, *also)
        last = self.final.get(key, ())
        if values != last[: len(values)] and not any(value not in last for value in values):
            self._report("order", f"{who}: {key} is {values}, at the end {last}", *also)

    def _whole(self, one: Transaction) -> None:
        missing = [(key, v) for key in one.keys for v in one.appends(key) if v not in self.final.get(key, ())]
        if missing:
            kind = "lost append" if one.status is Status.OK else "torn"
            self._report(kind, f"{one.id} appended {missing}", one.id)

    def _lost_updates(self) -> None:
        read: dict[tuple[Key, int], list[int]] = defaultdict(list)
        for one in self.committed:
            for key, length in {(key, len(values)) for key, values in self._observed(one) if key in one.keys}:
                read[key, length].append(one.id)
        for (key, length), ids in read.items():
            if len(ids) > 1:
                self._report("lost update", f"{ids} read {length} values of {key} and appended to it", *ids)

    # -- who came before whom ------------------------------------------------------------------------------------------

    def _relate(self) -> None:
        for key, values in self.final.items():
            for one, two in itertools.pairwise(values):
                self._edge(self.writer[key, one].id, self.writer[key, two].id, "ww")
        for one in self.committed:
            for key, values in self._observed(one):
                if values:
                    self._edge(self.writer[key, values[-1]].id, one.id, "wr")
                if len(values) < len(self.final.get(key, ())):
                    self._edge(one.id, self.writer[key, self.final[key][len(values)]].id, "rw")
        self._real_time()

    def _edge(self, one: int, two: int, kind: str) -> None:
        if one != two:
            self.edges[one][two].add(kind)

    def _real_time(self) -> None:
        """From the transactions that have ended to each one that begins; what follows from other edges is left out."""
        moments = [(one.begin, 1, one) for one in self.committed]
        moments += [(one.end, 0, one) for one in self.committed if one.status is Status.OK]
        moments.sort(key=lambda moment: moment[:2])
        front: set[int] = set()
        before: dict[int, set[int]] = {}
        for _, begins, one in moments:
            if begins:
                before[one.id] = set(front)
                for other in front:
                    self._edge(other, one.id, "rt")
            else:
                front -= before[one.id]
                front.add(one.id)

    # -- circles -------------------------------------------------------------------------------------------------------

    def _circles(self) -> None:
        wrong = {one for part in _components(self._forbidden("ww", "wr", "rt")) for one in part}
        for part in _components(self._only("ww", "wr", "rw", "rt")):
            if part & wrong:
                kind, circle = self._classify(part)
                steps = [
                    f"{one} -{'/'.join(sorted(self.edges[one].get(two, ()))) or 'and then rw'}-> {two}"
                    for one, two in zip(circle, [*circle[1:], circle[0]], strict=True)
                ]
                self._report(kind, ", ".join(steps), *circle)

    def _forbidden(self, *firm: str) -> dict[int, set[int]]:
        """A graph in which every circle is forbidden at this level."""
        if self.level is Level.STRICT:
            return self._only(*firm, "rw")
        anti = self._only("rw")
        return {
            one: others | {third for two in others for third in anti.get(two, ())}
            for one, others in self._only(*firm).items()
        }

    def _only(self, *kinds: str) -> dict[int, set[int]]:
        return {
            one: {two for two, found in others.items() if found.intersection(kinds)}
            for one, others in self.edges.items()
        }

    def _classify(self, part: set[int]) -> tuple[str, list[int]]:
        """Return the gravest anomaly, with a shortest cycle that shows it."""
        several = "G2" if self.level is Level.STRICT else "G-nonadjacent"
        firm = ("ww", "wr")
        circle = (
            self._circle("G0", self._only("ww"), part)
            or self._circle("G1c", self._only(*firm), part)
            or self._with_one_rw("G-single", self._only(*firm), part)
            or self._circle(several, self._forbidden(*firm), part)
            or self._with_one_rw("real-time", self._only(*firm, "rt"), part)
            or self._circle("real-time", self._forbidden(*firm, "rt"), part)
        )
        assert circle is not None
        return circle

    def _circle(self, kind: str, graph: dict[int, set[int]], part: set[int]) -> tuple[str, list[int]] | None:
        found = _shortest(_within(graph, part))
        return None if found is None else (kind, found)

    def _with_one_rw(self, kind: str, graph: dict[int, set[int]], part: set[int]) -> tuple[str, list[int]] | None:
        inside = _within(graph, part)
        for one, others in _within(self._only("rw"), part).items():
            for two in others:
                if (path := _path(inside, two, one)) is not None:
                    return kind, path
        return None


def _within(graph: dict[int, set[int]], part: set[int]) -> dict[int, set[int]]:
    return {one: others & part for one, others in graph.items() if one in part}


def _path(graph: dict[int, set[int]], start: int, goal: int) -> list[int] | None:
    """The shortest way from start to goal, both included."""
    came: dict[int, int] = {start: start}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        if here == goal:
            way = [here]
            while way[-1] != start:
                way.append(came[way[-1]])
            return way[::-1]
        for there in graph.get(here, ()):
            if there not in came:
                came[there] = here
                queue.append(there)
    return None


def _shortest(graph: dict[int, set[int]]) -> list[int] | None:
    """A shortest circle."""
    best: list[int] | None = None
    for one, others in graph.items():
        for two in others:
            way = _path(graph, two, one)
            if way is not None and (best is None or len(way) < len(best)):
                best = way
                if len(best) == 2:
                    return best
    return best


def _components(graph: dict[int, set[int]]) -> list[set[int]]:
    """The parts in which everything reaches everything, itself too (Tarjan, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[set[int]] = []
    for root in list(graph):
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(graph.get(root, ())))]
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(graph.get(other, ()))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part: set[int] = set()
                    while node not in part:
                        part.add(stack.pop())
                    on_stack -= part
                    if len(part) > 1 or node in graph.get(node, ()):
                        found.append(part)
    return found
