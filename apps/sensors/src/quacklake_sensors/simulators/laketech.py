"""A simulator of LakeTech: an inbox of files over HTTP, long CSV files and reports in HTML that are called Excel files.

``GET /inbox`` lists the files with their sizes and hashes, ``GET /inbox/NAME`` returns one. Everything follows from the
seed; a day gives four files.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo

from quacklake_sensors.simulators.server import Answer, Request, Simulator, main

_SERIES = {
    "surface": ("Surface pH", "Surface Temp", "Surface Chl-a", "Surface DO", "Surface Salinity", "Depth"),
    "bottom": ("Bottom Temp", "Bottom DO", "Bottom Salinity"),
    "vulink": ("Battery Level", "Baro"),
}
OFFSET = 0.35
"""The offset of Depth: what is added to a reading before it is sent."""
_HTML = (
    '<html><head><meta charset="utf-8"></head><body><table id="isi-report">\n'
    '<tr class="dataHeader"><th>Date Time</th>{heads}</tr>\n{rows}</table></body></html>\n'
)


@dataclass(frozen=True)
class LakeTechSettings:
    """The files of a simulator, and its faults."""

    seed: int = 1
    first_day: str = "2024-01-01"
    days: int = 7
    interval: int = 900
    timezone: str = "America/New_York"
    hostile: str = ""
    """escape (a file name that leads elsewhere), broken (a row without a value), html (a page instead of the list),
    mismatch (a file that is not what the list says)."""


class LakeTechSimulator(Simulator[LakeTechSettings]):
    """A simulator of LakeTech."""

    Settings = LakeTechSettings

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""
        if self.settings.hostile == "html":
            return Answer(200, "<html>maintenance</html>", kind="text/html")
        files = files_of(self.settings)
        if request.path == "/inbox":
            listed = [
                {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                for name, content in files.items()
            ]
            if self.settings.hostile == "escape":
                listed.append({"name": "../../etc/passwd", "size": 1, "sha256": "0" * 64})
            return Answer(200, listed)
        content = files.get(request.path.removeprefix("/inbox/"))
        if content is None:
            return Answer(404, {"error": "no file"})
        if self.settings.hostile == "mismatch":
            content = content[:-20]
        return Answer(200, content, kind="application/octet-stream")

    def write(self, folder: Path) -> list[Path]:
        """Write the files into a folder, and return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, content in files_of(self.settings).items():
            path = folder / name
            path.write_bytes(content)
            paths.append(path)
        return paths


@lru_cache(maxsize=8)
def files_of(settings: LakeTechSettings) -> dict[str, bytes]:
    """Return the files of the inbox by name."""
    first = dt.date.fromisoformat(settings.first_day)
    found: dict[str, bytes] = {}
    for day in range(settings.days):
        date = first + dt.timedelta(days=day)
        for group in _SERIES:
            text = _long_csv(settings, date, group)
            if settings.hostile == "broken" and group == "surface":
                text += f"{date} 23:59:00,Surface pH,Dock,pH,oops,0\n"
            found[f"{date}-{group}.csv"] = text.encode()
        found[f"{date}-report.xls"] = _report(settings, date).encode()
    return found


def _moments(settings: LakeTechSettings, date: dt.date) -> Iterator[dt.datetime]:
    """Yield the times of a day as a clock on the wall shows them: an hour that it repeats comes twice."""
    zone = ZoneInfo(settings.timezone)
    shown: dict[dt.datetime, dt.datetime] = {}
    for second in range(0, 86_400, settings.interval):
        moment = dt.datetime.combine(date, dt.time()) + dt.timedelta(seconds=second)
        for fold in (0, 1):
            instant = moment.replace(tzinfo=zone, fold=fold).astimezone(dt.UTC)
            if instant.astimezone(zone).replace(tzinfo=None) == moment:
                shown[instant] = moment
    yield from (shown[instant] for instant in sorted(shown))


def _value(settings: LakeTechSettings, name: str, moment: dt.datetime) -> float:
    phase = sum(name.encode()) % 24 + settings.seed
    return round(10 + 3 * math.sin(2 * math.pi * (moment.hour + moment.minute / 60 + phase) / 24), 3)


def _long_csv(settings: LakeTechSettings, date: dt.date, group: str) -> str:
    lines = ["Timestamp,Series Name,Location,Parameter,Value,Offset"]
    for name in _SERIES[group]:
        offset = OFFSET if name == "Depth" else 0
        parameter = name.split()[-1]
        for moment in _moments(settings, date):
            value = round(_value(settings, name, moment) + offset, 3)
            lines.append(f"{moment:%Y-%m-%d %H:%M:%S},{name},Dock,{parameter},{value},{offset}")
    return "\n".join(lines) + "\n"


def _report(settings: LakeTechSettings, date: dt.date) -> str:
    names = ("Temperature (C)", "Depth (m)")
    heads = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(
        f'<tr class="data"><td>{moment:%Y-%m-%d %H:%M:%S}</td>'
        + "".join(f"<td>{_value(settings, name, moment)}</td>" for name in names)
        + "</tr>\n"
        for moment in _moments(settings, date)
    )
    return _HTML.format(heads=heads, rows=rows)


if __name__ == "__main__":
    raise SystemExit(main(LakeTechSimulator))
