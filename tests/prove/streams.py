"""Streams of Spark whose driver is killed, again and again: what the files of the source lead to is there, once."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.spark.simulated import Checkpoints
from tests.spark.streaming import MODES, POINTS, Stage, run_child

__all__ = ["DEATHS", "KILLS", "LIVES", "Tally", "round_of_checkpoints", "round_of_deaths", "round_of_streams"]

KILLS = 6
"""Kills of one stream: then it is brought to its end, and another is made."""

DEATHS = 100
"""Drivers that die in one process, which starts Spark once."""

LIVES = 100
"""Lives of drivers of one stream whose checkpoint is put back, copied or lost in part between them."""

_ANYWHERE = (*POINTS, "catalog.*", "storage.*", "stream.*", "engine.*")


@dataclass
class Tally:
    """Counts of a proof."""

    kills: int = 0
    deaths: int = 0
    starts: int = 0
    streams: int = 0
    batches: int = 0
    points: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        for name, value in other.__dict__.items():
            setattr(self, name, getattr(self, name) + value)


def round_of_streams(folder: Path, kills: int, seed: str) -> Tally:
    """Kill the driver of one stream so many times at random points, let it end, and compare the table with its source.

    A stream that comes to its end before all kills is not killed any more. Raise ``AssertionError`` with the seed.
    """
    began = time.perf_counter()
    dice = random.Random(seed)
    mode = dice.choice(MODES)
    stage = Stage(folder, mode)
    tally = Tally(streams=1, batches=2 * kills + 2)
    stage.make(tally.batches, dice)
    ended = False
    while not ended and tally.kills < kills:
        point = dice.choice(_ANYWHERE)
        most = 4 if point in POINTS else 60
        ended = run_child(folder, mode, fault=f"{dice.randint(1, most)}:kill:{point}") == 0
        if not ended:
            tally.kills += 1
            tally.points[point] += 1
    try:
        assert run_child(folder, mode) == 0
        stage.check()
    except AssertionError as error:
        raise AssertionError(f"a stream ({mode}), seed {seed!r}, lake {folder}: {error}") from error
    shutil.rmtree(folder)
    tally.seconds = time.perf_counter() - began
    return tally


def round_of_deaths(folder: Path, deaths: int, seed: str) -> Tally:
    """Simulate so many deaths of drivers of one stream in a process, and compare the table with its source.

    Raise ``AssertionError`` with the seed.
    """
    began = time.perf_counter()
    mode = random.Random(seed).choice(MODES)
    try:
        assert run_child(folder, mode, str(deaths), seed, timeout=60 + 10 * deaths) == 0
    except AssertionError as error:
        raise AssertionError(f"deaths of a stream ({mode}), seed {seed!r}, lake {folder}: {error}") from error
    shutil.rmtree(folder)
    return Tally(deaths=deaths, streams=1, seconds=time.perf_counter() - began)


def round_of_checkpoints(folder: Path, seed: str) -> Tally:
    """Let drivers of one stream live in this process with checkpoints that are not what they should be.

    Raise ``AssertionError`` with the seed.
    """
    began = time.perf_counter()
    dice = random.Random(seed)
    folder.mkdir(parents=True)
    played = Checkpoints(folder, seed, files=dice.random() < 0.5, stateful=dice.random() < 0.5)
    try:
        played.play(LIVES)
    except AssertionError as error:
        raise AssertionError(f"checkpoints of a stream, seed {seed!r}, lake {folder}: {error}") from error
    finally:
        played.close()
    shutil.rmtree(folder)
    points = Counter({what: count for what, count in played.outcomes.items() if "Died" in what})
    return Tally(starts=played.restarts, streams=1, points=points, seconds=time.perf_counter() - began)
