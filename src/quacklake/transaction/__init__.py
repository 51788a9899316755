"""Change sets, and the commit that makes them part of the lake."""

from quacklake.transaction.changeset import (
    AlteredTable,
    ChangeSet,
    FlushedRows,
    InlinedInsert,
    NewDataFile,
    NewDeleteFile,
    PastDeleteFile,
    RevivedTable,
    TableChange,
)
from quacklake.transaction.commit import CommitTurn, Retry, commit
from quacklake.transaction.pending import DeleteTarget, PendingTable, TouchedFile, touched_files
from quacklake.transaction.tables import TableCache
from quacklake.transaction.transaction import Transaction

__all__ = [
    "AlteredTable",
    "ChangeSet",
    "CommitTurn",
    "DeleteTarget",
    "FlushedRows",
    "InlinedInsert",
    "NewDataFile",
    "NewDeleteFile",
    "PastDeleteFile",
    "PendingTable",
    "Retry",
    "RevivedTable",
    "TableCache",
    "TableChange",
    "TouchedFile",
    "Transaction",
    "commit",
    "touched_files",
]
