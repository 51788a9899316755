"""Leases in the catalog that let one process work at a time; a thread renews them.

Correctness does not depend on a lease: concurrent work is still committed once. It only saves the effort.
"""

from __future__ import annotations

import datetime as dt
import enum
import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from quacklake.catalog import Catalog
from quacklake.catalog.own_tables import end_lease, take_lease
from quacklake.errors import LeaseHeldError, QuacklakeError

_log = logging.getLogger("quacklake.maintenance")
_RENEWALS = 3
"""How often a lease is renewed within its length."""


class LeasedWork(enum.IntEnum):
    """The purposes of leases; catalogs store these numbers."""

    MAINTENANCE = 1
    ORPHANS = 2


def claim(catalog: Catalog, work: LeasedWork, length: dt.timedelta, holder: str) -> None:
    """Take or extend a lease. Raises ``LeaseHeldError`` when another process holds it.

    Raises ``NotFoundError`` for a catalog of a shared lake that was dropped.
    """
    with catalog.commit() as writer:
        writer.snapshots.check_there()
        left = take_lease(writer, int(work), holder, int(length.total_seconds() * 1000))
    if left:
        raise LeaseHeldError(
            f"another process does the {work.name.lower()} of this lake",
            hint=f"its turn ends in {left / 1000:.0f} s unless it goes on working",
        )


@contextmanager
def hold(catalog: Catalog, work: LeasedWork, length: dt.timedelta) -> Iterator[threading.Event]:
    """Hold a lease for a block and renew it as needed. Yield an event that is set when the lease is lost."""
    holder = str(uuid.uuid4())
    claim(catalog, work, length, holder)
    done, lost = threading.Event(), threading.Event()

    def renew() -> None:
        while not done.wait(length.total_seconds() / _RENEWALS):
            try:
                claim(catalog, work, length, holder)
            except LeaseHeldError:
                lost.set()
                return
            except QuacklakeError as error:
                _log.warning("the lease for %s was not renewed: %s", work.name.lower(), error.message)

    keeper = threading.Thread(target=renew, name="quacklake-lease", daemon=True)
    keeper.start()
    try:
        yield lost
    finally:
        done.set()
        keeper.join()
        with suppress(QuacklakeError), catalog.commit() as writer:
            end_lease(writer, int(work), holder)
