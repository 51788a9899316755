"""The in-process engine on DuckDB."""

from typing import TYPE_CHECKING

from quacklake.lazy import lazily

if TYPE_CHECKING:
    from quacklake.engines.duckdb.deletes import Vectors
    from quacklake.engines.duckdb.engine import DuckDBEngine, RunningScan
    from quacklake.engines.duckdb.writer import FileWriter, WriteOptions
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.engines.duckdb.deletes": "Vectors",
            "quacklake.engines.duckdb.engine": "DuckDBEngine RunningScan",
            "quacklake.engines.duckdb.writer": "FileWriter WriteOptions",
        },
    )

__all__ = ["DuckDBEngine", "FileWriter", "RunningScan", "Vectors", "WriteOptions"]
