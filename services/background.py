"""Servers that outlive the process that asks for them.

A small keeper process owns each one. It writes a state file when the server answers, and ends the server when it is
told to stop or when the process it was started for (its *owner*) is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from services import SERVERS, Server, Unavailable

__all__ = ["Running", "ensure", "keep", "running", "stop"]

_REPOSITORY = Path(__file__).resolve().parent.parent
_START_SECONDS = 240.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Running:
    """The content of the state file: a keeper and its server's port, or why there is none."""

    name: str
    keeper: int
    born: str
    """The keeper's start time, so that a pid that was used again is not mistaken for it."""
    port: int = 0
    unavailable: str | None = None
    failed: str | None = None

    def alive(self) -> bool:
        """True while the keeper runs."""
        return _born(self.keeper) == self.born


def ensure(name: str, directory: Path, *, owner: int | None = None, durable: bool = True) -> Server:
    """The server ``name`` of ``directory``, started if it is not running. Safe to call from many processes.

    Raise :class:`Unavailable` when it cannot be had, the same in every process that asks.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _lock(directory / f"{name}.lock"):
        state = running(name, directory)
        if state is None:
            state = _start(name, directory, owner, durable)
    if state.unavailable is not None:
        raise Unavailable(state.unavailable)
    if state.failed is not None:
        raise RuntimeError(state.failed)
    return SERVERS[name].attached(state.port)


def running(name: str, directory: Path) -> Running | None:
    """Return the known state of the server ``name``, or None when it was never asked for or is gone."""
    try:
        state = Running(**json.loads((directory / f"{name}.json").read_text()))
    except FileNotFoundError:
        return None
    return state if state.alive() or state.unavailable or state.failed else None


def stop(name: str, directory: Path) -> bool:
    """End the server ``name`` and forget its state. False when it was not running."""
    state = running(name, directory)
    (directory / f"{name}.json").unlink(missing_ok=True)
    if state is None or not state.alive():
        return False
    with suppress(ProcessLookupError):
        os.kill(state.keeper, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while state.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    if state.alive():
        os.kill(state.keeper, signal.SIGKILL)
    return True


def keep(name: str, directory: Path, *, owner: int | None = None, durable: bool = True) -> None:
    """Run the server as its keeper, until told to stop or until ``owner`` is gone."""
    me = Running(name, keeper=os.getpid(), born=_born(os.getpid()) or "")
    state_file = directory / f"{name}.json"
    server = SERVERS[name](durable=durable)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: sys.exit(0))
    try:
        server.start()
        _write(state_file, replace(me, port=server.port))
        while server.alive() and (owner is None or _exists(owner)):
            _wait(owner, seconds=0.5)
    except Unavailable as error:
        _write(state_file, replace(me, unavailable=str(error)))
    except Exception as error:
        _write(state_file, replace(me, failed=str(error)))
    finally:
        server.stop()


def _start(name: str, directory: Path, owner: int | None, durable: bool) -> Running:
    (directory / f"{name}.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "services", "keep", name, "--directory", str(directory)]
    command += [] if owner is None else ["--owner", str(owner)]
    command += [] if durable else ["--fast"]
    with (directory / f"{name}.log").open("wb") as log:
        keeper = subprocess.Popen(
            command,
            cwd=_REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        ended = keeper.poll() is not None
        state = running(name, directory)
        if state is not None:
            keeper.returncode = keeper.returncode or 0  # the keeper is meant to outlive us: no warning about it
            return state
        if ended:
            break
        time.sleep(0.05)
    keeper.terminate()
    raise RuntimeError(f"{name} did not start:\n{(directory / f'{name}.log').read_text(errors='replace')[-4000:]}")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(path: Path, state: Running) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(state)))
    partial.replace(path)


def _born(pid: int) -> str | None:
    """A text that differs between two processes with the same pid, or None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        # Not Linux: the pid alone has to do.
        return "unknown" if not Path("/proc/self/stat").exists() and _exists(pid) else None
    return None if fields[0] in "ZX" else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not Path("/proc/self/stat").exists() or _born(pid) is not None


def _wait(pid: int | None, *, seconds: float) -> None:
    """Sleep, but wake at once when process ``pid`` ends (where the system can tell)."""
    if pid is None or not hasattr(os, "pidfd_open"):
        time.sleep(seconds)
        return
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            select.select([handle], [], [], seconds)
        finally:
            os.close(handle)
