"""Pipelines whose process, NATS server and catalog database are killed: each message is in every sink, once.

The processes are forks (:mod:`tests.crash.forks`); what they have in common is the file ``setup.json`` of a folder. In
the end the libraries of the formats, stock DuckDB and the NATS server say what the sinks hold.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import quacklake
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.core import faults
from quacklake.pipelines import Pipeline
from services import NatsServer, PostgresServer, Server
from services.process import kill_family
from tests.catalog.stock import Stock
from tests.connectors.nats_sinks import make_stream
from tests.connectors.sinks import FORMATS
from tests.crash.forks import Child, Ended, Forks
from tests.pipelines.tables import end_lease

__all__ = ["BATCH", "SINKS", "Setup", "Stand", "Tally", "round_of_kills", "round_of_messages"]

SINKS = {"append": ("lake", "delta", "iceberg", "nats"), "upsert": ("lake", "delta", "iceberg")}
"""The sinks of each mode; a stream has no keys."""
BATCH = "pipeline.batch.read"
"""The point behind which the points of a batch are counted."""
_NEEDED = (
    "pyarrow.dataset",
    "deltalake",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "quacklake.connectors.delta",
    "quacklake.connectors.iceberg",
    "quacklake.connectors.nats",
    "quacklake.core.sql.session",
    "quacklake.core.tenancy",
)
_KEYS = 40
_NAME = "p"
_SECONDS = 120.0
"""The longest time of a run that nobody kills, on a machine that has much else to do."""


@dataclass
class Tally:
    """The counts of a round."""

    kills: int = 0
    nats_kills: int = 0
    catalog_kills: int = 0
    points: int = 0
    messages: int = 0
    sinks: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def struck(self) -> int:
        """The number of processes that died."""
        return self.kills + self.nats_kills + self.catalog_kills

    def add(self, other: Tally) -> None:
        for name, value in other.__dict__.items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class Setup:
    """One pipeline: where its lake, its messages and its sinks are."""

    folder: str
    url: str
    nats: str
    source: str
    mode: str
    sinks: tuple[str, ...]
    most: int = 100
    """Messages in a batch."""

    @property
    def path(self) -> Path:
        return Path(self.folder)

    def definition(self) -> dict[str, Any]:
        key = {"mode": "upsert", "key": "id"} if self.mode == "upsert" else {}
        sinks = []
        for name in self.sinks:
            if name == "nats":
                sinks.append({"type": "nats", "servers": self.nats, "stream": "out", "subject": "out.all"})
                continue
            place = {"table": "copied"} if name == "lake" else FORMATS[name].place(self.path / name)
            sinks.append({"type": name, **place, **key})
        source: dict[str, Any] = {"type": "lake", "table": "orders"}
        if self.source == "nats":
            source = {"type": "nats", "servers": self.nats, "stream": "orders", "schema": "id BIGINT, v BIGINT"}
            source["max_messages"] = self.most
        return {
            "pipeline": _NAME,
            "source": source,
            "query": "SELECT id, v FROM source",
            "sinks": sinks,
            "every": "10 ms",
            "batch_rows": self.most,
            "lease": "5 minutes",  # whoever comes next ends it, instead of waiting for its end
            "restart": {"attempts": 60, "backoff": "50 ms", "longest": "500 ms"},
        }

    def connect(self) -> quacklake.Lake:
        return quacklake.connect(self.url, data_path=str(self.path / "data"), duckdb_threads=1)

    def numbers(self, first: int, end: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return keys and values of messages."""
        numbers = np.arange(first, end)
        return (numbers % _KEYS if self.mode == "upsert" else numbers), numbers * 2

    def expected(self, end: int) -> dict[int, int] | int:
        """Return what a sink must hold: the rows by key, or how many there are, each with twice its key."""
        if self.mode == "append":
            return end
        keys, values = self.numbers(0, end)
        return dict(zip(keys.tolist(), values.tolist(), strict=True))


# -- in children -------------------------------------------------------------------------------------------------------


