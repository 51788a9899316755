"""Sources and sinks: what a pipeline reads from and writes to.

A source gives batches and says how far it has come; a sink takes batches and makes them visible in two phases. Other
packages add kinds by an entry point of the group ``quacklake.connectors``.
"""

from quacklake.connectors.maintenance import Maintained, MaintenanceReport
from quacklake.connectors.protocols import (
    CommitInfo,
    CountingSource,
    DatedSource,
    MessageSource,
    PreparedCommit,
    ReadMode,
    Sink,
    Source,
    SourceCheckpoint,
    WrittenFile,
)
from quacklake.connectors.registry import Connector, connector, connectors

__all__ = [
    "CommitInfo",
    "Connector",
    "CountingSource",
    "DatedSource",
    "Maintained",
    "MaintenanceReport",
    "MessageSource",
    "PreparedCommit",
    "ReadMode",
    "Sink",
    "Source",
    "SourceCheckpoint",
    "WrittenFile",
    "connector",
    "connectors",
]
