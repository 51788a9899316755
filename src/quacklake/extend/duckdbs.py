"""DuckDB beside the lake: connections and answers that are the same on every version of DuckDB that is supported."""

from quacklake.core.duckdb_versions import Connection, arrow_reader, arrow_table, connect, first_row
from quacklake.core.engines.duckdb.exact_reading import wider

__all__ = ["Connection", "arrow_reader", "arrow_table", "connect", "first_row", "wider"]
