"""The lake as a read-only Iceberg REST catalog."""

from quacklake.errors import MissingExtraError

try:
    import fastapi as _fastapi  # noqa: F401
    import fastavro as _fastavro  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        f"the Iceberg catalog needs the package {error.name}", hint="pip install 'quacklake[service]'"
    ) from None

from quacklake.service.iceberg.router import iceberg_router, may_serve
from quacklake.service.iceberg.settings import IcebergSettings
from quacklake.service.iceberg.tables import LakeTables, LoadedTable

__all__ = ["IcebergSettings", "LakeTables", "LoadedTable", "iceberg_router", "may_serve"]
