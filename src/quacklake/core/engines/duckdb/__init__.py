"""The in-process engine on DuckDB."""

from typing import TYPE_CHECKING

from quacklake.core.lazy import lazily

if TYPE_CHECKING:
    from quacklake.core.engines.duckdb.deletes import Vectors
    from quacklake.core.engines.duckdb.engine import DuckDBEngine, RunningScan
    from quacklake.core.engines.duckdb.writer import FileWriter, WriteOptions
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.core.engines.duckdb.deletes": "Vectors",
            "quacklake.core.engines.duckdb.engine": "DuckDBEngine RunningScan",
            "quacklake.core.engines.duckdb.writer": "FileWriter WriteOptions",
        },
    )

__all__ = ["DuckDBEngine", "FileWriter", "RunningScan", "Vectors", "WriteOptions"]
