"""Commits to NATS streams whose writers and server are killed, again and again: every row is there, once and in order.

Run as ``python -m tests.prove.publishes FOLDER COUNT SEED``, in a process of its own, which forks its writers.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

from quacklake.connectors import PreparedCommit
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.errors import ConnectorError
from services import NatsServer
from tests.connectors.kill_nats_sink import in_child, start_child
from tests.connectors.nats_sinks import SCHEMA, ids, make_stream, new_sink, rows

__all__ = ["Tally", "round_of_publishes"]

_WINDOWS = (100_000_000, 2_000_000_000, 120_000_000_000)
"""Nanoseconds for which the streams remember ids."""


@dataclass
class Tally:
    """Counts of a proof."""

    publishes: int = 0
    rows: int = 0
    kills: int = 0
    server_kills: int = 0


def round_of_publishes(folder: Path, count: int, seed: str) -> Tally:
    """Publish so many commits under kills, in a separate process. Raise ``AssertionError`` with the seed."""
    command = [sys.executable, "-m", "tests.prove.publishes", str(folder), str(count), seed]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60 + 30 * count, check=False
    )
    assert done.returncode == 0, f"publishes, seed {seed!r}, kept in {folder}: {done.stderr[-4000:]}"
    return Tally(**json.loads(done.stdout))


class Round:
    """One server, and the commits that are published to it in turn."""

    def __init__(self, folder: Path, seed: str) -> None:
        self._folder = folder
        self._dice = random.Random(seed)
        self._server = NatsServer(folder / "nats").start()
        self.tally = Tally()

    def close(self) -> None:
        """Stop the server."""
        self._server.stop()

    def publish(self) -> None:
        """Prepare a commit, kill those who finalize it, let the last one be, and look at the stream."""
        dice, url = self._dice, self._server.url
        count = dice.choice([50, 2000, 20_000])
        window = dice.choice([1, 7, 100, 1000] if count <= 2000 else [100, 1000, 5000])
        name = f"p{self.tally.publishes}"
        folder = self._folder / name
        folder.mkdir()
        with NatsConnection(url) as nats:
            make_stream(nats, name, storage="file", duplicate_window=dice.choice(_WINDOWS))

        def prepare() -> None:
            sink = new_sink(url, name, folder, max_in_flight=window)
            sink.initialize(SCHEMA)
            sink.write_batch(rows(0, count))
            (folder / "prepared").write_text(sink.prepare_commit(0).to_json())

        def finalize() -> None:
            prepared = PreparedCommit.from_json((folder / "prepared").read_text())
            new_sink(url, name, folder, max_in_flight=window, max_retries=10).finalize_commit(prepared)

        assert in_child(prepare) == 0
        busy = dice.random() < 0.5
        for _ in range(dice.randint(1, 4)):
            self._strike(name, finalize, busy)
        assert in_child(finalize) == 0
        with NatsConnection(url) as nats:
            found = [number for number in ids(nats, name) if number >= 0]
            assert found == list(range(count)), f"{name} of {count} rows, window {window}: {found}"
            nats.jetstream(f"STREAM.DELETE.{name}")
        shutil.rmtree(folder)
        self.tally.publishes += 1
        self.tally.rows += count

    def _strike(self, name: str, finalize: Callable[[], None], busy: bool) -> None:
        """Begin to finalize, and kill that process after a while, sometimes the server too."""
        dice = self._dice
        child = start_child(finalize)
        if busy:
            with NatsConnection(self._server.url) as nats:
                nats.publish([(f"{name}.other", b'{"id": -1}', None)] * 20)
        time.sleep(dice.random() * dice.choice([0.05, 0.3, 1]))
        if dice.random() < 0.4:
            self._kill_server()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        self.tally.kills += 1
        self._wait(name)

    def _kill_server(self) -> None:
        self._server.kill()
        time.sleep(self._dice.random() * 0.3)
        self._server.revive()
        self.tally.server_kills += 1
        time.sleep(self._dice.random() * 0.3)

    def _wait(self, name: str) -> None:
        """Wait until the server answers again."""
        deadline = time.monotonic() + 30
        with NatsConnection(self._server.url, attempts=1) as nats:
            while time.monotonic() < deadline:
                with suppress(ConnectorError):
                    nats.jetstream(f"STREAM.INFO.{name}")
                    return
                time.sleep(0.02)
        raise AssertionError("the server did not come back")


def main(folder: Path, count: int, seed: str) -> None:
    """Publish the commits and print what was done."""
    with suppress(ImportError):
        import_module("pandas")  # DuckDB loads it, which takes longer than all the rest of a child
    folder.mkdir(parents=True, exist_ok=True)
    round_ = Round(folder, seed)
    try:
        for _ in range(count):
            round_.publish()
    finally:
        round_.close()
    print(json.dumps(asdict(round_.tally)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
