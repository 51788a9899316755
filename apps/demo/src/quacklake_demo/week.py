"""The demo of a pond: simulators are started, and a week of their readings is collected, reduced and shown by a site.

Everything is made by YAML, as a user would. A second run finds that nothing is new.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from quacklake.errors import ConnectorError
from quacklake.pond import Pond, reduces
from quacklake.pond.collectors import Report
from quacklake.pond.resources import Applied, apply, load
from quacklake.pond.running import run_once
from quacklake.pond.site.export import Built, export_site
from quacklake_sensors.simulators import HydroVuSettings, HydroVuSimulator, LakeTechSettings, LakeTechSimulator

DAYS = 7
SITE = "docks"
"""The name of the site that the YAML describes."""
_VARIABLES = ("POND_DEMO_HYDROVU", "POND_DEMO_LAKETECH", "POND_DEMO_SECRET")
_DOCUMENTS = """\
# Readings of three devices from HydroVu, and the files of a LakeTech inbox.
apiVersion: pond/v1
kind: HydroVu
name: docks
spec:
  url: ${env:POND_DEMO_HYDROVU}
  client_id: client
  client_secret: ${env:POND_DEMO_SECRET}
  hydrovu_path: /hydrovu
  schedule: "*/15 * * * *"
  devices:
    - {name: BDockVulink, id: 4990594334457856}
    - {name: BDockAT500, id: 6154708427603968}
    - {name: SilverAT500, id: 5859376846209024}
---
apiVersion: pond/v1
kind: LakeTech
name: lake
spec:
  url: ${env:POND_DEMO_LAKETECH}
  timezone: America/New_York
  path: /laketech
  schedule: "@hourly"
---
apiVersion: pond/v1
kind: Factory
name: daily
spec:
  path: /derived/daily
  factory: sql-derived-series
  config:
    patterns: {source: /hydrovu/devices/*/*AT500*.series}
    query: >
      SELECT date_trunc('day', timestamp) AS day, round(avg("Temperature.C"), 2) AS temperature,
      round(max("Depth.m"), 2) AS deepest FROM source GROUP BY 1 ORDER BY 1
---
apiVersion: pond/v1
kind: Factory
name: resolutions
spec:
  path: /reduced
  factory: temporal-reduce
  config:
    in_pattern: /hydrovu/devices/*/*AT500_active.series
    out_pattern: $1
    resolutions: [1h, 1d]
---
apiVersion: pond/v1
kind: Site
name: docks
spec:
  title: The docks
  description: Readings of our sensors
  pages:
    - name: index
      title: This week
      content: |
        # The docks

        A reading each quarter of an hour. Drag to move, scroll to zoom.
      charts:
        - name: temperature
          title: Temperature (°C)
          series: /hydrovu/devices/*/*AT500*.series
          columns: [Temperature.C]
        - name: depth
          title: Depth (m)
          series: /hydrovu/devices/*/*AT500*.series
          columns: [Depth.m]
    - name: hours
      title: By the hour
      content: |
        # By the hour

        The mean, the lowest and the highest temperature of each hour at Silver.
      charts:
        - name: hourly
          title: Silver
          series: /reduced/Silver/res=1h.series
          columns: [Temperature.C.avg, Temperature.C.min, Temperature.C.max]
"""


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of the demo: the resources, and the report of each collector."""

    applied: tuple[Applied, ...]
    reports: dict[str, Report]

    @property
    def rows(self) -> int:
        """The rows that were added."""
        return sum(report.rows for report in self.reports.values())


@contextmanager
def simulators(days: int = DAYS) -> Iterator[tuple[HydroVuSimulator, LakeTechSimulator]]:
    """Lend running simulators of HydroVu and LakeTech with readings of some days, one each quarter of an hour."""
    begin = HydroVuSettings.begin
    hydrovu = HydroVuSettings(end=begin + days * 86_400 - 1, throttle_every=9, retry_after="0")
    laketech = LakeTechSettings(days=min(days, 2))
    with HydroVuSimulator(hydrovu) as first, LakeTechSimulator(laketech) as second:
        yield first, second


def collect_week(
    pond: Pond, folder: Path, say: Callable[[str], None] = lambda text: None, days: int = DAYS
) -> Collected:
    """Start the simulators, write the YAML of the demo into a folder, apply it, and run its collectors once.

    Raise ``ConnectorError`` for what could not be collected.
    """
    with simulators(days) as (hydrovu, laketech):
        values = (hydrovu.url, f"{laketech.url}/inbox", hydrovu.settings.client_secret)
        with _variables(dict(zip(_VARIABLES, values, strict=True))):
            path = folder / "pond.yaml"
            path.write_text(_DOCUMENTS, "utf-8")
            say(f"pond apply -f {path.name}")
            resources = load([path])
            applied = pond.run(["pond", "apply", "-f", path.name], lambda fs: tuple(apply(fs, resources)))
            reports = {}
            for name in ("docks", "lake"):
                say(f"pond run {name}")
                reports[name] = run_once(pond, name, ["pond", "run", name])
                for failure in reports[name].failures:
                    raise ConnectorError(f"{failure.item}: {failure.error.message}")
            return Collected(applied, reports)


@contextmanager
def _variables(values: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment, where YAML refers to them: addresses differ from run to run."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def build_site(pond: Pond, folder: Path) -> Built:
    """Bring the resolutions of the demo up to date, and write its site into a folder."""
    reduces.maintain(pond)
    return export_site(pond, SITE, folder)
