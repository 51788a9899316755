"""Kill the NATS sink at every point, in children of a process that has loaded everything once.

Run as ``python -m tests.connectors.kill_nats_sink URL FOLDER``. Prints the points; fails where rows are lost or doubled.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pyarrow as pa

from quacklake.connectors import PreparedCommit
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.core.faults import Fault, arm, record
from tests.connectors.nats_sinks import ids, make_stream, new_sink, staged

ROWS = 20


def write(url: str, stream: str, folder: Path) -> None:
    """Write rows as a pipeline would: the prepared commit is kept before it is finalized."""
    sink = new_sink(url, stream, folder, subject=f"{stream}.all", format="raw", max_in_flight=10)
    rows = pa.record_batch({"_data": [f'{{"id": {number}}}' for number in range(ROWS)]})
    sink.initialize(rows.schema)
    sink.write_batch(rows)
    prepared = sink.prepare_commit(0)
    (folder / "prepared").write_text(prepared.to_json())
    sink.finalize_commit(prepared)


def recover(url: str, stream: str, folder: Path) -> None:
    """Finish what was prepared, or write again, and look at the stream."""
    kept = folder / "prepared"
    if kept.exists():
        new_sink(url, stream, folder).finalize_commit(PreparedCommit.from_json(kept.read_text()))
        assert staged(folder) == [], "staged files are left"
    else:
        write(url, stream, folder)
    with NatsConnection(url) as nats:
        assert ids(nats, stream) == list(range(ROWS)), ids(nats, stream)


def new_place(url: str, folder: Path, name: str) -> Path:
    with NatsConnection(url) as nats:
        # so short a window that a second publish would not be taken for a duplicate
        make_stream(nats, name, duplicate_window=100_000_000)
    (folder / name).mkdir()
    return folder / name


def in_child(work: Callable[[], None]) -> int:
    """Run in a child and return its exit code, minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(start_child(work), 0)[1])


def start_child(work: Callable[[], None]) -> int:
    """Begin to run in a child and return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(url: str, folder: Path) -> None:
    """Let one child pass all points, then kill one at each of them, and let another recover."""

    def pass_all() -> None:
        place = new_place(url, folder, "k0")
        with record() as points:
            write(url, "k0", place)
        (folder / "points").write_text(json.dumps(points))

    with suppress(ImportError):
        import_module("pandas")  # Arrow loads it, which takes longer than all the rest of a child
    assert in_child(pass_all) == 0
    points = json.loads((folder / "points").read_text())
    for number in range(1, len(points) + 1):
        name = f"k{number}"

        def die(number: int = number, name: str = name) -> None:
            place = new_place(url, folder, name)
            with arm(Fault(at=number, action="kill")):
                write(url, name, place)

        ended = in_child(die)
        # how many blocks are sent depends on how fast the server answers: the last points may not be reached
        assert ended == -signal.SIGKILL or (ended == 0 and number > len(points) - 5), (points[number - 1], ended)
        again = in_child(lambda name=name: recover(url, name, folder / name))  # type: ignore[misc]
        assert again == 0, points[number - 1]
    print(json.dumps(points))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
