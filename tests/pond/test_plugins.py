"""Factories that another package brings, and ponds whose package is missing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quacklake.plugins import find_plugins
from quacklake.pond import Pond
from quacklake.pond.factories import registry
from quacklake.pond.running import Event, Watcher
from tests.cli.conftest import Run
from tests.packages import install_package
from tests.pond.conftest import csv

FACTORY = '''
from quacklake.pond.collectors import Report, Runnable
from quacklake.pond.factories import register


@register
class Ducks(Runnable):
    """Counts ducks."""

    name = "ducks"
    description = "Counts the ducks on the pond"
    resource = "Ducks"

    def check(self, config):
        """Take everything."""

    def run(self, run, config):
        return Report(notes=(f"{config['ducks']} ducks",))
'''
ENTRY_POINTS = """
[quacklake.pond_factories]
broken = flock.nowhere
ducks = flock.ducks
synthetic-timeseries = flock.nowhere
"""
DUCKS = "kind: Ducks\nname: count\nspec: {ducks: 3}\n"


@pytest.fixture
def uninstall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Install a package with factories as the only one, and return what takes it away."""
    registry._load_collectors()
    own = {name: each for name, each in registry._FACTORIES.items() if type(each).__module__.startswith("quacklake.")}
    with install_package(tmp_path / "site", monkeypatch, "flock", {"ducks.py": FACTORY}, ENTRY_POINTS):
        monkeypatch.setattr(registry, "_FACTORIES", dict(own))
        points = find_plugins("quacklake.pond_factories")
        installed = [each for each in points if each.dist and each.dist.name == "flock"]
        monkeypatch.setattr(registry, "find_plugins", lambda group: tuple(installed))

        def take_away() -> None:
            installed.clear()
            registry._FACTORIES.pop("ducks", None)

        yield take_away


@pytest.mark.usefixtures("uninstall")
def test_a_collector_of_another_package_is_described_by_yaml_and_run(new: Run) -> None:
    Path("ducks.yaml").write_text(DUCKS)
    assert new("apply", "-f", "ducks.yaml").out == "created   Ducks count\n"
    assert "3 ducks" in new("run", "count").out
    assert "ducks,dynamic,Counts the ducks on the pond\n" in new("list-factories", "-o", "csv").out


@pytest.mark.usefixtures("uninstall")
def test_a_factory_of_another_package_is_loaded_when_it_is_used(new: Run) -> None:
    Path("a.csv").write_text(csv(2))
    Path("made.yaml").write_text("kind: Inbox\nname: drop\nspec: {folder: drop}\n")
    new("copy", "a.csv", "/a.series")
    assert new("apply", "-f", "made.yaml").code == new("list").code == 0
    assert "flock.ducks" not in sys.modules
    Path("options.yaml").write_text("ducks: 2")
    assert new("mknod", "ducks", "/here", "--config-path", "options.yaml").code == 0
    assert "flock.ducks" in sys.modules


@pytest.mark.usefixtures("uninstall")
def test_a_package_that_cannot_be_loaded_is_named_and_hides_no_other_factory(new: Run) -> None:
    listed = new("list-factories", "-o", "csv").out
    assert "broken,,cannot load 'broken' of the package flock: No module named 'flock.nowhere'\n" in listed
    assert all(f"\n{name}," in listed for name in ("ducks", "inbox", "sql-derived-series", "temporal-reduce"))
    refused = new("mknod", "broken", "/b")
    assert (refused.code, "cannot load 'broken' of the package flock" in refused.err) == (1, True)
    Path("flock.yaml").write_text("kind: Flight\nname: f\nspec: {}\n")
    told = new("apply", "-f", "flock.yaml").err
    assert "there is no kind 'Flight'" in told and "the package flock" in told


@pytest.mark.usefixtures("uninstall")
def test_another_package_does_not_replace_a_factory() -> None:
    assert type(registry.find("synthetic-timeseries")).__module__.startswith("quacklake.")


def test_without_its_package_a_collector_is_listed_and_says_what_is_missing(
    new: Run, uninstall: Callable[[], None]
) -> None:
    Path("ducks.yaml").write_text(DUCKS)
    new("apply", "-f", "ducks.yaml")
    uninstall()
    assert "/collectors/count" in new("list", "/collectors/*").out
    assert new("describe", "/collectors/count", "-o", "json").json["factory"] == "ducks"
    assert new("verify").code == 0
    for words in (("run", "count"), ("cat", "/collectors/count"), ("cat", "/collectors/count", "--display", "table")):
        answer = new(*words)
        assert (answer.code, "count needs the factory 'ducks', which is not installed" in answer.err) == (1, True)
        assert "install that package" in answer.err
    refused = new("apply", "-f", "ducks.yaml").err
    assert "there is no kind 'Ducks'" in refused
    assert "did you mean" in new("run", "cout").err


def test_a_collector_without_its_package_does_not_keep_others_from_running(uninstall: Callable[[], None]) -> None:
    Path("drop").mkdir()
    Path("drop/a.csv").write_text(csv(2))
    told: list[Event] = []
    with Pond.memory() as pond:
        pond.run(["test"], lambda fs: fs.make_node("/ducks", "ducks", {"ducks": 1}))
        pond.run(
            ["test"],
            lambda fs: fs.make_node("/drop", "inbox", {"folder": str(Path("drop").absolute()), "settle": "0s"}),
        )
        uninstall()
        Watcher(pond, "/", ["pond", "run"], told.append, threading.Event()).run(until=1)
        reports = [each for each in told if each.report is not None]
        errors = [each for each in told if each.error is not None]
    assert [(each.path, each.report.rows) for each in reports if each.report] == [("/drop", 2)]
    assert [each.path for each in errors] == ["/ducks"]


def test_a_pond_has_no_trace_of_sensors_whose_package_is_not_installed(new: Run, uninstall: Callable[[], None]) -> None:
    uninstall()
    assert "hydrovu" not in new("list-factories").out.lower()
    Path("docks.yaml").write_text("kind: HydroVu\nname: docks\nspec: {}\n")
    refused = new("apply", "-f", "docks.yaml").err
    assert "there is no kind 'HydroVu'" in refused
    assert "LakeTech" not in refused
