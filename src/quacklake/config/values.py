"""The values that a setting can have, and how they are parsed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from quacklake.config.redaction import MASK
from quacklake.errors import ConfigError

Kind = Literal["text", "secret", "int", "float", "bool", "size", "duration", "seconds", "list", "stores"]


class Secret:
    """A text that prints as ``***``. :meth:`reveal` gives the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself. Hand it to the driver; do not store or log it."""
        return self._text

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)


_QUANTITY = r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)"
_SIZE = re.compile(rf"\s*{_QUANTITY}\s*", re.ASCII)
_PART_OF_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*,?", re.ASCII)
_CLOCK = re.compile(r"\s*(\d+):(\d{2}):(\d{2})(?:\.(\d{1,6}))?\s*", re.ASCII)

_SIZES: dict[str, int] = {"": 1, "B": 1, "BYTE": 1, "BYTES": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGTP", start=1)
    for suffix, base in (("", 1000), ("B", 1000), ("IB", 1024))
}
_SPANS = {
    unit: span
    for span, units in {
        timedelta(microseconds=1): "us microsecond microseconds",
        timedelta(milliseconds=1): "ms millisecond milliseconds",
        timedelta(seconds=1): "s sec secs second seconds",
        timedelta(minutes=1): "m min mins minute minutes",
        timedelta(hours=1): "h hr hrs hour hours",
        timedelta(days=1): "d day days",
        timedelta(weeks=1): "w week weeks",
        # Calendar units count long, so that nothing is removed before its time.
        timedelta(days=31): "mon mons month months",
        timedelta(days=366): "y year years",
    }.items()
    for unit in units.split()
}


def parse_size(raw: object) -> int:
    """Bytes from a number or a text such as ``512MB`` or ``1.5 GiB``. Raise ``ValueError``.

    >>> parse_size("512MB"), parse_size("1.5 GiB"), parse_size(4096)
    (512000000, 1610612736, 4096)
    """
    if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0:
        return raw
    match = _SIZE.fullmatch(raw) if isinstance(raw, str) else None
    if match is None or match[2].upper() not in _SIZES:
        raise ValueError("expected a size such as 512MB or 2GiB")
    # In whole numbers, as floating point would be off by some bytes.
    whole, _, fraction = match[1].partition(".")
    scale: int = 10 ** len(fraction)
    return int(whole + fraction) * _SIZES[match[2].upper()] // scale


def parse_duration(raw: object, *, bare: bool = True) -> timedelta:
    """Return a duration from a ``timedelta`` or a text such as ``30s``, ``7d``, ``10 minutes`` or ``1 day 02:30:00``.

    A number without a unit is one of seconds, unless ``bare`` is false. Raise ``ValueError``.

    >>> parse_duration("10 minutes"), parse_duration("1h 30m"), parse_duration("2w")
    (datetime.timedelta(seconds=600), datetime.timedelta(seconds=5400), datetime.timedelta(days=14))
    """
    if isinstance(raw, timedelta):
        return raw
    try:
        found = _parse_spans(raw) if isinstance(raw, str) else None
        if found is None and bare:
            found = timedelta(seconds=_parse_float(raw))
        if found is not None and found >= timedelta():
            return found
    except OverflowError:
        raise ValueError("the duration is too long") from None
    except ValueError:
        pass
    raise ValueError("expected a duration such as 30s, 12h, 7d or 10 minutes")


def _parse_seconds(raw: object) -> float:
    return parse_duration(raw).total_seconds()


def _parse_spans(text: str) -> timedelta | None:
    """The sum of numbers with units, and of hours:minutes:seconds at the end; None when it is something else."""
    total, position = timedelta(), 0
    while position < len(text.rstrip()):
        if clock := _CLOCK.fullmatch(text, position):
            hours, minutes, seconds = (int(part) for part in clock.groups()[:3])
            micros = int((clock[4] or "0").ljust(6, "0"))
            return total + timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)
        part = _PART_OF_DURATION.match(text, position)
        unit = _SPANS.get(part[2].lower()) if part else None
        if part is None or unit is None:
            return None
        total += (float(part[1]) if "." in part[1] else int(part[1])) * unit
        position = part.end()
    return total if position else None


def _parse_text(raw: object) -> str:
    if isinstance(raw, str | Path):
        return str(raw)
    raise ValueError("expected a text")


def _parse_secret(raw: object) -> Secret:
    return raw if isinstance(raw, Secret) else Secret(_parse_text(raw))


def _parse_int(raw: object) -> int:
    if isinstance(raw, str) and re.fullmatch(r"\s*[+-]?\d[\d_]*\s*", raw, re.ASCII):
        return int(raw.replace("_", ""))
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    raise ValueError("expected a whole number")


def _parse_float(raw: object) -> float:
    if isinstance(raw, str | int | float) and not isinstance(raw, bool):
        try:
            number = float(raw)
        except (ValueError, OverflowError):
            number = float("nan")
        if math.isfinite(number):
            return number
    raise ValueError("expected a number")


def _parse_bool(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    word = str(raw).strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise ValueError("expected true or false")


def _parse_list(raw: object) -> tuple[str, ...]:
    parts = raw.split(",") if isinstance(raw, str) else [raw] if isinstance(raw, Path) else raw
    if not isinstance(parts, list | tuple):
        raise ValueError("expected a list of texts")
    return tuple(text for text in (_parse_text(part).strip() for part in parts) if text)


# -- the setting "stores": catalogs (tenants) of a shared lake whose files are under keys of their own -----------------

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
    """The options of one store; None is as for every other store. Keys print as ``***``."""

    endpoint: str | None = None
    access_key: Secret | None = None
    secret_key: Secret | None = None
    session_token: Secret | None = None
    region: str | None = None
    secure: bool | None = None


Finder = Callable[[str | None, str], Mapping[str, object] | None]


@dataclass(frozen=True, slots=True, repr=False)
class Stores:
    """Options of stores by the names of catalogs and by data paths, which it prints as, or whatever a function says."""

    named: Mapping[str, StoreOptions]
    paths: Mapping[str, StoreOptions]
    finder: Finder | None = None

    def find(self, catalog: str | None, path: str) -> StoreOptions | None:
        """Return the options for the files of a catalog (None: of no catalog) at a path; None if there are none.

        The name of a catalog counts before paths, and of these the longest. Raise ``ConfigError`` for a wrong answer.
        """
        if self.finder is not None:
            answer = self.finder(catalog, path)
            try:
                return None if answer is None else _options(answer)
            except ValueError as error:
                raise ConfigError(f"the function in stores returned a wrong value: {error}") from None
        if catalog is not None and catalog.lower() in self.named:
            return self.named[catalog.lower()]
        inside = [folder for folder in self.paths if f"{path.rstrip('/')}/".startswith(folder)]
        return self.paths[max(inside, key=len)] if inside else None

    def __str__(self) -> str:
        return "a function" if self.finder is not None else ",".join((*self.named, *self.paths))

    def __repr__(self) -> str:
        return f"Stores({self})"


def _parse_stores(raw: object) -> Stores:
    """Return the stores of a mapping, a function, or a mapping as JSON, or a ``ValueError`` that shows no contents."""
    if isinstance(raw, Stores):
        return raw
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            raise ValueError("expected JSON") from None
    if callable(raw):
        return Stores({}, {}, raw)
    if not isinstance(raw, Mapping):
        raise ValueError("expected a function, or options by the names of catalogs or by data paths")
    named, paths = {}, {}
    for key, value in raw.items():
        if not isinstance(key, str) or not key:
            raise ValueError("expected names of catalogs or data paths")
        if "/" in key:
            paths[f"{key.rstrip('/')}/"] = _options(value)
        else:
            named[key.lower()] = _options(value)
    return Stores(named, paths)


def _options(raw: object) -> StoreOptions:
    if isinstance(raw, StoreOptions):
        return raw
    if not isinstance(raw, Mapping):
        raise ValueError(f"the options of a store are {', '.join(_KINDS)}")
    found: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in _KINDS:
            raise ValueError(f"unknown option of a store: the options are {', '.join(_KINDS)}")
        if value is not None:
            try:
                found[name] = PARSERS[_KINDS[name]](value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    if (found.get("access_key") is None) != (found.get("secret_key") is None):
        raise ValueError("access_key and secret_key must be set together")
    return StoreOptions(**found)


PARSERS: Mapping[Kind, Callable[[object], object]] = MappingProxyType(
    {
        "text": _parse_text,
        "secret": _parse_secret,
        "int": _parse_int,
        "float": _parse_float,
        "bool": _parse_bool,
        "size": parse_size,
        "duration": parse_duration,
        "seconds": _parse_seconds,
        "list": _parse_list,
        "stores": _parse_stores,
    }
)
