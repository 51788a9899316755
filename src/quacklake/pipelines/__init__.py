"""Pipelines: from sources through queries into sinks, and a writer for programs without Spark."""

from quacklake.pipelines.buffered_writer import BufferedWriter

__all__ = ["BufferedWriter"]
