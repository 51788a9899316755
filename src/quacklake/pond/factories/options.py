"""Options of factories and resources: a mapping whose unknown keys are refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from quacklake.errors import ConfigError, nearest


def plain(given: Any) -> Any:
    """Return options as JSON can keep them: the dates and times that YAML makes of texts are texts again.

    >>> plain({"start": dt.date(2024, 1, 31), "points": [1, "a"]})
    {'start': '2024-01-31', 'points': [1, 'a']}
    """
    if isinstance(given, Mapping):
        return {str(key): plain(value) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return [plain(each) for each in given]
    return given.isoformat() if isinstance(given, dt.date) else given


class Options:
    """The keys of a mapping, each asked for by its name; :meth:`finish` refuses the others."""

    def __init__(self, what: str, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise ConfigError(f"{what} takes a mapping of options, not {given!r:.60}")
        self.what = what
        self._left = {str(key): value for key, value in given.items()}
        self._known: list[str] = []

    def take(self, key: str, default: Any = None) -> Any:
        """Return a value of any kind."""
        self._known.append(key)
        found = self._left.pop(key, None)
        return default if found is None else found

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text. Raises ``ConfigError`` when it is missing and has no default."""
        found = self.take(key, default)
        if found is None:
            near = get_close_matches(key, self._left, n=1)
            raise ConfigError(f"{self.what} has no {key}", hint=f"{key} instead of {near[0]}" if near else None)
        if isinstance(found, Mapping | list):
            raise ConfigError(f"{self.what}: {key} is a text, not {found!r:.40}")
        return str(found)

    def texts(self, key: str) -> list[str]:
        """Return a list of texts; one text is a list of one."""
        found = self.take(key, [])
        if isinstance(found, str):
            return [found]
        if not isinstance(found, Sequence) or not all(isinstance(each, str) for each in found):
            raise ConfigError(f"{self.what}: {key} is a list of texts, not {found!r:.40}")
        return list(found)

    def mapping(self, key: str) -> dict[str, Any]:
        """Return a mapping, an empty one when it is missing."""
        found = self.take(key, {})
        if not isinstance(found, Mapping):
            raise ConfigError(f"{self.what}: {key} is a mapping, not {found!r:.40}")
        return {str(name): value for name, value in found.items()}

    def mappings(self, key: str) -> list[Mapping[str, Any]]:
        """Return a list of mappings."""
        found = self.take(key, [])
        if not isinstance(found, Sequence) or not all(isinstance(each, Mapping) for each in found):
            raise ConfigError(f"{self.what}: {key} is a list of mappings, not {found!r:.40}")
        return list(found)

    def boolean(self, key: str) -> bool:
        """Return true or false, false when it is missing."""
        found = self.take(key, False)
        if not isinstance(found, bool):
            raise ConfigError(f"{self.what}: {key} is true or false, not {found!r:.40}")
        return found

    def finish(self) -> None:
        """Raise ``ConfigError`` for a key that nobody asked for."""
        if self._left:
            key = next(iter(self._left))
            hint = nearest(key, self._known) or f"it has: {', '.join(self._known)}"
            raise ConfigError(f"{self.what} has no option {key!r}", hint=hint)
