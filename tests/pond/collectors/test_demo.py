"""The demo of a pond: simulators, YAML and collectors, and a second run that finds nothing new."""

from __future__ import annotations

import os
from pathlib import Path

from quacklake.pond import Pond
from quacklake_demo.week import build_site, collect_week
from tests.cli.conftest import Run


def test_a_second_run_finds_nothing_new() -> None:
    with Pond.memory() as pond:
        said: list[str] = []
        first = collect_week(pond, Path.cwd(), said.append, days=1)
        assert said == ["pond apply -f pond.yaml", "pond run docks", "pond run lake"]
        assert {name: report.rows for name, report in first.reports.items()} == {"docks": 288, "lake": 384}
        snapshot = pond.lake.current_snapshot()
        second = collect_week(pond, Path.cwd(), days=1)
        assert ({each.result for each in second.applied}, second.rows) == ({"unchanged"}, 0)
        assert pond.lake.current_snapshot() == snapshot
        built = build_site(pond, Path.cwd() / "site")
        assert (built.pages, built.charts, built.tiles) == (2, 3, 3)
        page = (built.folder / "hours.html").read_text("utf-8")
        assert "By the hour" in page and "Temperature.C.avg" in page
    assert not any(name.startswith("POND_DEMO") for name in os.environ)


def test_the_demo_is_for_people(run: Run) -> None:
    answer = run("demo", "-o", "json")
    assert (answer.code, "supports only --output table" in answer.err) == (1, True)
