"""Limit the concurrent scans of a catalog (tenant) in this process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from quacklake.catalog import Catalog
from quacklake.errors import CorruptFileError, TenantBusyError

_left = threading.Condition()
_running: Counter[str] = Counter()
"""The running scans of each catalog by uuid; all open lakes of a catalog count together."""


class ScanGate:
    """Admits a scan if its catalog may run one more. Raises ``TenantBusyError`` after waiting ``wait`` seconds.

    Without a limit, scans are not counted, so a limit set later does not count those already running. A scan that finds
    no files because the catalog was dropped raises an error that says so.
    """

    def __init__(self, catalog: Catalog, wait: float) -> None:
        self._catalog = catalog
        self._wait = wait

    @contextmanager
    def __call__(self) -> Iterator[None]:
        row, limit = self._catalog.tenant_row, self._catalog.limits.concurrent_scans
        if row is not None and limit is not None:
            self._enter(row.uuid, limit)
        try:
            yield
        except CorruptFileError:
            # When a catalog is dropped and purged, running reads lose its files.
            with self._catalog.read() as reader:
                reader.snapshots.check_there()
            raise
        finally:
            if row is not None and limit is not None:
                _leave(row.uuid)

    def _enter(self, uuid: str, limit: int) -> None:
        end = time.monotonic() + self._wait
        with _left:
            while _running[uuid] >= limit:
                if not _left.wait(end - time.monotonic()):
                    raise TenantBusyError(
                        f"the catalog may run {limit:,} scans at a time",
                        limit="concurrent_scans",
                        after=self._wait,
                        hint="read the scans that are open to their end, or wait longer by limit_wait_ms",
                    )
            _running[uuid] += 1


def _leave(uuid: str) -> None:
    with _left:
        _running[uuid] -= 1
        if not _running[uuid]:
            del _running[uuid]
        _left.notify_all()
