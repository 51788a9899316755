"""The lake of ``quacklake serve --demo``: the products and orders of a shop, with a history to look at."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quacklake.errors import QuacklakeError
from quacklake.lake import Lake
from quacklake.lake.connect import connect

__all__ = ["demo_lake", "incoming_orders"]

_PRODUCTS = [
    {"id": 1, "name": "coffee", "price": 9.5, "stock": 400},
    {"id": 2, "name": "tea", "price": 4.25, "stock": 300},
    {"id": 3, "name": "cocoa", "price": 6.0, "stock": 200},
]
_ORDERS = """
    SELECT i AS id, current_date - 120 + (i // 28)::INTEGER AS day, (1 + i % 3)::INTEGER AS product,
        (3 + i % 4 + round(2 * sin(i / 140)))::INTEGER AS quantity
    FROM range({first}, {last}) AS r(i)
"""
_MONTHS = (("first", 0, 840), ("second", 840, 1680), ("third", 1680, 2520), ("fourth", 2520, 3360))
_SALES = """
    CREATE VIEW sales AS
    SELECT day, sum(quantity) AS sold, sum(quantity * price) AS revenue
    FROM orders JOIN products ON product = products.id GROUP BY day
"""
_EVERY = 3.0
_MOST = 20_000
"""The orders that come in while the demo runs: a few days' worth."""


def demo_lake(folder: Path) -> Lake:
    """Make a lake with sample data in a folder, and return it."""
    lake = connect(f"sqlite:///{folder / 'lake.db'}", folder / "data", config_file=os.devnull, create=True)
    try:
        _fill(lake)
    except BaseException:
        lake.close()
        raise
    return lake


def _fill(lake: Lake) -> None:
    lake.signed("Open the shop", "mia").create_table("products", _PRODUCTS, primary_key="id")
    for number, (month, first, last) in enumerate(_MONTHS):
        rows = _ORDERS.format(first=first, last=last)
        load = f"INSERT INTO orders {rows}" if number else f"CREATE TABLE orders AS {rows}"
        lake.signed(f"Load the {month} month", "import").sql(load)
    lake.signed("Count the coffee", "mia").table("products").update({"stock": 350}, "id = 1")
    lake.signed("Note how orders come", "sam").sql("ALTER TABLE orders ADD COLUMN channel VARCHAR DEFAULT 'shop'")
    lake.signed("A third came by phone", "sam").table("orders").update({"channel": "phone"}, "id % 3 = 0")
    lake.signed("Remove orders of the test", "sam").table("orders").delete("id < 14")
    lake.signed("Show sales by day", "mia").sql(_SALES)
    lake.signed("Say what orders are", "mia").sql(
        "COMMENT ON TABLE orders IS 'What customers bought, one row an order'"
    )


@contextmanager
def incoming_orders(lake: Lake, every: float = _EVERY) -> Iterator[None]:
    """Let an order come in every few seconds for the length of a block, so that there is something to watch."""
    ended = threading.Event()

    def work() -> None:
        website = lake.signed("An order came in", "website")
        for number in range(_MOST):
            if ended.wait(every):
                return
            order = {"id": 3360 + number, "product": 1 + number % 3, "quantity": 1 + number % 5, "channel": "web"}
            with suppress(QuacklakeError):  # a reader may have rolled the table back, or dropped it
                website.sql(
                    "INSERT INTO orders (id, day, product, quantity, channel)"
                    " VALUES ($id, current_date, $product, $quantity, $channel)",
                    order,
                )

    thread = threading.Thread(target=work, name="quacklake-demo", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
