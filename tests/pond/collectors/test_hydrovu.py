"""HydroVu: friendly names, wide rows, and runs that go on where the series end."""

from __future__ import annotations

import pytest

from quacklake.errors import ConfigError, ConnectorError, InputError, NotFoundError
from quacklake.pond import Pond
from quacklake.pond.factories.registry import find
from quacklake_sensors import hydrovu as collector_module
from quacklake_sensors.hydrovu_api import HydroVu
from quacklake_sensors.simulators import HydroVuSimulator
from tests.pond.collectors.conftest import AT500, SECRET, VULINK, Collect, config, errors, rows

DAY = 86_400


def active(path: str, id_: int = AT500, name: str = "AT500") -> str:
    return f"{path}/devices/{id_}/{name}_active.series"


def test_readings_become_wide_rows_with_friendly_names(
    shared: Pond, hydrovu: HydroVuSimulator, collect: Collect
) -> None:
    report = collect("hydrovu", config(hydrovu, "/wide"))
    assert [(each.path, each.rows) for each in report.imported] == [
        (active("/wide", VULINK, "Vulink"), 48),
        (active("/wide"), 48),
    ]
    found = rows(shared, active("/wide"))
    assert found.column_names == [
        "timestamp",
        "Actual Conductivity.µS/cm",
        "Depth.m",
        "Salinity.psu",
        "Temperature.C",
    ]
    # Salinity first appears after a day
    assert [value is None for value in found.column("Salinity.psu").to_pylist()] == [True] * 24 + [False] * 24
    assert found.column("Depth.m").null_count == 0
    assert str(found.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"


def test_a_run_goes_on_after_the_newest_reading(shared: Pond, hydrovu: HydroVuSimulator, collect: Collect) -> None:
    options = config(hydrovu, "/resume")
    whole = hydrovu.settings.end
    hydrovu.change(end=hydrovu.settings.begin + DAY // 2)
    assert collect("hydrovu", options).rows == 2 * 13
    hydrovu.requests.clear()
    hydrovu.change(end=whole)
    assert collect("hydrovu", options).rows == 2 * 35
    assert collect("hydrovu", options).rows == 0
    times = rows(shared, active("/resume")).column("timestamp").to_pylist()
    assert len(times) == len(set(times)) == 48


@pytest.mark.daily(0.35)
def test_a_long_history_is_taken_in_several_runs(shared: Pond, hydrovu: HydroVuSimulator, collect: Collect) -> None:
    options = config(hydrovu, "/long", max_points_per_run=10, devices=[{"name": "AT500", "id": AT500}])
    first = collect("hydrovu", options)
    # the last time of a page is left for the next run, which may have more readings of it
    assert (first.more, first.rows) == (True, 23)
    second = collect("hydrovu", options)
    assert (second.more, second.rows) == (True, 23)
    assert (collect("hydrovu", options).rows, rows(shared, active("/long")).num_rows) == (2, 48)


@pytest.mark.daily(0.35)
def test_an_archive_begins_another_series_that_goes_on(
    shared: Pond, hydrovu: HydroVuSimulator, collect: Collect
) -> None:
    options = config(hydrovu, "/arch")
    hydrovu.change(end=hydrovu.settings.begin + DAY - 1)
    collect("hydrovu", options)
    done = collect("hydrovu", options, "archive", "AT500")
    assert done.notes == (f"archived /arch/devices/{AT500}/AT500_archive_20240101.series",)
    hydrovu.change(end=hydrovu.settings.begin + 2 * DAY - 1)
    again = collect("hydrovu", options)
    assert {each.path: (each.version, each.rows) for each in again.imported} == {
        active("/arch"): (1, 24),
        active("/arch", VULINK, "Vulink"): (2, 24),
    }
    with pytest.raises(InputError, match="no device 'Dock'"):
        collect("hydrovu", options, "archive", "Dock")


@pytest.mark.daily(0.35)
def test_history_is_not_read_again_when_its_archive_is_missing(hydrovu: HydroVuSimulator, collect: Collect) -> None:
    options = config(hydrovu, "/gone", archive_path="/elsewhere")
    report = collect("hydrovu", options)
    assert {type(each.error) for each in report.failures} == {NotFoundError}
    assert "begin" in str(report.failures[0].error.hint)
    assert collect("hydrovu", {**options, "begin": "2024-01-02"}).rows == 48


def test_locations_are_listed(hydrovu: HydroVuSimulator, collect: Collect) -> None:
    assert f"{AT500} BDockAT500" in collect("hydrovu", config(hydrovu, "/x"), "locations").notes


@pytest.mark.daily(0.35)
def test_a_device_without_data_and_one_that_is_off_are_passed_over(hydrovu: HydroVuSimulator, collect: Collect) -> None:
    devices = [{"name": "Nobody", "id": 7}, {"name": "Off", "id": VULINK, "active": False}]
    assert collect("hydrovu", config(hydrovu, "/none", devices=devices)).imported == ()


@pytest.mark.daily(0.35)
def test_throttling_failures_and_lost_tokens_cost_time_only(
    shared: Pond, hydrovu: HydroVuSimulator, collect: Collect
) -> None:
    hydrovu.change(throttle_every=3, fail_every=5, revoke_every=7, retry_after="0")
    report = collect("hydrovu", config(hydrovu, "/rough", http={"retries": 6, "timeout": "5s"}))
    assert (report.failures, report.rows) == ((), 96)
    assert sum(each.endswith("/oauth/token") for each in hydrovu.requests) >= 1


def test_a_token_that_ends_soon_is_renewed(hydrovu: HydroVuSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    hydrovu.change(token_seconds=1)
    options = collector_module.HydroVuOptions.of(config(hydrovu, "/t"))
    client = options.client()
    first = client.token()
    client._until = 0.0
    assert client.token() != first
    hydrovu.forget_tokens()  # the server was restarted
    assert client.locations()


@pytest.mark.daily(0.35)
def test_a_restart_of_the_server_is_waited_for(shared: Pond, hydrovu: HydroVuSimulator, collect: Collect) -> None:
    port = hydrovu.port
    options = config(hydrovu, "/restart", http={"retries": 0, "timeout": "2s"})
    hydrovu.stop()
    with pytest.raises(ConnectorError, match="cannot be reached") as error:
        collect("hydrovu", options)
    assert error.value.transient
    hydrovu.start()
    assert hydrovu.port == port
    hydrovu.forget_tokens()
    assert collect("hydrovu", options).rows == 96


def test_a_wait_that_is_too_long_is_refused(hydrovu: HydroVuSimulator, collect: Collect) -> None:
    hydrovu.change(throttle_every=1, retry_after="3600")
    report = collect("hydrovu", config(hydrovu, "/wait"))
    assert set(errors(report).values()) == {f"127.0.0.1:{hydrovu.port} answers too many requests"}
    assert "wait 3600 seconds" in str(report.failures[0].error.hint)


def test_a_wrong_secret_is_not_shown(
    shared: Pond, hydrovu: HydroVuSimulator, collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRO_KEY_VALUE", "sesame-open")
    with pytest.raises(ConnectorError, match="refuses the client") as error:
        collect("hydrovu", config(hydrovu, "/secret"))
    assert "sesame" not in str(error.value)
    assert not any("sesame" in str(record) for record in shared.control.records().to_pylist())
    monkeypatch.delenv("HYDRO_KEY_VALUE")
    with pytest.raises(ConfigError, match="the environment has no HYDRO_KEY_VALUE"):
        collect("hydrovu", config(hydrovu, "/secret"))
    assert SECRET not in str([node.extended_attributes for node in shared.fs().tree])


@pytest.mark.parametrize(
    ("change", "words", "hint"),
    [
        ({"devices": []}, "has no devices", "devices:"),
        ({"device": []}, "no option 'device'", "devices"),
        ({"devices": [{"name": "A", "id": "x"}]}, "has the id 'x'", "number"),
        ({"devices": [{"name": "A/B", "id": 1}]}, "slash", ""),
        ({"devices": [{"name": "A", "id": 1, "scoop": "x"}]}, "no option 'scoop'", "scope"),
        ({"max_points_per_run": 0}, "whole number from 1", ""),
        ({"on_conflict": "lst"}, "cannot be 'lst'", "last"),
        ({"http": {"timeout": "60"}}, "60", "timeout"),
        ({"http": {"retry": 1}}, "no option 'retry'", "retries"),
    ],
)
def test_wrong_options_are_refused_with_a_suggestion(
    hydrovu: HydroVuSimulator, change: dict[str, object], words: str, hint: str
) -> None:
    with pytest.raises((ConfigError, InputError), match=words) as error:
        find("hydrovu").check(config(hydrovu, "/x") | change)
    assert hint in str(error.value.hint or "")


@pytest.mark.parametrize("url", ["http://example.org/api", "ftp://127.0.0.1", "http://u:p@127.0.0.1/"])
def test_an_address_that_would_show_the_secret_is_refused(
    hydrovu: HydroVuSimulator, collect: Collect, url: str
) -> None:
    with pytest.raises(ConfigError, match="hydrovu"):
        collect("hydrovu", config(hydrovu, "/x", url=url))


def test_pages_follow_the_header(hydrovu: HydroVuSimulator) -> None:
    client: HydroVu = collector_module.HydroVuOptions.of(config(hydrovu, "/p")).client()
    pages = [(page.num_rows, more) for page, more in client.pages(AT500, hydrovu.settings.begin, max_pages=9)]
    assert pages == [(24 * 3, True), (24 * 4, False)]
    assert list(client.pages(AT500, hydrovu.settings.end + 1, max_pages=9)) == []
