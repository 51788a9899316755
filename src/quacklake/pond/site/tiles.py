"""Tiles: the points of a chart cut into files, so that a page reads at most two for any range of time.

Time is cut at powers of two: a tile of level ``e`` spans ``1024 * 4 ** e`` milliseconds from a multiple of that. The
coarsest level has at most two tiles. A tile with few readings has them all; one with many has the first, lowest,
highest and last of each of 2048 buckets, and four tiles of the next level below it. So tiles of the past do not change
when new readings arrive.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.extend.duckdbs import arrow_table, connect
from quacklake.extend.names import literal

LIMIT = 8192
"""A line of a tile has at most so many readings, or else buckets."""
BUCKETS = 2048
_GAP = 3
_FINEST, _COARSEST = 0, 18
_MAX_VALUE = 3.4e38
"""Values are stored in four bytes; larger ones are left out."""
_SAMPLE = 1_000_000
"""The readings that say what distance is usual."""
_CHUNK = 64
"""Tiles that are cut at once: what bounds memory."""


def span(level: int) -> int:
    """Return the milliseconds of a tile.

    >>> span(0), span(1)
    (1024, 4096)
    """
    return int(1024 << (2 * level))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The tiles of a chart: the range of its readings in milliseconds, and the numbers of the tiles of each level."""

    start: int
    end: int
    root: int
    levels: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def tiles(self) -> int:
        """The number of tiles."""
        return sum(len(numbers) for numbers in self.levels.values())


