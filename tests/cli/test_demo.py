from __future__ import annotations

import io
import os
import re
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

import quacklake
from quacklake_demo import streaming
from quacklake_demo.stage import Stage, open_lake
from tests.cli.conftest import Answer, Run
from tests.duckdbs import needs_extensions
from tests.layout import plain_only

pytestmark = pytest.mark.daily(0.5)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "kept"


def _step(told: str, title: str) -> str:
    """Return the text of one step of the demo."""
    _, _, rest = told.partition(f". {title}")
    return re.split(r"\n\d+\. ", rest)[0]


def _cells(told: str) -> list[list[str]]:
    """The cells of the table in a text."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in told.splitlines() if line.startswith("│")]


def _number(pattern: str, told: str) -> int:
    found = re.search(pattern, told)
    assert found is not None, pattern
    return int(found[1].replace(",", ""))


def _told(answer: Answer) -> str:
    """Return the output of the demo, which must have succeeded."""
    assert (answer.code, answer.err) == (0, "")
    return answer.out


@pytest.mark.slow
def test_the_demo_says_what_is_true(run: Run, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_only("the demo has a lake of its own")
    needs_extensions()
    # settings of the machine have no part in it
    monkeypatch.setenv("QUACKLAKE_METADATA_SCHEMA", "elsewhere")
    monkeypatch.setenv("QUACKLAKE_DATA_INLINING_ROW_LIMIT", "0")
    Path("quacklake.toml").write_text("plan_max_files = 1\n")
    told = _told(run("demo", "--keep", str(kept), "--events", "0"))
    assert os.environ["QUACKLAKE_METADATA_SCHEMA"] == "elsewhere"
    steps = re.findall(r"^(\d+)\. ", told, re.MULTILINE)
    assert [int(step) for step in steps] == list(range(1, len(steps) + 1))
    assert f"{len(steps)} steps in " in told
    assert 10 <= len(steps) <= 13
    assert "The pond has 2,784 rows in 7 series, in 4 transactions." in _step(told, "Collect a week of readings")

    monkeypatch.undo()
    with quacklake.connect(f"sqlite:///{kept / 'lake.db'}", config_file=os.devnull) as lake:
        orders, products = lake.table("shop.orders"), lake.table("shop.products")
        shared = lake.current_snapshot() - 2  # before DuckDB came

        appended = _step(told, "Append")
        assert _number(r"([\d,]+) orders are now", appended) == 120_000
        assert _number(r"in (\d+) Parquet files", appended) == 6

        small = _step(told, "Small commits")
        assert "and 0 new files: 5 rows are inlined" in small

        changed = _step(told, "Update, merge, delete")
        assert _number(r"deleted ([\d,]+)", changed) == 20_000
        assert ["1", "coffee", "19.0", "400"] in _cells(changed)

        assert "0 orders were added, 0 snapshots were made" in _step(told, "One transaction")

        travelled = _cells(_step(told, "Travel in time"))
        assert len(travelled) == 4
        for snapshot, _, price, count, ordered in travelled:
            past = lake.at(version=int(snapshot))
            assert past.table("shop.products").to_pylist(["price"], "id = 1") == [{"price": float(price)}]
            assert past.table("shop.products").count() == int(count)
            assert past.table("shop.orders").count() == int(ordered)

        listed = _cells(_step(told, "See what happened"))
        by_id = {str(row["snapshot_id"]): row for row in lake.snapshots().to_pylist()}
        assert listed
        assert all(by_id[row[0]]["changes"] == row[1] for row in listed)

        pruned = _step(told, "Read only")
        where = "day >= DATE '2025-06-01'"
        assert _number(r"(\d+) of \d+ files", pruned) == orders.plan(where).files.num_rows
        assert _number(r"of (\d+) files", pruned) == orders.files().num_rows
        assert _number(r"find ([\d,]+) of", pruned) == orders.count(where)

        conflict = _step(told, "Share it")
        assert "CommitConflict" in conflict
        assert _number(r"which is (\d+) less", conflict) == 10
        stock = lake.at(version=shared).table("shop.products").to_pylist(["stock"], "id = 1")
        assert _number(r"to (\d+), which", conflict) == stock[0]["stock"]

        visited = _step(told, "Let stock DuckDB")
        assert _number(r"counts ([\d,]+) orders", visited) == orders.count()
        assert {row["name"] for row in products.to_pylist()} == {row[1] for row in _cells(visited)}
        assert "cider" in {row[1] for row in _cells(visited)}


@pytest.mark.slow
def test_the_kept_lake_can_be_looked_at(run: Run, kept: Path) -> None:
    if not kept.exists():
        run("demo", "--keep", str(kept), "--events", "0")
    answer = run("tables", "--lake", f"sqlite:///{kept / 'lake.db'}", "--output", "json")
    assert [row["table"] for row in answer.json] == ["shop.orders", "shop.products"]


@pytest.mark.slow
def test_without_pyspark_and_the_extension_the_demo_says_so_in_a_line_each_and_cleans_up(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb_extensions", None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(streaming, "installed", lambda _: None)
    told = _told(run("demo"))
    assert "Left out: pyspark is not installed; pip install 'quacklake[spark]' brings it." in told
    assert "Left out: DuckDB's ducklake extension is not here" in told
    assert list((tmp_path / "temporary").iterdir()) == []


def test_without_java_the_demo_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(streaming, "installed", lambda _: "4.1.4")
    console = Console(file=io.StringIO(), width=200)
    streaming.stream(Stage(console), tmp_path, 10)
    assert "Left out: Java is not found; Spark needs it; install a JDK, version 17 or newer" in console.file.getvalue()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_the_demo_needs_an_empty_directory(run: Run) -> None:
    Path("full").mkdir()
    Path("full/file").touch()
    answer = run("demo", "--keep", "full")
    assert answer.code == 1
    assert "not empty" in answer.err


def test_the_demo_has_no_form_for_programs(run: Run) -> None:
    assert run("demo", "--output", "json").code == 1


def test_the_view_of_the_demo_follows_the_events_and_is_verified(tmp_path: Path) -> None:
    plain_only("the demo has a lake of its own")
    console = Console(file=io.StringIO(), width=200)
    with open_lake(tmp_path) as lake:
        streaming.create_tables(lake)
        streaming.generate(tmp_path / "inbox", 1_000)
        for number in range(streaming.BATCHES):
            lake.sql(f"INSERT INTO {streaming.EVENTS} FROM '{tmp_path}/inbox/{number}.parquet'")
            counted = lake.sql(f"SELECT sum(events) FROM {streaming.SHOPS}").fetchall()
            assert counted == [((number + 1) * 100,)]
        streaming._prove(Stage(console), lake, 1_000)
    told = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "5 shops with 1,000 events, the same as a full computation" in told
