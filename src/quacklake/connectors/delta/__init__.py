"""Delta tables as sources and sinks, through the library ``deltalake``."""

from quacklake.connectors.delta.sink import DeltaSink, sink
from quacklake.connectors.delta.source import DeltaSource, source

__all__ = ["DeltaSink", "DeltaSource", "sink", "source"]
