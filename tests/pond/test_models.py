"""Random histories of a pond, its backups and its mounts, beside a model of plain Python."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from quacklake.config import resolve
from quacklake.errors import QuacklakeError
from quacklake.pond import FS, EntryType, Pond
from quacklake.pond.backup import BackupPlace, backup, pull, restore
from quacklake.pond.places import find
from quacklake.pond.pruning import prune
from quacklake.pond.queries import rows
from quacklake.pond.series import append_series
from quacklake.pond.verifying import verify
from tests import seeds
from tests.pond.conftest import START

KEY = "cd" * 32
NAMES = ("/a", "/b", "/d/a", "/d/e")


@dataclass
class Model:
    """The pond as plain data: the readings of each series by minute, the bytes of each file, and how commands ended."""

    series: dict[str, dict[int, float]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    log: list[str] = field(default_factory=lambda: ["completed"] * 2, compare=False)

    def copy(self) -> Model:
        return Model({path: dict(found) for path, found in self.series.items()}, dict(self.files), [*self.log])


def change(chance: random.Random, pond: Pond, model: Model) -> None:
    """Change the pond and the model in the same way; what the pond refuses changes neither."""
    path = chance.choice(NAMES)
    after = model.copy()
    if path in model.series or (path not in model.files and chance.random() < 0.6):
        first, count = chance.randrange(60), chance.randrange(1, 20)
        new = {
            minute: float(minute) + chance.random() * (chance.random() < 0.1) for minute in range(first, first + count)
        }
        given = [
            {"timestamp": START + dt.timedelta(minutes=n), "temp": new[n]} for n in chance.sample(sorted(new), count)
        ]
        if chance.random() < 0.15 and path in model.series:
            work: Any = lambda fs: fs.remove(path)  # noqa: E731
            del after.series[path]
        else:
            work = lambda fs: append_series(fs, path, given)  # noqa: E731
            old = after.series.setdefault(path, {})
            conflicts = any(old.get(minute, value) != value for minute, value in new.items())
            old.update(new)
            if conflicts:
                after = model
    else:
        content = chance.randbytes(chance.choice([0, 10, 65_536, 65_537, 100_000]))
        work = lambda fs: fs.write_file(path, content, replace=True)  # noqa: E731
        after.files[path] = content
    try:
        pond.run(["change"], work)
    except QuacklakeError:
        assert after is model
        model.log.append("failed")
    else:
        assert after is not model
        model.log += [] if after == model else ["completed"]
        model.series, model.files = after.series, after.files


def seen(pond: Pond, above: str = "") -> Model:
    """Read a pond, or what is mounted in it, as the model would have it."""
    found, fs = Model(), pond.fs()
    for each in fs.glob(f"{above}/**/*"):
        path = each.path.removeprefix(above)
        if each.entry_type is EntryType.SERIES:
            with rows(pond, each.path) as stored:
                table = stored.read_all().to_pylist()
            found.series[path] = {round((row["timestamp"] - START).total_seconds() / 60): row["temp"] for row in table}
            assert len(table) == len(found.series[path])
        elif each.entry_type is EntryType.DATA:
            found.files[path] = fs.read(each.path)
    return found


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Pond]:
    with Pond.create(tmp_path / "P") as pond:
        pond.run(["begin"], lambda fs: fs.make_directory("/d"))
        yield pond


@pytest.mark.daily(0.12)
@pytest.mark.parametrize("number", range(8))
def test_backups_pulls_and_mounts_are_what_a_model_says(work: Pond, tmp_path: Path, number: int) -> None:
    """Every second history has encrypted backups."""
    chance = seeds.chance("pond models", str(number))
    place = BackupPlace(str(tmp_path / "B"), resolve({"backup_key": KEY} if number % 2 else {}))
    model, kept = Model(), dict[str, Model]()
    for _ in range(9):
        change(chance, work, model)
        if chance.random() < 0.35:
            kept[backup(work, place).backup.id] = model.copy()
            if chance.random() < 0.3:
                left = {each.id for each in prune(place, keep_last=2).kept}
                kept = {id_: each for id_, each in kept.items() if id_ in left}
    kept[backup(work, place).backup.id] = model.copy()
    assert seen(work) == model
    assert [each.state for each in work.control.transactions()] == model.log
    assert [each.id for each in place.backups()] == list(kept)
    chosen = chance.choice(list(kept))
    with restore(place, find(tmp_path / "R"), chosen) as restored:
        assert seen(restored) == kept[chosen]
        assert verify(restored).problems == ()
        assert [each.state for each in restored.control.transactions()] == kept[chosen].log
        pull(restored, place)
        assert seen(restored) == model
        assert restored.control.transactions() == work.control.transactions()
        assert verify(restored).problems == ()

    def mount(fs: FS) -> None:
        fs.make_node("/live", "mount", {"pond": str(tmp_path / "P")})
        key = {"key": f"${{file:{tmp_path / 'key'}}}"} if number % 2 else {}
        fs.make_node("/old", "mount", {"backup": str(tmp_path / "B"), **key})

    (tmp_path / "key").write_text(KEY)
    with Pond.create(tmp_path / "M") as other:
        other.run(["mount"], mount)
        assert (seen(other, "/live"), seen(other, "/old")) == (model, model)
