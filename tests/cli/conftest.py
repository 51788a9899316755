"""A lake to look at, and a way to run a command on it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.cli import main
from quacklake.config import SETTINGS
from tests.layout import copy_lake


@dataclass(frozen=True)
class Answer:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Answer]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and no settings from outside."""
    for setting in SETTINGS:
        for name in (*setting.env, "QUACKLAKE_CONFIG"):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Take back what ``-v`` and ``--log-level`` say: they are for the whole process."""
    logger = logging.getLogger("quacklake")
    before = (logger.level, logger.propagate, logger.handlers[:])
    yield
    level, logger.propagate, logger.handlers = before
    logger.setLevel(level)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; a wrong use of it gives code 2 too."""

    def run(*words: str) -> Answer:
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small lake, made once to be copied."""
    folder = tmp_path_factory.mktemp("small")
    with quacklake.connect(f"sqlite:///{folder / 'lake.db'}", data_path=folder / "data") as lake:
        people = lake.create_table("people", [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}])
        lake.create_schema("big")
        numbers = lake.create_table("big.numbers", [{"n": n, "half": n / 2} for n in range(100)])
        numbers.append([{"n": n, "half": n / 2} for n in range(100, 200)])
        people.update({"name": "Bea"}, "id = 2")
        numbers.delete("n < 3")
        with lake.transaction(message="two more", author="Ann") as tx:
            tx.table("people").append([{"id": 3, "name": "Cid"}])
            tx.table("big.numbers").append([{"n": 1000, "half": None}])
    return folder


@pytest.fixture
def lake(small_lake: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small lake, closed, that the environment names: ``people`` (inlined) and ``big.numbers`` (two files)."""
    copy_lake(small_lake, elsewhere)
    monkeypatch.setenv("QUACKLAKE_URL", f"sqlite:///{elsewhere / 'lake.db'}")
    return elsewhere
