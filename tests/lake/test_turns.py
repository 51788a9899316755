"""An operation that loses race after race gets a turn, and so does a caller whose transaction has lost one."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import dbapi
from quacklake.core.catalog.turns import early_turn
from quacklake.core.operations import dml
from quacklake.core.transaction import Retry
from quacklake.errors import CatalogUnavailableError, CommitConflict, SqlError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as found:
        found.options.set("data_inlining_row_limit", 0)
        found.create_table("t", pa.table({"id": range(100)}))
        yield found


@pytest.fixture
def overtaken(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every delete is overtaken by one that another client makes in the same file, when that can commit."""
    other = quacklake.connect(lake.url, busy_timeout_ms=50, ducklake_max_retry_count=0)
    told: list[str] = []
    real = dml.delete

    def delete(shared: object, *rest: object) -> object:
        found = real(shared, *rest)  # type: ignore[arg-type]
        if shared is not other._context:
            try:
                other.table("t").delete(f"id = {50 + len(told)}")
                told.append("overtaken")
            except CatalogUnavailableError:
                told.append("waited")
        return found

    monkeypatch.setattr(dml, "delete", delete)
    yield told
    other.close()


def test_an_operation_that_has_lost_three_races_keeps_others_from_committing(
    lake: quacklake.Lake, overtaken: list[str]
) -> None:
    assert lake.table("t").delete("id = 1") == 1
    assert overtaken == ["overtaken"] * 3 + ["waited"]
    assert lake.table("t").count() == 100 - 4
    assert lake.verify(deep=True).findings == ()
    assert lake.table("t").append([{"id": 200}]) > 0, "the queue is free again"


def test_without_turns_it_loses_for_ever(lake: quacklake.Lake, overtaken: list[str]) -> None:
    with quacklake.connect(lake.url, turn_ms=0, ducklake_max_retry_count=4, ducklake_retry_wait_ms=1) as stubborn:
        with pytest.raises(CommitConflict):
            stubborn.table("t").delete("id = 1")
    assert overtaken == ["overtaken"] * 5


def test_a_failure_in_a_turn_lets_the_next_one_in(lake: quacklake.Lake) -> None:
    attempts: list[int] = []

    def work(tx: object) -> None:
        attempts.append(len(attempts))
        if len(attempts) <= 3:
            raise CommitConflict("lost")
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="mistake"):
        lake.handle.run(work)
    assert len(attempts) == 4
    assert lake.table("t").delete("id = 2") == 1


def test_a_long_operation_gets_no_turn() -> None:
    retry = Retry(turn_ms=1_000)
    assert [retry.gives_turn(attempt, 0.5) for attempt in range(5)] == [False, False, False, True, True]
    assert not retry.gives_turn(9, 1.5)
    assert not Retry(turn_ms=0).gives_turn(9, 0.0)


def test_the_only_connection_is_not_held(tmp_path: Path) -> None:
    options = {"pool_size": 1, "pool_max_overflow": 0}
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", **options) as found:
        found.create_table("t", pa.table({"id": [1]}))
        assert early_turn(found.handle.context.catalog) is None


# -- transactions of the caller's own code ---------------------------------------------------------------------------


