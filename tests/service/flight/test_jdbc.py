"""Flight SQL as its JDBC driver speaks it: what BI tools in Java use."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services import Unavailable
from services.jars import classpath, jars, java
from tests.service.flight.conftest import WRITER, Served, serve

PROGRAM = Path(__file__).with_name("JdbcClient.java")
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "--add-opens=java.base/java.nio=ALL-UNNAMED")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    found = serve(tmp_path_factory.mktemp("jdbc"), prompt_seconds=0.2, grace_seconds=5.0)
    with found.lake as lake:
        lake.sql("CREATE TABLE items (id BIGINT NOT NULL, name VARCHAR, price DECIMAL(10, 2), day DATE)")
        lake.sql("INSERT INTO items SELECT range, 'item ' || range, 1.5, DATE '2024-02-29' FROM range(5)")
        lake.sql("CREATE TABLE written (id BIGINT, name VARCHAR, amount DECIMAL(10, 2), moment TIMESTAMP)")
        lake.create_table("keyed", {"a": int, "b": str}, primary_key=["b", "a"])
        lake.sql("CREATE VIEW cheap AS SELECT id FROM items")
        yield found
        assert found.service.shutdown()  # no query is left
        assert found.service.handlers.slots.taken == 0


@pytest.fixture(scope="module")
def told(shop: Served) -> dict[str, Any]:
    """The answers that the program got. It is skipped, also where a missing server fails, without its jar from Maven."""
    try:
        command = [java(), *OPTIONS, "-cp", classpath(jars("flight-jdbc")), str(PROGRAM)]
    except Unavailable as error:
        pytest.skip(str(error))
    if shutil.which("javac") is None:
        pytest.skip("no Java compiler: it needs the openjdk-17-jdk-headless package")
    place = shop.service.location.removeprefix("grpc://")
    command += [f"jdbc:arrow-flight-sql://{place}/", WRITER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_every_question_about_the_server_has_an_answer(told: dict[str, Any]) -> None:
    facts = told["facts"]
    assert len(facts) > 100
    assert [name for name, value in facts.items() if str(value).startswith("error")] == []
    assert facts["getDatabaseProductName"] == "Quacklake" and facts["getIdentifierQuoteString"] == '"'
    assert facts["getMaxStatementLength"] == 100_000 and facts["isReadOnly"] is False
    assert facts["supportsFullOuterJoins"] is True and facts["supportsSubqueriesInExists"] is True
    assert facts["supportsBatchUpdates"] is True and facts["supportsSavepoints"] is False
    assert {"SELECT", "TABLE"} <= set(facts["getSQLKeywords"].split(", "))
    assert facts["getCatalogs"] == [["lake"]] and facts["getTableTypes"] == [["TABLE"], ["VIEW"]]


def test_tools_list_tables_columns_and_keys(told: dict[str, Any]) -> None:
    listings = told["listings"]
    tables = [(row[1], row[2], row[3]) for row in listings["tables"]]
    assert ("main", "items", "TABLE") in tables and ("main", "cheap", "VIEW") in tables
    assert [row[2] for row in listings["views"]] == ["cheap"]
    columns = {row[3]: (row[5], row[6], row[8], row[17]) for row in listings["columns"]}
    assert columns["id"] == ("BIGINT", 19, 0, "NO")
    assert columns["price"] == ("DECIMAL(10,2)", 10, 2, "YES")
    assert (columns["name"][0], columns["day"][0]) == ("VARCHAR", "DATE")
    assert [row[0] for row in listings["schemas"]] == ["main"]
    assert [(row[3], row[4]) for row in listings["keys"]] == [("b", 1), ("a", 2)]
    assert [listings[name] for name in ("imported", "exported", "cross", "indexes", "procedures")] == [[]] * 5
    assert (listings["numbers to texts"], listings["dates to numbers"]) == (True, False)
    assert (listings["repeatable"], listings["forward"]) == (True, True)


def test_parameters_of_every_type_arrive(told: dict[str, Any]) -> None:
    assert told["parameters"] == {
        "text": [["Utf8"], [["žluť"]]],
        "boolean": [["Bool"], [[True]]],
        "byte": [["Int(8, true)"], [[-8]]],
        "short": [["Int(16, true)"], [[300]]],
        "int": [["Int(32, true)"], [[70_000]]],
        "long": [["Int(64, true)"], [[5_000_000_000]]],
        "float": [["FloatingPoint(SINGLE)"], [[2.5]]],
        "double": [["FloatingPoint(DOUBLE)"], [[1.25]]],
        "decimal": [["Decimal(10, 2, 128)"], [[1.25]]],
        "date": [["Date(DAY)"], [[2024]]],
        "time": [["Time(MILLISECOND, 32)"], [[10]]],
        "timestamp": [["Timestamp(MILLISECOND, null)"], [[1_709_202_030_123]]],
        "instant": [["Timestamp(MILLISECOND, UTC)"], [[1_709_202_030_123]]],
        "bytes": [["Binary"], [["00ff"]]],
        "uuid": [["Utf8"], [["6a7e7f0c-0b0a-4d3f-8a2a-111111111111"]]],
        "list": [["Utf8"], [["[1,2]"]]],
        "null": [["Int(32, true)"], [[True]]],
        "compared": [["Int(64, true)", "Utf8"], [["item 2"]]],
        "added": [["FloatingPoint(DOUBLE)"], [[2.5]]],
        "named": [["Utf8", "Utf8", "Int(32, true)"], [["bab"]]],
        "page": [["Int(64, true)", "Int(64, true)"], [[3]]],
        "hostile": [["Utf8"], [[0]]],
    }


def test_changes_are_counted_and_a_batch_is_all_or_nothing(told: dict[str, Any], shop: Served) -> None:
    changes = told["changes"]
    failed = changes.pop("6 failed")
    assert "Could not convert string 'n21'" in failed
    expected = {"1 insert": 1, "2 update": 1, "3 merge": 1, "4 batch": [3], "5 batch": [2], "7 plain": 1}
    assert changes == expected
    rows = shop.lake.sql("SELECT id, name, amount, moment::VARCHAR FROM written ORDER BY id").fetchall()
    assert rows == [(1, "b", None, "2024-02-29 10:20:30.5"), (11, "n11", None, None)]


def test_results_tell_their_columns(told: dict[str, Any]) -> None:
    kinds = ["BIGINT", "VARCHAR", "DECIMAL", "TIMESTAMP_WITH_TIMEZONE", "ARRAY"]
    assert told["columns"] == [list(pair) for pair in zip(["id", "name", "d", "t", "l"], kinds, strict=True)]


def test_slow_queries_are_cancelled_and_end_at_their_timeout(told: dict[str, Any]) -> None:
    slow = told["slow"]
    assert "ancel" in slow["cancelled"] and slow["cancelled"].startswith("error")
    assert "imeout" in slow["late"] and slow["late"].startswith("error")
    assert slow["after"] == [[1]]
    assert "input.sql" in slow["wrong"]
    assert ["items"] in slow["shown"]
