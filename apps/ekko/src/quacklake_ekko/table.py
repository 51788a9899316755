"""The names of Ekko's table. This module loads nothing, so that a service can describe its routes at once."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["KEY", "RENAMED_KEY", "SCHEMA", "TABLE", "find_key"]

SCHEMA, TABLE = "blockchain", "blockchain.transactions"
KEY, RENAMED_KEY = "tx_hash", "transaction_hash"
"""The column with the hash of a transaction, and its name after the documented renaming."""


def find_key(columns: Sequence[str]) -> str:
    """Return the column of a table that has the hash of a transaction.

    >>> find_key(["network", "transaction_hash"])
    'transaction_hash'
    """
    return RENAMED_KEY if RENAMED_KEY in columns and KEY not in columns else KEY
