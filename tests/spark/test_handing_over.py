"""A Connect server and the process that commits for it exchange batches through files, here without Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.operations.options import StreamPositions
from quacklake.core.operations.reference import TableRef
from quacklake.errors import StreamError
from quacklake.spark.streams.sink import ConnectHandle


class Server:
    """Calls the function that it was given with batches, as Spark does, and is asked as a query is."""

    id = runId = "1"

    def __init__(self, hand_over: Any, batches: int) -> None:
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(hand_over, batches))
        self._thread.start()

    def _run(self, hand_over: Any, batches: int) -> None:
        try:
            for epoch in range(batches):
                hand_over(Frame(), epoch)
        except Exception as error:
            self.failure = error

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._thread.join()

    def awaitTermination(self, timeout: int | None = None) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()


class Frame:
    """A batch, and its session: as much of them as the function uses, on local files."""

    @property
    def sparkSession(self) -> Frame:
        return self

    write = read = sparkSession

    def mode(self, _: str) -> Frame:
        return self

    def options(self, **_: str) -> Frame:
        return self

    def range(self, _: int) -> Frame:
        return self

    def parquet(self, path: str) -> None:
        folder = Path(path.removeprefix("file://"))
        folder.mkdir(parents=True)
        (folder / "_SUCCESS").touch()

    def text(self, path: str, *, wholetext: bool) -> Any:
        from pyspark.errors import AnalysisException

        file = Path(path.removeprefix("file://"))
        if not file.exists() or not file.read_text():
            raise AnalysisException("there is no such file")
        return SimpleNamespace(first=lambda: (file.read_text(),))


def handle_of(lake: quacklake.Lake, taken: list[int]) -> ConnectHandle:
    def write(frame: str, epoch: int, content: object) -> None:
        assert frame.endswith(f"/{epoch}/rows")
        if epoch == 2:
            raise StreamError("no more")
        taken.append(epoch)

    session = SimpleNamespace(read=SimpleNamespace(parquet=lambda path: path))
    engine: Any = SimpleNamespace(context=lake.handle.context, handle=lake.handle, session=session)
    sink: Any = SimpleNamespace(engine=engine, table=TableRef.parse("t"), name="s", write=write, lock=threading.Lock())
    checkpoint: Any = SimpleNamespace(content=lambda epoch: None)
    return ConnectHandle(sink, checkpoint)


@pytest.fixture
def lake(tmp_path: Path) -> quacklake.Lake:
    found = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data"))
    found.create_table("t", {"id": pa.int64()})
    return found


def test_batches_are_taken_in_turn_and_nothing_is_left(lake: quacklake.Lake) -> None:
    taken: list[int] = []
    handle = handle_of(lake, taken)
    handle._begin(Server(handle.hand_over(), 2), restart=False)  # type: ignore[arg-type]
    assert handle.awaitTermination(60)
    assert taken == [0, 1]
    assert not list(Path(lake.data_path).rglob("*"))[2:]


def test_a_batch_that_is_refused_ends_the_query(lake: quacklake.Lake) -> None:
    taken: list[int] = []
    handle = handle_of(lake, taken)
    server = Server(handle.hand_over(), 4)
    handle._begin(server, restart=False)  # type: ignore[arg-type]
    assert handle.awaitTermination(60)
    assert (taken, str(server.failure)) == ([0, 1], "StreamError: no more")
    assert isinstance(handle.exception(), StreamError)


def test_a_stream_that_cannot_be_claimed_is_answered_too(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def refuse(*_: object, **__: object) -> None:
        raise StreamError("it is another's")

    monkeypatch.setattr(StreamPositions, "claim", refuse)
    handle = handle_of(lake, taken)
    server = Server(handle.hand_over(), 1)
    with pytest.raises(StreamError, match="another's"):
        handle._begin(server, restart=False)  # type: ignore[arg-type]
    assert (taken, str(server.failure)) == ([], "StreamError: it is another's")
