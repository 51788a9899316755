"""A lake's metadata in a SQL database. Nothing above this package names a table or a column of it."""

from quacklake.core.catalog.catalog import Catalog, open_catalog
from quacklake.core.catalog.databases.connections import Collision
from quacklake.core.catalog.databases.urls import CatalogUrl, parse_url
from quacklake.core.catalog.reading.health import TableHealth
from quacklake.core.catalog.reading.history import DroppedObject
from quacklake.core.catalog.reading.inlined import DatedDeletes, InlinedRows
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.registry import TenantToken, no_such_catalog
from quacklake.core.catalog.shared_tables import CatalogRow, SharedFacts, folder_path
from quacklake.core.catalog.writing.files import TableTotals, Totals
from quacklake.core.catalog.writing.writer import Writer

__all__ = [
    "Catalog",
    "CatalogRow",
    "CatalogUrl",
    "Collision",
    "DatedDeletes",
    "DroppedObject",
    "InlinedRows",
    "Reader",
    "SharedFacts",
    "TableHealth",
    "TableTotals",
    "TenantToken",
    "Totals",
    "Writer",
    "folder_path",
    "no_such_catalog",
    "open_catalog",
    "parse_url",
]
