"""Stock DuckDB knows nothing of catalogs: it must not take all of them for one lake, which it would expire as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import quacklake
from tests.catalog.stock import Stock


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgres"])
def test_stock_duckdb_stops_at_a_shared_lake(
    database: str, new_url: Callable[[str], str], stock: Stock, tmp_path: Path
) -> None:
    url = new_url(database)
    own = [f"DATA_PATH '{tmp_path}/data/acme/'", "OVERRIDE_DATA_PATH true"]
    for catalog in ("acme", "beta"):
        quacklake.connect(url, tmp_path / "data", catalog=catalog, create=True).close()
        for options in (own, [*own, "AUTOMATIC_MIGRATION true"]):
            with pytest.raises(AssertionError, match=r"version is 1\.0 with many catalogs|Only DuckLake versions"):
                stock.run(url, "SELECT 1", options=options)
    with quacklake.connect(url, catalog="acme") as lake:
        assert lake.verify().findings == ()
