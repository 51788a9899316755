"""Views over common tables, subqueries and plain views: followed where these only choose rows and columns."""

from __future__ import annotations

from pathlib import Path

import pytest

import quacklake
from quacklake.errors import InputError
from tests.seeds import some

FLAT = {
    "common": "WITH t AS (SELECT shop AS s, amount * 2 AS twice FROM sales WHERE amount > 5)"
    " SELECT s, sum(twice) AS total FROM t GROUP BY s",
    "chained": "WITH a AS (SELECT * FROM sales), b AS (SELECT id, shop FROM a WHERE id % 2 = 0) SELECT * FROM b",
    "inside": "SELECT d.day, count(*) AS n FROM (SELECT CAST(ts AS DATE) AS day, id FROM sales) AS d GROUP BY d.day",
    "renamed": "SELECT x, y + 1 FROM (SELECT id, amount FROM sales) AS t(x, y) WHERE x > 3",
    "plain": "SELECT shop, max(amount) AS best FROM large GROUP BY shop",
    "joined": "SELECT l.shop, p.town, sum(l.amount) AS total FROM large l JOIN (SELECT shop, upper(town) AS town"
    " FROM shops) p ON l.shop = p.shop GROUP BY ALL",
    "outer": "SELECT l.id, p.town FROM (SELECT id, shop FROM sales WHERE id < 40) l LEFT JOIN shops p ON l.shop = p.shop",
    "both": "SELECT shop FROM large UNION ALL SELECT * FROM (SELECT town FROM shops) t",
    "aliased": "SELECT twice AS total, count(*) AS n FROM (SELECT amount * 2 AS twice FROM sales) GROUP BY total",
}
NOT_FLAT = {
    "SELECT s, n FROM (SELECT shop AS s, count(*) AS n FROM sales GROUP BY shop)": "choose rows",
    "SELECT p.shop FROM shops p LEFT JOIN (SELECT shop FROM sales WHERE id > 5) s ON s.shop = p.shop": "is not followed",
    "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r WHERE i < 3) SELECT i, id FROM r, sales": "choose",
    "SELECT twice AS amount FROM (SELECT id AS twice FROM sales) GROUP BY amount": "choose rows",
    "SELECT shop FROM (SELECT shop FROM sales ORDER BY id LIMIT 3)": "choose rows",
}


def test_what_chooses_rows_and_columns_is_followed(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE sales (id INTEGER, shop VARCHAR, ts TIMESTAMP, amount INTEGER)")
        lake.sql(
            "INSERT INTO sales SELECT i, 's' || i % 3, TIMESTAMP '2024-01-01' + to_hours(i), i FROM range(60) r(i)"
        )
        lake.sql("CREATE TABLE shops (shop VARCHAR, town VARCHAR)")
        lake.sql("INSERT INTO shops VALUES ('s0', 'Here'), ('s1', 'There')")
        lake.sql("CREATE VIEW numbered AS SELECT id AS number, shop, amount FROM sales WHERE id <> 7")
        lake.sql("CREATE VIEW large (id, shop) AS SELECT number, shop, amount FROM numbered WHERE amount > 9")
        chosen = some(FLAT, 3, "queries that are flattened")
        for name in chosen:
            query = FLAT[name]
            names = lake.sql(query).to_arrow().schema.names
            lake.create_materialized_view(name, query)
            assert lake.table(name).to_arrow().schema.names == names
        for query in some(NOT_FLAT, 2, "queries that are not flattened"):
            with pytest.raises(InputError, match=NOT_FLAT[query]):
                lake.create_materialized_view("refused", query)
        if "plain" in chosen:
            assert lake.materialized_views.describe("plain")["bases"] == ["main.sales"]
        lake.sql("DROP VIEW large")  # the views keep the query that it had
        for change in (
            "INSERT INTO sales VALUES (100, 's1', TIMESTAMP '2024-01-09', 77), (7, NULL, NULL, 50)",
            "UPDATE sales SET amount = amount + 3 WHERE id < 12; DELETE FROM shops WHERE shop = 's0'",
        ):
            lake.sql(change)
            ways = {name: lake.refresh(name).way for name in chosen}
            assert "full" not in ways.values(), ways
        for found in lake.materialized_views.verify():
            assert found.ok, (found, found.rows.to_pylist()[:5])
