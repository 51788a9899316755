"""The lake of ``quacklake serve-demo``: the products and orders of a shop, with a history to look at.

The service listens before it is loaded and before the lake is made, which takes most of the time: requests wait for it.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from quacklake.errors import InternalError, QuacklakeError
from quacklake.lake import Lake
from quacklake.lake.connect import connect
from quacklake.service.identity import Identity, Role, TokenGate

__all__ = ["DemoGate", "demo_lake", "incoming_orders"]

_PRODUCTS = """
    INSERT INTO products VALUES (1, 'coffee', 9.5, 400), (2, 'tea', 4.25, 300), (3, 'cocoa', 6.0, 200)
"""
_ORDERS = """
    SELECT i AS id, DATE '{today}' - 120 + (i // 28)::INTEGER AS day, (1 + i % 3)::INTEGER AS product,
        (3 + i % 4 + round(2 * sin(i / 140)))::INTEGER AS quantity
    FROM range({first}, {last}) AS r(i)
"""
_MONTHS = (("first", 0, 840), ("second", 840, 1680), ("third", 1680, 2520), ("fourth", 2520, 3360))
_SALES = """
    CREATE VIEW sales AS
    SELECT day, sum(quantity) AS sold, sum(quantity * price) AS revenue
    FROM orders JOIN products ON product = products.id GROUP BY day
"""
_LATER = (
    ("Count the coffee", "mia", "UPDATE products SET stock = 350 WHERE id = 1"),
    ("Note how orders come", "sam", "ALTER TABLE orders ADD COLUMN channel VARCHAR DEFAULT 'shop'"),
    ("A third came by phone", "sam", "UPDATE orders SET channel = 'phone' WHERE id % 3 = 0"),
    ("Remove orders of the test", "sam", "DELETE FROM orders WHERE id < 14"),
    ("Show sales by day", "mia", _SALES),
    ("Say what orders are", "mia", "COMMENT ON TABLE orders IS 'What customers bought, one row an order'"),
)
_log = logging.getLogger("quacklake.service")
_EVERY = 3.0
_EVERY_BLOCK = 7.0
_MAX_COUNT = 20_000
"""The orders that come in while the demo runs: a few days' worth."""


def demo_lake(folder: Path, today: dt.date | None = None) -> Lake:
    """Make a lake with sample data of the last months in a folder, and return it."""
    lake = connect(f"sqlite:///{folder / 'lake.db'}", folder / "data", config_file=os.devnull, create=True)
    try:
        _fill(lake, today or dt.date.today())
    except BaseException:
        lake.close()
        raise
    return lake


def _fill(lake: Lake, today: dt.date) -> None:
    """Fill the lake of the demo, by SQL: rows of Python would load pandas."""
    with lake.transaction(author="mia", message="Open the shop") as tx:
        tx.sql("CREATE TABLE products (id BIGINT PRIMARY KEY, name VARCHAR, price DOUBLE, stock BIGINT)")
        tx.sql(_PRODUCTS)
    for number, (month, first, last) in enumerate(_MONTHS):
        rows = _ORDERS.format(first=first, last=last, today=today)
        load = f"INSERT INTO orders {rows}" if number else f"CREATE TABLE orders AS {rows}"
        lake.signed(f"Load the {month} month", "import").sql(load)
    for message, author, sql in _LATER:
        lake.signed(message, author).sql(sql)


@contextmanager
def incoming_orders(lake: Lake, every: float = _EVERY) -> Iterator[None]:
    """Let an order come in every few seconds for the length of a block, so that there is something to watch."""
    ended = threading.Event()

    def work() -> None:
        website = lake.signed("An order came in", "website")
        for number in range(_MAX_COUNT):
            if ended.wait(every):
                return
            order = {"id": 3360 + number, "product": 1 + number % 3, "quantity": 1 + number % 5, "channel": "web"}
            with suppress(QuacklakeError):  # a reader may have rolled the table back, or dropped it
                website.sql(
                    "INSERT INTO orders (id, day, product, quantity, channel)"
                    " VALUES ($id, current_date, $product, $quantity, $channel)",
                    order,
                )

    thread = threading.Thread(target=work, name="quacklake-demo-orders", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class DemoGate:
    """A gate to the lake of the demo, which a thread makes from ``begin`` on, or from the first request."""

    def __init__(self, folder: Path, tokens: Mapping[str, Role], *, anonymous: Role | None = None) -> None:
        self._folder = folder
        self._tokens = dict(tokens)
        self._anonymous = anonymous
        self._lock = threading.Lock()
        self._made: Future[TokenGate] | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._orders = ExitStack()

    def begin(self) -> Future[TokenGate]:
        """Begin to make the lake, unless that was done."""
        with self._lock:
            if self._made is None:
                self._made = Future()
                self._thread = threading.Thread(
                    target=self._make, args=(self._made,), name="quacklake-demo", daemon=True
                )
                self._thread.start()
            return self._made

    def _make(self, made: Future[TokenGate]) -> None:
        try:
            lake = demo_lake(self._folder)
            self._orders.enter_context(incoming_orders(lake))
            made.set_result(TokenGate(lake, self._tokens, anonymous=self._anonymous))
        except BaseException as error:
            made.set_exception(InternalError(f"the lake of the demo could not be made: {error}"))
            return
        try:
            self._go_on(lake)
        except QuacklakeError:
            _log.exception("the demo has no more to show than its shop")

    def _go_on(self, lake: Lake) -> None:
        """Make what takes longer, and let blocks come in until the end."""
        from quacklake_demo import samples

        now = dt.datetime.now(dt.UTC)
        has_chains = find_spec("quacklake_ekko") is not None
        if has_chains and not self._ended.is_set():
            samples.fill_chains(lake, now)
        if not self._ended.is_set():
            samples.fill_pond(lake, now)
        for number in range(_MAX_COUNT if has_chains else 0):
            if self._ended.wait(_EVERY_BLOCK):
                return
            with suppress(QuacklakeError):  # a reader may have dropped the table
                samples.add_block(lake, number, dt.datetime.now(dt.UTC))

    def enter(self, token: str | None, lake: str | None = None) -> Identity:
        """Return the identity of a token, once the lake is there; see ``Gate.enter``."""
        return self.begin().result().enter(token, lake)

    def probe(self) -> None:
        """Ask the catalog and the store."""
        self.begin().result().probe()

    def close(self) -> None:
        """Close the lake, if it was made."""
        with self._lock:
            made, thread = self._made, self._thread
        if made is not None and thread is not None and made.exception() is None:
            self._ended.set()
            self._orders.close()
            thread.join()
            made.result().close()
