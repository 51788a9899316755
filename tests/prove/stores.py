"""Operations on a bad store: it fails every nth call, loses answers, is slow, goes down, shows old listings.

An operation must be done right, through retries, or end with an error of the library and change nothing; and then the
next one works. A local store is made bad at its fault points, S3 by an HTTP proxy before the server.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

import pyarrow as pa

import quacklake
from quacklake import Lake
from quacklake.core import faults
from quacklake.core.storage import listing
from quacklake.errors import CommitUnknown, QuacklakeError
from services import S3Server
from tests.crash.homes import check_rows, look
from tests.crash.operations import OPERATIONS, note, prepare
from tests.prove.http import BadProxy

__all__ = ["LOCAL", "REMOTE", "Tally", "storm"]

LOCAL = ("fails", "loses", "slow", "down", "stale")
REMOTE = ("busy", "reset", "lost", "slow", "down", "stale")


@dataclass
class Tally:
    """Counts of a proof."""

    operations: int = 0
    refused: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        for name, value in other.__dict__.items():
            setattr(self, name, getattr(self, name) + value)


# -- a bad local store -------------------------------------------------------------------------------------------------


@contextmanager
def bad_local(how: str, every: int) -> Iterator[None]:
    """``fails``: the call is not made. ``loses``: it is made, but says that it failed. ``down``: from then on all fail."""
    count = itertools.count(1)
    at = ".after" if how == "loses" else ".before"

    def hook(point: str) -> None:
        if not point.startswith("storage.") or not point.endswith(at):
            return
        number = next(count)
        if how == "slow":
            time.sleep(0.003)
        elif number % every == 0 or (how == "down" and number > every):
            raise (ConnectionResetError, TimeoutError)[number % 2](f"call {number} of a bad store")

    with faults._hooked(hook):
        yield


@contextmanager
def stale_listings() -> Iterator[None]:
    """Every folder is shown as it was when it was first looked at."""
    real = listing._entries
    first: dict[str, tuple[list[listing.FileEntry], list[str]]] = {}

    def entries(
        root: listing.Root, confinement: listing.Confinement, folder: str
    ) -> tuple[list[listing.FileEntry], list[str]]:
        if folder not in first:
            first[folder] = real(root, confinement, folder)
        return first[folder]

    with mock.patch.object(listing, "_entries", entries):
        yield


# -- a storm: operations one after the other, each with something bad about the store ------------------------------------


def storm(folder: Path, server: S3Server | None, operations: int, seed: str) -> Tally:
    """Run operations on a lake in ``folder`` (its files on S3 if there is a server) until it has seen so many."""
    began = time.perf_counter()
    chance = random.Random(seed)
    tally = Tally()
    for number in itertools.count():
        if tally.operations >= operations:
            break
        try:
            _one_lake(folder / f"lake{number}", server, operations, chance, tally)
        except AssertionError as error:
            raise AssertionError(f"seed {seed!r}, lake kept in {folder}: {error}") from error
    tally.seconds = time.perf_counter() - began
    return tally


def _one_lake(folder: Path, server: S3Server | None, operations: int, chance: random.Random, tally: Tally) -> None:
    folder.mkdir(parents=True)
    if server is None:
        data = str(folder / "data")
        _weather(_opener(folder, data, None), _local_weather, LOCAL, operations, chance, tally)
        return
    data = server.create_bucket(f"t-{chance.getrandbits(64):x}") + "/data"
    with BadProxy(server.port) as proxy:
        opener = _opener(folder, data, server.environment() | {"MINIO_ENDPOINT": f"127.0.0.1:{proxy.port}"})
        _weather(opener, partial(_remote_weather, proxy), REMOTE, operations, chance, tally)


def _opener(folder: Path, data: str, environment: dict[str, str] | None) -> Callable[[], Lake]:
    def connect() -> Lake:
        with mock.patch.dict("os.environ", environment or {}):
            return quacklake.connect(
                f"sqlite:///{folder / 'lake.db'}", data_path=data, duckdb_threads=1, storage_max_retries=4
            )

    return connect


@contextmanager
def _local_weather(how: str, every: int) -> Iterator[None]:
    with stale_listings() if how == "stale" else bad_local(how, every):
        yield


@contextmanager
def _remote_weather(proxy: BadProxy, how: str, every: int) -> Iterator[None]:
    with stale_listings() if how == "stale" else nullcontext(), proxy.bad(how, every):
        yield


def _weather(
    connect: Callable[[], Lake],
    weather: Callable[[str, int], object],
    kinds: tuple[str, ...],
    operations: int,
    chance: random.Random,
    tally: Tally,
) -> None:
    chosen = chance.sample(list(OPERATIONS.values()), len(OPERATIONS))
    with connect() as lake:
        prepare(lake)
        for first in dict.fromkeys(operation.prepare for operation in chosen):
            if first is not None:
                first(lake)
        state = look(lake).tables
    noted = 0
    for operation in itertools.cycle(chosen):
        if tally.operations >= operations or "main.t" not in state:
            return
        try:
            wanted = operation.mean(state)
        except LookupError:
            if len(state["main.t"][0]) > 3:
                return  # nearly everything is refused from now on
            continue
        how, every = chance.choice(kinds), chance.choice((2, 3, 5))
        what = f"{operation} on a store that is {how}, every {every}"
        error: QuacklakeError | None = None
        with connect() as lake:
            with weather(how, every):  # type: ignore[attr-defined]
                try:
                    operation.run(lake)
                except QuacklakeError as caught:
                    error = caught
            tally.operations += 1
            tally.kinds[how] += 1
            tally.refused += error is not None
            assert not isinstance(error, CommitUnknown), f"{what}: {error!r}"
            noted += 1
            note(lake, noted)
            lake.table("log").append(pa.table({"n": pa.array([noted] * 20, pa.int64())}))
        with connect() as lake:
            state = wanted if error is None else state
            state = {**state, "main.log": sorted([*state["main.log"], *[(noted,)] * 21], key=repr)}
            found = look(lake).tables
            assert found == state, f"{what}: {error!r}"
            if "main.t" in state:
                check_rows(lake, "t")
