"""Change sets, and the commit that makes them part of the lake."""

from quacklake.core.transaction.changeset import (
    AlteredTable,
    ChangeSet,
    FlushedRows,
    InlinedInsert,
    NewDataFile,
    NewDeleteFile,
    PastDeleteFile,
    TableChange,
)
from quacklake.core.transaction.commit import Retry
from quacklake.core.transaction.groups import CommitGroup
from quacklake.core.transaction.objects import TableCache
from quacklake.core.transaction.pending import DeleteTarget, PendingTable, TouchedFile, positions_by_file, touched_files
from quacklake.core.transaction.transaction import Transaction

__all__ = [
    "AlteredTable",
    "ChangeSet",
    "CommitGroup",
    "DeleteTarget",
    "FlushedRows",
    "InlinedInsert",
    "NewDataFile",
    "NewDeleteFile",
    "PastDeleteFile",
    "PendingTable",
    "Retry",
    "TableCache",
    "TableChange",
    "TouchedFile",
    "Transaction",
    "positions_by_file",
    "touched_files",
]
