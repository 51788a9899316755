"""The base of all servers: a directory, a port, a process and a reliable end."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from services import launch

__all__ = ["ConfiguredServer", "Server", "Unavailable", "free_port", "kill_family", "reachable"]

_START_ATTEMPTS = 3
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


class Unavailable(Exception):
    """A server cannot be had on this machine; the message says why."""


class Server(ABC):
    """One server process, started by :meth:`start` or by entering the context.

    ``directory`` holds its files (default: a temporary one, removed by :meth:`stop`). With ``durable=False`` the
    server does not wait for the disk, which is quicker and loses data in a power cut: for tests, not benchmarks.
    """

    name: ClassVar[str]
    accounts: ClassVar[tuple[str, ...]] = ()
    """Users to run as, best first, when we are root and the server refuses to be."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    orphan_signal: ClassVar[signal.Signals] = signal.SIGKILL
    """The signal that the kernel sends the server when our process dies without stopping it (Linux)."""

    def __init__(self, directory: Path | None = None, *, durable: bool = True) -> None:
        self.durable = durable
        self.port = 0
        self._given_directory = directory
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def attached(cls, port: int) -> Self:
        """The server that another process runs on ``port``: usable, but not ours to stop."""
        server = cls()
        server.port = port
        return server

    @property
    @abstractmethod
    def url(self) -> str:
        """The address of the server."""

    @abstractmethod
    def prepare(self) -> None:
        """Create the server's files. Raise :class:`Unavailable` when it is not installed."""

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """The command line that runs the server in the foreground on ``self.port``."""

    @abstractmethod
    def ready(self) -> bool:
        """True when the server answers."""

    @property
    def directory(self) -> Path:
        """The directory of the server's files."""
        assert self._directory is not None, "the server has not been started here"
        return self._directory

    def start(self) -> Self:
        """Start the server and return once it answers."""
        assert self._process is None, "already started"
        try:
            self._directory = self._make_directory()
            self.prepare()
            self._launch()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the server and remove its files. Harmless when it is not running."""
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(self.stop_signal)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._directory is not None and self._given_directory is None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None

    def kill(self) -> None:
        """End the server and all that it has started, as a power cut would; its files stay for :meth:`revive`."""
        assert self._process is not None, "not started here"
        kill_family(self._process.pid)
        self._process.wait()

    def revive(self) -> None:
        """Start a server that has died again, with the same files on the same port; return once it answers.

        On Linux it ends with the thread that calls this, as with the one that calls :meth:`start`.
        """
        assert self._process is not None, "not started here"
        self._process.wait()
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            # what the dead one has left behind, such as memory that its last child is about to let go of, may refuse it
            self._spawn("ab")
            if self._wait_until_ready():
                return
        log = (self.directory / "server.log").read_text(errors="replace")
        raise RuntimeError(f"{self.name} did not come back:\n{log[-4000:]}")

    def alive(self) -> bool:
        """True while the process that :meth:`start` began is running."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, command: Sequence[str | Path]) -> None:
        """Run a preparing command as the server's user; its output is shown only when it fails."""
        done = subprocess.run(
            launch.make_command(command, user=self.account),
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{Path(command[0]).name} failed:\n{done.stdout.decode(errors='replace')[-4000:]}")

    @property
    def account(self) -> str | None:
        """The user to run as, or None for our own."""
        if not self.accounts or os.geteuid() != 0:
            return None
        known = {entry.pw_name for entry in pwd.getpwall()}
        for name in (*self.accounts, "nobody"):
            if name in known:
                return name
        raise Unavailable(f"{self.name} does not run as root, and there is no user {' or '.join(self.accounts)}")

    def _group(self) -> int | None:
        return None if self.account is None else pwd.getpwnam(self.account).pw_gid

    def _make_directory(self) -> Path:
        directory = self._given_directory
        if directory is None:
            parents = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
            parent = next((path for path in parents if self.account is None or reachable(path)), parents[0])
            directory = Path(tempfile.mkdtemp(prefix=f"quacklake-{self.name}-", dir=parent))
        directory.mkdir(parents=True, exist_ok=True)
        if self.account is not None:
            shutil.chown(directory, self.account, self._group())
        return directory

    def _launch(self) -> None:
        log_path = self.directory / "server.log"
        for _ in range(_START_ATTEMPTS):
            self.port = free_port()
            self._spawn("wb")
            assert self._process is not None
            atexit.register(self.stop)
            if self._wait_until_ready():
                return
            # Another process may have taken the port in between: try the next one.
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
        raise RuntimeError(f"{self.name} did not start:\n{log_path.read_text(errors='replace')[-4000:]}")

    def _spawn(self, mode: str) -> None:
        with (self.directory / "server.log").open(mode) as log:
            self._process = subprocess.Popen(
                launch.make_command(self.command(), user=self.account, orphan_signal=self.orphan_signal),
                cwd=self.directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_until_ready(self) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while self.alive() and time.monotonic() < deadline:
            if self.ready():
                return True
            time.sleep(0.05)
        return False

    def _environment(self) -> dict[str, str]:
        # HOME may be a directory the server's user cannot read; PG* and MYSQL* variables are the caller's, not ours.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "MYSQL", "MARIADB"))}
        return kept | {"HOME": str(self.directory), "LC_ALL": "C", "TZ": "UTC"}


class ConfiguredServer(Server):
    """A server with settings of its own, and an address of a scheme."""

    scheme: ClassVar[str]

    def __init__(
        self, directory: Path | None = None, *, durable: bool = True, settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(directory, durable=durable)
        self.settings = dict(settings or {})

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"{self.scheme}://127.0.0.1:{self.port}"


def kill_family(pid: int) -> None:
    """Send SIGKILL to a process and to all that it has started, itself first."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found = children.read_text().split() if children.exists() else []
    for each in (pid, *map(int, found)):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def reachable(path: Path) -> bool:
    """True when every user may enter ``path`` and all the directories above it."""
    resolved = path.resolve()
    return all(each.stat().st_mode & stat.S_IXOTH for each in (resolved, *resolved.parents))


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
