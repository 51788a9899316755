"""Transactions over Flight: a failing statement leaves what it leaves in DuckDB, a lost commit brings a turn."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import seeds
from tests.service.flight.conftest import WRITER, Served
from tests.sql.endings import PLACES, CallPlayer, PlainPlayer, cases, differences

_REFUSED = {"copy", "create as", "replace as", "temporary", "variable", "prepared", "pivot", "call", "summarize"}
"""Statements that a safe session does not run."""
_CASES = [
    case
    for case in cases()
    if case.kind in PLACES.keys() - _REFUSED - {"explain analyze"} and case.way not in ("file", "unknown type", "text")
]


class _FlightPlayer(CallPlayer):
    """A connection of ADBC; the tables are made by the administrator in the process of the server."""

    def __init__(self, served: Served, folder: Path) -> None:
        super().__init__(served.adbc(WRITER, autocommit=False), folder)
        self.served = served

    def commit(self) -> None:
        """Commit, and connect again after a commit that failed: ADBC's driver has no transaction then."""
        try:
            super().commit()
        except Exception:
            self.connection.close()
            self.connection = self.served.adbc(WRITER, autocommit=False)
            raise

    def run(self, sql: str) -> list[Any]:
        if sql.startswith(("CREATE", "DROP", "DEALLOCATE")):
            return self.served.lake.sql(sql).fetchall()
        return super().run(sql)


def test_calls_of_flight_end_a_transaction_as_in_duckdb(served: Served, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with closing(PlainPlayer(tmp_path / "plain")) as plain, closing(_FlightPlayer(served, tmp_path)) as mine:
        for ending in ("COMMIT", "ROLLBACK"):
            for case in seeds.some(_CASES, 15, "failing statements over Flight", ending):
                assert differences(mine, plain, case, ending) is None


def test_a_client_that_has_lost_two_commits_is_not_overtaken_again(served: Served) -> None:
    served.lake.create_table("counters", [{"n": 0}])

    def overtake(pool: ThreadPoolExecutor) -> Future[int]:
        future = pool.submit(served.lake.table("counters").update, {"n": 100})
        wait([future], timeout=0.5)
        return future

    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            with closing(served.adbc(WRITER, autocommit=False)) as connection, connection.cursor() as cursor:
                cursor.execute("UPDATE counters SET n = n + 1")
                overtake(pool).result()
                with pytest.raises(Exception, match="overtaken"):
                    connection.commit()
        with closing(served.adbc(WRITER, autocommit=False)) as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE counters SET n = n + 1")
            waiting = overtake(pool)
            assert not waiting.done()
            connection.commit()
        assert waiting.result() == 1
    assert served.lake.table("counters").to_pylist() == [{"n": 100}]
