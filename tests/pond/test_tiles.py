"""Tiles against a model: whatever the readings are, a page finds them in at most two files."""

from __future__ import annotations

import base64
import json
import re
import struct
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quacklake.pond.site import tiles
from quacklake.pond.site.tiles import Manifest, TileBuilder, first_tiles, span

Points = list[tuple[float, float]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of few readings, so that few readings make many tiles."""
    monkeypatch.setattr(tiles, "LIMIT", 16)
    monkeypatch.setattr(tiles, "BUCKETS", 8)


def build(lines: list[list[tuple[int, float | None]]], folder: Path) -> Manifest:
    with tempfile.TemporaryDirectory() as scratch, TileBuilder(Path(scratch)) as builder:
        for readings in lines:
            times, values = (
                pa.array([t for t, _ in readings], pa.int64()),
                pa.array([v for _, v in readings], pa.float64()),
            )
            builder.add(pa.table({"t": times, "v": values}).to_reader())
        return builder.write("c", folder)


def decode(folder: Path, level: int, tile: int) -> list[Points]:
    """Return the lines of a tile as chart.js reads them."""
    found = re.fullmatch(r"pondTile\((\".*?\"),(.*)\);\n", (folder / str(level) / f"{tile}.js").read_text())
    assert found is not None and json.loads(found[1]) == f"c/{level}/{tile}"
    lines = []
    for times, values in json.loads(found[2]):
        ts, vs = base64.b64decode(times), base64.b64decode(values)
        parts = struct.unpack(f"<{len(ts) // 4}I", ts)
        lines.append(
            list(
                zip(
                    [(tile + part / 2**32) * span(level) for part in parts],
                    struct.unpack(f"<{len(vs) // 4}f", vs),
                    strict=True,
                )
            )
        )
    return lines


@settings(max_examples=12, deadline=None)
@given(
    st.dictionaries(st.integers(-40_000, 90_000), st.integers(-1000, 1000), min_size=1, max_size=150),
    st.tuples(st.integers(-40_000, 90_000), st.integers(0, 130_000)),
)
def test_every_range_is_in_two_files_with_its_extremes(given: dict[int, int], view: tuple[int, int]) -> None:
    readings = sorted(given.items())
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        manifest = build([[(t, float(v)) for t, v in readings]], folder)
        assert (manifest.start, manifest.end) == (readings[0][0], readings[-1][0])
        start, end = view[0], view[0] + view[1]
        chosen = first_tiles(manifest, start, end)
        # a range wider than all readings may reach over more tiles, of which two have any
        assert len(chosen) <= 2
        seen = [(round(t), v) for level, tile in chosen for t, v in decode(folder, level, tile)[0] if v == v]
        assert seen == sorted(seen) and set(seen) <= set(readings)
        inside = {(t, v) for t, v in readings if start <= t <= end}
        for level, tile in chosen:
            for bucket in range(8):
                low = tile * span(level) + bucket * span(level) // 8
                own, kept = ([v for t, v in each if low <= t < low + span(level) // 8] for each in (readings, seen))
                assert (min(own, default=0), max(own, default=0)) == (min(kept, default=0), max(kept, default=0))
        if inside:
            assert chosen
        below = {(level, tile) for level in manifest.levels for tile in manifest.levels[level]}
        assert {(int(f.parent.name), int(f.stem)) for f in folder.glob("*/*.js")} == below
        for level, tile in below:
            count = sum(1 for t, _ in readings if t // span(level) == tile)
            if count <= 16:
                assert len([1 for _, v in decode(folder, level, tile)[0] if v == v]) == count


def test_gaps_stay_gaps_at_every_level(tmp_path: Path) -> None:
    readings: list[tuple[int, float | None]] = [(t, 1.0) for t in range(0, 100_000, 500) if not 40_000 <= t < 60_000]
    readings += [(100_000, None), (100_500, 2.0)]
    manifest = build([readings], tmp_path)
    assert len(manifest.levels) > 2
    for level, numbers in manifest.levels.items():
        breaks = [t for tile in numbers for t, v in decode(tmp_path, level, tile)[0] if v != v]
        # the coarsest level has buckets wider than the gap; the finest has no tile in the middle of it
        shown = span(level) // 8 <= 20_000 and 49_750 // span(level) in numbers
        assert sum(39_500 < t < 60_000 for t in breaks) == shown
        assert all(39_500 < t < 60_000 or 99_500 < t < 100_500 for t in breaks)


def test_new_readings_leave_the_tiles_of_the_past_as_they_are(tmp_path: Path) -> None:
    old: list[tuple[int, float | None]] = [(t, t % 7.0) for t in range(0, 60_000, 250)]
    build([old], tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/*.js")}
    build([[*old, (60_100, 1.0)]], tmp_path)
    after = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/*.js")}
    changed = {file for file in before if before[file] != after.get(file)}
    assert 0 < len(changed) <= 4 and len(before) > 12


def test_lines_share_their_tiles_and_values_that_do_not_fit_are_gaps(tmp_path: Path) -> None:
    first: list[tuple[int, float | None]] = [(0, 1.0), (100, 1e300), (200, float("nan")), (300, 2.0)]
    manifest = build([first, []], tmp_path)
    assert manifest.levels == {0: [0]}
    lines = decode(tmp_path, 0, 0)
    assert [v if v == v else None for _, v in lines[0]] == [1.0, None, 2.0] and lines[1] == []
    assert build([], tmp_path / "none").tiles == 0
