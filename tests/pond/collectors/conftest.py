"""A simulator of HydroVu that the tests of a module share, and short words for runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from quacklake.pond import Pond
from quacklake.pond.collectors.base import Report, Run, Runnable
from quacklake.pond.factories.registry import find
from quacklake.pond.paths import table_of
from quacklake_sensors.simulators import HydroVuSettings, HydroVuSimulator

Collect = Callable[..., Report]
VULINK, AT500 = 4990594334457856, 6154708427603968
SECRET = "not-a-secret"


@pytest.fixture(scope="module")
def server() -> Iterator[HydroVuSimulator]:
    with HydroVuSimulator() as running:
        yield running


@pytest.fixture
def hydrovu(server: HydroVuSimulator, monkeypatch: pytest.MonkeyPatch) -> HydroVuSimulator:
    """The simulator as new: two days of readings, one an hour, and no faults."""
    monkeypatch.setenv("HYDRO_KEY_VALUE", SECRET)
    settings = HydroVuSettings()
    server.settings = HydroVuSettings(interval=3600, end=settings.begin + 2 * 86_400 - 1, page_seconds=86_400)
    server.forget_tokens()
    server.requests.clear()
    return server


def config(server: HydroVuSimulator, path: str, **more: Any) -> dict[str, Any]:
    """The options of a collector of two devices."""
    return {
        "url": server.url,
        "client_id": "client",
        "hydrovu_path": path,
        "devices": [{"name": "Vulink", "id": VULINK}, {"name": "AT500", "id": AT500}],
        "http": {"retries": 2, "timeout": "5s"},
        **more,
    }


def collector(pond: Pond, name: str, factory: str, options: dict[str, Any], **more: Any) -> str:
    """Make a collector, and return its path."""

    def work(fs: Any) -> str:
        fs.make_directory("/collectors", parents=True)
        return str(fs.make_node(f"/collectors/{name}", factory, options, replace=True, **more).path)

    return pond.run(["test"], work)


@pytest.fixture
def collect(shared: Pond) -> Collect:
    """Run a collector with these options once, in the shared pond."""

    def run(factory: str, options: dict[str, Any], *words: str) -> Report:
        found = find(factory)
        found.check(options)
        assert isinstance(found, Runnable)
        return found.run(Run(shared, "/collectors/none", words=words), options)

    return run


def rows(pond: Pond, path: str) -> pa.Table:
    """The rows of a series in the order of time."""
    table = pond.lake.table(table_of(path)).to_arrow()
    return table.sort_by([(table.column_names[0], "ascending")])


def errors(report: Report) -> dict[str, str]:
    """The messages of what a run could not take."""
    return {each.item: each.error.message for each in report.failures}
