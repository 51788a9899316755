"""Group commit: appends that come at once, by HTTP or by Flight, share a snapshot, and each hears of its own rows.

An append is answered when it is committed. One that is refused fails alone: what cannot go with the others is tried by
itself, and its own error is told.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from quacklake import telemetry
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.signatures import Signature
from quacklake.core.operations.handles import LakeHandle
from quacklake.errors import (
    CancelledError,
    InternalError,
    QuacklakeError,
    StreamBatchDoneError,
)
from quacklake.extend import reporting
from quacklake.extend.marks import Mark
from quacklake.extend.names import TableRef
from quacklake.extend.schemas import TableSchema
from quacklake.extend.writes import GroupCommit
from quacklake.service.bodies import PlainRows, joined, plain_rows, rows_of
from quacklake.service.commits import RACES, committed, opened
from quacklake.service.idempotency import ForgetKeys, Key, check_count, known_answers
from quacklake.service.problems import StalledError, TooBusyError
from quacklake.service.settings import ServiceSettings

if TYPE_CHECKING:
    from quacklake.core.transaction import Transaction
    from quacklake.lake import Lake, LakeTransaction

__all__ = ["Append", "GroupCommits", "late"]

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Append:
    """An append that waits for its commit. ``answer`` gets the snapshot and the number of rows, on its own loop.

    Its rows are those of a body in a format, or ``given``. Appends of two authors do not share a snapshot.
    """

    table: str
    body: bytes
    format: str
    key: Key | None
    answer: asyncio.Future[dict[str, Any]] | Future[dict[str, Any]]
    given: pa.Table | None = None
    author: str | None = None
    count: int = 0
    """The number of rows, once they were read."""
    _rows: tuple[TableSchema, pa.Table] | None = None
    _plain: tuple[TableSchema, PlainRows | None] | None = None
    _outcome: dict[str, Any] | BaseException | None = None
    _followers: list[Append] = field(default_factory=list)

    def rows(self, schema: TableSchema, settings: ServiceSettings) -> pa.Table:
        """Return the rows for a table with these columns."""
        if self.given is not None:
            self.count = self.given.num_rows
            return self.given
        if self._rows is None or self._rows[0] != schema:
            self._rows = (schema, rows_of(self.body, self.format, schema, settings))
            self.count = self._rows[1].num_rows
        return self._rows[1]

    def plain(self, schema: TableSchema, settings: ServiceSettings) -> PlainRows | None:
        """Return the rows if they can become columns together with those of others."""
        if self._rows is not None or self.given is not None:
            return None
        if self._plain is None or self._plain[0] != schema:
            self._plain = (schema, plain_rows(self.body, self.format, schema, settings))
        return self._plain[1]

    @property
    def size(self) -> int:
        """The bytes that it holds while it waits."""
        return len(self.body) if self.given is None else int(self.given.nbytes)

    @property
    def counted(self) -> int | None:
        """The number of its rows, where that is known."""
        rows = self.given if self._rows is None else self._rows[1]
        return None if rows is None else int(rows.num_rows)

    def repeat(self, answer: Callable[[int | None], dict[str, Any]]) -> None:
        """Note an answer that was given before, unless it was for another number of rows, where that is known."""
        try:
            self.done(answer(self.counted))
        except QuacklakeError as error:
            self.failed(error)

    @property
    def waits(self) -> bool:
        """True when there is no answer yet, and somebody waits for one."""
        return self._outcome is None and not self.answer.done()

    def done(self, answer: dict[str, Any]) -> None:
        """Note the answer, unless there is one; ``tell`` gives it to whoever waits."""
        if self._outcome is None:
            self._outcome = answer
            for each in self._followers:
                each.repeat(partial(_again, answer))

    def failed(self, error: BaseException) -> None:
        """Note an error as the answer, unless there is one."""
        if self._outcome is None:
            self._outcome = error
            for each in self._followers:
                each.failed(error)

    def follow(self, first: Append) -> None:
        """Get the answer of a request with the same key that came just before. Raise ``AlreadyExistsError``.

        Raise ``TooBusyError`` if it came in another format, since its rows are not counted yet.
        """
        if self.key is not None:
            self.key.check_same(first.key)
            if self.format != first.format and self.counted is None:
                raise TooBusyError("a request with the same idempotency key is under way")
        first._followers.append(self)

    def _tell(self) -> None:
        if self.answer.done():
            return  # nobody waits any more
        if isinstance(self._outcome, dict):
            self.answer.set_result(self._outcome)
        else:
            self.answer.set_exception(self._outcome or InternalError("an append has no answer"))

    @staticmethod
    def tell(group: Iterable[Append]) -> None:
        """Answer all of a group. A loop is woken once for all that wait in it."""
        loops: dict[asyncio.AbstractEventLoop, list[Append]] = {}
        for each in group:
            if isinstance(each.answer, Future):
                each._tell()
            else:
                loops.setdefault(each.answer.get_loop(), []).append(each)
        for loop, mine in loops.items():
            with suppress(RuntimeError):  # the loop has ended, and with it those who waited
                loop.call_soon_threadsafe(_tell_all, mine)


def _tell_all(group: Sequence[Append]) -> None:
    for each in group:
        each._tell()


def _again(answer: dict[str, Any], rows: int | None) -> dict[str, Any]:
    """Return the answer to the first of two requests for the second. Raise ``AlreadyExistsError``."""
    check_count(answer, rows)
    return {**answer, "repeated": True}


class GroupCommits:
    """The threads that commit, one for each lake in use: principals with views of their own have lakes of their own."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._lakes: OrderedDict[int, _Committer] = OrderedDict()
        self._ending: list[_Committer] = []
        self._closed = False

    def submit(self, lake: Lake, append: Append) -> None:
        """Let an append be committed soon. Raise ``TooBusyError`` when too many wait."""
        with self._lock:
            if self._closed:
                raise CancelledError("the service stops", hint="send it again")
            committer = self._lakes.get(id(lake.handle))
            if committer is None:
                self._make_room()
                committer = self._lakes[id(lake.handle)] = _Committer(lake, self._settings)
            self._lakes.move_to_end(id(lake.handle))
            committer.put(append)

    def commit(self, lake: Lake, append: Append) -> dict[str, Any]:
        """Wait in this thread until an append is committed, and return its answer."""
        assert isinstance(append.answer, Future)
        self.submit(lake, append)
        try:
            return append.answer.result(self._settings.append_seconds)
        except TimeoutError:
            raise late() from None

    def _make_room(self) -> None:
        """End the thread that has waited longest, where there are as many as may be."""
        if len(self._lakes) >= self._settings.open_lakes:
            _, oldest = self._lakes.popitem(last=False)
            self._ending = [each for each in self._ending if each.group.works] + [oldest]
            oldest.group.end()

    def close(self) -> None:
        """Commit what waits, and end the threads."""
        with self._lock:
            self._closed = True
            committers, ending = list(self._lakes.values()), self._ending
        for each in committers:
            each.group.end()
        for each in committers + ending:
            each.group.wait()