NewUrl = Callable[[str], str]
DATABASES = ["sqlite", "duckdb", "postgres"]


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    """Another thread: one that waits for itself would give its turn back."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


class Accounts:
    """A lake that a transaction and other clients change, who come in between."""

    def __init__(self, url: str, data: Path, others: ThreadPoolExecutor, **settings: int) -> None:
        self.lake = quacklake.connect(url, data_path=data, busy_timeout_ms=120_000, **settings)
        self.other = quacklake.connect(url, busy_timeout_ms=120_000)
        self._others = others
        if "t" not in self.lake:
            self.lake.create_table("t", pa.table({"id": range(10), "n": [0] * 10}))

    def others_add(self) -> Future[int]:
        """Let another client change every row; return when that is done, or has to wait."""
        future = self._others.submit(self.other.table("t").update, {"n": quacklake.expr("n + 100")}, "n >= 0")
        wait([future], timeout=0.5)
        return future

    def numbers(self) -> set[int]:
        return {row["n"] for row in self.lake.table("t").to_pylist(["n"])}

    def close(self) -> None:
        self.lake.close()
        self.other.close()


@pytest.fixture
def accounts(
    request: pytest.FixtureRequest, new_url: NewUrl, tmp_path: Path, others: ThreadPoolExecutor
) -> Iterator[Accounts]:
    opened = Accounts(new_url(getattr(request, "param", "sqlite")), tmp_path / "data", others, turn_ms=60_000)
    yield opened
    opened.close()


@contextmanager
def in_block(accounts: Accounts) -> Iterator[None]:
    with accounts.lake.transaction() as tx:
        tx.table("t").update({"n": quacklake.expr("n + 1")}, "n >= 0")
        yield


@contextmanager
def in_sql(accounts: Accounts) -> Iterator[None]:
    accounts.lake.sql("BEGIN; SELECT count(*) FROM t; UPDATE t SET n = n + 1 WHERE n >= 0")
    yield
    accounts.lake.sql("COMMIT")


@contextmanager
def in_new_connection(accounts: Accounts) -> Iterator[None]:
    with closing(dbapi.connect(accounts.lake.url, turn_ms=60_000)) as connection:  # as from a pool
        connection.execute("UPDATE t SET n = n + 1 WHERE n >= 0")
        yield
        connection.commit()


TRANSACTIONS = {"block": in_block, "sql": in_sql, "dbapi": in_new_connection}


def lose(accounts: Accounts, transaction: Callable[[Accounts], AbstractContextManager[None]] = in_block) -> None:
    """Let two transactions lose their commits."""
    for _ in range(2):
        with pytest.raises((CommitConflict, dbapi.OperationalError)), transaction(accounts):
            accounts.others_add().result(60)


@pytest.mark.parametrize("accounts", DATABASES, indirect=True)
@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_a_transaction_is_not_overtaken_three_times(accounts: Accounts, kind: str) -> None:
    lose(accounts, TRANSACTIONS[kind])
    with TRANSACTIONS[kind](accounts):
        waiting = accounts.others_add()
        assert not waiting.done()
    waiting.result()
    assert accounts.numbers() == {301}
    assert accounts.lake.verify(deep=True).findings == ()


def test_a_turn_is_for_the_next_transaction_of_the_caller_that_has_lost(accounts: Accounts) -> None:
    lose(accounts)
    with ThreadPoolExecutor(1) as third:
        third.submit(lose, accounts).result()
    with in_block(accounts):
        waiting = accounts.others_add()
        assert not waiting.done()
    waiting.result()
    lose(accounts)


@pytest.mark.parametrize("accounts", DATABASES, indirect=True)
def test_a_turn_ends_when_its_thread_waits_for_another(accounts: Accounts) -> None:
    lose(accounts)
    with pytest.raises(CommitConflict), in_block(accounts):
        accounts.other.table("t").update({"n": 7}, "n >= 0")
    assert accounts.numbers() == {7}


@pytest.mark.parametrize("database", DATABASES)
def test_a_turn_ends_with_its_time_and_the_transaction_goes_on(
    database: str, new_url: NewUrl, tmp_path: Path, others: ThreadPoolExecutor
) -> None:
    accounts = Accounts(new_url(database), tmp_path / "data", others, turn_ms=3_000)
    lose(accounts)
    with accounts.lake.transaction() as tx:
        tx.table("t").append([{"id": 10, "n": 0}])
        assert others.submit(accounts.other.table("t").update, {"n": 7}, "n >= 0").result() == 10
    assert accounts.numbers() == {0, 7}
    accounts.close()


def test_without_turns_a_transaction_is_overtaken_again(
    new_url: NewUrl, tmp_path: Path, others: ThreadPoolExecutor
) -> None:
    accounts = Accounts(new_url("sqlite"), tmp_path / "data", others, turn_ms=0)
    lose(accounts)
    lose(accounts)
    assert accounts.numbers() == {400}
    accounts.close()


@pytest.mark.parametrize("ending", [KeyboardInterrupt, ValueError])
def test_a_transaction_that_does_not_commit_gives_its_turn_back(
    accounts: Accounts, ending: type[BaseException]
) -> None:
    lose(accounts)
    with pytest.raises(ending), in_block(accounts):
        raise ending
    assert accounts.others_add().result() == 10


@pytest.mark.parametrize("ending", ["ROLLBACK", "COMMIT", "SELECT error('enough')"])
def test_statements_that_end_a_transaction_give_its_turn_back(accounts: Accounts, ending: str) -> None:
    lose(accounts)
    accounts.lake.sql("BEGIN; SELECT count(*) FROM t")
    waiting = accounts.others_add()
    assert not waiting.done()
    with suppress(SqlError):
        accounts.lake.sql(ending)
    assert waiting.result() == 10


def test_two_sessions_of_two_lakes_do_not_wait_for_each_other(
    new_url: NewUrl, tmp_path: Path, others: ThreadPoolExecutor
) -> None:
    """Each has a turn in one lake and writes to the other."""
    lakes = [Accounts(new_url("sqlite"), tmp_path / name, others, turn_ms=60_000) for name in ("a", "b")]
    both = threading.Barrier(2, timeout=60)

    def cross(own: int) -> int:
        lose_here, write_there = lakes[own], lakes[1 - own]
        lose(lose_here)
        both.wait()
        with lose_here.lake.transaction() as tx:
            tx.table("t").count()
            both.wait()
            return write_there.lake.table("t").append([{"id": 100 + own, "n": 0}])

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(cross, range(2))) == [1, 1]
    for each in lakes:
        assert each.lake.table("t").count() == 11
        each.close()


_HOLDER = """
import sys, threading, quacklake
from quacklake.errors import CommitConflict
lake = quacklake.connect(sys.argv[1], turn_ms=int(sys.argv[2]))
def overtake():
    with quacklake.connect(sys.argv[1]) as other:
        other.table("t").update({"n": 1}, "n >= 0")
