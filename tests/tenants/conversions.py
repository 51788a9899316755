"""The conversion of a plain lake in a process that may be ended at any point; see ``test_mysql_conversion``."""

from __future__ import annotations

import quacklake
from quacklake.core import faults

__all__ = ["convert", "write_on"]


def convert(url: str, data: str, at: int | None = None, pattern: str = "*") -> list[str]:
    """Make a shared lake, or be killed at the ``at``-th point of a name; returns the points that were reached."""
    with faults.record() as points:
        if at is None:
            quacklake.tenants(url, data, convert="acme", duckdb_threads=1).close()
        else:
            with faults.arm(faults.Fault(at=at, action="kill", pattern=pattern)):
                quacklake.tenants(url, data, convert="acme", duckdb_threads=1).close()
    return points


def write_on(url: str, first: int, count: int) -> list[int]:
    """Append one row after the other until the lake is another one; returns those that were committed."""
    done: list[int] = []
    with quacklake.connect(url, duckdb_threads=1, data_inlining_row_limit=0) as lake:
        for number in range(first, first + count):
            try:
                lake.table("t").append([{"id": number, "name": "late"}])
            except quacklake.errors.UnsupportedVersionError:
                break
            done.append(number)
    return done
