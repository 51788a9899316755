"""Commit several changes as one, again where another commit is faster."""

from __future__ import annotations

from collections.abc import Callable

from quacklake.lake.lake import Lake, LakeTransaction
from quacklake.operations.handles import TransactionHandle
from quacklake.transaction.transaction import Transaction


def commit(lake: Lake, message: str, work: Callable[[LakeTransaction], None]) -> None:
    """Do work in a transaction and commit it.

    Where another commit conflicts with it, the work is done again on the new state: as often as the settings say, and
    with a turn of its own when it keeps losing. Raises ``CommitConflict`` after that, and whatever else the work or its
    commit raises.
    """
    handle = lake.signed(message).handle

    def run(transaction: Transaction) -> None:
        work(LakeTransaction(TransactionHandle(handle.context, transaction)))

    handle.run(run)
