"""Arrow Flight: the rows of a table to another process, beside a bare Flight server that has the same table in memory.

Both servers run in processes of their own, the client in this one. The bare server, twenty lines of ``pyarrow.flight``,
is the most that Flight can do on this machine; ours reads Parquet files, checks a token and limits, and signs tickets.
A table is read through one endpoint and through all of them in parallel, and as a query. Figures are the best of the
rounds, in megabytes of Arrow data a second.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pyarrow as pa
from pyarrow import flight

import quacklake
from benchmarks.common import Bench, Measure, Result, Target, alternate

__all__ = ["TITLE", "bare_server", "own_server", "query_all", "read_all", "run"]

TITLE = "Arrow Flight to another process, beside a bare server with the table in memory"

_PEER = "bare pyarrow.flight"
_TOKEN = "benchmark"
_CALL = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {_TOKEN}".encode())])
_COLUMNS = "range AS id, (hash(range) % 1000000)::BIGINT AS value, random() AS share, range * 7 AS other"


def run(bench: Bench, result: Result) -> None:
    """Fill a table, start both servers, read it in turn."""
    rows, rounds = bench.pick((100_000, 1), (10_000_000, 5), (40_000_000, 5))
    with bench.directory() as directory:
        url = f"sqlite:///{directory}/lake.db"
        with quacklake.connect(url, data_path=directory / "data") as lake:
            lake.sql(f"CREATE TABLE t AS SELECT {_COLUMNS} FROM range(0)")
            for part in range(4):
                share = rows // 4
                lake.sql(f"INSERT INTO t SELECT {_COLUMNS} FROM range({part * share}, {(part + 1) * share})")
            size = lake.table("t").to_arrow().nbytes
        with _server("ours", url) as ours, _server("bare", url) as bare:
            works: dict[str, Callable[[], int]] = {
                "bare": lambda: _read(bare, flight.FlightDescriptor.for_path("t"), parallel=False),
                "one": lambda: _read(ours, flight.FlightDescriptor.for_path("t"), parallel=False),
                "all": lambda: _read(ours, flight.FlightDescriptor.for_path("t"), parallel=True),
                "query": lambda: _read(ours, _query("FROM t"), parallel=False),
                "point": lambda: _read(ours, _query("SELECT * FROM t WHERE id = 77"), parallel=False),
            }
            with bench.step(f"{rounds} rounds"):
                found = alternate(rounds, works)
    wrong = {name: timing.answer for name, timing in found.items() if timing.answer != (1 if name == "point" else rows)}
    if wrong:
        raise RuntimeError(f"not all rows came: {wrong}")
    speed = {name: size / 1e6 / timing.wall for name, timing in found.items()}
    result.measures += [
        _rate("a table, one endpoint after the other", speed["one"], speed["bare"]),
        _rate("a table, endpoints in parallel", speed["all"], speed["bare"]),
        _rate("a query for all rows", speed["query"], speed["bare"]),
        Measure("a point query", "ms", found["point"].wall * 1000),
    ]
    result.notes.append(f"{rows:,} rows, {size / 1e6:,.0f} MB of Arrow data in 4 files; the best of {rounds} rounds.")


def _rate(name: str, ours: float, peer: float) -> Measure:
    """A rate of ours beside that of the peer; 300 MB/s are wanted."""
    return Measure(name, "MB/s", ours, peer, _PEER, ours / peer, "the rate", Target("≥", 300, "ours"))


def _query(sql: str) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps({"sql": sql}))


def _read(location: str, descriptor: flight.FlightDescriptor, *, parallel: bool) -> int:
    """Read all endpoints of a descriptor, batch by batch; return the number of rows."""
    with flight.connect(location) as client:
        tickets = [endpoint.ticket for endpoint in client.get_flight_info(descriptor, options=_CALL).endpoints]

        def count(ticket: flight.Ticket) -> int:
            return sum(chunk.data.num_rows for chunk in client.do_get(ticket, options=_CALL))

        if not parallel:
            return sum(map(count, tickets))
        with ThreadPoolExecutor(len(tickets)) as pool:
            return sum(pool.map(count, tickets))


def read_all(location: str) -> int:
    """Read the table ``t`` of a server; return the number of rows."""
    return _read(location, flight.FlightDescriptor.for_path("t"), parallel=False)


def query_all(location: str, sql: str) -> int:
    """Run a query on a server of ours; return the number of rows."""
    return _read(location, _query(sql), parallel=False)


def own_server(url: str) -> AbstractContextManager[str]:
    """Run a Flight server of ours on a lake; the block gets where it listens."""
    return _server("ours", url)


def bare_server(url: str) -> AbstractContextManager[str]:
    """Run a bare server with the table ``t`` of a lake in memory; the block gets where it listens."""
    return _server("bare", url)


@contextmanager
def _server(kind: str, url: str) -> Iterator[str]:
    """Run a server in a process of its own; yield where it listens."""
    line = [sys.executable, "-m", "benchmarks.flight", kind, url]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate()  # the end of its input ends it


class _Bare(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, table: pa.Table) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._table = table

    def get_flight_info(self, context: object, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        return flight.FlightInfo(self._table.schema, descriptor, [flight.FlightEndpoint(b"t", [])])

    def do_get(self, context: object, ticket: flight.Ticket) -> flight.RecordBatchStream:
        return flight.RecordBatchStream(self._table)


def _serve(kind: str, url: str) -> None:
    from quacklake.service.flight import FlightService
    from quacklake.service.identity import Role, TokenGate

    with quacklake.connect(url) as lake:
        if kind == "bare":
            bare = _Bare(lake.table("t").to_arrow())
            print(f"grpc://127.0.0.1:{bare.port}", flush=True)
            sys.stdin.read()
            bare.shutdown()
        else:
            with FlightService(TokenGate(lake, {_TOKEN: Role.READER})) as service:
                print(service.location, flush=True)
                sys.stdin.read()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