def _setup(folder: str) -> Setup:
    given = json.loads(Path(folder, "setup.json").read_text())
    return Setup(**{**given, "sinks": tuple(given["sinks"])})


def rehearse() -> None:
    """Load what a run needs, once for all children."""
    for name in _NEEDED:
        with suppress(ImportError):
            import_module(name)


def make(folder: str) -> None:
    """Create the lake."""
    with _setup(folder).connect() as lake:
        lake.sql("CREATE TABLE orders (id BIGINT, v BIGINT)")


def _add(setup: Setup, first: int, end: int) -> None:
    keys, values = setup.numbers(first, end)
    if setup.source == "lake":
        with setup.connect() as lake:
            lake.table("orders").append(pa.table({"id": keys, "v": values}))
        return
    with NatsConnection(setup.nats) as nats:
        pairs = zip(keys.tolist(), values.tolist(), strict=True)
        messages = [("orders.all", b'{"id": %d, "v": %d}' % pair, None) for pair in pairs]
        for begun in range(0, len(messages), 20_000):
            nats.publish(messages[begun : begun + 20_000])


def run(folder: str, first: int, end: int, at: int = 0, victim: int = 0, look: bool = True) -> dict[str, Any]:
    """Give the source messages, and run until nothing is new; then ``look`` at what the sinks outside of the lake hold.

    At the ``at``-th point of the batches kill ``victim`` with its children, or this process.
    """
    setup = _setup(folder)
    if end > first:
        _add(setup, first, end)
    points: list[str] = []

    def hook(point: str) -> None:
        if not points and point != BATCH:
            return
        points.append(point)
        if len(points) == at:
            kill_family(victim or os.getpid())

    with setup.connect() as lake:
        end_lease(lake, _NAME)
        with faults._hooked(hook):
            report = Pipeline(lake, setup.definition()).run(until_caught_up=True)
    told = points if len(points) < 5000 else []
    return {"restarts": report.restarts, "points": told, "files": _files(setup) if look else {}}


