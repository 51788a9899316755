"""NATS JetStream as a source, through a small client of our own."""

from quacklake.connectors.nats.source import NatsSource, source

__all__ = ["NatsSource", "source"]
