"""Delta tables as sources and sinks, through the library ``deltalake``."""

from quacklake.connectors.delta.sink import DeltaSink
from quacklake.connectors.delta.sink import sink as sink

__all__ = ["DeltaSink", "sink"]
