"""Streams out of a table on Spark Connect, where the server opens the lake itself by a URL.

The server shows and logs the options of a plan. So the URL is inside a data source that is registered only for it,
under a random name. It reaches the processes beside the server that plan a stream, but neither executors nor a
checkpoint.
"""

from __future__ import annotations

import datetime as dt
import secrets
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING

from quacklake.catalog import parse_url
from quacklake.errors import UnsupportedFeatureError
from quacklake.format.names import quote
from quacklake.operations.change_feed import Bound
from quacklake.spark.datasource.format import FORMAT, source_class
from quacklake.spark.datasource.options import UUID
from quacklake.spark.streams.source import StreamSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_registered: dict[tuple[SparkSession, str], str] = {}
"""The names of formats, by session and URL."""
_INSTEAD = "pipeline(…) asks for new rows in this process, and needs no more than the session"


@dataclass(frozen=True, repr=False)
class RemoteLake:
    """A lake that a Spark Connect server can open."""

    url: str
    catalog: str | None

    @classmethod
    def of(cls, catalog: str | None, url: str | None) -> RemoteLake:
        """Return the lake.

        Raises ``UnsupportedFeatureError`` without a URL, or for a database that allows only one process.
        """
        if url is None:
            raise UnsupportedFeatureError(
                "the server of Spark Connect would have to ask the catalog for new rows, and is not told where it is",
                hint=f'let it: read_stream(…, lake_url="postgresql://reader@host/db"). Or {_INSTEAD}',
            )
        parsed = parse_url(url)
        if parsed.database == "duckdb":
            raise UnsupportedFeatureError("DuckDB lets only one process into a catalog, and this one is", hint=_INSTEAD)
        return cls(url, None if parsed.catalog is not None else catalog)

    def stream(self, session: SparkSession, source: StreamSource, starting: Bound, version: int) -> DataFrame:
        """Return a streaming DataFrame of a source at a version, with rows in transport form."""
        table = source.table
        given = {
            "catalog": self.catalog,
            "table": f"{quote(table.schema_name)}.{quote(table.name)}",
            UUID: table.uuid,
            "version": version,
            "readChangeFeed": str(source.changes).lower(),
            "maxFilesPerTrigger": source.max_files,
            "maxBytesPerTrigger": source.max_bytes,
            **_starting(starting),
        }
        options = {name: str(value) for name, value in given.items() if value is not None}
        return session.readStream.format(self._registered(session)).options(**options).load()

    def _registered(self, session: SparkSession) -> str:
        """Return the name of the format for this lake in a session, after registering it."""
        key = session, self.url
        if key not in _registered:
            name = f"{FORMAT}_{secrets.token_hex(8)}"
            session.dataSource.register(source_class(None, url=self.url, called=name))
            _registered[key] = name
        return _registered[key]


def _starting(given: Bound) -> dict[str, str]:
    """Return a start as an option. A text may be a tag, a time or a word, and stays text whatever it contains."""
    if isinstance(given, str | dt.datetime):
        return {"startingTimestamp": given if isinstance(given, str) else given.isoformat()}
    return {"startingVersion": str(index(given))}