class _Committer:
    """Commits the appends to one lake in the order in which they come."""

    def __init__(self, lake: Lake, settings: ServiceSettings) -> None:
        self._lake = lake  # keeps the id of its handle from being another's
        self._settings = settings
        forget = ForgetKeys(settings.keep_keys)
        self.group = GroupCommit(
            self._answer,
            _tell,
            most=settings.group_appends,
            most_waiting=settings.max_appends,
            size=attrgetter("size"),
            most_size=settings.max_body,
            delay=settings.group_seconds,  # where two came at once there are often more on their way
            idle=lambda: forget(lake),
        )

    def put(self, append: Append) -> None:
        if not self.group.put(append):
            raise TooBusyError("too many appends wait to be committed")

    def _answer(self, group: Sequence[Append]) -> None:
        """Answer what was done before, and commit the rest together; what does not fit goes alone."""
        for number in range(RACES):
            # the commit itself finds keys that are in the lake: they are looked for only then
            fresh = self._answer_known(group, look=number > 0)
            if not fresh:
                return
            try:
                refused = [each for mine in _by_author(fresh) for each in self._commit(mine)]
                break
            except StreamBatchDoneError:
                continue  # another process was faster with one of the keys
        else:
            refused = fresh
        for each in refused:
            if each.waits:
                self._alone(each)

    def _answer_known(self, group: Sequence[Append], *, look: bool = True) -> list[Append]:
        """Answer those whose keys are in the lake, or the same as another's of the group; return the others."""
        fresh: dict[str | None, Append] = {}
        waiting = [each for each in group if each.waits]
        keys = [each.key for each in waiting if each.key is not None]
        known = known_answers(self._lake, keys) if look else {}
        found: list[Append] = []
        for each in waiting:
            name = None if each.key is None else each.key.name
            try:
                if each.key is not None and name in known:
                    each.done(self._answer_again(each, each.key, known[name]))
                elif name in fresh:
                    if each.format != fresh[name].format:
                        self._read(each)
                    each.follow(fresh[name])
                else:
                    found.append(each)
                    if name is not None:
                        fresh[name] = each
            except QuacklakeError as error:
                each.failed(error)
        return found

    def _answer_again(self, append: Append, key: Key, mark: Mark) -> dict[str, Any]:
        """Return what was answered before. The rows of another format are counted to see that they are the same."""
        if not key.is_other_format(mark):
            return key.answer(mark)
        return key.answer(mark, self._read(append))

    def _read(self, append: Append) -> int:
        """Read the rows of an append, and return how many they are."""
        ref = TableRef.parse(append.table)
        schema = self._lake.handle.view().find_table(ref.schema, ref.name).schema
        return int(append.rows(schema, self._settings).num_rows)

    def _commit(self, group: Sequence[Append]) -> list[Append]:
        """Commit appends as one snapshot; return those that did not fit."""
        refused: list[Append] = []

        def work(tx: Transaction) -> None:
            refused.clear()
            for table, rows, members in self._join_appends(tx, group, refused):
                reporting.reach("service.append.before")
                change = opened(self._lake, tx)
                change.table(table).append(rows)
                _mark(change, members)

        snapshot = committed(self._sign_handle(group[0]), work, blind=True)
        telemetry.count("service.append.groups")
        gone = set(map(id, refused))
        for each in group:
            if id(each) not in gone:
                each.done({"rows": each.count, "snapshot": snapshot, "repeated": False})
        return refused

    def _sign_handle(self, append: Append) -> LakeHandle:
        """Return the handle of the lake; what it commits has the author of an append."""
        handle = self._lake.handle
        return handle if append.author is None else handle.signed(Signature(append.author, None, None))

    def _join_appends(
        self, tx: Transaction, group: Sequence[Append], refused: list[Append]
    ) -> list[tuple[str, pa.Table, list[Append]]]:
        """Return the rows for each table together with the appends that they are of; rows that differ are apart."""
        tables: dict[str, TableInfo] = {}
        alike: dict[tuple[str, tuple[str, ...]], list[tuple[Append, PlainRows]]] = {}
        others: list[Append] = []
        for each in group:
            try:
                if each.table not in tables:
                    ref = TableRef.parse(each.table)
                    tables[each.table] = tx.find_table(ref.schema, ref.name)
            except QuacklakeError:
                refused.append(each)
                continue
            plain = each.plain(tables[each.table].schema, self._settings)
            if plain is None:
                others.append(each)
            else:
                alike.setdefault((each.table, plain.names), []).append((each, plain))
        found = []
        for (table, _), members in alike.items():
            rows = self._together(tables[table], [plain for _, plain in members])
            if rows is None:
                others += [each for each, _ in members]
                continue
            for each, plain in members:
                each.count = len(plain.rows)
            found.append((table, rows, [each for each, _ in members]))
        return found + self._apart(tables, others, refused)

    def _together(self, table: TableInfo, parts: Sequence[PlainRows]) -> pa.Table | None:
        """Return rows with the same names as one table; None when some of them are not for this table."""
        rows = joined(parts, table.schema, self._settings)
        if rows is not None:
            try:
                self._lake.handle.context.match(rows.schema, table)
            except QuacklakeError:
                return None
        return rows

    def _apart(
        self, tables: Mapping[str, TableInfo], appends: Sequence[Append], refused: list[Append]
    ) -> list[tuple[str, pa.Table, list[Append]]]:
        """Return the rows of appends that are read one by one."""
        parts: dict[tuple[str, pa.Schema], list[tuple[Append, pa.Table]]] = {}
        for each in appends:
            try:
                rows = each.rows(tables[each.table].schema, self._settings)
                if (each.table, rows.schema) not in parts:
                    self._lake.handle.context.match(rows.schema, tables[each.table])
            except QuacklakeError:
                refused.append(each)
                continue
            parts.setdefault((each.table, rows.schema), []).append((each, rows))
        return [
            (table, pa.concat_tables([rows for _, rows in members]).combine_chunks(), [each for each, _ in members])
            for (table, _), members in parts.items()
        ]

    def _alone(self, append: Append) -> None:
        def work(tx: Transaction) -> None:
            ref = TableRef.parse(append.table)
            rows = append.rows(tx.find_table(ref.schema, ref.name).schema, self._settings)
            change = opened(self._lake, tx)
            change.table(append.table).append(rows)
            _mark(change, [append])

        try:
            snapshot = committed(self._sign_handle(append), work)
        except StreamBatchDoneError:
            with suppress(QuacklakeError):
                self._answer_known([append])
            append.failed(TooBusyError("the same request is done elsewhere"))
        except QuacklakeError as error:
            append.failed(error)
        else:
            append.done({"rows": append.count, "snapshot": snapshot, "repeated": False})


def _tell(answers: Sequence[tuple[Append, QuacklakeError | None]]) -> None:
    """Answer a group: those that are not committed with their errors."""
    for append, error in answers:
        if error is not None:
            append.failed(error)
        if isinstance(error, InternalError):
            telemetry.count("service.append.failures")
    Append.tell(append for append, _ in answers)


def late() -> StalledError:
    """Return the error for an append whose commit takes too long."""
    return StalledError(
        "the rows were not committed in time, and may be later", hint="send it again with the same Idempotency-Key"
    )


def _by_author(group: Sequence[Append]) -> list[list[Append]]:
    """Return those that still wait, by their authors."""
    found: dict[str | None, list[Append]] = {}
    for each in group:
        found.setdefault(each.author, []).append(each)
    return list(found.values())


def _mark(tx: LakeTransaction, appends: Sequence[Append]) -> None:
    for each in appends:
        if each.key is not None:
            each.key.mark(tx, {"rows": each.count})
