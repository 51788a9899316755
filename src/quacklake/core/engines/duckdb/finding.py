"""Find the rows of a plan that satisfy a filter, by their places."""

from __future__ import annotations

from quacklake.core.engines.duckdb.engine import DuckDBEngine, places_to_target
from quacklake.core.scan import Filter, ScanPlan
from quacklake.core.transaction import DeleteTarget


def matching(engine: DuckDBEngine, plan: ScanPlan, where: Filter) -> DeleteTarget:
    """Return the places of the rows that match SQL text or an Arrow expression."""
    if isinstance(where, str):
        with engine.connection() as connection:
            query = engine.bind(connection, plan, rows=True, where=where)
            return engine.find(connection, query, where, plan.schema)
    return places_to_target(engine.scan(plan, columns=(), where=where, places=True).reader.read_all())
