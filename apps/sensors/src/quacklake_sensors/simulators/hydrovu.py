"""A simulator of HydroVu: tokens that expire, friendly names, locations, and readings in pages.

The readings follow from the seed alone. Faults are settings: too many requests, failures, revoked tokens, devices with
wrong clocks, and a server that is hostile.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from dataclasses import dataclass
from urllib.parse import parse_qs

from quacklake_sensors.simulators.server import Answer, Request, Simulator, main

PARAMETERS = {
    "1": "Temperature",
    "2": "Pressure",
    "3": "Depth",
    "4": "Level: Depth to Water",
    "5": "Level: Elevation",
    "9": "Actual Conductivity",
    "10": "Specific Conductivity",
    "11": "Resistivity",
    "12": "Salinity",
    "13": "TDS",
    "14": "Density",
    "16": "Baro",
    "26": "Battery Voltage",
    "33": "Battery Level",
}
UNITS = {
    "1": "C",
    "17": "psi",
    "35": "m",
    "65": "µS/cm",
    "81": "Ω-cm",
    "97": "psu",
    "117": "mg/L",
    "129": "g/cm³",
    "163": "V",
    "241": "%",
}
LOCATIONS = {
    4990594334457856: "BDockVulink",
    6154708427603968: "BDockAT500",
    6582334615060480: "SilverVulink1",
    6417476404772864: "SilverVulink2",
    5859376846209024: "SilverAT500",
    5877040213786624: "PrincessVulink",
    6187749627789312: "PrincessAT500",
}
_VULINK = (("16", "17", 14.7, 0.2), ("33", "241", 80.0, 5.0), ("1", "1", 12.0, 6.0))
_AT500 = (("1", "1", 11.0, 3.0), ("3", "35", 4.0, 1.5), ("9", "65", 42000.0, 900.0), ("12", "97", 30.0, 1.0))
LATE = "12"
"""The parameter that first appears later than the others."""
_DAY = 86_400


@dataclass(frozen=True)
class HydroVuSettings:
    """The data and the faults of a simulator. Times are seconds since 1970."""

    seed: int = 1
    begin: int = 1_704_067_200
    end: int = 1_704_067_200 + 7 * _DAY
    """The time of the last readings; 0 for the clock of this machine."""
    interval: int = 900
    page_seconds: int = 2 * _DAY
    late_after: int = _DAY
    """The parameter Salinity first appears so long after ``begin``."""
    clock_skew: int = 0
    """The seconds that the clocks of devices are ahead."""
    client_id: str = "client"
    client_secret: str = "not-a-secret"
    token_seconds: int = 3600
    revoke_every: int = 0
    """Every so many requests for readings, all tokens become invalid, as after a restart."""
    throttle_every: int = 0
    """Every so many requests for readings, the answer is 429 with Retry-After."""
    retry_after: str = "0"
    fail_every: int = 0
    """Every so many requests for readings, the answer is 503."""
    remember: bool = True
    """True to keep pages that were made once."""
    hostile: str = ""
    """endless, huge, redirect, malformed, html, shape, text, future, disorder, duplicate or conflict."""
    redirect_to: str = ""


class HydroVuSimulator(Simulator[HydroVuSettings]):
    """A simulator of HydroVu."""

    Settings = HydroVuSettings

    def __init__(self, settings: HydroVuSettings | None = None, *, port: int = 0) -> None:
        super().__init__(settings, port=port)
        self._tokens: dict[str, float] = {}
        self._asked = 0
        self._pages: dict[tuple[HydroVuSettings, int, int, int], bytes] = {}

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""
        path = request.path.removeprefix("/public-api")
        if path == "/oauth/token":
            return self._token(request)
        self._check_token(request)
        if path == "/v1/sispec/friendlynames":
            return Answer(200, {"parameters": PARAMETERS, "units": UNITS})
        if path == "/v1/locations/list":
            gps = {"latitude": 39.1, "longitude": -76.4}
            return Answer(
                200, [{"id": id_, "name": name, "description": "", "gps": gps} for id_, name in LOCATIONS.items()]
            )
        parts = path.strip("/").split("/")
        if len(parts) == 4 and parts[:2] == ["v1", "locations"] and parts[3] == "data" and parts[2].isdigit():
            return self._data(int(parts[2]), request)
        return Answer(404, {"error": "not found"})

    def forget_tokens(self) -> None:
        """Make all tokens invalid."""
        with self.lock:
            self._tokens.clear()

    def _token(self, request: Request) -> Answer:
        form = {key: values[0] for key, values in parse_qs(request.body.decode(errors="replace")).items()}
        wanted = self.settings.client_id, self.settings.client_secret
        if request.method != "POST" or form.get("grant_type") != "client_credentials":
            return Answer(400, {"error": "unsupported_grant_type"})
        if (form.get("client_id"), form.get("client_secret")) != wanted:
            return Answer(
                401, {"error": "invalid_client", "error_description": f"{form.get('client_secret')} is wrong"}
            )
        with self.lock:
            token = hashlib.sha256(f"{self.settings.seed}:{len(self.requests)}".encode()).hexdigest()
            self._tokens[token] = time.monotonic() + self.settings.token_seconds
        facts = {"token_type": "bearer", "expires_in": self.settings.token_seconds, "scope": form.get("scope", "")}
        return Answer(200, {"access_token": token, **facts})

    def _check_token(self, request: Request) -> None:
        kind, _, token = (request.headers.get("authorization") or "").partition(" ")
        with self.lock:
            valid = self._tokens.get(token, 0.0) > time.monotonic()
        if kind.lower() != "bearer" or not valid:
            raise Answer(401, {"error": "invalid_token"})

    def _data(self, location: int, request: Request) -> Answer:
        settings = self.settings
        with self.lock:
            self._asked += 1
            asked = self._asked
        if settings.revoke_every and asked % settings.revoke_every == 0:
            self.forget_tokens()
            return Answer(401, {"error": "invalid_token"})
        if settings.throttle_every and asked % settings.throttle_every == 0:
            return Answer(429, {"error": "too many requests"}, {"Retry-After": settings.retry_after})
        if settings.fail_every and asked % settings.fail_every == 0:
            return Answer(503, "<html>try later</html>", kind="text/html")
        if location not in LOCATIONS:
            return Answer(404, {"error": "no location"})
        start = request.headers.get("x-isi-start-page") or request.query.get("startTime", "0")
        if not start.isdigit():
            return Answer(400, {"error": "startTime"})
        return self._hostile(settings) or self._page(settings, location, int(start), request)

    def _hostile(self, settings: HydroVuSettings) -> Answer | None:
        match settings.hostile:
            case "redirect":
                return Answer(302, b"", {"Location": settings.redirect_to})
            case "malformed":
                return Answer(200, '{"locationId": 1, "parameters": [{"parameterId": "1", ')
            case "shape":
                return Answer(200, {"locationId": 1, "parameters": [{"parameterId": "1", "readings": 7}]})
            case "text":
                reading = {"timestamp": settings.begin, "value": "warm"}
                parameter = {"parameterId": "1", "unitId": "1", "readings": [reading]}
                return Answer(200, {"locationId": 1, "parameters": [parameter]})
            case "html":
                return Answer(200, "<html><body>Please log in</body></html>", kind="text/html")
            case "huge":
                return Answer(200, b"[" + b" " * (4 << 20) + b"]")
        return None

    def _page(self, settings: HydroVuSettings, location: int, start: int, request: Request) -> Answer:
        newest = settings.end or int(time.time())
        first = max(start - settings.clock_skew, settings.begin)
        if first > newest:
            return Answer(404, {"error": "no data"})
        last = min(newest, first + settings.page_seconds - 1)
        key = (settings, location, first, last)
        body = self._pages.get(key)
        if body is None:
            body = json.dumps(_readings(settings, location, first, last)).encode()
            if settings.remember:
                self._pages[key] = body
        headers = {"x-isi-requests-this-minute": str(self._asked)}
        if last < newest or settings.hostile == "endless":
            following = first if settings.hostile == "endless" else last + 1
            headers["X-ISI-Next-Page"] = str(following + settings.clock_skew)
        return Answer(200, body, headers)


def _readings(settings: HydroVuSettings, location: int, first: int, last: int) -> dict[str, object]:
    parameters = list(_VULINK if "Vulink" in LOCATIONS[location] else _AT500)
    random.Random(settings.seed * 31 + first).shuffle(parameters)
    found = []
    for parameter, unit, base, swing in parameters:
        since = settings.begin + (settings.late_after if parameter == LATE else 0)
        readings = [
            {"timestamp": moment + settings.clock_skew, "value": reading(settings.seed, location, parameter, moment)}
            for moment in moments(settings, max(first, since), last)
        ]
        if readings:
            found.append(
                {
                    "parameterId": parameter,
                    "unitId": unit,
                    "customParameter": False,
                    "readings": _spoiled(settings, [_scaled(each, base, swing) for each in readings]),
                }
            )
    return {"locationId": location, "parameters": found}


def moments(settings: HydroVuSettings, first: int, last: int) -> range:
    """Return the times of readings from ``first`` to ``last``, both included."""
    step = settings.interval
    begin = settings.begin + -(-(first - settings.begin) // step) * step
    return range(begin, last + 1, step)


def reading(seed: int, location: int, parameter: str, moment: int) -> float:
    """Return a number between -1 and 1: a daily wave, and noise that follows from the seed."""
    noise = ((moment // 60 * 2_654_435_761 + location + int(parameter) * 7919 + seed * 104_729) % 65_536) / 65_536
    return 0.9 * math.sin(2 * math.pi * (moment % _DAY) / _DAY) + 0.1 * (noise - 0.5)


def _scaled(each: dict[str, float], base: float, swing: float) -> dict[str, float]:
    return {"timestamp": each["timestamp"], "value": round(base + swing * each["value"], 4)}


def _spoiled(settings: HydroVuSettings, readings: list[dict[str, float]]) -> list[dict[str, float]]:
    match settings.hostile:
        case "future":
            return [*readings, {"timestamp": 4_102_444_800, "value": 1.0}]
        case "disorder":
            return readings[::-1]
        case "duplicate":
            return [*readings, *readings[:3]]
        case "conflict":
            return [*readings, {"timestamp": readings[0]["timestamp"], "value": -99.0}]
    return readings


if __name__ == "__main__":
    raise SystemExit(main(HydroVuSimulator))
