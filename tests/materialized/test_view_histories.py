"""Random histories with materialized views, in their short form: ``make prove VIEWS=2000`` runs the long one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.stock import Stock
from tests.layout import LAYOUT
from tests.prove.views import view_history
from tests.seeds import LONG, SEED


@pytest.mark.daily(0.125)
@pytest.mark.parametrize("layout", ["plain", "shared"])
@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgres", "mysql"])
def test_a_view_equals_the_answer_of_its_query_whatever_happens(
    new_url: Callable[[str], str], tmp_path: Path, stock_if_plain: Stock | None, database: str, layout: str
) -> None:
    options: dict[str, Any] = {"catalog": "acme", "create": True} if layout == "shared" else {}
    stock = stock_if_plain if layout == LAYOUT == "plain" and database in ("sqlite", "postgres") else None
    for number in range(25 if LONG else 1):
        url, folder = new_url(database), tmp_path / str(number)
        folder.mkdir()
        seed = f"{SEED}.{database}.{layout}.{number}"
        tally = view_history(url, folder, seed, 14 if LONG else 4, stock, options=options)
        assert tally.comparisons > 0
