"""The simulators of what a pond collects from, as processes of their own."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from services import SERVERS, HydroVuServer, LakeTechServer


def test_simulators_are_known_by_name() -> None:
    assert (SERVERS["hydrovu"], SERVERS["laketech"]) == (HydroVuServer, LakeTechServer)


def test_a_simulator_that_is_told_to_end_as_soon_as_it_answers_ends_by_itself() -> None:
    for _ in range(4):
        with HydroVuServer() as server:
            process = server._process
        assert process is not None
        assert process.returncode == 0


@pytest.mark.daily(0.35)
def test_hydrovu_asks_for_a_token_and_comes_back_after_a_kill() -> None:
    with HydroVuServer(settings={"seed": 7, "token_seconds": 60}) as server:
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{server.url}/v1/locations/list", timeout=10)
            with refused.value as answer:
                assert answer.code == 401
            form = b"grant_type=client_credentials&client_id=client&client_secret=not-a-secret"
            with urllib.request.urlopen(f"{server.url}/oauth/token", form, timeout=10) as answer:
                token = json.load(answer)
            assert (token["token_type"], token["expires_in"]) == ("bearer", 60)
            request = urllib.request.Request(
                f"{server.url}/v1/locations/4990594334457856/data?startTime=0",
                headers={"Authorization": f"Bearer {token['access_token']}"},
            )
            with urllib.request.urlopen(request, timeout=10) as answer:
                page = json.load(answer)
                assert answer.headers["X-ISI-Next-Page"].isdigit()
            assert {each["parameterId"] for each in page["parameters"]} == {"1", "16", "33"}
            server.kill()
            server.revive()


@pytest.mark.daily(0.35)
def test_laketech_lists_its_files() -> None:
    with (
        LakeTechServer(settings={"days": 1}) as server,
        urllib.request.urlopen(f"{server.url}/inbox", timeout=10) as answer,
    ):
        listed = json.load(answer)
    assert [each["name"] for each in listed] == [
        "2024-01-01-surface.csv",
        "2024-01-01-bottom.csv",
        "2024-01-01-vulink.csv",
        "2024-01-01-report.xls",
    ]
