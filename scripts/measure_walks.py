"""Measure how far a request walks through the code: its calls of Python functions, the files, and the changes of file.

``python scripts/measure_walks.py`` prints a line for each walk: one warm call under ``sys.setprofile``. A switch is two
successive calls in different files. ``--quick`` leaves out the walks that take long to set up, ``--top N`` shows the
files with the most calls of each walk, and a name measures that walk only.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import quacklake

SOURCE = str(Path(quacklake.__file__).parent)
_WARM = 3
"""Calls before the one that is measured, which import modules and fill caches."""


@dataclass
class Walk:
    """The calls of functions of the package in one walk, by file."""

    files: Counter[str] = field(default_factory=Counter)
    switches: int = 0
    _last: str = ""

    @property
    def calls(self) -> int:
        """The number of calls."""
        return self.files.total()

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call, as ``sys.setprofile`` reports it."""
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(SOURCE):
            return
        self.files[name] += 1
        self.switches += bool(self._last) and name != self._last
        self._last = name


_walks: list[Walk] = []
"""The walk that is measured now, if there is one."""


def _see(frame: FrameType, event: str, arg: object) -> None:
    for walk in _walks:
        walk.see(frame, event, arg)


@contextmanager
def measured() -> Iterator[Walk]:
    """Measure the block, in this thread and in those that ``threading.setprofile`` reaches."""
    walk = Walk()
    _walks.append(walk)
    sys.setprofile(_see)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        _walks.clear()


@contextmanager
def _lake() -> Iterator[quacklake.Lake]:
    with tempfile.TemporaryDirectory() as folder:
        url, files = f"sqlite:///{folder}/lake.db", f"{folder}/files"
        with quacklake.connect(url, files, create=True, config_file=os.devnull) as lake:
            lake.create_table("t", [{"id": number, "name": f"n{number}"} for number in range(10)])
            yield lake


Step = Callable[[], Any]


@contextmanager
def append() -> Iterator[Step]:
    """Append one row."""
    with _lake() as lake:
        yield lambda: lake.table("t").append([{"id": 11, "name": "more"}])


@contextmanager
def read() -> Iterator[Step]:
    """Read the rows of a filter."""
    with _lake() as lake:
        yield lambda: lake.table("t").to_arrow(where="id > 5")


@contextmanager
def select() -> Iterator[Step]:
    """Run a SELECT."""
    with _lake() as lake:
        yield lambda: lake.sql("SELECT count(*) FROM t WHERE id > 5").fetchall()


@contextmanager
def merge() -> Iterator[Step]:
    """Merge three rows, of which one is new."""
    text = (
        "MERGE INTO t USING (SELECT range + 8 AS id, 'new' AS name FROM range(3)) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
    )
    with _lake() as lake:
        yield lambda: lake.sql(text)


@contextmanager
def post() -> Iterator[Step]:
    """Send a SELECT to a service in another thread, over HTTP."""
    import httpx

    from quacklake.service.app import create_app
    from quacklake.service.identity import Role, TokenGate
    from quacklake.service.serving import BackgroundService
    from quacklake.service.settings import ServiceSettings

    with _lake() as lake:
        settings = ServiceSettings(port=0)
        app = create_app(TokenGate(lake, {"secret": Role.ADMIN}), settings)
        headers, query = {"Authorization": "Bearer secret"}, {"sql": "SELECT count(*) FROM t WHERE id > 5"}
        with BackgroundService(app, settings) as url, httpx.Client(base_url=url, headers=headers) as client:
            yield lambda: client.post("/api/v1/sql", json=query).raise_for_status()


@contextmanager
def pond_copy() -> Iterator[Step]:
    """Copy a CSV file of two rows into a series that exists: the command, without the start of Python."""
    import contextlib
    import io

    from quacklake.cli.pond import main

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file, number = Path(folder, "a.csv"), iter(range(0, 1000, 2))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))

        def run(*words: str) -> None:
            if code := main(["--pond", f"{folder}/P", *words]):
                raise SystemExit(code)

        def copy() -> None:
            first = next(number)
            times = [f"2024-01-01T{each // 60:02}:{each % 60:02}:00Z,{each}.5" for each in (first, first + 1)]
            file.write_text("\n".join(["timestamp,temp", *times, ""]))
            run("copy", str(file), "/s.series")

        run("init")
        yield copy


WALKS = (append, read, select, merge, post, pond_copy)
_SLOW = (post, pond_copy)


def main() -> None:
    """Print the figures of the walks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out the service and the pond")
    parser.add_argument("--top", type=int, default=0, help="files to show for each walk", metavar="N")
    parser.add_argument("walk", nargs="?", choices=[each.__name__ for each in WALKS])
    given = parser.parse_args()
    threading.setprofile(_see)
    print(f"{'walk':<12} {'calls':>7} {'files':>6} {'switches':>9}")
    for each in WALKS:
        if (given.walk not in (None, each.__name__)) or (given.quick and each in _SLOW):
            continue
        with each() as step:
            for _ in range(_WARM):
                step()
            with measured() as walk:
                step()
        print(f"{each.__name__:<12} {walk.calls:>7,} {len(walk.files):>6} {walk.switches:>9,}")
        for name, count in walk.files.most_common(given.top):
            print(f"  {count:>6,} {Path(name).relative_to(SOURCE)}")


if __name__ == "__main__":
    main()
