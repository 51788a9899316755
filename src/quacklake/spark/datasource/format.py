"""``format("quacklake")``: tables through Spark's interface for Python data sources.

Spark runs processes of its own, beside the driver, to learn the schema of a table, to plan the work of tasks, and to
commit what they wrote. These processes pass each question to the driver's own Python, which alone uses the catalog. So
no password leaves it, and databases that allow only one process can be used too. They reach it through a socket in a
folder that only this user may enter. Executors get no option of a read or a write.
"""

from __future__ import annotations

import atexit
import datetime as dt
import pickle
import secrets
import shutil
import tempfile
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, Listener
from operator import index
from pathlib import Path
from typing import Any

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from quacklake.core.catalog import parse_url
from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.names import quote
from quacklake.extend.streams import StreamSource
from quacklake.spark.datasource import source_classes
from quacklake.spark.datasource.driver_service import DriverService
from quacklake.spark.datasource.source_classes import FORMAT
from quacklake.spark.datasource.table_sink import UUID
from quacklake.spark.runtime.session import is_connect
from quacklake.spark.streams.source import Bound

_MAX_LENGTH = 90  # the longest path of a socket, less a few characters

_formats: dict[str, SparkFormat] = {}  # by the id of the session: each batch of a stream has another Python object


class SparkFormat:
    """The format in one session: answers Spark's questions in threads of the driver's Python."""

    def __init__(self, session: SparkSession) -> None:
        self.service = DriverService(session)
        folder = tempfile.mkdtemp(prefix="quacklake-")  # only this user may enter it
        if len(folder) > _MAX_LENGTH:
            Path(folder).rmdir()
            folder = tempfile.mkdtemp(prefix="quacklake-", dir="/tmp")
        self._listener = Listener(f"{folder}/ask", family="AF_UNIX")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(self._listener.close)
        register_source(session, source_class(str(self._listener.address)))
        threading.Thread(target=self._accept, name="quacklake-format", daemon=True).start()

    @classmethod
    def of(cls, session: SparkSession) -> SparkFormat:
        """Return the lake. Raise ``UnsupportedFeatureError`` without a URL, or for a database of one process."""
        key = str(session._jsparkSession.sessionUUID())
        if key not in _formats:
            _formats[key] = cls(session)
        return _formats[key]

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
            try:
                asked = connection.recv_bytes()
            except (EOFError, OSError):
                return
            answer = pickle.dumps(self.service.answer(*pickle.loads(asked)))
            with suppress(OSError):  # whoever asked may have gone: a query that is stopped does not wait
                connection.send_bytes(answer)


def register_source(session: SparkSession, source: type[DataSource]) -> None:
    """Register a data source in a session, which need not be the active one of this thread.

    Spark looks for another source of that name in the active session, and refuses ours if it is registered there.
    """
    if is_connect(session):
        session.dataSource.register(source)
        return
    sessions = SparkSession._get_j_spark_session_class(session._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        session.dataSource.register(source)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def source_class(address: str | None, *, url: str | None = None, called: str = FORMAT) -> type[DataSource]:
    """Return the class that Spark copies to its processes, which ask the driver at ``address``.

    Without an address they open the lake themselves, for reading, at ``url`` unless an option gives one.
    """
    register_pickle_by_value(source_classes)  # type: ignore[no-untyped-call]
    made = {"ask": source_classes.DriverClient(address, url), "called": called, "__module__": __name__}
    return type("TableSource", (source_classes.TableSource,), made)


_registered: dict[tuple[SparkSession, str], str] = {}  # the names of formats, by session and URL
_INSTEAD = "pipeline(…) asks for new rows in this process, and needs no more than the session"


def remote_stream(
    session: SparkSession, source: StreamSource, starting: Bound, version: int, url: str | None
) -> DataFrame:
    """Return a streaming DataFrame that a Spark Connect server plans, which opens the lake at ``url``.

    The server shows and logs the options of a plan. So the URL is inside a data source that is registered only for it,
    under a random name. It reaches the processes beside the server that plan a stream, but neither executors nor a
    checkpoint. Raise ``UnsupportedFeatureError`` without a URL, or for a database that allows only one process.
    """
    if url is None:
        raise UnsupportedFeatureError(
            "the server of Spark Connect would have to ask the catalog for new rows, and is not told where it is",
            hint=f'let it: read_stream(…, lake_url="postgresql://reader@host/db"); or {_INSTEAD}',
        )
    parsed, table = parse_url(url), source.table
    if parsed.database == "duckdb":
        raise UnsupportedFeatureError("DuckDB lets only one process into a catalog, and this one is", hint=_INSTEAD)
    given = {
        "catalog": source.context.catalog.tenant if parsed.catalog is None else None,
        "table": f"{quote(table.schema_name)}.{quote(table.name)}",
        UUID: table.uuid,
        "version": version,
        "readChangeFeed": str(source.changes).lower(),
        "maxFilesPerTrigger": source.max_files,
        "maxBytesPerTrigger": source.max_bytes,
    }
    # a text may be a tag, a time or a word, and stays text whatever it contains
    if isinstance(starting, str | dt.datetime):
        given["startingTimestamp"] = starting if isinstance(starting, str) else starting.isoformat()
    else:
        given["startingVersion"] = index(starting)
    options = {name: str(value) for name, value in given.items() if value is not None}
    key = session, url
    if key not in _registered:
        name = f"{FORMAT}_{secrets.token_hex(8)}"
        register_source(session, source_class(None, url=url, called=name))
        _registered[key] = name
    return session.readStream.format(_registered[key]).options(**options).load()
