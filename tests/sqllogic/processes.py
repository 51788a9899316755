"""A process for each test file, which is thrown away with everything that the file did."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

from tests.sqllogic.runner import Outcome, run_file

__all__ = ["run"]

TIMEOUT = 900
#: Modules that a session needs: loaded once, they are there in every process.
_NEEDED = (
    *(f"quacklake.core.sql.{name}" for name in ("session", "lake_functions", "listing", "metadata")),
    *(
        f"quacklake.core.sql.statements.{name}"
        for name in ("alter", "databases", "inserting", "objects", "queries", "tables")
    ),
    "quacklake.core.tenancy.opening",
    "pyarrow.dataset",
    "sqlglot",
)


def run(root: Path, path: Path) -> Outcome:
    """Run a file in a process that is thrown away, and not for ever."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *_NEEDED])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, root, path))
    process.start()
    sender.close()
    try:
        if receiver.poll(TIMEOUT):
            found: Outcome = receiver.recv()
            return found
        return Outcome("FAIL", f"took more than {TIMEOUT} s")
    except EOFError:
        process.join()
        return Outcome("FAIL", f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def _child(sender: Connection, root: Path, path: Path) -> None:
    sender.send(run_file(root, path))
