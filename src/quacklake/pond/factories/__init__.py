"""Factories of computed nodes. Importing this package registers those that come with a pond."""

from quacklake.pond.factories import (
    column_rename,
    dynamic_dir,
    mount,
    sql_derived,
    synthetic,
    temporal_reduce,
    timeseries_join,
    timeseries_pivot,
)
from quacklake.pond.factories.registry import Factory, factories, find, register

__all__ = [
    "Factory",
    "column_rename",
    "dynamic_dir",
    "factories",
    "find",
    "mount",
    "register",
    "sql_derived",
    "synthetic",
    "temporal_reduce",
    "timeseries_join",
    "timeseries_pivot",
]