def _files(setup: Setup) -> dict[str, str]:
    """Write the rows of each sink outside of the lake to a file, as its own library reads them."""
    found: dict[str, str] = {}
    for name in setup.sinks:
        if name == "lake":
            continue
        rows = _published(setup.nats) if name == "nats" else FORMATS[name].read(setup.path / name)
        place = setup.path / f"{name}.arrow"
        with pa.OSFile(str(place), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        found[name] = str(place)
    return found


def _published(url: str) -> pa.Table:
    with NatsConnection(url) as nats:
        last = nats.jetstream("STREAM.INFO.out")["state"]["last_seq"]
        parts = nats.read_range("out", 1, last + 1) if last else ()
        bodies = [json.loads(body) for part in parts for body in part.data.to_pylist()]
    return pa.Table.from_pylist(bodies, schema=pa.schema([("id", pa.int64()), ("v", pa.int64())]))


# -- the stand ---------------------------------------------------------------------------------------------------------


class Stand:
    """One pipeline with servers of its own, which may be killed."""

    def __init__(
        self, folder: Path, forks: Forks, stock: Stock | None, *, postgres: bool = False, nats: bool = True
    ) -> None:
        self._folder = folder
        self._forks = forks
        self._stock = stock
        self._stack = ExitStack()
        self._count = itertools.count()
        folder.mkdir(parents=True, exist_ok=True)
        self.nats = self._stack.enter_context(NatsServer(folder / "nats", durable=False)) if nats else None
        # one that does not wait for the disk acknowledges commits that a kill loses
        self.postgres = self._stack.enter_context(PostgresServer()) if postgres else None
        self.setup = Setup("", "", "", "", "", ())
        self.end = 0
        self.passed: list[str] = []
        """The points of the last run that came to its end."""
        self._files: dict[str, str] = {}

    @property
    def database(self) -> str:
        """The kind of the catalog."""
        return "sqlite" if self.postgres is None else "postgres"

    def close(self) -> None:
        """Stop the servers."""
        self._stack.close()

    @contextmanager
    def pipeline(self, source: str, mode: str, sinks: Sequence[str] = (), most: int = 100) -> Iterator[None]:
        """Make a lake, and streams beside it, for the block. What fails stays there, and the error says where."""
        name = f"lake{next(self._count)}"
        place = self._folder / name
        url = f"sqlite:///{place}/lake.db" if self.postgres is None else self.postgres.create_database(name)
        nats = "" if self.nats is None else self.nats.url
        self.setup = Setup(str(place), url, nats, source, mode, tuple(sinks or SINKS[mode]), most)
        self.end = 0
        for each in ("nats", *FORMATS):
            (place / each).mkdir(parents=True)
        (place / "setup.json").write_text(json.dumps(asdict(self.setup)))
        try:
            if self.nats is not None:
                with NatsConnection(self.nats.url) as connection:
                    for stream in ("orders", "out"):
                        # so short a memory of ids that a repeat would not be taken for one
                        make_stream(connection, stream, storage="file", duplicate_window=100_000_000)
            made = self._forks.run("tests.prove.pipelines:make", folder=str(place))
            assert made.code == 0, made.errors
            yield
        except AssertionError as error:
            raise AssertionError(f"{source} into {self.setup.sinks} ({mode}), kept in {place}: {error}") from error
        if self.nats is not None:
            with NatsConnection(self.nats.url) as connection:
                for stream in ("orders", "out"):
                    connection.jetstream(f"STREAM.DELETE.{stream}")
        shutil.rmtree(place)

    def run(self, count: int = 0, *, look: bool = True) -> dict[str, Any]:
        """Give the source more messages, and pass everything on in a new process that nobody kills."""
        ended = self._wait(self._start(count, look=look))
        return self._passed(ended, "a run")

    def kill(self, count: int, at: int) -> bool:
        """Give the source more messages to a process that is killed at a point. Return whether it got there."""
        ended = self._wait(self._start(count, at=at))
        assert ended.code in (0, -signal.SIGKILL), ended.errors[-3000:]
        return ended.code != 0

    def strike(self, server: Server, count: int, at: int) -> None:
        """Kill a server when a run is at a point, and start it again. The run itself continues to the end."""
        assert server._process is not None
        child = self._start(count, at=at, victim=server._process.pid)
        ended = self._wait(child, lambda: _revive(server))
        _revive(server)
        self._passed(ended, f"a run whose {server.name} was killed")

    def _passed(self, ended: Ended, what: str) -> dict[str, Any]:
        assert ended.code == 0, f"{what} failed: {ended.errors[-3000:]}"
        self.passed, self._files = ended.value["points"], ended.value["files"]
        report: dict[str, Any] = ended.value
        return report

    def check(self) -> None:
        """Every sink must hold what the messages lead to, when the last run looked at it."""
        wanted = self.setup.expected(self.end)
        for name, place in self._files.items():
            with pa.memory_map(place) as file:
                rows = pa.ipc.open_file(file).read_all().select(["id", "v"])
                _compare(name, rows, wanted)
        if "lake" in self.setup.sinks:
            _compare("lake", self._copied(), wanted)

    def _copied(self) -> pa.Table:
        if self._stock is not None:
            found = self._stock.run(self.setup.url, "SELECT id, v FROM copied")
            return pa.table({"id": [row[0] for row in found], "v": [row[1] for row in found]})
        with self.setup.connect() as lake:
            return lake.table("copied").to_arrow()

    def _start(self, count: int, **arguments: Any) -> Child:
        begun, self.end = self.end, self.end + count
        folder = self.setup.folder
        return self._forks.start("tests.prove.pipelines:run", folder=folder, first=begun, end=self.end, **arguments)

    def _wait(self, child: Child, meanwhile: Callable[[], Any] = lambda: None) -> Ended:
        deadline = time.monotonic() + _SECONDS
        while (ended := child.poll()) is None:
            meanwhile()
            if time.monotonic() > deadline:
                child.kill()
                raise AssertionError(f"a process hangs: {child.wait().errors[-3000:]}")
            time.sleep(0.005)
        return ended


def _revive(server: Server) -> None:
    if not server.alive():
        time.sleep(0.05)
        server.revive()


def _compare(name: str, rows: pa.Table, wanted: dict[int, int] | int) -> None:
    if isinstance(wanted, dict):
        pairs = dict(zip(rows.column("id").to_pylist(), rows.column("v").to_pylist(), strict=True))
        assert len(pairs) == rows.num_rows, f"{name} has keys twice: {rows.num_rows} rows, {len(pairs)} keys"
        different = {key: (pairs.get(key), value) for key, value in wanted.items() if pairs.get(key) != value}
        assert pairs.keys() == wanted.keys() and not different, f"{name} differs: {different or pairs.keys()}"
        return
    count, total, keys = rows.num_rows, pc.sum(rows.column("v")).as_py() or 0, pc.count_distinct(rows.column("id"))
    assert (count, total, keys.as_py()) == (wanted, wanted * (wanted - 1), wanted), (
        f"{name} has {count} rows with the sum {total} and {keys} keys; {wanted} rows were given"
    )


# -- rounds ------------------------------------------------------------------------------------------------------------


def round_of_kills(
    stand: Stand, source: str, mode: str, choose: Callable[[Sequence[int], str], Sequence[int]], batch: int = 7
) -> tuple[Tally, set[str]]:
    """Kill the process at points of a batch, then each server, and compare after each. Return the points' names too.

    ``choose`` takes the numbers of the points, and what is killed there: the process, ``nats`` or ``postgres``.
    """
    began, tally = time.perf_counter(), Tally()
    with stand.pipeline(source, mode):
        stand.run(batch, look=False)
        stand.run(batch)  # this one has the points of any batch: nothing is created any more
        names = list(stand.passed)
        numbers = range(1, len(names) + 1)
        for at in choose(numbers, "process"):
            tally.kills += stand.kill(batch, at)
            stand.run()
            _checked(stand, f"a kill at point {at}, {names[at - 1]}")
        for server in (stand.nats, stand.postgres):
            if server is None:
                continue
            for at in choose(numbers, server.name):
                stand.strike(server, batch, at)
                tally.nats_kills += server is stand.nats
                tally.catalog_kills += server is stand.postgres
                _checked(stand, f"a kill of {server.name} at point {at}, {names[at - 1]}")
        tally.points, tally.messages = len(names), stand.end
        tally.sinks.update(stand.setup.sinks)
    tally.seconds = time.perf_counter() - began
    return tally, set(names)


def _checked(stand: Stand, what: str) -> None:
    try:
        stand.check()
    except AssertionError as error:
        raise AssertionError(f"after {what}: {error}") from error


def round_of_messages(stand: Stand, messages: int, kills: int, seed: str, mode: str = "append") -> Tally:
    """Pass so many messages on while the process, NATS and the catalog are killed at random; compare at the end."""
    began, tally, dice = time.perf_counter(), Tally(), random.Random(seed)
    share = -(-messages // max(1, kills))
    with stand.pipeline("nats", mode, most=max(100, min(50_000, share // 2))):
        stand.run(min(100, messages), look=False)
        passed = len(stand.passed)
        while stand.end < messages or tally.struck < kills:
            count = min(share, max(messages - stand.end, 10))  # the last one has a batch to die in, too
            at, which = dice.randint(1, 3 * passed if count > 10 else passed), dice.random()
            if which < 0.1 and stand.nats is not None:
                stand.strike(stand.nats, count, at)
                tally.nats_kills += 1
            elif which < 0.2 and stand.postgres is not None:
                stand.strike(stand.postgres, count, at)
                tally.catalog_kills += 1
            else:
                tally.kills += stand.kill(count, at)
        stand.run()
        _checked(stand, f"{kills} kills, seed {seed!r}")
        tally.messages = stand.end
        tally.sinks.update(stand.setup.sinks)
    tally.seconds = time.perf_counter() - began
    return tally
