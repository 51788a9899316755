"""Options that come as a mapping, of YAML, JSON or SQL: each has a name and a kind, and unknown names are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, TypeVar

from quacklake.config.values import parse_duration, parse_size
from quacklake.errors import ConfigError, nearest

T = TypeVar("T")


class Options:
    """The keys of a mapping, each asked for by its name; :meth:`finish` refuses the others.

    ``what`` is what errors call the mapping. A key without a value is a missing one.
    """

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

    def has(self, key: str) -> bool:
        """Return whether a key has a value."""
        return self._left.get(key) is not None

    def required(self, key: str, default: Any = None) -> Any:
        """Return a value of any kind. Raise ``ConfigError`` when it is missing and has no default."""
        found = self.take(key, default)
        if found is None:
            near = get_close_matches(key, self._left, n=1)
            raise ConfigError(f"{self.what} has no {key}", hint=f"{key} instead of {near[0]}" if near else None)
        return found

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text. Raise ``ConfigError`` when it is missing and has no default."""
        found = self.required(key, default)
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

    def boolean(self, key: str, default: bool = False) -> bool:
        """Return true or false."""
        found = self.take(key, default)
        if not isinstance(found, bool):
            raise ConfigError(f"{self.what}: {key} is true or false, not {found!r:.40}")
        return found

    def choice(self, key: str, known: Sequence[str], default: str) -> str:
        """Return one of several words, which are written small; the case of the given one does not matter."""
        found = self.text(key, default).strip()
        if found.lower() not in known:
            hint = nearest(found, known) or f"one of {', '.join(known)}"
            raise ConfigError(f"{self.what}: {key} cannot be {found[:40]!r}", hint=hint)
        return found.lower()

    def number(self, key: str, default: int, *, least: int = 1) -> int:
        """Return a whole number."""
        text = self.text(key, str(default))
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise ConfigError(f"{self.what}: {key} is a whole number from {least} on, not {text[:40]!r}")
        return int(text)

    def duration(self, key: str, default: str | timedelta) -> timedelta:
        """Return a duration, which is written with a unit, as in ``5s``."""
        return self._measure(key, default, lambda given: parse_duration(given, bare=False), "10 seconds")

    def seconds(self, key: str, default: str) -> float:
        """Return the seconds of a duration, which is written with a unit."""
        return self.duration(key, default).total_seconds()

    def size(self, key: str, default: str | int) -> int:
        """Return the bytes of a size, which is written with a unit, as in ``10MB``."""
        return self._measure(key, default, parse_size, "64MB")

    def _measure(self, key: str, default: object, parse: Callable[[object], T], example: str) -> T:
        given = self._left.get(key)
        try:
            if isinstance(given, int | float):
                raise ValueError(f"{given!r} of what?")
            return parse(self.take(key, default))
        except ValueError as error:
            hint = f"{key}: {default if isinstance(default, str) else example}"
            raise ConfigError(f"{self.what}: {key}: {error}", hint=hint) from None

    def finish(self) -> None:
        """Raise ``ConfigError`` for a key that nobody asked for."""
        if self._left:
            key = next(iter(self._left))
            hint = nearest(key, self._known) or f"it has: {', '.join(self._known)}"
            raise ConfigError(f"{self.what} has no option {key!r}", hint=hint)
