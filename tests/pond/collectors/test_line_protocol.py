"""Line protocol as text: escapes, types, precision, and lines that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from quacklake.errors import QuacklakeError
from quacklake.pond.collectors.line_protocol import parse

NOW = 1_704_067_200 * 10**9


def parsed(text: str, precision: str = "ns") -> dict[str, list[dict[str, Any]]]:
    tables = parse(text, precision, NOW, max_rows=10, max_columns=5)
    found = {name: table.to_pylist() for name, table in tables.items()}
    return {
        name: [row | {"timestamp": int(row["timestamp"].timestamp())} for row in rows] for name, rows in found.items()
    }


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("m v=1", {"v": 1.0}),
        ("m v=-1.5e3", {"v": -1500.0}),
        ("m v=3i", {"v": 3}),
        ("m v=18446744073709551615u", {"v": 2**64 - 1}),
        ("m v=T,w=FALSE", {"v": True, "w": False}),
        ('m v="a b,c=d \\"e\\" \\\\"', {"v": 'a b,c=d "e" \\'}),
        (r"m,a\ b=c\,d\=e v=1", {"a b": "c,d=e", "v": 1.0}),
        ("m,t=ü v=1", {"t": "ü", "v": 1.0}),
    ],
)
def test_a_line_is_a_row(line: str, row: dict[str, Any]) -> None:
    assert parsed(line) == {"m": [{"timestamp": NOW // 10**9, **row}]}


def test_lines_of_one_time_and_the_same_tags_are_one_row() -> None:
    found = parsed("m,a=1,b=2 v=1 5\nm,b=2,a=1 w=2 5\nm,a=1 v=3 5\n\n# a comment\r\n", "s")
    assert found == {
        "m": [
            {"timestamp": 5, "a": "1", "b": "2", "v": 1.0, "w": 2.0},
            {"timestamp": 5, "a": "1", "b": None, "v": 3.0, "w": None},
        ]
    }


@pytest.mark.parametrize(
    ("precision", "stamp"), [("s", 60), ("ms", 60_000), ("us", 60_000_000), ("ns", 60 * 10**9), ("m", 1)]
)
def test_the_precision_of_a_request_counts(precision: str, stamp: int) -> None:
    assert parsed(f"m v=1 {stamp}", precision)["m"][0]["timestamp"] == 60


@pytest.mark.parametrize(
    "line",
    [
        "m",
        "m ",
        " ,a=1 v=1",
        "m,a= v=1",
        "m,a v=1",
        "m v=",
        "m v=1x",
        "m v=nan",
        'm v="open',
        "m v=1 soon",
        "m v=1 99999999999999999999",
        "m v=1i,v=2i",
        "m v=9223372036854775808i",
        "m v=-1u",
        f"m v={'9' * 5000}i",
        "m v=1e999",
        "m v=1 =2",
        "m =1",
        r'm,a=b\ v="x"',
        "m timestamp=1",
        "m,v=1 v=1",
        "m v=1,w=2,x=3,y=4,z=5,q=6",
        'm v="a"b',
        "m v=1 5\nm v=2i 6",
        "m v=1 5\nm v=2 5",
        "\n".join(f"m v={n} {n}" for n in range(11)),
    ],
)
def test_a_line_that_is_wrong_refuses_the_request(line: str) -> None:
    with pytest.raises(QuacklakeError) as error:
        parsed(line)
    assert error.value.code.startswith(("input", "limit"))
