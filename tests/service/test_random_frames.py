"""Random frames that a service appends come back as they went in, in the types of a table that a lake made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import QuacklakeError
from tests.lake.random_frames import KEY, Frame, compare, quiet_frame
from tests.seeds import LONG, chance
from tests.service.flight.conftest import serve
from tests.service.serving import served

FRAMES = 1000 if LONG else 25
Write = Callable[[Frame, Random, quacklake.Table], None]


@contextmanager
def over_http(home: Path) -> Iterator[tuple[quacklake.Lake, Write]]:
    """Give a lake, and write to its table ``second`` with the client of the service."""
    with (
        quacklake.connect(f"sqlite:///{home}/lake.db", home / "data", create=True) as lake,
        served(lake) as service,
        quacklake.connect(service.url, token="writer-token") as remote,
    ):

        def write(frame: Frame, random: Random, first: quacklake.Table) -> None:
            second = remote.table("second")
            if random.random() < 0.5:
                assert second.append(frame.data, **frame.options) == frame.rows
                return
            assert second.merge(frame.data, on=KEY, **frame.options).inserted == frame.rows
            assert second.merge(frame.data, on=KEY, **frame.options).updated == frame.rows

        yield lake, write


@contextmanager
def over_flight(home: Path) -> Iterator[tuple[quacklake.Lake, Write]]:
    """Give a lake, and write to its table ``second`` what the library makes of a frame in Arrow."""
    service = serve(home)

    def write(frame: Frame, random: Random, first: quacklake.Table) -> None:
        rows = _in_arrow(frame.data)
        rows = first.to_arrow() if rows is None else rows
        assert service.put("second", rows.to_batches(), schema=rows.schema)["rows"] == frame.rows

    with service.lake as lake:
        yield lake, write
        assert service.service.shutdown()


def _in_arrow(data: Any) -> pa.Table | None:
    if isinstance(data, pa.Table):
        return data
    frame = data.collect() if isinstance(data, pl.LazyFrame) else data
    return frame.to_arrow(compat_level=pl.CompatLevel.newest()) if isinstance(frame, pl.DataFrame) else None


@pytest.mark.parametrize("way", [over_http, over_flight])
def test_random_frames_come_back_from_a_service(way: Any, tmp_path: Path) -> None:
    random = chance("random frames of a service", way.__name__)
    with way(tmp_path) as (lake, write):
        for number in range(FRAMES):
            seed = random.getrandbits(64)
            frame = quiet_frame(Random(seed))
            try:
                first = lake.create_table("first", frame.data, **frame.options)
            except QuacklakeError:  # whose column tests of lakes look at
                continue
            try:
                lake.create_table("second", first.info.schema)
                write(frame, Random(seed), first)
                compare(lake.table("second"), frame)
            except Exception as error:
                error.add_note(f"frame {number}, Random({seed}), {frame.library}: {frame.kinds}, {frame.options}")
                raise
            for name in ("first", "second"):
                lake.drop_table(name)
