"""Errors come with a hint that says what to do, and the hint works."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import quacklake
from quacklake.errors import QuacklakeError

COLUMNS = {
    "id": int,
    "ts": dt.datetime,
    "tz": "timestamptz",
    "day": dt.date,
    "amount": float,
    "n": "INTEGER",
    "name": str,
    "ok": bool,
    "price": "DECIMAL(10,2)",
    "tags": list[str],
}
ROW = dict.fromkeys(COLUMNS)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Lake]:
    folder = tmp_path_factory.mktemp("hints")
    with quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=folder / "data") as lake:
        lake.create_table("orders", COLUMNS)
        yield lake


@pytest.mark.parametrize(
    ("column", "value", "hint"),
    [
        ("ts", "2025-01-01", 'parse the text first: pd.to_datetime(df["ts"]), or CAST(ts AS TIMESTAMP) in SQL'),
        ("tz", "2025-01-01", 'parse the text first: pd.to_datetime(df["tz"], utc=True)'),
        ("day", "2025-01-01", 'parse the text first: pd.to_datetime(df["day"]).dt.date'),
        ("amount", "1.5", 'parse the text first: pd.to_numeric(df["amount"]), or CAST(amount AS DOUBLE) in SQL'),
        ("id", "1", 'parse the text first: pd.to_numeric(df["id"])'),
        ("price", "1.5", "or CAST(price AS DECIMAL(10,2)) in SQL"),
        ("ok", "yes", "make True and False of the text first"),
        ("n", 1.5, 'round the numbers first: df["n"].round().astype("Int64")'),
        ("price", 1.5, "pass decimal.Decimal, or round the numbers with CAST(price AS DECIMAL(10,2)) in SQL"),
        ("name", 5, 'make text of the values first: df["name"].astype(str)'),
        ("tz", dt.datetime(2025, 1, 1), 'the times have no zone: df["tz"].dt.tz_localize("UTC")'),
        ("ts", dt.datetime(2025, 1, 1, tzinfo=dt.UTC), 'the times have a zone: df["ts"].dt.tz_localize(None)'),
        ("day", dt.datetime(2025, 1, 1), 'drop the time of the day first: df["day"].dt.date'),
        ("tags", "a", 'the column "tags" takes lists: pass [value] where there is one'),
        ("n", 2**40, 'table.alter_column("n", "BIGINT") widens it'),
        ("ok", dt.date(2025, 1, 1), "the table has"),
    ],
)
def test_values_of_another_type_come_with_how_to_convert_them(
    lake: quacklake.Lake, column: str, value: Any, hint: str
) -> None:
    with pytest.raises(QuacklakeError) as caught:
        lake["orders"].append([{**ROW, column: value}])
    assert hint in str(caught.value.hint)
    assert lake["orders"].count() == 0


@pytest.mark.parametrize(
    ("frame", "good"),
    [
        ({"ts": ["2025-01-01"]}, lambda df: df.assign(ts=pd.to_datetime(df["ts"]))),
        ({"day": ["2025-01-01"]}, lambda df: df.assign(day=pd.to_datetime(df["day"]).dt.date)),
        ({"n": [1.0, None]}, lambda df: df.assign(n=df["n"].round().astype("Int64"))),
        ({"amount": ["1.5"]}, lambda df: df.assign(amount=pd.to_numeric(df["amount"]))),
        ({"name": [1]}, lambda df: df.assign(name=df["name"].astype(str))),
    ],
)
def test_what_a_hint_says_works(
    tmp_path: Path, frame: dict[str, Any], good: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", {name: COLUMNS[name] for name in frame})
        with pytest.raises(QuacklakeError):
            table.append(pd.DataFrame(frame))
        assert table.append(good(pd.DataFrame(frame))) == len(next(iter(frame.values())))


@pytest.mark.parametrize(
    ("act", "hint"),
    [
        (lambda lake: lake["orders"].append([{"id": 1}]), "evolve=True lets those that are missing be NULL"),
        (lambda lake: lake["orders"].append([{**ROW, "amnt": 1}]), 'did you mean "amount"?'),
        (lambda lake: lake["orders"].append([{**ROW, "zzz": 1}]), "evolve=True adds columns; the table has"),
        (lambda lake: lake["orders"].append(pd.DataFrame({"id": [1, "a"]})), "give each column one type"),
        (lambda lake: lake["order"], 'did you mean "main.orders"?'),
        (lambda lake: lake["orders"].to_pylist(columns=["zzz"]), "there are id, ts, tz"),
        (lambda lake: lake.create_table("x.t", {"a": int}), 'lake.create_schema("x") makes it'),
        (lambda lake: lake.create_table("t", "id INT, name VARCHAR(10)"), "pass a mapping"),
        (lambda lake: lake.create_table("t", "SELECT 1"), "to use SQL, pass lake.sql(…)"),
        (lambda lake: lake.at("2025-01-01"), 'for a time, pass timestamp="2025-01-01"'),
        (lambda lake: lake.at("launch"), "lake.history.tags() lists them"),
        (lambda lake: quacklake.connect("lake.db"), 'did you mean "sqlite:///lake.db"?'),
        (lambda lake: quacklake.connect("p@ssw:rd"), "use sqlite:///lake.db"),
    ],
)
def test_a_mistake_comes_with_what_to_do(lake: quacklake.Lake, act: Callable[[quacklake.Lake], Any], hint: str) -> None:
    with pytest.raises(QuacklakeError) as caught:
        act(lake)
    assert hint in str(caught.value.hint)
