"""Everything that the demo starts, and what can be broken of it."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self
from urllib.parse import quote

import quacklake
from quacklake.errors import NotFoundError, QuacklakeError, UnauthenticatedError
from quacklake.extend.checkpoints import Checkpoints
from quacklake.lake import Lake
from quacklake.lake.connect import connect
from quacklake.pipelines.checkpoints import Manifest
from quacklake.pipelines.origins import sequence_of
from quacklake.pond.pond import Pond
from quacklake.service.app import create_app
from quacklake.service.identity import Identity, Role, TokenGate
from quacklake.service.listening import new_token
from quacklake.service.problems import TooBusyError
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from quacklake_demo.chaos import FACTS, Blow, Counts, SinkCount, Step, chaos_router
from quacklake_ekko.table import TABLE
from services import NatsServer, PostgresServer, Unavailable
from services.demo.blocks import PIPELINE, Publisher, good_up_to, prepare
from services.demo.driver import Driver
from services.demo.readers import count, read_delta, read_iceberg

__all__ = ["Breaker", "TenantGate", "World"]

_MAX_BLOWS = 8
_FRESH = 1.0
"""Seconds for which counts are kept."""
DRIVER, NATS, CATALOG = "driver", "nats", "catalog"
_BLOWS = (
    Blow(DRIVER, "The driver", "The process that runs the pipeline ends at once. Another goes on from its checkpoint."),
    Blow(NATS, "The NATS server", "The server of the stream ends at once, and starts again with its files."),
    Blow(CATALOG, "The catalog", "Every connection to the database of the metadata ends, in the middle of anything."),
)


_STEPS = (
    Step("Watch blocks come in", "New transactions show at once, beside their figures.", "transactions", "ekko"),
    Step(
        "Move through time",
        "Drag the slider: columns, rows and counts are those of that snapshot.",
        "tables/blockchain.transactions?tab=preview",
        "ekko",
    ),
    Step(
        "Zoom a year to an hour",
        "Half a million readings of a dock; drag over the chart, or press “hour”.",
        f"pond/{quote('/docks/silver.series', safe='')}",
        "noyo",
    ),
    Step("Break something", "Kill the driver, NATS or the catalog, and watch that nothing is lost.", "chaos", "ekko"),
)


class TenantGate:
    """Lakes behind one service. A request names one, or gets the first that its token opens."""

    def __init__(self, gates: Mapping[str, TokenGate]) -> None:
        self._gates = dict(gates)

    def enter(self, token: str | None, lake: str | None = None) -> Identity:
        """Return the identity of a token; see ``Gate.enter``. To other lakes it says what it says to no lake."""
        opened: list[Identity] = []
        for gate in self._gates.values():
            with suppress(UnauthenticatedError):
                opened.append(gate.enter(token))
        if not opened:
            raise UnauthenticatedError
        found = next((each for each in opened if lake in (None, each.name)), None)
        if found is None:
            raise NotFoundError("there is no such lake")
        return found

    def probe(self) -> None:
        """Ask the catalogs and the stores."""
        for gate in self._gates.values():
            gate.probe()

    def close(self) -> None:
        """Close the lakes."""
        for gate in self._gates.values():
            gate.close()


class Breaker:
    """Breaks parts of the demo, one after the other, in a thread that lives as long as what it starts again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._struck: dict[str, int] = {}
        self._lock = threading.Lock()
        self._counted: tuple[float, Counts] | None = None
        self._asked: queue.Queue[str | None] = queue.Queue(_MAX_BLOWS)
        self._thread = threading.Thread(target=self._work, name="demo-chaos", daemon=True)
        self._thread.start()

    def steps(self) -> Sequence[Step]:
        """Return what to try first."""
        return _STEPS

    def blows(self) -> Sequence[Blow]:
        """Return what can be broken: a catalog in a file has no connections to end."""
        there = [blow for blow in _BLOWS if blow.id != CATALOG or self._world.postgres is not None]
        return [replace(blow, struck=self._struck.get(blow.id, 0)) for blow in there]

    def strike(self, id_: str) -> None:
        """Break something. Raise ``TooBusyError`` when too much waits to be broken."""
        try:
            self._asked.put_nowait(id_)
        except queue.Full:
            raise TooBusyError("too much waits to be broken") from None

    def counts(self) -> Counts:
        """Return what was published, committed, doubled and lost, not older than a moment."""
        with self._lock:
            if self._counted is None or time.monotonic() - self._counted[0] > _FRESH:
                self._counted = (time.monotonic(), self._world.counts())
            return self._counted[1]

    def close(self) -> None:
        """End the thread after what it is about to break."""
        self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (id_ := self._asked.get()) is not None:
            self._struck[id_] = self._struck.get(id_, 0) + 1
            if id_ == DRIVER:
                self._world.driver.kill()
            elif id_ == NATS:
                self._world.nats.kill()
                self._world.nats.revive()
            else:
                self._world.end_connections()


