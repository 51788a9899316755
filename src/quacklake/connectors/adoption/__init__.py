"""Foreign tables whose files a lake can adopt: the current version of a Delta or Iceberg table.

``Lake.adopt`` and the command line call ``foreign_table``. Other packages add formats by an object of the entry points
``quacklake.connectors`` that has ``foreign_table``: a function of the lake's store and a place.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from quacklake.connectors.registry import connector
from quacklake.errors import InputError, MissingExtraError
from quacklake.extend.adopting import ForeignTable
from quacklake.extend.stores import Store

_READERS = {"delta": "delta", "delta-lake": "delta", "iceberg": "iceberg"}

__all__ = ["ForeignTable", "foreign_table"]


def foreign_table(store: Store, source: str) -> ForeignTable:
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
    found: ForeignTable = reader(store, place.strip())
    return found
