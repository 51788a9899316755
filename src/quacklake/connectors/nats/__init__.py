"""NATS JetStream as a source and a sink, through a small client of our own."""

from quacklake.connectors.nats.sink import NatsSink, sink
from quacklake.connectors.nats.source import NatsSource, source

__all__ = ["NatsSink", "NatsSource", "sink", "source"]
