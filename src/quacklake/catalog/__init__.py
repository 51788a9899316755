"""A lake's metadata in a SQL database. Nothing above this package names a table or a column of it."""

from quacklake.catalog.catalog import (
    Catalog,
    Collision,
    DuckDBCatalog,
    MySQLCatalog,
    PostgresCatalog,
    SqliteCatalog,
    open_catalog,
)
from quacklake.catalog.reader import Reader
from quacklake.catalog.reading.dropped import Gone
from quacklake.catalog.reading.health import TableHealth
from quacklake.catalog.reading.inlined import DatedDeletes, InlinedRows
from quacklake.catalog.totals import TableTotals, Totals
from quacklake.catalog.url import CatalogUrl, parse_url
from quacklake.catalog.writer import Writer

__all__ = [
    "Catalog",
    "CatalogUrl",
    "Collision",
    "DatedDeletes",
    "DuckDBCatalog",
    "Gone",
    "InlinedRows",
    "MySQLCatalog",
    "PostgresCatalog",
    "Reader",
    "SqliteCatalog",
    "TableHealth",
    "TableTotals",
    "Totals",
    "Writer",
    "open_catalog",
    "parse_url",
]
