"""The demo of a pond: a week of readings, reductions of them, and a site that shows both."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from quacklake.pond import reduces
from quacklake.pond.fs import FS
from quacklake.pond.pond import Pond
from quacklake.pond.queries import rows
from quacklake.pond.series import append_series
from quacklake.pond.site.export import Built, export_site, store_site

SENSORS = ("dock", "buoy")
_ARGS = ("pond", "demo")
_WEEK = dt.timedelta(days=7)

Fill = Callable[[Pond], None]
"""Brings readings into the series ``/sensors/dock.series`` and ``/sensors/buoy.series``."""

_SITE: dict[str, Any] = {
    "title": "The harbour",
    "description": "Readings of our sensors",
    "pages": [
        {
            "name": "index",
            "title": "Today",
            "content": "# The harbour\n\nWater temperature, a reading each minute. Drag to move, scroll to zoom.\n\n"
            "{{ temperature }}\n\nThe sensors send their readings each hour.",
            "charts": [
                {
                    "name": "temperature",
                    "title": "Temperature (°C)",
                    "series": "/sensors/*.series",
                    "columns": ["temperature"],
                },
                {"name": "battery", "title": "Battery (V)", "series": "/sensors/*.series", "columns": ["battery"]},
            ],
        },
        {
            "name": "hours",
            "title": "By the hour",
            "content": "# By the hour\n\nThe mean, the lowest and the highest temperature of each hour at the dock.",
            "charts": [
                {
                    "name": "hourly",
                    "title": "Dock",
                    "series": "/reduced/dock/res=1h.series",
                    "columns": ["temperature.avg", "temperature.min", "temperature.max"],
                }
            ],
        },
    ],
}


def waves(start: dt.datetime, number: int) -> dict[str, Any]:
    """Return the options of a synthetic series: a week of a sensor."""
    warm = {"type": "sine", "amplitude": 3 + number, "period": "24h", "offset": 15 - number}
    noise = {"type": "noise", "amplitude": 0.4}
    drain = {"type": "line", "offset": 12.8, "slope": -1e-6}
    charge = {"type": "triangle", "amplitude": 0.3, "period": "24h"}
    return {
        "start": start.isoformat(),
        "end": (start + _WEEK).isoformat(),
        "interval": "1m",
        "seed": number,
        "points": [
            {"name": "temperature", "components": [warm, noise]},
            {"name": "battery", "components": [drain, charge]},
        ],
    }


def synthetic_week(pond: Pond, start: dt.datetime = dt.datetime(2024, 6, 1, tzinfo=dt.UTC)) -> None:
    """Store a week of waves as if sensors had sent it, with half a day missing at the dock."""

    def define(fs: FS) -> None:
        fs.make_directory("/synthetic", parents=True)
        for number, name in enumerate(SENSORS):
            fs.make_node(f"/synthetic/{name}.series", "synthetic-timeseries", waves(start, number), replace=True)

    pond.run(_ARGS, define)
    lost = start + dt.timedelta(days=3)
    for name in SENSORS:
        sql = "SELECT * FROM series"
        if name == "dock":
            sql += f" WHERE timestamp NOT BETWEEN '{lost.isoformat()}' AND '{(lost + _WEEK / 14).isoformat()}'"
        with rows(pond, f"/synthetic/{name}.series", sql) as found:
            readings = found.read_all()
        pond.run(_ARGS, partial(_store, name=name, readings=readings))


def _store(fs: FS, name: str, readings: Any) -> None:
    fs.make_directory("/sensors", parents=True)
    append_series(fs, f"/sensors/{name}.series", readings)


def demo(pond: Pond, folder: Path, fill: Fill = synthetic_week) -> Built:
    """Fill a pond, reduce its series by ten minutes, hours and days, and write its site. All of it is repeatable."""
    fill(pond)

    def define(fs: FS) -> None:
        config = {"in_pattern": "/sensors/*.series", "out_pattern": "$0", "resolutions": ["10m", "1h", "1d"]}
        fs.make_node("/reduced", "temporal-reduce", config, replace=True)
        store_site(fs, "/sites/harbour.yaml", _SITE)

    pond.run(_ARGS, define)
    reduces.maintain(pond)
    return export_site(pond, "harbour", folder)
