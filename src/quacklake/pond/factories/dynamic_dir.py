"""``dynamic-dir``: a directory of computed nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quacklake.config.mappings import Options
from quacklake.errors import ConfigError
from quacklake.pond.factories.registry import DirectoryFactory, find, register
from quacklake.pond.paths import check_name


@register
class DynamicDir(DirectoryFactory):
    """A directory with a node for each entry: its name, its factory and the options of that."""

    name = "dynamic-dir"
    description = "A read-only directory of nodes that other factories compute"

    def check(self, config: Mapping[str, Any]) -> None:
        for factory, options in self.entries(config).values():
            find(factory).check(options)

    def entries(self, config: Mapping[str, Any]) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        options = Options(self.name, config)
        given = options.mappings("entries")
        options.finish()
        found: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for each in given:
            entry = Options(f"an entry of {self.name}", each)
            name, factory, inner = check_name(entry.text("name")), entry.text("factory"), entry.mapping("config")
            entry.finish()
            if name in found:
                raise ConfigError(f"{self.name} has two entries {name!r}")
            found[name] = (factory, inner)
        return found
