"""Bounding boxes of WKB."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.format.extras import EVERYTHING, extent, merge_extra, written_extent

from .oracle import in_utc


def _wkb(*texts: str) -> list[bytes]:
    with in_utc() as connection:
        rows = [connection.sql(f"SELECT '{text}'::GEOMETRY AS g").to_arrow_table()["g"][0].as_py() for text in texts]
    return rows


def _box(*texts: str) -> dict[str, object]:
    parsed = json.loads(extent(_wkb(*texts)))
    return {key: value for key, value in parsed["bbox"].items() if value is not None} | {"types": parsed["types"]}


@pytest.mark.parametrize(
    ("texts", "box"),
    [
        (["POINT(1 2)"], {"xmin": 1.0, "xmax": 1.0, "ymin": 2.0, "ymax": 2.0, "types": ["point"]}),
        (["POINT EMPTY"], {"types": ["point"]}),
        (
            ["POINT Z(1 2 3)", "LINESTRING M(0 0 5, 9 -9 6)"],
            {"xmin": 0.0, "xmax": 9.0, "ymin": -9.0, "ymax": 2.0, "zmin": 3.0, "zmax": 3.0, "mmin": 5.0, "mmax": 6.0,
             "types": ["linestring_m", "point_z"]},
        ),
        (
            ["POLYGON((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1))"],
            {"xmin": 0.0, "xmax": 4.0, "ymin": 0.0, "ymax": 4.0, "types": ["polygon"]},
        ),
        (
            ["GEOMETRYCOLLECTION(POINT(7 7), MULTIPOINT(1 1, 2 -2))", "MULTIPOLYGON EMPTY"],
            {"xmin": 1.0, "xmax": 7.0, "ymin": -2.0, "ymax": 7.0, "types": ["geometrycollection", "multipolygon"]},
        ),
        ([], {"types": []}),
    ],
)  # fmt: skip
def test_the_box_holds_every_coordinate(texts: list[str], box: dict[str, object]) -> None:
    assert _box(*texts) == box


def test_extended_and_big_endian_wkb_are_read() -> None:
    extended = struct.pack("<BII3d", 1, 0x20000000 | 0x80000000 | 1, 4326, 1, 2, 3)
    big = struct.pack(">BI2d", 0, 1, -1, -2)
    parsed = json.loads(extent([extended, None, big]))
    assert parsed["types"] == ["point", "point_z"]
    assert (parsed["bbox"]["xmin"], parsed["bbox"]["zmax"]) == (-1.0, 3.0)


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda rest: b"\x01\x02\x00\x00\x00" + rest))
def test_any_bytes_give_a_box(data: bytes) -> None:
    assert set(json.loads(extent([data]))) == {"bbox", "types"}


@pytest.mark.parametrize("data", [b"", b"\x01", struct.pack("<BII", 1, 2, 2**32 - 1), struct.pack("<BI", 1, 99)])
def test_what_cannot_be_read_could_be_anywhere(data: bytes) -> None:
    assert extent([data]) == EVERYTHING


def test_nesting_has_a_limit() -> None:
    assert extent([struct.pack("<BII", 1, 7, 1) * 100]) == EVERYTHING


def test_boxes_merge_to_the_one_around_both() -> None:
    one, two, both = _wkb("POINT(1 2)"), _wkb("POINT Z(-5 9 1)"), _wkb("POINT(1 2)", "POINT Z(-5 9 1)")
    assert merge_extra(extent(one), extent(two)) == extent(both)
    assert merge_extra(extent([]), extent(two)) == extent(two)


@pytest.mark.parametrize(
    "text", [None, "", "[]", "{}", "3", '{"bbox": 3, "types": []}', '{"bbox": {"xmin": "x"}, "types": []}']
)
def test_a_box_nothing_is_known_of_swallows_the_other(text: str | None) -> None:
    known = extent(_wkb("POINT(1 2)"))
    assert merge_extra(text, known) == merge_extra(known, text) == EVERYTHING


def test_what_duckdb_returns_of_a_file_is_the_box_of_its_values() -> None:
    flat = {"bbox_xmin": "1.0", "bbox_xmax": "1.0", "bbox_ymin": "2.0", "bbox_ymax": "2.0", "geo_types": "[point]"}
    assert written_extent(flat) == extent(_wkb("POINT(1 2)"))
    mixed = flat | {"bbox_xmin": "-5.0", "bbox_ymax": "9.0", "bbox_zmin": "1.0", "bbox_zmax": "1.0"}
    mixed["geo_types"] = "[point, point_z]"
    assert written_extent(mixed) == extent(_wkb("POINT(1 2)", "POINT Z(-5 9 1)"))
    assert written_extent({"num_values": "1"}) == extent([])
