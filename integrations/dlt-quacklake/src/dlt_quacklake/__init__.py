"""A lake as destination and as source of dlt."""

from dlt_quacklake.factory import quacklake
from dlt_quacklake.source import lake_table

__all__ = ["lake_table", "quacklake"]
