"""The products and orders of the demo's shop."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from quacklake.lake.lake import Lake

PRODUCTS: list[dict[str, Any]] = [
    {"id": 1, "name": "coffee", "price": 9.5, "stock": 400},
    {"id": 2, "name": "tea", "price": 4.25, "stock": 300},
    {"id": 3, "name": "cocoa", "price": 6.0, "stock": 200},
]
ORDERS = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("product", pa.int32()), ("quantity", pa.int32())])
MONTHS = 6
ORDERS_PER_MONTH = 20_000


def month(number: int) -> pa.Table:
    """Return the orders of one month, which are always the same."""
    ids = range((number - 1) * ORDERS_PER_MONTH, number * ORDERS_PER_MONTH)
    first = dt.date(2025, number, 1)
    columns = (
        ids,
        [first + dt.timedelta(days=id_ % 28) for id_ in ids],
        [id_ % len(PRODUCTS) + 1 for id_ in ids],
        [id_ % 5 + 1 for id_ in ids],
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ORDERS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ORDERS)


def order(id: int, *, product: int, quantity: int) -> dict[str, Any]:
    """Return one order of a day in July."""
    return {"id": id, "day": dt.date(2025, 7, 1), "product": product, "quantity": quantity}


def products(lake: Lake) -> pa.Table:
    return lake.table("shop.products").to_arrow().sort_by("id")


def stock(lake: Lake, product: int) -> int:
    found: int = lake.table("shop.products").to_pylist(["stock"], f"id = {product:d}")[0]["stock"]
    return found