for _ in range(2):
    try:
        with lake.transaction() as tx:
            tx.table("t").update({"n": 2}, "n >= 0")
            thread = threading.Thread(target=overtake)
            thread.start()
            thread.join()
    except CommitConflict:
        pass
with lake.transaction() as tx:
    tx.table("t").update({"n": 3}, "n >= 0")
    print("in a turn", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding_turn(accounts: Accounts, turn_ms: int) -> Iterator[subprocess.Popen[str]]:
    """A process with an open transaction in a turn."""
    command = [sys.executable, "-c", _HOLDER, accounts.lake.url, str(turn_ms)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "in a turn\n"
            yield holder
        finally:
            holder.kill()


@pytest.mark.parametrize("accounts", ["sqlite", "postgres"], indirect=True)
def test_a_process_that_dies_in_its_turn_stops_nobody(accounts: Accounts) -> None:
    with holding_turn(accounts, 600_000) as holder:
        waiting = accounts.others_add()
        assert not waiting.done()
        holder.kill()
        assert waiting.result() == 10
    assert accounts.numbers() == {101}
    assert accounts.lake.verify(deep=True).findings == ()


@pytest.mark.parametrize("accounts", ["postgres"], indirect=True)
def test_a_process_that_is_stopped_in_its_turn_holds_up_others_for_a_limited_time(accounts: Accounts) -> None:
    with holding_turn(accounts, 4_000) as holder:
        holder.send_signal(signal.SIGSTOP)
        assert accounts.others_add().result() == 10


@pytest.mark.parametrize("database", DATABASES)
def test_transactions_beside_busy_writers_commit_at_the_third_attempt(
    database: str, new_url: NewUrl, tmp_path: Path
) -> None:
    url, settings = new_url(database), {"turn_ms": 120_000, "busy_timeout_ms": 120_000, "duckdb_threads": 1}
    lake = quacklake.connect(url, data_path=tmp_path / "data", **settings)
    lake.create_table("t", pa.table({"id": range(4), "n": [0] * 4}))
    done = threading.Event()

    def append(writer: int) -> int:
        added = 0
        while not done.is_set():
            added += lake.table("t").append([{"id": 100 + writer, "n": 1_000_000}])
        return added

    def change(_: int) -> int:
        changed = 0
        while not done.is_set():
            changed += lake.table("t").update({"n": quacklake.expr("n + 1")}, "id < 4")
        return changed

    def transact(_: int) -> list[int]:
        with closing(dbapi.connect(url, **settings)) as connection:
            return [attempts(connection) for _ in range(3)]

    def attempts(connection: dbapi.Connection) -> int:
        for attempt in range(1, 11):
            try:
                connection.execute("UPDATE t SET n = n + 1000 WHERE n >= 0 AND id < 200")
                connection.commit()
                return attempt
            except dbapi.OperationalError:
                connection.rollback()
        raise AssertionError("the transaction lost every time")

    with ThreadPoolExecutor(5) as pool:
        writers = pool.submit(append, 1), pool.submit(append, 2)
        changers = [pool.submit(change, 0)]
        try:
            needed = list(pool.map(transact, range(2)))
        finally:
            done.set()
        added, changed = (sum(future.result() for future in futures) for futures in (writers, changers))
    assert max(itertools.chain(*needed)) <= 3
    rows = lake.table("t").to_pylist()
    assert len(rows) == 4 + added
    assert sum(row["n"] for row in rows if row["id"] < 4) == changed + 4 * 6 * 1000
    assert lake.verify(deep=True).findings == ()
    lake.close()
