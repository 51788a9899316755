"""Failures that are worth another try, and the number of tries."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from quacklake import telemetry
from quacklake.core.storage import S3Options, Store
from quacklake.core.storage.failures import explain
from quacklake.core.storage.store import Attempts
from quacklake.errors import CorruptFileError, QuacklakeError, StorageError, StorageUnavailableError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("x"), CorruptFileError),
        (OSError(errno.ENOENT, "x"), CorruptFileError),
        (PermissionError("x"), StorageError),
        (OSError(errno.EROFS, "x"), StorageError),
        (OSError(errno.ENOSPC, "x"), StorageError),
        (IsADirectoryError("x"), StorageError),
        (ConnectionResetError("x"), StorageUnavailableError),
        (TimeoutError("x"), StorageUnavailableError),
        (OSError(errno.EIO, "x"), StorageUnavailableError),
        (OSError("When x: AWS Error SLOW_DOWN during PutObject operation: m"), StorageUnavailableError),
        (OSError("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: m"), StorageUnavailableError),
        (OSError("AWS Error ACCESS_DENIED during HeadObject operation: m"), StorageError),
        (OSError("AWS Error NO_SUCH_BUCKET during PutObject operation: m"), StorageError),
        (OSError("google::cloud::Status(UNAVAILABLE: m)"), StorageUnavailableError),
        (OSError("google::cloud::Status(PERMISSION_DENIED: m)"), StorageError),
        (OSError("GetProperties failed. Azure Error: [ServerBusy] 503 m"), StorageUnavailableError),
        (OSError("GetProperties failed. Azure Error: [AuthorizationFailure] 403 m"), StorageError),
        (OSError("something else"), StorageError),
        (pa.ArrowInvalid("x"), StorageError),
    ],
)
def test_a_failure_becomes_the_right_error(error: Exception, kind: type[QuacklakeError]) -> None:
    explained = explain(error, "the file")
    assert type(explained) is kind
    assert "the file" in str(explained)


def test_an_error_that_is_not_about_storage_passes() -> None:
    assert explain(ZeroDivisionError(), "x") is None


def test_no_message_tells_a_secret() -> None:
    text = "AWS Error UNKNOWN during x: key=AKIA signature of hunter2-hunter2 https://ann:pw123@host/x"
    explained = str(explain(OSError(text), "x", secrets=("hunter2-hunter2",)))
    assert "hunter2" not in explained
    assert "pw123" not in explained


def test_the_number_of_tries_has_a_limit_and_waits_in_between() -> None:
    telemetry.reset()
    tries: list[float] = []

    def action() -> None:
        tries.append(time.perf_counter())
        raise ConnectionResetError("reset")

    with pytest.raises(StorageUnavailableError) as caught:
        Attempts(max_retries=3, retry_wait=0.01).run("x", "f", action)
    assert len(tries) == 4
    assert tries[-1] - tries[0] < 1
    assert caught.value.__cause__ is None
    assert telemetry.snapshot().counters["storage.retries"] == 3
    assert telemetry.snapshot().timings["storage.x"].count == 1


def test_the_waits_grow_and_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("quacklake.core.storage.store.time.sleep", waits.append)

    def action() -> None:
        raise TimeoutError

    for _ in range(30):
        with pytest.raises(StorageUnavailableError):
            Attempts(max_retries=12, retry_wait=1).run("x", "f", action)
    for attempt in range(12):
        at_attempt = waits[attempt::12]
        assert 0 <= min(at_attempt) < max(at_attempt) <= min(10, 2**attempt)


class Failing(BaseHTTPRequestHandler):
    """An S3 server that answers every request with the status its key starts with, then with success."""

    answers: dict[str, int]
    seen: list[str]

    def answer(self) -> None:
        self.seen.append(self.path)
        status = int(self.path.split("/")[-1][:3])
        left = self.answers.get(self.path, 0)
        self.answers[self.path] = left - 1
        if left <= 0:
            status = 200
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET = do_PUT = do_POST = do_DELETE = answer

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def failing() -> Iterator[tuple[Store, type[Failing]]]:
    handler = type("Handler", (Failing,), {"answers": {}, "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    options = S3Options(endpoint=f"http://127.0.0.1:{server.server_port}", access_key="ann", secret_key="hunter2")
    yield Store.open("s3://bucket/lake", s3=options, max_retries=4, retry_wait=0.001), handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_busy_server_is_asked_again(failing: tuple[Store, type[Failing]], status: int) -> None:
    store, handler = failing
    handler.answers[f"/bucket/lake/{status}-x"] = 3
    assert store.exists(f"{status}-x")
    assert len(handler.seen) == 4


def test_a_server_that_says_no_is_asked_once(failing: tuple[Store, type[Failing]]) -> None:
    store, handler = failing
    handler.answers["/bucket/lake/403-x"] = 3
    with pytest.raises(StorageError, match="no permission"):
        store.exists("403-x")
    assert len(handler.seen) == 1


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    store.write("f", b"1")
    with pytest.raises(StorageError):
        store.write("f/g", b"2")
    assert store.read("f") == b"1"
    assert store.delete(["f/g"]) == 0


@pytest.mark.crash
@pytest.mark.parametrize("point", ["write.before", "publish.before", "publish.after", "write.after"])
def test_a_killed_process_leaves_a_whole_file_or_the_old_one(tmp_path: Path, point: str) -> None:
    store = Store.open(str(tmp_path))
    store.write("d/f", b"old")
    script = "import sys; from quacklake.core.storage import Store; Store.open(sys.argv[1]).write('d/f', b'new')"
    environment = os.environ | {"QUACKLAKE_FAULT": f"1:kill:storage.{point}"}
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, check=False).returncode == -9
    assert store.read("d/f") == (b"new" if point in ("publish.after", "write.after") else b"old")
    left = [entry for entry in store.list() if entry.path != "d/f"]
    assert [entry.is_temporary for entry in left] == ([True] if point == "publish.before" else [])
