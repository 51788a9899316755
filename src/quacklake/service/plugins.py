"""Parts of the service that other packages bring: routes, and pages of the dashboard.

A package beside Quacklake names its part in its ``pyproject.toml``::

    [project.entry-points."quacklake.services"]
    orders = "orders.service:PLUGIN"
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from quacklake.errors import ConfigError
from quacklake.plugins import find_plugins, load_plugin

__all__ = ["FILES", "Page", "ServicePlugin", "describe_pages", "load_service_plugins"]

GROUP = "quacklake.services"
FILES = "plugins/"
"""The path of the files of plugins, below that of the dashboard."""
_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the dashboard: a JavaScript module that fills an element of it.

    The module exports ``show(element, session, route)``, which is called again whenever the address changes, and
    ``hide(element)``, which is called when somebody goes to another page. The dashboard loads the files when a person
    goes to ``#/<id>``.
    """

    id: str
    title: str
    """The name of the page in the navigation."""
    module: str
    """The JavaScript module, a path in the folder of the plugin."""
    style: str | None = None
    """A style sheet, a path in the folder of the plugin."""
    icon: str = ""
    """The path of an SVG drawing of 24 by 24, beside the title."""
    table: str | None = None
    """The table that a lake has if it has something to show; None for every lake."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.id):
            raise ConfigError(f"the page {self.id!r} needs an id of lower-case letters, digits and hyphens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlugin:
    """A part of the service. Raise ``ConfigError`` if it has a wrong name or prefix, or lacks a file of its pages.

    The paths of ``routers`` begin with the prefix of the service and ``prefix``, such as ``/api``. Their functions ask
    ``service_of(request).enter(request)`` who calls, as those of the service do. The files in ``folder`` can be read by
    everybody, also without a token.

    >>> from fastapi import APIRouter
    >>> ServicePlugin(name="orders", routers=(APIRouter(tags=["orders"]),), prefix="/api").name
    'orders'
    """

    name: str
    routers: tuple[APIRouter, ...] = ()
    prefix: str = ""
    pages: tuple[Page, ...] = ()
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"the plugin {self.name!r} needs a name of lower-case letters, digits and hyphens")
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise ConfigError(f"the prefix {self.prefix!r} of the plugin {self.name!r} must be like '/api'")
        for page in self.pages:
            for file in filter(None, (page.module, page.style)):
                if self.folder is None or not (self.folder / file).is_file():
                    raise ConfigError(f"the page {page.id!r} of the plugin {self.name!r} has no file {file!r}")


def load_service_plugins() -> tuple[ServicePlugin, ...]:
    """Return the parts that installed packages bring. Raise ``ConfigError`` that names the package of a broken one."""
    return tuple(load_plugin(entry, ServicePlugin) for entry in find_plugins(GROUP))


def describe_pages(plugins: Iterable[ServicePlugin]) -> list[dict[str, Any]]:
    """Return the pages of plugins for the dashboard, with addresses of their files that are relative to it."""
    return [
        asdict(page) | {name: f"{FILES}{plugin.name}/{file}" for name, file in _files_of(page).items()}
        for plugin in plugins
        for page in plugin.pages
    ]


def _files_of(page: Page) -> dict[str, str]:
    return {"module": page.module} | ({} if page.style is None else {"style": page.style})
