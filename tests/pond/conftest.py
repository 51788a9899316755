"""Ponds to work on: one in memory that the tests of a module share, and one in a folder for commands."""

from __future__ import annotations

import datetime as dt
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from quacklake.cli.pond import main
from quacklake.config import SETTINGS
from quacklake.pond import FS, WD, Pond
from tests.cli.conftest import Answer, Run

T = TypeVar("T")
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def readings(count: int, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Readings of a thermometer, one a minute."""
    return [
        {"timestamp": START + dt.timedelta(minutes=n), "temp": float(n), **more} for n in range(first, first + count)
    ]


def csv(count: int, first: int = 0, end: str = "Z", column: str = "timestamp") -> str:
    """Return the text of a CSV file with these rows."""
    lines = [f"{row['timestamp']:%Y-%m-%dT%H:%M:%S}{end},{row['temp']}" for row in readings(count, first)]
    return "\n".join([f"{column},temp", *lines]) + "\n"


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty pond in a folder. Tests copy it, which takes less than to make another."""
    place = tmp_path_factory.mktemp("template") / "P"
    Pond.create(place).close()
    return place


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest) -> Iterator[Pond]:
    """A pond in memory; each test works in a directory of its own, all of which are made at once."""
    homes = {
        _home(item.name)
        for item in request.session.items
        if item.path == request.path and "home" in getattr(item, "fixturenames", ())
    }
    with Pond.memory() as pond:
        pond.run(["test"], lambda fs: [fs.make_directory(path) for path in sorted(homes)])
        yield pond


def _home(test: str) -> str:
    return "/" + re.sub(r"\W+", "_", test)[:60]


@dataclass(frozen=True)
class Home:
    """A directory of a shared pond, and short words for what tests do in it."""

    pond: Pond
    path: str

    def change(self, work: Callable[[WD], T]) -> T:
        return self.pond.run(["test"], lambda fs: work(fs.working_directory(self.path)))

    def change_fs(self, work: Callable[[FS], T]) -> T:
        return self.pond.run(["test"], work)

    @property
    def wd(self) -> WD:
        return self.pond.fs().working_directory(self.path)

    def names(self, pattern: str = "**/*") -> list[str]:
        return [each.path.removeprefix(f"{self.path}/") for each in self.wd.glob(pattern)]


@pytest.fixture
def home(shared: Pond, request: pytest.FixtureRequest) -> Home:
    return Home(shared, _home(request.node.name))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and no settings from outside."""
    for setting in SETTINGS:
        for name in (*setting.env, "QUACKLAKE_CONFIG"):
            if name != "QUACKLAKE_CATALOG":
                monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    logger = logging.getLogger("quacklake")
    before = (logger.level, logger.propagate, logger.handlers[:])
    yield
    level, logger.propagate, logger.handlers = before
    logger.setLevel(level)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Path:
    """A pond in a folder, which the commands of a module share."""
    return Path(shutil.copytree(template, tmp_path_factory.mktemp("pond") / "P"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> Run:
    """Run a command of ``pond`` on the folder."""
    monkeypatch.setenv("POND", str(folder))

    def run(*words: str) -> Answer:
        capsys.readouterr()
        try:
            code = main(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return run


@pytest.fixture
def new(run: Run, tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run commands on a pond of the test's own."""
    monkeypatch.setenv("POND", str(shutil.copytree(template, tmp_path / "own")))
    return run
