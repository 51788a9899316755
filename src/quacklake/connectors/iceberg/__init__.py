"""Iceberg tables as sinks, through the library ``pyiceberg``."""

from quacklake.connectors.iceberg.sink import IcebergSink
from quacklake.connectors.iceberg.sink import sink as sink

__all__ = ["IcebergSink", "sink"]
