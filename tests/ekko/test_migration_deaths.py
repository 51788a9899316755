"""A migration that dies at any point can continue, and ends with the same rows on both sides."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.lake.lake import Lake
from quacklake_ekko.migration import ArrowFolder, DualWriter, backfill, compare, retire, state, switch
from quacklake_ekko.simulator import Simulation
from quacklake_ekko.table import TABLE
from quacklake_ekko.transactions import ROWS
from tests.ekko.arrow_files import START, changed, open_folder, transactions
from tests.seeds import LONG, SEED, some

POINTS = 2
"""The points of each operation that are tried; all in the long profile."""


def open_lake(place: Path) -> Lake:
    return quacklake.connect(f"sqlite:///{place}/lake.db", data_path=str(place / "data"))


def write_both(lake: Lake, folder: ArrowFolder) -> None:
    writer = DualWriter(lake, folder, batch_size=1000, flush_interval="1 hour")
    try:
        for row in transactions(blocks=3, seed=2).to_pylist():
            writer._writer.write(TABLE, row)
        writer.flush()
    except BaseException:
        writer._writer._buffers.clear()  # as in a process that has died
        raise
    finally:
        writer.close()


def take_over(lake: Lake, folder: ArrowFolder) -> None:
    backfill(lake, folder, batch_rows=7)


def compare_both(lake: Lake, folder: ArrowFolder) -> None:
    compare(lake, folder, allow_extra=True)


def prepare(place: Path) -> tuple[Lake, ArrowFolder]:
    lake, folder = open_lake(place), open_folder(place / "arrow")
    folder.write(transactions(), START)
    folder.write(changed(transactions(blocks=2), random.Random(SEED)), START + dt.timedelta(seconds=5))
    return lake, folder


@pytest.mark.parametrize("work", [write_both, take_over, compare_both], ids=lambda work: work.__name__)
def test_an_operation_that_dies_at_a_point_can_be_done_again(
    work: Callable[[Lake, ArrowFolder], None], tmp_path: Path
) -> None:
    (tmp_path / "probe").mkdir()
    lake, folder = prepare(tmp_path / "probe")
    with lake, faults.record() as points:
        work(lake, folder)
    for at in some(range(1, len(points) + 1), POINTS, work.__name__):
        place = tmp_path / str(at)
        place.mkdir()
        lake, folder = prepare(place)
        with lake:
            with faults.arm(Fault(at=at)), pytest.raises(FaultInjected):
                work(lake, folder)
            write_both(lake, folder)
            backfill(lake, folder)
            found = compare(lake, folder)
            assert found.equal, (at, points[at - 1], found.counts, found.examples)
            assert lake.table(TABLE).count() == 35


def test_a_retirement_that_dies_at_a_point_never_removes_what_the_lake_lacks(tmp_path: Path) -> None:
    points: list[str] = []
    for at in [None, *some(range(1, 20), POINTS, "retire")]:
        place = tmp_path / str(at)
        place.mkdir()
        lake, folder = prepare(place)
        with lake:
            backfill(lake, folder)
            assert compare(lake, folder).equal
            switch(lake, folder, "lake")
            rows = lake.table(TABLE).to_arrow().sort_by("tx_hash")
            if at is None:
                with faults.record() as points:
                    retire(lake, folder)
            else:
                with faults.arm(Fault(at=1 + at % len(points))), pytest.raises(FaultInjected):
                    retire(lake, folder)
                retire(lake, folder)
            assert list(place.rglob("*.arrow")) == []
            assert lake.table(TABLE).to_arrow().sort_by("tx_hash").equals(rows)


def test_random_batches_that_come_again_late_or_changed_end_equal(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    lake, folder = open_lake(tmp_path), open_folder(tmp_path / "arrow")
    expected: set[str] = set()
    with lake:
        for turn in range(60 if LONG else 8):
            rows = transactions(blocks=dice.randint(1, 3), seed=dice.randint(0, 3))
            rows = changed(rows.take(pa.array(dice.sample(range(len(rows)), dice.randint(1, len(rows))))), dice)
            if dice.random() < 0.3:
                rows = pa.concat_tables([rows, changed(rows, dice)])  # twice in one batch
            expected |= set(rows["tx_hash"].to_pylist())
            folder.write(rows, START + dt.timedelta(seconds=dice.randint(0, 3)))
            if turn % 3 == 2:
                with faults.arm(Fault(at=dice.randint(1, 60))):
                    try:
                        backfill(lake, folder, batch_rows=dice.choice([3, 1000]))
                    except FaultInjected:
                        continue
        backfill(lake, folder)
        assert set(lake.table(TABLE).to_arrow()["tx_hash"].to_pylist()) == expected
        found = compare(lake, folder)
        assert found.equal, (found.counts, found.examples)


_CHILD = """
import sys
from pathlib import Path
from tests.ekko import test_migration_deaths as here
place = Path(sys.argv[2])
with here.open_lake(place) as lake:
    getattr(here, sys.argv[1])(lake, here.open_folder(place / "arrow"))
"""


@pytest.mark.daily(0.35)
def test_a_process_that_is_killed_leaves_nothing_half_made(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    lake, _ = prepare(tmp_path)
    lake.close()
    work = ["write_both", "take_over"] * (20 if LONG else 1)
    for name in work:
        fault = f"{dice.randint(1, 12)}:kill:{dice.choice(['migration.*', 'catalog.*', 'storage.*'])}"
        command = [sys.executable, "-c", _CHILD, name, str(tmp_path)]
        ended = subprocess.run(command, env={**os.environ, "QUACKLAKE_FAULT": fault}, timeout=120, check=False)
        assert ended.returncode in (0, -signal.SIGKILL)
    with open_lake(tmp_path) as lake:
        folder = open_folder(tmp_path / "arrow")
        write_both(lake, folder)
        backfill(lake, folder)
        assert compare(lake, folder).equal
        assert lake.table(TABLE).to_arrow().select(ROWS.names).num_rows == 35


def test_a_backfill_beside_a_writer_ends_equal(tmp_path: Path) -> None:
    """Both merge the same rows at once: a file is there before its rows are in the lake."""
    lake, folder = prepare(tmp_path)
    with lake:
        state.prepare(lake)
        blocks = list(Simulation(transactions=10, seconds=600, seed=9).blocks(60 if LONG else 8))
        failures: list[BaseException] = []

        def write() -> None:
            try:
                with DualWriter(lake, folder, batch_size=1000, flush_interval="1 hour") as writer:
                    for block in blocks:
                        writer.write_block(block, {"network": "n", "subnet": "s", "vm_type": "v"})
                        writer.flush()
                    assert (writer.arrow.failures, writer.lake_side.failures) == (0, 0)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        while thread.is_alive():
            backfill(lake, folder, batch_rows=40)
        thread.join()
        backfill(lake, folder)
        assert failures == []
        found = compare(lake, folder)
        assert found.equal, (found.counts, found.examples)
        assert lake.table(TABLE).count() == 20 + 10 * len(blocks)
