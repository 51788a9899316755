"""Statements that take too long or return too much are stopped, and the session continues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import duckdb
import pytest

import quacklake
from quacklake import Safety
from quacklake.errors import (
    CancelledError,
    MemoryLimitError,
    NotPermittedError,
    ResultTooLargeError,
    StatementTimeoutError,
)

ENDLESS = "SELECT count(*) FROM range(100_000_000) a, range(1_000_000) b WHERE hash(a.range, b.range) = 1"
#: Gives a row now and then.
TRICKLE = "SELECT a.range FROM range(100_000_000) a, range(1_000_000) b WHERE hash(a.range, b.range) % 1_000_000 = 1"


@pytest.fixture
def limited(lake: quacklake.Lake) -> Iterator[Callable[..., quacklake.Session]]:
    opened = []

    def make(**limits: object) -> quacklake.Session:
        session = quacklake.session(safety=Safety(**limits))  # type: ignore[arg-type]
        opened.append(session)
        session.attach(lake, "lake")
        session.use("lake")
        return session

    yield make
    for session in opened:
        session.close()


def test_a_statement_ends_at_its_timeout(limited: Callable[..., quacklake.Session]) -> None:
    session = limited(timeout=0.3)
    for statement in (ENDLESS, f"EXPLAIN ANALYZE {ENDLESS}", f"PREPARE p AS {ENDLESS}; EXECUTE p"):
        with pytest.raises(StatementTimeoutError):
            session.sql(statement)
    assert session.sql("SELECT 1").fetchall() == [(1,)]


def test_reading_rows_counts_towards_the_timeout(limited: Callable[..., quacklake.Session]) -> None:
    session = limited(timeout=0.5)
    with pytest.raises(StatementTimeoutError):
        session.sql(TRICKLE).fetchall()
    assert session.sql("SELECT 1").fetchall() == [(1,)]


def test_a_result_has_at_most_so_many_rows(limited: Callable[..., quacklake.Session]) -> None:
    session = limited(max_rows=1000)
    assert len(session.sql("FROM range(1000)").fetchall()) == 1000
    with pytest.raises(ResultTooLargeError, match="more than 1000 rows"):
        session.sql("FROM range(1001)").fetchall()
    assert session.sql("SELECT count(*) FROM range(100_000)").fetchone() == (100_000,)


def test_a_result_has_at_most_so_many_bytes(limited: Callable[..., quacklake.Session]) -> None:
    session = limited(max_bytes="1MB")
    with pytest.raises(ResultTooLargeError, match="bytes"):
        session.sql("SELECT repeat('x', 1000) FROM range(2000)").fetchall()


def test_what_is_too_large_is_told_to_who_reads_it_and_not_to_the_next_statement(
    limited: Callable[..., quacklake.Session],
) -> None:
    session = limited(max_rows=10_000)
    result = session.sql("FROM range(20_000)")
    assert session.sql("SELECT 1").fetchall() == [(1,)]
    with pytest.raises(ResultTooLargeError):
        result.fetchall()


def test_a_statement_has_at_most_so_much_memory(limited: Callable[..., quacklake.Session]) -> None:
    session = limited(max_memory="30MB", max_spill=0, threads=1)
    with pytest.raises(MemoryLimitError):
        session.sql("SELECT hash(range) FROM range(20_000_000) ORDER BY 1 LIMIT 1 OFFSET 10_000_000").fetchall()
    assert session.sql("SELECT count(*) FROM t").fetchone() == (22,)


def test_a_text_has_at_most_so_many_characters(limited: Callable[..., quacklake.Session]) -> None:
    with pytest.raises(NotPermittedError, match="characters"):
        limited(max_text=20).sql("SELECT 1 -- and then much more")


# -- interrupts: of any session ----------------------------------------------------------------------------------------


def _interrupting(session: quacklake.Session, work: Callable[[], object]) -> None:
    """Run something that never ends, and interrupt it once it runs."""
    done = threading.Event()

    def interrupt() -> None:
        while not done.wait(0.05):
            session.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(CancelledError):
            work()
    finally:
        done.set()
        thread.join()


def test_another_thread_interrupts_a_statement_and_the_session_goes_on(open_session: quacklake.Session) -> None:
    _interrupting(open_session, lambda: open_session.sql(ENDLESS))
    assert open_session.sql("SELECT count(*) FROM t").fetchone() == (22,)
    assert open_session.interrupt() is False


def test_another_thread_interrupts_the_reading_of_rows(open_session: quacklake.Session) -> None:
    result = open_session.sql("SELECT hash(range) FROM range(1_000_000_000_000)")
    _interrupting(open_session, lambda: sum(1 for _ in result.to_batches()))
    assert open_session.sql("SELECT 1").fetchall() == [(1,)]


def test_an_interrupted_change_changes_nothing(lake: quacklake.Lake, open_session: quacklake.Session) -> None:
    before = lake.current_snapshot()
    _interrupting(
        open_session, lambda: open_session.sql(f"INSERT INTO t SELECT count, NULL, NULL FROM ({ENDLESS}) x(count)")
    )
    assert lake.current_snapshot() == before


def test_an_interrupted_statement_ends_its_transaction_as_any_failed_one(open_session: quacklake.Session) -> None:
    open_session.sql("BEGIN")
    _interrupting(open_session, lambda: open_session.sql(ENDLESS))
    with pytest.raises(quacklake.errors.SqlError, match="aborted"):
        open_session.sql("SELECT 1")
    open_session.sql("ROLLBACK")
    assert open_session.sql("SELECT 1").fetchall() == [(1,)]


def test_an_interrupt_reaches_the_engine_of_a_lake_only_for_its_thread(lake: quacklake.Lake) -> None:
    engine = lake._context.engine
    with engine.connection() as connection:
        engine.interrupt(threading.get_ident() + 1)
        timer = threading.Timer(0.2, engine.interrupt, [threading.get_ident()])
        timer.start()
        with pytest.raises(duckdb.InterruptException):
            connection.execute(ENDLESS).fetchall()
        timer.join()


def test_an_interrupt_is_a_cancellation_whatever_the_engine_of_a_lake_does(lake: quacklake.Lake) -> None:
    engine = lake._context.engine
    timer = threading.Timer(0.2, engine.interrupt, [threading.get_ident()])
    with pytest.raises(CancelledError), engine.connection() as connection:
        timer.start()
        connection.execute(ENDLESS).fetchall()
    timer.join()
