"""NaN is a value: it becomes NULL only where pandas means "missing" by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import quacklake

NAN = float("nan")
COLUMNS = {"id": "INTEGER", "d": "DOUBLE", "f": "FLOAT", "l": "DOUBLE[]", "s": "STRUCT(x DOUBLE, y VARCHAR)"}
ROW = {"id": 1, "d": NAN, "f": NAN, "l": [NAN, 2.0, None], "s": {"x": NAN, "y": "it's"}}
NONE = {"id": 1, "d": 0.0, "f": 0.0, "l": [0.0], "s": {"x": 0.0, "y": ""}}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[quacklake.Table]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        yield lake.create_table("t", COLUMNS)


def shown(table: quacklake.Table) -> str:
    return repr(table.scan().to_arrow().to_pylist())


WAYS: dict[str, Callable[[quacklake.Table], Any]] = {
    "append": lambda table: table.append([ROW]),
    "append columns": lambda table: table.append({name: [value] for name, value in ROW.items()}),
    "append many": lambda table: (table.append([ROW] * 30), table.delete("rowid > 0")),
    "overwrite": lambda table: table.overwrite([ROW]),
    "update": lambda table: (table.append([NONE]), table.update({k: v for k, v in ROW.items() if k != "id"})),
    "merge": lambda table: (table.append([NONE]), table.merge([ROW], on="id")),
    "merge new": lambda table: table.merge([ROW], on="id"),
}


@pytest.mark.parametrize("way", WAYS)
def test_nan_is_stored_as_nan(way: str, table: quacklake.Table) -> None:
    WAYS[way](table)
    assert shown(table) == repr([ROW])


def test_scalars_of_numpy_are_taken(table: quacklake.Table) -> None:
    table.append([NONE])
    table.update({"d": np.float64("nan"), "f": np.float32("nan"), "id": np.int32(7)})
    row = table.scan().to_arrow().to_pylist()[0]
    assert row["id"] == 7
    assert math.isnan(row["d"])
    assert math.isnan(row["f"])


def test_what_is_missing_in_pandas_is_null(table: quacklake.Table) -> None:
    table.append(pd.DataFrame({"id": [1], "d": [np.nan]}), evolve=True)
    assert table.scan().to_arrow().to_pylist()[0]["d"] is None