class World:
    """NATS, the shared lake with the tenants ekko and noyo, the pipeline's driver, the simulator and the service."""

    def __init__(self, folder: Path, events: int, *, spark: bool, stays: bool, seconds: float, port: int = 0) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self._spark, self._events, self._stays, self._seconds = spark, events, stays, seconds
        self._port = port
        self.postgres: PostgresServer | None = None
        self.left_out: list[str] = []
        self.tokens = {name: new_token() for name in ("ekko", "noyo")}
        self._visitor = new_token()
        self.service_url = ""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        # the servers end with the thread that starts them; a breaker starts NATS again, so it ends last
        self.nats = self._stack.enter_context(NatsServer(self.folder / "nats"))
        self.url = self._database()
        with quacklake.tenants(self.url, data_path=str(self.folder / "data")) as tenants:
            tenants.create_many(["ekko", "noyo"])
        self.ekko, noyo = (self.open(name) for name in ("ekko", "noyo"))
        self.pond = Pond.create_in(noyo)
        prepare(self.ekko, self.nats.url, self.folder, spark=self._spark)
        self.publisher = Publisher(self.nats.url, self._events, seconds=self._seconds, stays=self._stays)
        self.driver = Driver(self.url, "ekko", PIPELINE, self.folder)
        self.breaker = Breaker(self)
        self._stack.callback(self.breaker.close)
        lakes = {"ekko": self.ekko, "noyo": noyo}
        gates = {
            name: TokenGate(lake, {self.tokens[name]: Role.ADMIN, self._visitor: Role.ADMIN}, name=name)
            for name, lake in lakes.items()
        }
        gate = TenantGate(gates)
        settings = ServiceSettings(port=self._port, shutdown_seconds=5)
        app = create_app(gate, settings, more=[chaos_router(self.breaker)], facts=FACTS)
        self.service_url = self._stack.enter_context(BackgroundService(app, settings))
        self.publisher.start()
        self._stack.callback(self.publisher.stop)
        self.driver.start()
        self._stack.callback(self.driver.stop)

    def _database(self) -> str:
        try:
            self.postgres = self._stack.enter_context(PostgresServer())
        except Unavailable as error:
            self.left_out.append(f"PostgreSQL ({error}). The catalog is a file, which stock DuckDB does not read")
            return f"sqlite:///{self.folder}/lakes.db"
        return self.postgres.create_database(f"lakes_{secrets.token_hex(3)}")

    def open(self, catalog: str) -> Lake:
        """Open the lake of a tenant."""
        return connect(self.url, config_file=None, catalog=catalog)

    def address(self, tenant: str) -> str:
        """Return the address of the dashboard of a tenant, which signs in with a token that opens both."""
        return f"{self.service_url}/ui/#token={self._visitor}&lake={tenant}"

    def end_connections(self) -> None:
        """End every connection to the catalog."""
        if self.postgres is None:
            return
        import psycopg

        name = self.url.rpartition("/")[2]
        with psycopg.connect(self.postgres.dsn(), autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))

    # -- counting ------------------------------------------------------------------------------------------------------

    def position(self) -> int:
        """Return the last sequence whose rows every sink has shown."""
        finished = [each for each in Checkpoints(self.ekko, PIPELINE).list() if each.state == each.FINISHED]
        found = [sequence_of(Manifest.from_json(each.manifest).position) for each in finished]
        return max((each for each in found if each is not None), default=0)

    def counts(self) -> Counts:
        """Return what was published, and what each sink has; one that cannot be read now is left out."""
        published = good_up_to(self.publisher.published)
        sinks: list[SinkCount] = []
        try:
            position = self.position()  # first: what is finished now is there when it is counted
            readers: dict[str, Callable[[], object]] = {
                "lake": self.read_lake,
                "delta": lambda: read_delta(self.folder),
                "iceberg": lambda: read_iceberg(self.folder),
            }
            sinks = [count(name, read(), position) for name, read in readers.items()]
        except QuacklakeError:
            pass  # the catalog is away for a moment
        return Counts(published, sinks, self.driver.running)

    def read_lake(self) -> object:
        """Return the sequences of the table of transactions."""
        return self.ekko.sql(f"SELECT _sequence FROM {TABLE}").to_arrow().column(0)
