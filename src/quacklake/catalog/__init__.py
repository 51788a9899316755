"""A lake's metadata in a SQL database. Nothing above this package names a table or a column of it."""

from quacklake.catalog.catalog import Catalog, open_catalog
from quacklake.catalog.databases.connections import Collision
from quacklake.catalog.databases.urls import CatalogUrl, parse_url
from quacklake.catalog.reading.health import TableHealth
from quacklake.catalog.reading.history import DroppedObject
from quacklake.catalog.reading.inlined import DatedDeletes, InlinedRows
from quacklake.catalog.reading.reader import Reader
from quacklake.catalog.registry import TenantToken, no_such_catalog
from quacklake.catalog.shared_tables import CatalogRow, SharedFacts, folder_path
from quacklake.catalog.writing.files import TableTotals, Totals
from quacklake.catalog.writing.writer import Writer

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
