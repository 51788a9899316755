"""Where catalogs (tenants) of a shared lake have their files under keys of their own: the setting ``stores``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quacklake.config.values import PARSERS, Kind, Secret
from quacklake.errors import ConfigError

_KINDS: Mapping[str, Kind] = {
    "endpoint": "text",
    "access_key": "secret",
    "secret_key": "secret",
    "session_token": "secret",
    "region": "text",
    "secure": "bool",
}


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store is reached; what is None is as for every other store. Keys print as ``***``."""

    endpoint: str | None = None
    access_key: Secret | None = None
    secret_key: Secret | None = None
    session_token: Secret | None = None
    region: str | None = None
    secure: bool | None = None


Finder = Callable[[str | None, str], Mapping[str, object] | None]


@dataclass(frozen=True, slots=True, repr=False)
class Stores:
    """Options of stores by the names of catalogs and by data paths, or whatever a function says.

    It prints as the names and paths alone.
    """

    named: Mapping[str, StoreOptions]
    paths: Mapping[str, StoreOptions]
    finder: Finder | None = None

    def find(self, catalog: str | None, path: str) -> StoreOptions | None:
        """Return the options for the files of a catalog (None: of no catalog's) at a path; None if nothing is said.

        The name of a catalog counts before paths, and of these the longest that the path is in. Raises ``ConfigError``
        when the function gives something else than options, and what it raises itself.
        """
        if self.finder is not None:
            return _answered(self.finder(catalog, path))
        if catalog is not None and catalog.lower() in self.named:
            return self.named[catalog.lower()]
        inside = [folder for folder in self.paths if f"{path.rstrip('/')}/".startswith(folder)]
        return self.paths[max(inside, key=len)] if inside else None

    def __str__(self) -> str:
        return "a function" if self.finder is not None else ",".join((*self.named, *self.paths))

    def __repr__(self) -> str:
        return f"Stores({self})"


def parse_stores(raw: object) -> Stores:
    """Return the stores of a mapping, of a function, or of a text with a mapping as JSON. Raises ``ValueError``.

    No message shows what the mapping holds.
    """
    if isinstance(raw, Stores):
        return raw
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            raise ValueError("JSON is expected") from None
    if callable(raw):
        return Stores({}, {}, raw)
    if not isinstance(raw, Mapping):
        raise ValueError("options by names of catalogs or data paths are expected, or a function")
    named, paths = {}, {}
    for key, value in raw.items():
        if not isinstance(key, str) or not key:
            raise ValueError("names of catalogs or data paths are expected")
        if "/" in key:
            paths[f"{key.rstrip('/')}/"] = _options(value)
        else:
            named[key.lower()] = _options(value)
    return Stores(named, paths)


def _answered(answer: object) -> StoreOptions | None:
    try:
        return None if answer is None else _options(answer)
    except ValueError as error:
        raise ConfigError(f"stores: what the function gave cannot be used: {error}") from None


def _options(raw: object) -> StoreOptions:
    if isinstance(raw, StoreOptions):
        return raw
    if not isinstance(raw, Mapping):
        raise ValueError(f"the options of a store are {', '.join(_KINDS)}")
    found: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in _KINDS:
            raise ValueError(f"a store has no such option: its options are {', '.join(_KINDS)}")
        if value is not None:
            try:
                found[name] = PARSERS[_KINDS[name]](value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    if (found.get("access_key") is None) != (found.get("secret_key") is None):
        raise ValueError("access_key and secret_key belong together")
    return StoreOptions(**found)
