"""The names of columns in files without field ids, for readers: one mapping for all such files of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping

from quacklake.core.format.mappings import NameMapping

__all__ = ["NameMappings"]


class NameMappings:
    """The name mappings of a table. Readers know one for the whole table, so a name can mean one column only."""

    def __init__(self, mappings: Mapping[int, NameMapping]) -> None:
        self._used = False
        self._meanings: dict[str, int] = {}
        self._conflicts: set[int] = set()
        for id_ in sorted(mappings):
            flat = {column.source_name: column.target_id for column in mappings[id_].columns if not column.children}
            if any(self._meanings.get(name, target) != target for name, target in flat.items()):
                self._conflicts.add(id_)
            else:
                self._meanings.update(flat)

    def conflict(self, mapping: NameMapping) -> str | None:
        """Return why files of a mapping cannot be read by the names that all others have."""
        return "its names mean other columns than in other files" if mapping.id in self._conflicts else None

    def use(self, mapping: NameMapping) -> None:
        """Note that files of a mapping are read in place."""
        self._used = self._used or mapping.id not in self._conflicts

    def property(self) -> str | None:
        """Return the table property that readers look for, None if no file needs it."""
        if not self._used:
            return None
        names: dict[int, list[str]] = {}
        for name, target in self._meanings.items():
            names.setdefault(target, []).append(name)
        return json.dumps([{"field-id": target, "names": sorted(found)} for target, found in sorted(names.items())])
