"""The process that runs the pipeline of the demo, started again whenever it has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

__all__ = ["Driver"]

_AGAIN = 0.3
_BEGIN = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
os.getppid() == int(sys.argv[1]) or os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Lets a process of Linux end with the one that started it. Code between fork and exec is not safe beside threads."""


class Driver:
    """Keeps ``quacklake pipeline run`` alive in a process of its own, whose Java is in its process group."""

    def __init__(self, url: str, catalog: str, pipeline: str, folder: Path) -> None:
        self._words = [sys.executable, "-m", "quacklake.cli", "pipeline", "run", pipeline]
        if sys.platform == "linux":
            self._words = [sys.executable, "-c", _BEGIN, str(os.getpid()), *self._words]
        self._environment = {
            **os.environ,
            "QUACKLAKE_URL": url,
            "QUACKLAKE_CATALOG": catalog,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._folder = folder
        self.log = folder / "driver.log"
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="demo-driver", daemon=True)
        self.starts = 0

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Begin to keep the process alive."""
        self._thread.start()

    def kill(self) -> None:
        """Kill the process and its Java, as ``kill -9`` does. It is started again."""
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the process for good."""
        self._ended.set()
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        self._thread.join()

    def said(self) -> str:
        """Return the last line of the log."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1] if lines else ""

    def _keep(self) -> None:
        while not self._ended.is_set():
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._words,
                    env=self._environment,
                    cwd=self._folder,  # the settings of another folder have no part in it
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self.starts += 1
            self._process.wait()
            self._ended.wait(_AGAIN)
        self.kill()
