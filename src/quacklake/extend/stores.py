"""Files of a lake wherever they are: local folders, object stores, and everything that fsspec knows."""

from quacklake.core.operations.stores import open_store
from quacklake.core.storage import S3Options, Store

__all__ = ["S3Options", "Store", "open_store"]
