"""JSON is read as the types of the table without loss, or not at all."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import InputError
from tests import seeds


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Lake]:
    folder = tmp_path_factory.mktemp("lake")
    with quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=folder / "data") as lake:
        for number, (type_, _) in enumerate(SHAPES):
            lake.sql(f"CREATE TABLE t{number} (v {type_})")
        yield lake


SHAPES: list[tuple[str, str]] = [
    (shape.format(type_), kind)
    for kind, types in {"whole": ("BIGINT", "TINYINT"), "moment": ("TIMESTAMP",), "day": ("DATE",)}.items()
    for type_ in types
    for shape in ("{}", 'STRUCT("TIMESTAMP" {})', "{}[]")
]


def wrapped(type_: str, value: Any) -> Any:
    if type_.startswith("STRUCT"):
        return {"TIMESTAMP": value}
    return [value] if type_.endswith("[]") else value


def drawn(kind: str, draw: random.Random) -> tuple[str, Any]:
    """Return a value as JSON, and as Python should see it; ``ValueError`` where no value of the type is equal."""
    if kind == "whole":
        text = draw.choice(["7", "7.0", "7.5", "-3", "1e2", "1.5e1", "100.25", "9007199254740993", "0.5", "null"])
        number = None if text == "null" else Decimal(text)
        return text, ValueError if number is not None and number != int(number) else number and int(number)
    moment = dt.datetime(2024, 3, draw.randint(1, 28), draw.choice([0, 5, 23]), draw.choice([0, 30]))
    offset = draw.choice([None, 0, 2, -5])
    text = moment.isoformat() + ("" if offset is None else "Z" if offset == 0 else f"{offset:+03d}:00")
    told = moment - dt.timedelta(hours=offset or 0)
    if kind == "moment":
        return json.dumps(text), told
    if draw.random() < 0.5:
        return json.dumps(f"{told.date()}"), told.date()
    return json.dumps(text), told.date() if told.time() == dt.time() else ValueError


@pytest.mark.parametrize("number", range(len(SHAPES)), ids=[type_ for type_, _ in SHAPES])
def test_random_values_arrive_as_they_are_or_are_refused(lake: quacklake.Lake, tmp_path: Path, number: int) -> None:
    type_, kind = SHAPES[number]
    draw = seeds.chance("exact json", type_)
    path = tmp_path / "values.json"
    for _ in range(6):
        values = [drawn(kind, draw) for _ in range(draw.choice([1, 1, 2, 4]))]
        path.write_text("".join('{"v": ' + wrapping(type_, text) + "}\n" for text, _ in values))
        told = [value for _, value in values]
        table = lake.table(f"t{number}")
        table.delete()
        if ValueError in told or ("TINYINT" in type_ and any(value and abs(value) > 127 for value in told)):
            with pytest.raises(InputError):
                table.append(path)
            assert table.to_pylist() == []
        else:
            table.append(path)
            assert sorted(map(repr, table.to_pylist())) == sorted(repr({"v": wrapped(type_, value)}) for value in told)


def wrapping(type_: str, text: str) -> str:
    if type_.startswith("STRUCT"):
        return f'{{"TIMESTAMP": {text}}}'
    return f"[{text}]" if type_.endswith("[]") else text


def test_a_new_table_keeps_the_offsets_of_its_times(lake: quacklake.Lake, tmp_path: Path) -> None:
    (tmp_path / "new.json").write_text('{"t": "2024-01-01T10:00:00+02:00"}\n{"t": "2024-01-01T12:00:00+02:00"}\n')
    made = lake.create_table("made", tmp_path / "new.json")
    assert [row["t"].hour for row in made.to_pylist()] == [8, 10]


def test_the_error_says_what_would_be_lost(lake: quacklake.Lake, tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"v": 1.5}\n')
    with pytest.raises(InputError, match=r'the column "v" has the type BIGINT, which cannot hold 1\.5'):
        lake.table("t0").append(tmp_path / "half.json")
