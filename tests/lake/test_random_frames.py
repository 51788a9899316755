"""Random frames come back from a table as they went in, or are refused with an error that names the column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import quacklake
from quacklake.errors import QuacklakeError
from tests.lake.random_frames import KEY, Frame, compare, quiet_frame
from tests.seeds import LONG, chance

FRAMES = 1000 if LONG else 40


@pytest.fixture(params=[0, 10], ids=["files", "inlined"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=request.param
    ) as made:
        yield made


@pytest.mark.parametrize("part", range(4))
def test_random_frames_come_back_or_are_refused_with_their_column(lake: quacklake.Lake, part: int) -> None:
    purpose = (part, len(lake.tables()), lake.handle.context.config.data_inlining_row_limit)
    random = chance("random frames", *purpose)
    for number in range(FRAMES // 8):
        seed = random.getrandbits(64)
        frame = quiet_frame(Random(seed))
        try:
            _check(lake, frame, Random(seed))
        except Exception as error:
            error.add_note(f"frame {number}, Random({seed}), {frame.library}: {frame.kinds}, {frame.options}")
            raise


def _check(lake: quacklake.Lake, frame: Frame, random: Random) -> None:
    before = lake.tables()
    try:
        first = lake.create_table("first", frame.data, **frame.options)
    except QuacklakeError as error:
        _check_names(error, (*frame.refused, *frame.either))
        assert lake.tables() == before
        with pytest.raises(QuacklakeError), lake.transaction() as tx:
            tx.create_table("first", frame.data, **frame.options)
        assert lake.tables() == before
        return
    assert not frame.refused, f"taken, although {frame.refused} cannot be stored"
    compare(first, frame)
    second = lake.create_table("second", first.info.schema)
    match random.randrange(3):
        case 0:
            assert second.append(frame.data, **frame.options) == frame.rows
        case 1:
            assert second.merge(frame.data, on=KEY, **frame.options).inserted == frame.rows
            assert second.merge(frame.data, on=KEY, **frame.options).updated == frame.rows
        case _:
            with lake.transaction() as tx:
                tx.table("second").append(frame.data, **frame.options)
                tx.table("second").overwrite(frame.data, **frame.options)
    compare(second, frame)
    for name in ("first", "second"):
        lake.drop_table(name)


def _check_names(error: QuacklakeError, columns: tuple[str, ...]) -> None:
    assert any(name in f"{error.message} {error.hint}" for name in columns), f"{columns} are not named: {error}"
