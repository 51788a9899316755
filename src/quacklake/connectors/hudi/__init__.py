"""Hudi tables as sources, through the library ``hudi``, and as sinks, through Spark."""

from quacklake.connectors.hudi.sink import HudiSink, sink
from quacklake.connectors.hudi.source import HudiSource, source

__all__ = ["HudiSink", "HudiSource", "sink", "source"]
