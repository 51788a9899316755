"""NATS JetStream as a source and a sink, through our own small client."""

from quacklake.connectors.nats.sink import NatsSink, sink
from quacklake.connectors.nats.source import NatsSource, source

__all__ = ["NatsSink", "NatsSource", "sink", "source"]
