"""Commits of requests: work in a transaction, once for an idempotency key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quacklake.core.operations.handles import LakeHandle
from quacklake.errors import StreamBatchDoneError
from quacklake.lake.lake import LakeTransaction
from quacklake.service.idempotency import Key, known_answers
from quacklake.service.problems import TooBusyError

if TYPE_CHECKING:
    from quacklake.core.transaction import Transaction
    from quacklake.lake import Lake

__all__ = ["RACES", "commit_once", "committed", "opened"]

RACES = 5
"""The most times that another process may do the same request first before that is an error."""


def opened(lake: Lake, tx: Transaction) -> LakeTransaction:
    """Return a transaction as users have it."""
    return LakeTransaction.of(lake.handle.context, tx)


def committed(handle: LakeHandle, work: Callable[[Transaction], object], *, blind: bool = False) -> int:
    """Run work in a transaction, again after a conflict, and return the snapshot that it made or found."""

    def planned(tx: Transaction) -> Transaction:
        work(tx)
        return tx

    found = handle.run(planned, blind=blind).outcome
    assert found is not None
    return found.id


def commit_once(lake: Lake, key: Key | None, work: Callable[[LakeTransaction], dict[str, Any]]) -> dict[str, Any]:
    """Change a lake once for a key, and return what work returned, then or now, with its snapshot."""

    def mark(tx: Transaction) -> tuple[LakeTransaction, dict[str, Any]]:
        transaction = opened(lake, tx)  # the service's own: that of a principal has no marks
        answer = work(transaction)
        if key is not None:
            key.mark(transaction, answer)
        return transaction, answer

    for _ in range(RACES):
        known = {} if key is None else known_answers(lake, [key])
        if key is not None and key.name in known:
            return key.answer(known[key.name])
        try:
            transaction, answer = lake.handle.run(mark)
        except StreamBatchDoneError:
            continue
        assert transaction.snapshot is not None
        return {**answer, "snapshot": transaction.snapshot.id, "repeated": False}
    raise TooBusyError("the same request is done elsewhere")
