"""The in-process engine on DuckDB."""

from quacklake.engines.duckdb.copying import WriteOptions
from quacklake.engines.duckdb.engine import DuckDBEngine, Scan
from quacklake.engines.duckdb.writer import FileWriter

__all__ = ["DuckDBEngine", "FileWriter", "Scan", "WriteOptions"]
