"""Writing a lake's metadata: the primitives of one commit.

Every method is one statement (an ``executemany`` counts as one), whatever the number of rows, so that a commit has a
constant number of statements.
"""

from __future__ import annotations

from quacklake.catalog.writing.files import FileWriter
from quacklake.catalog.writing.inlined import InlinedWriter
from quacklake.catalog.writing.leases import LeaseWriter
from quacklake.catalog.writing.objects import ObjectWriter
from quacklake.catalog.writing.revived import RevivalWriter
from quacklake.catalog.writing.totals import TotalsWriter

__all__ = ["Writer"]


class Writer(ObjectWriter, FileWriter, TotalsWriter, InlinedWriter, LeaseWriter, RevivalWriter):
    """The commit transaction: a reader that also inserts. It sees everything committed before its turn."""

    def run_sql(self, text: str) -> int:
        """Run a statement as it is; returns how many rows it changed, as far as the database tells."""
        return max(self._connection.exec_driver_sql(text).rowcount, 0)
