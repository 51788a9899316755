"""The lake of ``quacklake serve --demo``: the products and orders of a shop, with a history to look at."""

from __future__ import annotations

import os
from pathlib import Path

from quacklake.lake import Lake
from quacklake.lake.connect import connect

__all__ = ["demo_lake"]

_PRODUCTS = [
    {"id": 1, "name": "coffee", "price": 9.5, "stock": 400},
    {"id": 2, "name": "tea", "price": 4.25, "stock": 300},
    {"id": 3, "name": "cocoa", "price": 6.0, "stock": 200},
]
_ORDERS = """
    SELECT i AS id, DATE '2026-01-01' + (i % 180)::INTEGER AS day, (1 + i % 3)::INTEGER AS product,
        (1 + i % 7)::INTEGER AS quantity
    FROM range(5000) AS r(i)
"""


def demo_lake(folder: Path) -> Lake:
    """Make a lake with sample data in a folder, and return it."""
    lake = connect(f"sqlite:///{folder / 'lake.db'}", folder / "data", config_file=os.devnull, create=True)
    try:
        products = lake.create_table("products", _PRODUCTS, primary_key="id")
        lake.sql(f"CREATE TABLE orders AS {_ORDERS}")
        products.update({"stock": 350}, "id = 1")
    except BaseException:
        lake.close()
        raise
    return lake
