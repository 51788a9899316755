"""The lake as a read-only Iceberg REST catalog."""

from quacklake.service.iceberg.router import iceberg_router, may_serve
from quacklake.service.iceberg.settings import IcebergSettings
from quacklake.service.iceberg.tables import LakeTables, LoadedTable

__all__ = ["IcebergSettings", "LakeTables", "LoadedTable", "iceberg_router", "may_serve"]
