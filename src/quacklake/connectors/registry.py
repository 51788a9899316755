"""The kinds of sources and sinks: our own, and those that other packages add by an entry point.

A package adds the kind ``parrot`` with a module or object that has one or more of ``source``, ``sink`` and
``foreign_table``::

    [project.entry-points."quacklake.connectors"]
    parrot = "parrot_lake:connector"
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from quacklake.connectors.protocols import Sink, Source
from quacklake.errors import ConfigError, MissingExtraError, nearest

GROUP = "quacklake.connectors"

_BUILT_IN: Mapping[str, str] = {
    "delta": "quacklake.connectors.delta",
    "delta-lake": "quacklake.connectors.delta",
    "hudi": "quacklake.connectors.hudi",
    "iceberg": "quacklake.connectors.iceberg",
    "nats": "quacklake.connectors.nats",
}
"""Our own kinds, and the modules of their connectors."""
_EXTRAS = {"nkeys": "nats", "numpy": "nats", "deltalake": "delta", "pyiceberg": "iceberg", "hudi": "hudi"}


class Connector(Protocol):
    """Makes sources and sinks from options. An entry point may lack one of the two."""

    def source(self, options: Mapping[str, Any]) -> Source:
        """Return a source. Raise ``ConfigError`` for options that make none."""

    def sink(self, options: Mapping[str, Any]) -> Sink:
        """Return a sink. Raise ``ConfigError`` for options that make none."""


def connectors() -> list[str]:
    """Return the kinds that can be named, sorted."""
    return sorted({*_BUILT_IN, *_foreign()})


def connector(kind: str, role: str) -> Any:
    """Return the maker of sources or of sinks (``role``) of a kind.

    Raise ``ConfigError`` for a kind that nobody offers in this role, ``MissingExtraError`` with the line to install
    what it needs.
    """
    name = kind.lower().replace("_", "-")
    try:
        if name in _BUILT_IN:
            found: Any = import_module(_BUILT_IN[name])
        elif name in _foreign():
            found = _foreign()[name].load()
        else:
            known = connectors()
            raise ConfigError(
                f"there is no connector of the type {kind!r}",
                hint=nearest(name, known) or f"one of: {', '.join(known)}",
            )
    except ModuleNotFoundError as error:
        package = (error.name or name).partition(".")[0]
        extra = f"'quacklake[{_EXTRAS[package]}]'" if package in _EXTRAS else package
        raise MissingExtraError(
            f"the connector {kind!r} needs the package {package}", hint=f"pip install {extra}"
        ) from error
    maker = getattr(found, role, None)
    if maker is None:
        raise ConfigError(f"the connector {kind!r} has no {role}")
    return maker


@cache
def _foreign() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
