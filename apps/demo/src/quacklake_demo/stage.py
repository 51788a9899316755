"""The output of the demo, its lake, and the products and orders of its shop."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from quacklake import Lake
from quacklake.config import SETTINGS
from quacklake.extend.display import print_table
from quacklake.lake.connect import connect

PRODUCTS: list[dict[str, Any]] = [
    {"id": 1, "name": "coffee", "price": 9.5, "stock": 400},
    {"id": 2, "name": "tea", "price": 4.25, "stock": 300},
    {"id": 3, "name": "cocoa", "price": 6.0, "stock": 200},
]
ORDERS = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("product", pa.int32()), ("quantity", pa.int32())])
MONTHS = 6
ORDERS_PER_MONTH = 20_000


class Stage:
    """Counts the steps of a story and prints them."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.steps = 0
        self._width = min(console.width, 100)

    def step(self, title: str) -> None:
        """Begin the next step."""
        self.steps += 1
        self.console.print()
        heading = Rule(Text(f"{self.steps}. {title}", style="bold cyan"), align="left", style="cyan")
        self.console.print(heading, width=self._width)

    def say(self, text: str) -> None:
        """Print a sentence or two."""
        self.console.print(Text(text), width=self._width)

    def address(self, text: str, url: str) -> None:
        """Print an address in one line, however long it is, so that it can be opened."""
        self.console.print(Text(text), Text(url, style="cyan"), soft_wrap=True)

    def call(self, code: str) -> None:
        """Print the call that the demo makes now."""
        self.console.print(Text(f"  >>> {code}", style="green"), soft_wrap=True)

    def command(self, text: str) -> None:
        """Print the command that the demo runs now."""
        self.console.print(Text(f"  $ {text}", style="green"), soft_wrap=True)

    def sql(self, statement: str) -> None:
        """Print the statement that DuckDB runs now."""
        self.console.print(Text(f"  D {statement};", style="yellow"), soft_wrap=True)

    def table(self, rows: pa.Table, *, total: int | None = None) -> None:
        """Print rows as a table."""
        print_table(rows, total=total, console=self.console)


def open_lake(directory: Path) -> Lake:
    """Open the lake of the demo, without a settings file, and with the inlining limit of stock DuckLake."""
    return connect(
        f"ducklake:sqlite:{directory / 'lake.db'}",
        directory / "data",
        config_file=os.devnull,
        data_inlining_row_limit=10,
    )


@contextmanager
def own_settings() -> Iterator[None]:
    """Hide the settings of the environment, so that the demo is the same on every machine."""
    variables = {name for setting in SETTINGS for name in setting.env}
    hidden = {name: os.environ.pop(name) for name in variables & set(os.environ)}
    try:
        yield
    finally:
        os.environ.update(hidden)


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
