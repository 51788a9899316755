"""Bad readings and hostile servers: a typed error with a hint, and nothing half-written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quacklake.errors import ConnectorError, ConstraintError, LimitError, QuacklakeError, ResultTooLargeError
from quacklake.pond import Pond
from quacklake_sensors.simulators import HydroVuSettings, HydroVuSimulator
from tests.pond.collectors.conftest import AT500, Collect, config, rows
from tests.pond.collectors.test_hydrovu import active


@pytest.fixture(scope="module")
def other() -> Iterator[HydroVuSimulator]:
    """A server that must not hear of the token."""
    with HydroVuSimulator() as running:
        yield running


@pytest.mark.daily(0.45)
@pytest.mark.parametrize(
    ("hostile", "kind", "words"),
    [
        ("endless", LimitError, "go in a circle"),
        ("huge", ResultTooLargeError, "more than 1000000 bytes"),
        ("malformed", ConnectorError, "something else for location"),
        ("shape", ConnectorError, "something else for location"),
        ("html", ConnectorError, "something else for location"),
        ("text", ConnectorError, "something else for location"),
        ("redirect", ConnectorError, "redirects to another address"),
        ("future", ConstraintError, "is in the future"),
        ("conflict", ConstraintError, "two different readings of"),
    ],
)
def test_a_hostile_server_changes_nothing(
    shared: Pond,
    hydrovu: HydroVuSimulator,
    other: HydroVuSimulator,
    collect: Collect,
    hostile: str,
    kind: type[QuacklakeError],
    words: str,
) -> None:
    hydrovu.change(hostile=hostile, redirect_to=f"{other.url}/v1/locations/1/data")
    options = config(hydrovu, "/hostile", http={"retries": 0, "timeout": "5s", "max_body": "1MB"})
    report = collect("hydrovu", options)
    assert [type(each.error) for each in report.failures] == [kind] * 2
    assert all(words in each.error.message for each in report.failures)
    assert all(each.error.hint for each in report.failures)
    assert shared.fs().find("/hostile") is None
    assert other.requests == []


def test_pages_without_an_end_are_bounded(hydrovu: HydroVuSimulator, collect: Collect) -> None:
    report = collect("hydrovu", config(hydrovu, "/pages", max_pages=1))
    assert {each.error.message.split(" has ")[1] for each in report.failures} == {"more than 1 pages"}


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("hostile", ["disorder", "duplicate"])
def test_readings_out_of_order_and_repeated_ones_are_put_right(
    shared: Pond, hydrovu: HydroVuSimulator, collect: Collect, hostile: str
) -> None:
    collect("hydrovu", config(hydrovu, f"/plain-{hostile}"))
    hydrovu.change(hostile=hostile)
    assert collect("hydrovu", config(hydrovu, f"/{hostile}")).failures == ()
    assert rows(shared, active(f"/{hostile}")) == rows(shared, active(f"/plain-{hostile}"))


@pytest.mark.daily(0.35)
def test_the_last_of_two_readings_can_count(shared: Pond, hydrovu: HydroVuSimulator, collect: Collect) -> None:
    hydrovu.change(hostile="conflict", page_seconds=10 * 86_400)
    assert collect("hydrovu", config(hydrovu, "/last", on_conflict="last")).failures == ()
    assert rows(shared, active("/last")).column("Depth.m")[0].as_py() == -99.0


@pytest.mark.daily(0.35)
def test_one_bad_device_does_not_stop_the_others(shared: Pond, hydrovu: HydroVuSimulator, collect: Collect) -> None:
    """The clock of one device is wrong; what it sent is refused whole, the others are stored."""
    bad = HydroVuSettings(hostile="future", end=hydrovu.settings.begin + 3600, interval=3600)
    with HydroVuSimulator(bad) as wrong:
        assert len(collect("hydrovu", config(wrong, "/mixed")).failures) == 2
    hydrovu.change(clock_skew=3600)
    assert collect("hydrovu", config(hydrovu, "/mixed")).rows == 96
    times = rows(shared, active("/mixed")).column("timestamp")
    assert times[0].as_py().timestamp() == hydrovu.settings.begin + 3600


@pytest.mark.daily(0.35)
def test_a_series_whose_column_changes_type_is_refused(
    shared: Pond, hydrovu: HydroVuSimulator, collect: Collect
) -> None:
    from quacklake.pond.series import append_series

    def work(fs: object) -> None:
        fs.make_directory(f"/types/devices/{AT500}", parents=True)  # type: ignore[attr-defined]
        append_series(fs, active("/types"), [{"timestamp": 1_600_000_000, "Depth.m": "deep"}])  # type: ignore[arg-type]

    shared.run(["test"], work)
    report = collect("hydrovu", config(hydrovu, "/types"))
    assert [each.item for each in report.failures] == ["AT500"]
    assert "Depth.m" in report.failures[0].error.message
    assert rows(shared, active("/types")).num_rows == 1
    assert report.rows == 48
