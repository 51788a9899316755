"""The in-process engine on DuckDB."""

from typing import TYPE_CHECKING

from quacklake.lazy import lazily

if TYPE_CHECKING:
    from quacklake.engines.duckdb.copying import WriteOptions
    from quacklake.engines.duckdb.engine import DuckDBEngine, RunningScan
    from quacklake.engines.duckdb.writer import FileWriter, Vectors
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.engines.duckdb.copying": "WriteOptions",
            "quacklake.engines.duckdb.engine": "DuckDBEngine RunningScan",
            "quacklake.engines.duckdb.writer": "FileWriter Vectors",
        },
    )

__all__ = ["DuckDBEngine", "FileWriter", "RunningScan", "Vectors", "WriteOptions"]
