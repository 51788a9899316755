"""The adapter of dbt for Quacklake."""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.quacklake.connections import QuacklakeConnectionManager, QuacklakeCredentials
from dbt.adapters.quacklake.impl import QuacklakeAdapter
from dbt.include import quacklake

__all__ = ["Plugin", "QuacklakeAdapter", "QuacklakeConnectionManager", "QuacklakeCredentials"]

Plugin = AdapterPlugin(
    adapter=QuacklakeAdapter,  # type: ignore[arg-type]
    credentials=QuacklakeCredentials,
    include_path=quacklake.PACKAGE_PATH,
)
