"""Views that compare text by a collation, and views whose answer the order of equal rows decides."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake.core.materialized.collations import comparable
from quacklake.errors import InputError
from tests.seeds import chance

#: Queries of views, and queries with the one answer that the view shall have.
QUERIES = {
    "SELECT k COLLATE NOCASE AS k, count(*) AS n FROM a GROUP BY 1": (
        "SELECT min(k), count(*) FROM a GROUP BY lower(k)"
    ),
    "SELECT k COLLATE NOCASE AS other, max(id) AS n FROM a GROUP BY other": (
        "SELECT min(k), max(id) FROM a GROUP BY lower(k)"
    ),
    "SELECT id % 2 AS odd, k COLLATE NOACCENT AS k, median(id) AS n FROM a GROUP BY odd, k COLLATE NOACCENT": (
        "SELECT id % 2, min(k), median(id) FROM a GROUP BY id % 2, strip_accents(k)"
    ),
    "SELECT max(k) AS k, count(*) AS n FROM a GROUP BY k COLLATE NOCASE.NOACCENT": (
        "SELECT max(k), count(*) FROM a GROUP BY lower(strip_accents(k))"
    ),
    "SELECT DISTINCT k COLLATE de FROM a": "SELECT min(k) FROM a GROUP BY icu_sort_key(k, 'de')",
    "SELECT DISTINCT id % 2 AS odd, k COLLATE NFC AS k FROM a": (
        "SELECT id % 2, min(k) FROM a GROUP BY id % 2, nfc_normalize(k)"
    ),
    "SELECT k, id, sum(id) OVER (PARTITION BY k COLLATE NOCASE ORDER BY id) AS s FROM a": (
        "SELECT k, id, sum(id) OVER (PARTITION BY lower(k) ORDER BY id) FROM a"
    ),
    "SELECT k COLLATE NOCASE AS k, id FROM a": "SELECT k, id FROM a",
    "SELECT a.k COLLATE NOCASE AS k, count(*) AS n FROM a JOIN b ON a.k COLLATE NOCASE = b.k GROUP BY 1": (
        "SELECT min(a.k), count(*) FROM a JOIN b ON lower(a.k) = lower(b.k) GROUP BY lower(a.k)"
    ),
    "SELECT k COLLATE NOCASE AS k, count(*) AS n FROM a GROUP BY 1 UNION ALL SELECT k, id FROM b": (
        "SELECT min(k), count(*) FROM a GROUP BY lower(k) UNION ALL SELECT k, id FROM b"
    ),
    "SELECT k, id, lag(id) OVER (PARTITION BY k ORDER BY id % 2) AS p FROM a": (
        "SELECT k, id, lag(id) OVER (PARTITION BY k ORDER BY id % 2, id) FROM a"
    ),
    "SELECT k, id, row_number() OVER (PARTITION BY k) AS p FROM a": (
        "SELECT k, id, row_number() OVER (PARTITION BY k ORDER BY id) FROM a"
    ),
    "SELECT k, id, last_value(id) OVER (PARTITION BY k ORDER BY id % 2) AS p FROM a": (
        "SELECT k, id, max(id) OVER (PARTITION BY k, id % 2) FROM a"
    ),
    "SELECT k, sum(id) OVER (PARTITION BY k ORDER BY id % 2 ROWS 1 PRECEDING) AS p FROM a": (
        "SELECT k, sum(id) OVER (PARTITION BY k ORDER BY id % 2, id ROWS 1 PRECEDING) FROM a"
    ),
    "SELECT k, list(id ORDER BY id % 2) AS l FROM a GROUP BY k": (
        "SELECT k, list(id ORDER BY id % 2, id) FROM a GROUP BY k"
    ),
}
REFUSED = {
    "SELECT k COLLATE NOCASE AS k, upper(k COLLATE NOCASE), count(*) FROM a GROUP BY 1": "inside an expression",
    "SELECT id, max(k COLLATE NOCASE) FROM a GROUP BY id": "inside an expression",
    "SELECT trim(k COLLATE NOCASE), count(*) FROM a GROUP BY 1": "inside an expression",
    "SELECT k COLLATE NOCASE AS k, count(*) FROM a GROUP BY ALL": "GROUP BY ALL",
    "SELECT DISTINCT k COLLATE NOCASE AS k, rank() OVER (PARTITION BY k ORDER BY id) FROM a": "DISTINCT",
    "SELECT k, sum(id) OVER (PARTITION BY k ORDER BY id ROWS UNBOUNDED PRECEDING EXCLUDE TIES) FROM a": "EXCLUDE",
}
SPELLINGS = ("p", "P", "q", "é", "É", "e", "e\u0301", "", "Straße", "STRASSE", "ä", "A")
CHANGES = (
    "INSERT INTO a VALUES (11, 'P'), (12, 'Q'), (13, 'É'), (14, 'e'), (15, 'r'), (16, NULL)",
    "DELETE FROM a WHERE k = 'p'; DELETE FROM b WHERE k = 'É'",
    "UPDATE a SET k = 'q' WHERE k = 'P' OR id = 12",
    "DELETE FROM a WHERE id IN (3, 4)",
    "INSERT INTO a SELECT id + 1, upper(k) FROM a; INSERT INTO b SELECT * FROM a WHERE id > 10",
    "DELETE FROM a WHERE k IS NULL",
)


@pytest.mark.daily(0.25)
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_a_view_has_the_one_answer_that_is_told(tmp_path: Path, number: int) -> None:
    query, plain = list(QUERIES.items())[number]
    random = chance("spellings", number)
    with (
        quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake,
        duckdb.connect() as oracle,
    ):
        for name in ("a", "b"):
            rows = ", ".join(f"({n}, '{random.choice(SPELLINGS)}')" for n in range(20))
            lake.sql(f"CREATE TABLE {name} (id INTEGER, k VARCHAR)")
            lake.sql(f"INSERT INTO {name} VALUES {rows}, (7, NULL)")
        lake.create_materialized_view("v", query)
        for change in ("DELETE FROM a WHERE id < 0", *CHANGES):
            lake.sql(change)
            report = lake.refresh("v")
            for name in ("a", "b"):
                oracle.register("rows_", lake.table(name).to_arrow())
                oracle.execute(f"CREATE OR REPLACE TABLE {name} AS FROM rows_")
                oracle.unregister("rows_")
            expected = sorted(map(str, oracle.execute(plain).fetchall()))
            assert sorted(map(str, lake.sql("FROM v").fetchall())) == expected, (change, report)
            assert report.way != "full"
            (found,) = lake.materialized_views.verify("v")
            assert found.ok, (change, report, found.problem, found.rows.to_pylist())


def test_what_a_collation_or_an_order_leaves_open_is_refused(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE a (id INTEGER, k VARCHAR)")
        for number, (query, reason) in enumerate(REFUSED.items()):
            with pytest.raises(InputError, match=reason):
                lake.create_materialized_view(f"v{number}", query)
            lake.create_materialized_view(f"v{number}", query, full=True)


def test_a_default_collation_of_a_session_does_not_reach_views(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE a (k VARCHAR)")
        lake.sql("INSERT INTO a VALUES ('p'), ('P')")
        lake.sql("SET default_collation = 'nocase'")
        lake.create_materialized_view("v", "SELECT k, count(*) AS n FROM a GROUP BY k")
        lake.sql("INSERT INTO a VALUES ('P')")
        lake.refresh("v")
        assert sorted(lake.table("v").to_arrow().to_pylist(), key=str) == [{"k": "P", "n": 2}, {"k": "p", "n": 1}]
        assert lake.materialized_views.verify("v")[0].ok


@pytest.mark.parametrize("collation", ["nocase", "noaccent", "nfc", "nocase.noaccent", "noaccent.nocase", "nocase.nfc"])
def test_texts_are_compared_as_duckdb_compares_them(collation: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT chr(i::INTEGER) AS s FROM range(32, 55000) r(i)"
            " UNION ALL SELECT 'e' || chr(i::INTEGER) FROM range(768, 880) r(i)"
        )
        function = comparable("s", collation)
        counts = (
            f"SELECT count(*) FROM (SELECT DISTINCT s COLLATE {collation} FROM t)",
            f"SELECT count(DISTINCT {function}) FROM t",
            f"SELECT count(*) FROM (SELECT s COLLATE {collation} AS c, count(DISTINCT k) AS n"
            f" FROM (SELECT s, {function} AS k FROM t) GROUP BY c) WHERE n > 1",
        )
        groups, values, split = (connection.execute(count).fetchall()[0][0] for count in counts)
    assert groups == values > 0
    assert split == 0
