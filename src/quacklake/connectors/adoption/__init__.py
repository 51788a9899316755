"""Foreign tables whose files a lake can adopt: the current version of a Delta or Iceberg table.

``adopt`` is what ``Lake.adopt`` and the command line call. Other packages add formats by an object of the entry points
``quacklake.connectors`` that has ``foreign_table``: a function of the lake's context and a place.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from quacklake.connectors.registry import connector
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.handles import LakeHandle
from quacklake.errors import InputError, MissingExtraError
from quacklake.lake.adopting import AdoptReport, ForeignTable
from quacklake.lake.adopting import adopt as adopt_table

_READERS = {"delta": "delta", "delta-lake": "delta", "iceberg": "iceberg"}

__all__ = ["AdoptReport", "ForeignTable", "adopt", "foreign_table"]


def adopt(handle: LakeHandle, source: str, table: str, *, sync: bool = False, dry_run: bool = False) -> AdoptReport:
    """Register the files of a foreign table in a table of the lake; see ``Lake.adopt``."""
    read = partial(foreign_table, handle.context, source)
    return adopt_table(handle, read, table, sync=sync, dry_run=dry_run)


def foreign_table(context: LakeContext, source: str) -> ForeignTable:
    """Return the current version of the foreign table that ``kind:place`` names."""
    kind, _, place = str(source).partition(":")
    if not kind.strip() or not place.strip() or place.startswith("//"):
        raise InputError(
            f"{source!r} does not name a foreign table",
            hint='use "delta:/path", "delta:s3://bucket/path" or "iceberg:/path"',
        )
    name = kind.strip().lower().replace("_", "-")
    if name not in _READERS:
        reader: Any = connector(kind.strip(), "foreign_table")
    else:
        try:
            reader = import_module(f"{__name__}.{_READERS[name]}").foreign_table
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"adopting {kind} tables needs the package {error.name}", hint=f"pip install 'quacklake[{name}]'"
            ) from error
    found: ForeignTable = reader(context, place.strip())
    return found
