"""Iceberg tables as sources and sinks, through the library ``pyiceberg``."""

from quacklake.connectors.iceberg.sink import IcebergSink, sink
from quacklake.connectors.iceberg.source import IcebergSource, source

__all__ = ["IcebergSink", "IcebergSource", "sink", "source"]