class TileBuilder:
    """Cuts the lines of a chart into tiles, in a DuckDB database of its own in a scratch folder. A context manager.

    The readings of a line are kept on disk there; memory holds some tiles.
    """

    def __init__(self, scratch: Path) -> None:
        self._connection = connect(str(scratch / "tiles.duckdb"))
        self._connection.execute("SET memory_limit = '1GB'")
        self._connection.execute(f"SET temp_directory = {literal(str(scratch / 'spill'))}")
        self._lines = 0

    def __enter__(self) -> TileBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, readings: pa.RecordBatchReader) -> None:
        """Add a line: its times ``t`` in milliseconds and values ``v``, in the order of time.

        A gap is where a value is missing, or where readings are farther apart than three times the usual distance.
        """
        number = self._lines
        self._lines += 1
        run = self._connection.execute
        self._connection.register("readings", readings)
        run(
            f"CREATE TABLE raw_{number} AS SELECT t, v, lag(t) OVER () AS before, lag(v) OVER () IS NULL AS hole FROM"
            f" (SELECT t, CASE WHEN isnan(v) OR abs(v) > {_MAX_VALUE} THEN NULL ELSE v END AS v FROM readings)"
        )
        self._connection.unregister("readings")
        some = f"SELECT t - before AS apart FROM raw_{number} LIMIT {_SAMPLE}"
        ((usual,),) = run(f"SELECT quantile_disc(apart, 0.5) FROM ({some})").fetchall()
        # after a gap stands the time before it, where the line is broken
        run(
            f"CREATE TABLE line_{number} AS SELECT t, v, CASE WHEN broken THEN lag(t) OVER () END AS gap_from,"
            f" CAST(sum(CAST(broken AS INTEGER)) OVER (ROWS UNBOUNDED PRECEDING) AS INTEGER) AS part FROM"
            f" (SELECT t, v, hole OR t - before > {_GAP * max(int(usual or 1), 1)} AS broken FROM raw_{number}"
            f" WHERE v IS NOT NULL)"
        )
        run(f"DROP TABLE raw_{number}")

    def write(self, chart: str, folder: Path) -> Manifest:
        """Write the tiles of a chart below a folder, and return what there is. Equal files stay as they are."""
        bounds = self._bounds()
        if bounds is None:
            return Manifest(0, 0, _FINEST)
        start, end = bounds
        root = next((e for e in range(_FINEST, _COARSEST) if span(e) > end - start), _COARSEST)
        levels = self._levels(root)
        for number in range(self._lines):
            self._cascade(number, [level for level, tiles in levels.items() if any(tiles.values())])
        written = set()
        for level, tiles in levels.items():
            numbers = sorted(tiles)
            for first in range(0, len(numbers), _CHUNK):
                chunk = numbers[first : first + _CHUNK]
                for tile, text in self._texts(chart, level, chunk, tiles):
                    path = folder / str(level) / f"{tile}.js"
                    written.add(path)
                    write_text(path, text)
        for path in folder.glob("*/*.js"):
            if path not in written:
                path.unlink()
        return Manifest(start, end, root, {level: sorted(tiles) for level, tiles in levels.items()})

    def _bounds(self) -> tuple[int, int] | None:
        tables = " UNION ALL ".join(f"SELECT min(t) AS a, max(t) AS b FROM line_{n}" for n in range(self._lines))
        rows = self._connection.execute(f"SELECT min(a), max(b) FROM ({tables})").fetchall() if tables else []
        return None if not rows or rows[0][0] is None else (int(rows[0][0]), int(rows[0][1]))

    def _levels(self, root: int) -> dict[int, dict[int, bool]]:
        """Return the tiles of each level that has any, each with whether it has tiles below it."""
        levels: dict[int, dict[int, bool]] = {}
        above: dict[int, bool] | None = None
        for level in range(root, _FINEST - 1, -1):
            counts = " UNION ALL ".join(
                f"SELECT CAST(floor(t / {span(level)}) AS BIGINT) AS tile, count(*) AS n FROM line_{n} GROUP BY 1"
                for n in range(self._lines)
            )
            rows = self._connection.execute(f"SELECT tile, max(n) FROM ({counts}) GROUP BY 1").fetchall()
            found = {
                tile: n > LIMIT and level > _FINEST for tile, n in rows if above is None or above.get(tile // 4, False)
            }
            levels[level] = found
            above = found
            if not any(found.values()):
                break
        return levels

    def _cascade(self, number: int, levels: Sequence[int]) -> None:
        """Make the buckets of a line for levels, from fine to coarse, each of those of the level before."""
        source, shape = f"line_{number}", "t AS ft, v AS fv, t AS lt, v AS lv, t AS lot, v AS lov, t AS hit, v AS hiv"
        rows = f"SELECT CAST(floor(t / {{width}}) AS BIGINT) AS b, {shape}, part AS p, part AS q FROM {source}"
        done: int | None = None
        for level in sorted(levels):
            if done is not None:
                coarser = f"CAST(floor(b / {4 ** (level - done)}) AS BIGINT) AS b"
                rows = f"SELECT {coarser}, * EXCLUDE (b) FROM buckets_{number}_{done}"
            self._connection.execute(
                f"CREATE TABLE buckets_{number}_{level} AS SELECT b, min(ft) AS ft, arg_min(fv, ft) AS fv,"
                f" max(lt) AS lt, arg_max(lv, lt) AS lv, arg_min(lot, lov) AS lot, min(lov) AS lov,"
                f" arg_max(hit, hiv) AS hit, max(hiv) AS hiv, min(p) AS p, max(q) AS q"
                f" FROM ({rows.format(width=span(level) // BUCKETS or 1)})"
                f" GROUP BY b ORDER BY b"
            )
            done = level

    def _texts(
        self, chart: str, level: int, chunk: Sequence[int], tiles: Mapping[int, bool]
    ) -> Iterator[tuple[int, str]]:
        """Yield some tiles as JavaScript: a call with the times and values of each line, in base 64."""
        columns: list[dict[int, tuple[str, str]]] = [{} for _ in range(self._lines)]
        for number in range(self._lines):
            for dense in (False, True):
                chosen = [tile for tile in chunk if tiles[tile] is dense]
                if chosen:
                    rows = self._bucket_points(number, level) if dense else self._raw_points(number)
                    columns[number].update(self._pack_tiles(level, chosen, rows))
        for tile in chunk:
            data = [list(column.get(tile, ("", ""))) for column in columns]
            yield (
                tile,
                f"pondTile({json.dumps(f'{chart}/{level}/{tile}')},{json.dumps(data, separators=(',', ':'))});\n",
            )

    def _raw_points(self, number: int) -> str:
        """Return all readings of a line, with not-a-number in the middle of gaps, as SQL with bounds for ``t``."""
        return (
            f"SELECT t, v FROM line_{number} WHERE t >= $low AND t < $high UNION ALL"
            f" SELECT (gap_from + t) // 2 AS t, 'nan'::DOUBLE AS v FROM line_{number}"
            f" WHERE gap_from IS NOT NULL AND t >= $low AND gap_from < $high"
        )

    def _bucket_points(self, number: int, level: int) -> str:
        """Return the points of buckets, with not-a-number where there is a gap of a bucket at least between two."""
        width = span(level) // BUCKETS or 1
        near = f"(SELECT * FROM buckets_{number}_{level} WHERE lt >= $low - {width} AND ft < $high + {width})"
        gaps = (
            f"SELECT (last + ft) // 2 AS t, 'nan'::DOUBLE AS v FROM"
            f" (SELECT ft, p, lag(lt) OVER o AS last, lag(q) OVER o AS before FROM {near}"
            f" WINDOW o AS (ORDER BY b)) WHERE p <> before AND ft - last >= {width}"
        )
        times, values = (", ".join(pair[side] for pair in _M4) for side in (0, 1))
        points = f"SELECT unnest([{times}]) AS t, unnest([{values}]) AS v FROM {near}"
        return f"SELECT DISTINCT t, v FROM ({points}) UNION ALL {gaps}"

    def _pack_tiles(self, level: int, chosen: Sequence[int], rows: str) -> Iterator[tuple[int, tuple[str, str]]]:
        """Yield the times and values of tiles. A time is a part of the span of its tile, in 2 ** -32."""
        size = span(level)
        wanted = ", ".join(map(str, chosen))
        query = (
            f"SELECT tile, CAST((t - tile * {size}) * {2**32 // size if size < 2**32 else 1} // {max(size // 2**32, 1)}"
            f" AS UINTEGER) AS part, CAST(v AS FLOAT) AS v FROM"
            f" (SELECT CAST(floor(t / {size}) AS BIGINT) AS tile, t, v FROM ({rows}))"
            f" WHERE tile IN ({wanted}) ORDER BY tile, t, v"
        )
        low, high = min(chosen) * size, (max(chosen) + 1) * size
        found = arrow_table(self._connection, query, {"low": low, "high": high}).combine_chunks()
        if not found.num_rows:
            return
        times, values = (_bytes(found.column(name)) for name in ("part", "v"))
        first = 0
        runs = pc.run_end_encode(found.column("tile").chunk(0))
        for tile, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield tile, (_text(times[first * 4 : end * 4]), _text(values[first * 4 : end * 4]))
            first = end


_M4 = (("ft", "fv"), ("lot", "lov"), ("hit", "hiv"), ("lt", "lv"))


def _bytes(column: pa.ChunkedArray) -> memoryview:
    """Return the bytes of a column of numbers of four bytes without nulls, which is one chunk."""
    array = column.chunk(0)
    return memoryview(array.buffers()[1])[array.offset * 4 : (array.offset + len(array)) * 4]


def _text(content: memoryview) -> str:
    return base64.b64encode(content).decode()


def write_text(path: Path, text: str) -> bool:
    """Write a file unless it is the same already, and return whether it was written."""
    content = text.encode()
    if path.exists() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.replace(path)
    return True


def first_tiles(manifest: Manifest, start: int, end: int) -> list[tuple[int, int]]:
    """Return the level and number of each tile that a page reads for a range; ``tiles`` of chart.js does the same."""
    if not manifest.levels:
        return []
    levels = {level: set(numbers) for level, numbers in manifest.levels.items()}
    level = next((e for e in range(min(levels), manifest.root) if span(e) >= end - start), manifest.root)
    found = []
    for tile in range(start // span(level), end // span(level) + 1):
        at, number = level, tile
        while at < manifest.root and number not in levels.get(at, ()):
            if any(4 * (number // 4) + each in levels.get(at, ()) for each in range(4)):
                break  # it has no readings
            at, number = at + 1, number // 4
        if number in levels.get(at, ()) and (at, number) not in found:
            found.append((at, number))
    return found


def as_json(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as the page reads it."""
    levels = {str(level): list(numbers) for level, numbers in manifest.levels.items()}
    return {"start": manifest.start, "end": manifest.end, "root": manifest.root, "levels": levels}
