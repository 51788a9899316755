"""Processes that start in a few milliseconds, to be ended at any point.

A small server process imports everything once, and may rehearse on a lake of its own that it closes again, so that what
Python only finds out once is known; each child is a fork of it. So a child has nothing open, as a new interpreter, and no
thread or connection of the test process is in it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Child", "Ended", "Forks"]

_REPOSITORY = Path(__file__).resolve().parents[2]
_ELSEWHERE = [path for path in (os.environ.get("PYTHONPATH"),) if path]
"""The path of another DuckDB, if the tests run on one."""
_PRELOAD = ("pandas", "psycopg", "pymysql", "duckdb_engine", "pyarrow.parquet", "quacklake")


@dataclass(frozen=True)
class Ended:
    """The end of a child: its exit code (negative: the signal), its result, and what it wrote to stderr."""

    code: int
    value: Any
    errors: str


class Child:
    """A running child."""

    def __init__(self, forks: Forks, pid: int, result: Path) -> None:
        self.pid = pid
        self._forks = forks
        self._result = result

    def kill(self) -> None:
        """Send it SIGKILL. It stays a zombie until ``wait``, so the pid is its own until then."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Wait for its end."""
        return self._ended(self._forks.ask({"wait": self.pid})["code"])

    def poll(self) -> Ended | None:
        """Return the end of the child, or None while it runs."""
        code = self._forks.ask({"wait": self.pid, "patient": False})["code"]
        return None if code is None else self._ended(code)

    def _ended(self, code: int) -> Ended:
        value = json.loads(self._result.read_text()) if self._result.exists() else None
        errors = self._result.with_suffix(".err")
        # one that was killed at once has not made it yet
        return Ended(code, value, errors.read_text() if errors.exists() else "")


class Forks:
    """The server. ``modules`` are imported once, besides the library itself; those that have one do a ``rehearse()``.

    ``environment`` is what they find there besides.
    """

    def __init__(self, modules: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="quacklake-forks-")
        self._count = 0
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forks", *_PRELOAD, *modules],
            cwd=_REPOSITORY,
            env=os.environ
            | dict(environment or {})
            | {
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join((*_ELSEWHERE, str(_REPOSITORY / "src"), str(_REPOSITORY))),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server and what children are left."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
        self._folder.cleanup()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(question) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer

    def start(self, call: str, **arguments: Any) -> Child:
        """Run ``module:function`` in a new child; arguments and the returned value must be JSON."""
        self._count += 1
        result = Path(self._folder.name, f"{self._count}.json")
        pid = self.ask({"call": call, "arguments": arguments, "result": str(result)})["pid"]
        return Child(self, pid, result)

    def run(self, call: str, **arguments: Any) -> Ended:
        """Run ``module:function`` in a new child to its end."""
        return self.start(call, **arguments).wait()


def _serve() -> None:
    modules = [importlib.import_module(name) for name in sys.argv[1:]]
    for rehearse in {getattr(module, "rehearse", None) for module in modules} - {None}:
        rehearse()
    gc.collect()
    gc.freeze()  # what is there stays there: no child copies a page to look through it
    children: set[int] = set()
    for line in sys.stdin:
        question = json.loads(line)
        if "wait" in question:
            pid, status = os.waitpid(question["wait"], 0 if question.get("patient", True) else os.WNOHANG)
            children.discard(pid)
            answer: dict[str, Any] = {"code": os.waitstatus_to_exitcode(status) if pid else None}
        else:
            pid = os.fork()
            if pid == 0:
                _run(question)
            children.add(pid)
            answer = {"pid": pid}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _run(question: dict[str, Any]) -> None:
    result = Path(question["result"])
    errors = os.open(result.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    code = 1
    try:
        module, _, name = question["call"].partition(":")
        value = getattr(importlib.import_module(module), name)(**question["arguments"])
        whole = result.with_suffix(".new")
        whole.write_text(json.dumps(value))
        whole.replace(result)  # a kill leaves all of it or nothing
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
