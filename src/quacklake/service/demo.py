"""The lake of ``quacklake serve --demo``: the products and orders of a shop, with a history to look at.

The service listens before the lake is made, which takes as long as everything else: requests wait for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, Thread

from quacklake.errors import InternalError
from quacklake.lake import Lake
from quacklake.lake.connect import connect
from quacklake.service.identity import Identity, Role, TokenGate

__all__ = ["DemoGate", "demo_lake"]

_PRODUCTS = """
    INSERT INTO products VALUES (1, 'coffee', 9.5, 400), (2, 'tea', 4.25, 300), (3, 'cocoa', 6.0, 200)
"""
_ORDERS = """
    SELECT i AS id, DATE '2026-01-01' + (i % 180)::INTEGER AS day, (1 + i % 3)::INTEGER AS product,
        (1 + i % 7)::INTEGER AS quantity
    FROM range(5000) AS r(i)
"""
_CHANGED = "UPDATE products SET stock = 350 WHERE id = 1"


def demo_lake(folder: Path) -> Lake:
    """Make a lake with sample data in a folder, and return it."""
    lake = connect(f"sqlite:///{folder / 'lake.db'}", folder / "data", config_file=os.devnull, create=True)
    try:
        with lake.transaction() as tx:  # SQL, because rows of Python would load pandas
            tx.sql("CREATE TABLE products (id BIGINT PRIMARY KEY, name VARCHAR, price DOUBLE, stock BIGINT)")
            tx.sql(_PRODUCTS)
        lake.sql(f"CREATE TABLE orders AS {_ORDERS}")
        lake.sql(_CHANGED)
    except BaseException:
        lake.close()
        raise
    return lake


class DemoGate:
    """A gate to the lake of the demo, which a thread makes from ``begin`` on, or from the first request."""

    def __init__(self, folder: Path, tokens: Mapping[str, Role], *, anonymous: Role | None = None) -> None:
        self._folder = folder
        self._tokens = dict(tokens)
        self._anonymous = anonymous
        self._lock = Lock()
        self._made: Future[TokenGate] | None = None

    def begin(self) -> Future[TokenGate]:
        """Begin to make the lake, unless that was done."""
        with self._lock:
            if self._made is None:
                self._made = Future()
                Thread(target=self._make, args=(self._made,), name="quacklake-demo", daemon=True).start()
            return self._made

    def _make(self, made: Future[TokenGate]) -> None:
        try:
            made.set_result(TokenGate(demo_lake(self._folder), self._tokens, anonymous=self._anonymous))
        except BaseException as error:
            made.set_exception(InternalError(f"the lake of the demo could not be made: {error}"))

    def enter(self, token: str | None, lake: str | None = None) -> Identity:
        """Return the identity of a token, once the lake is there; see ``Gate.enter``."""
        return self.begin().result().enter(token, lake)

    def probe(self) -> None:
        """Ask the catalog and the store."""
        self.begin().result().probe()

    def close(self) -> None:
        """Close the lake, if it was made."""
        with self._lock:
            made = self._made
        if made is not None and made.exception() is None:
            made.result().close()
