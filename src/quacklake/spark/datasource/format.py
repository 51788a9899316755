"""``format("quacklake")``: tables through Spark's interface for Python data sources.

Spark runs processes of its own, beside the driver, to learn the schema of a table, to plan the work of tasks, and to
commit what they wrote. These processes pass each question to the driver's own Python, which alone uses the catalog. So
no password leaves it, and databases that allow only one process can be used too. They reach it through a socket in a
folder that only this user may enter. Executors get no option of a read or a write.
"""

from __future__ import annotations

import atexit
import pickle
import shutil
import tempfile
import threading
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import register_pickle_by_value

from quacklake.operations.change_feed import Bound
from quacklake.spark.datasource import source_classes
from quacklake.spark.datasource.driver_service import DriverService
from quacklake.spark.datasource.source_classes import FORMAT
from quacklake.spark.streams.source import StreamSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

    from quacklake.operations.handles import LakeHandle

__all__ = ["FORMAT", "SparkFormat", "source_class"]

_LONGEST = 90
"""The longest path of a socket, less a few characters."""

_formats: dict[SparkSession, SparkFormat] = {}


class SparkFormat:
    """The format in one session: answers Spark's questions in threads of the driver's Python."""

    def __init__(self, session: SparkSession) -> None:
        self._desk = DriverService(session)
        folder = _folder()
        self._listener = Listener(f"{folder}/ask", family="AF_UNIX")
        atexit.register(_close, self._listener, folder)
        session.dataSource.register(source_class(str(self._listener.address)))
        threading.Thread(target=self._accept, name="quacklake-format", daemon=True).start()

    @classmethod
    def of(cls, session: SparkSession) -> SparkFormat:
        """Return the format of a session, after registering it there."""
        if session not in _formats:
            _formats[session] = cls(session)
        return _formats[session]

    def add(self, lake: LakeHandle, name: str | None = None) -> None:
        """Make a lake the default lake of the session, and give it a name."""
        self._desk.add(lake, name)

    def stream(self, session: SparkSession, source: StreamSource, starting: Bound, schema: str) -> DataFrame:
        """Return a streaming DataFrame of a source, with rows in transport form."""
        id_ = self._desk.serve(source, starting)
        return session.readStream.format(FORMAT).schema(schema).option("stream", id_).load()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            except Exception:  # an unknown caller
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        with connection:
            ask, question = pickle.loads(connection.recv_bytes())
            connection.send_bytes(pickle.dumps(self._desk.answer(ask, question)))


def _folder() -> str:
    """Create a folder for a socket, which only this user may enter."""
    found = tempfile.mkdtemp(prefix="quacklake-")
    if len(found) > _LONGEST:
        Path(found).rmdir()
        found = tempfile.mkdtemp(prefix="quacklake-", dir="/tmp")
    return found


def _close(listener: Listener, folder: str) -> None:
    listener.close()
    shutil.rmtree(folder, ignore_errors=True)


def source_class(address: str | None, *, url: str | None = None, called: str = FORMAT) -> type[DataSource]:
    """Return the class that Spark copies to its processes, which ask the driver at ``address``.

    Without an address they open the lake themselves, which is for reading when the session is on another machine.
    ``url`` is then the URL of the lake unless an option gives it, and ``called`` the name of the format for it.
    """
    register_pickle_by_value(source_classes)  # type: ignore[no-untyped-call]
    made = {"ask": source_classes.DriverClient(address, url), "called": called, "__module__": __name__}
    return type("TableSource", (source_classes.TableSource,), made)
