"""The options of a collector of HydroVu, and its devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quacklake.config.mappings import Options
from quacklake.config.values import Secret
from quacklake.connectors.options import resolved
from quacklake.errors import ConfigError
from quacklake.pond.collectors.http import HttpClient, HttpLimits, check_url
from quacklake.pond.collectors.wide import ON_CONFLICT, REFUSE
from quacklake.pond.paths import check_name, parts
from quacklake.pond.times import parse_bound
from quacklake_sensors.hydrovu_api import URL, HydroVu


@dataclass(frozen=True, slots=True)
class Device:
    """A device: its name in the pond, and the id of its location."""

    name: str
    id: int
    active: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Device:
        """Return the device of a mapping. Raise ``ConfigError``."""
        options = Options("a device of hydrovu", given)
        name, id_ = check_name(options.text("name")), options.text("id")
        active = options.boolean("active", True)
        options.take("comment")
        options.take("scope")
        options.finish()
        if not id_.isdigit():
            raise ConfigError(f"the device {name} has the id {id_[:40]!r}", hint="the id of a location is a number")
        return cls(name, int(id_), active)


@dataclass(frozen=True, slots=True)
class HydroVuOptions:
    """The options of a collector of HydroVu."""

    client_id: str
    client_secret: str
    url: str
    path: str
    archive_path: str | None
    devices: tuple[Device, ...]
    begin: int
    max_points: int
    max_pages: int
    on_conflict: str
    allow_future: bool
    http: HttpLimits

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> HydroVuOptions:
        """Return the options of a mapping; references to the environment are left as they are."""
        options = Options("hydrovu", config)
        begin = parse_bound(options.text("begin", "0"), "begin")
        assert begin is not None
        made = cls(
            client_id=options.text("client_id", "${env:HYDRO_KEY_ID}"),
            client_secret=options.text("client_secret", "${env:HYDRO_KEY_VALUE}"),
            url=options.text("url", URL),
            path=f"/{'/'.join(parts(options.text('hydrovu_path', '/hydrovu')))}",
            archive_path=options.text("archive_path", "") or None,
            devices=tuple(Device.of(each) for each in options.mappings("devices")),
            begin=max(0, int(begin.timestamp())),
            max_points=options.number("max_points_per_run", 1_000_000),
            max_pages=options.number("max_pages", 10_000),
            on_conflict=options.choice("on_conflict", ON_CONFLICT, REFUSE),
            allow_future=options.boolean("allow_future"),
            http=HttpLimits.of("hydrovu.http", options.mapping("http")),
        )
        options.finish()
        names = [each.name for each in made.devices]
        ids = [each.id for each in made.devices]
        if not names or len(set(names)) < len(names) or len(set(ids)) < len(ids):
            raise ConfigError(
                "hydrovu has no devices, or one of them twice", hint="devices: [{name: Dock, id: 4990594334457856}]"
            )
        return made

    def client(self, wait: Any = None) -> HydroVu:
        """Return a client. Secrets are looked up now. Raise ``ConfigError`` for those that are missing."""
        url = check_url(resolved(self.url, "hydrovu.url"), "hydrovu")
        key = resolved(self.client_id, "hydrovu.client_id")
        secret = Secret(resolved(self.client_secret, "hydrovu.client_secret"))
        return HydroVu(HttpClient(url, self.http, **({} if wait is None else {"wait": wait})), key, secret)

    def folder(self, device: Device) -> str:
        """Return the directory of a device."""
        return f"{self.path}/devices/{device.id}"

    def active_series(self, device: Device) -> str:
        """Return the path of the series that grows."""
        return f"{self.folder(device)}/{device.name}_active.series"
