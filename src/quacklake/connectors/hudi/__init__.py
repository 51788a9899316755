"""Hudi tables as sources, through the library ``hudi``."""

from quacklake.connectors.hudi.source import HudiSource, source

__all__ = ["HudiSource", "source"]
