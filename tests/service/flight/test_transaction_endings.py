"""A statement that fails in a transaction over Flight leaves what it leaves in plain DuckDB."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

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
