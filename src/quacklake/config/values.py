"""The values a setting can have, and how they are read from texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from quacklake.config.redaction import MASK

__all__ = ["PARSERS", "Kind", "Secret", "parse_duration", "parse_size"]

Kind = Literal["text", "secret", "int", "float", "bool", "size", "duration", "list"]


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
_PART_OF_DURATION = re.compile(_QUANTITY, re.ASCII)
_DURATION = re.compile(r"\s*(?:\d+(?:\.\d+)?\s*[a-zA-Z]+\s*)+", re.ASCII)

_SIZES: dict[str, int] = {"": 1, "B": 1, "BYTE": 1, "BYTES": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGTP", start=1)
    for suffix, base in (("", 1000), ("B", 1000), ("IB", 1024))
}
_SECONDS = {
    unit: seconds
    for seconds, units in {
        0.001: "ms millisecond milliseconds",
        1: "s sec secs second seconds",
        60: "m min mins minute minutes",
        3600: "h hr hrs hour hours",
        86_400: "d day days",
        604_800: "w week weeks",
    }.items()
    for unit in units.split()
}


def parse_size(raw: object) -> int:
    """Bytes from a number or a text such as ``512MB`` or ``1.5 GiB``. Raises ``ValueError``.

    >>> parse_size("512MB"), parse_size("1.5 GiB"), parse_size(4096)
    (512000000, 1610612736, 4096)
    """
    if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0:
        return raw
    match = _SIZE.fullmatch(raw) if isinstance(raw, str) else None
    if match is None or match[2].upper() not in _SIZES:
        raise ValueError("a size such as 512MB or 2GiB is expected")
    # In whole numbers, as floating point would be off by some bytes.
    whole, _, fraction = match[1].partition(".")
    scale: int = 10 ** len(fraction)
    return int(whole + fraction) * _SIZES[match[2].upper()] // scale


def parse_duration(raw: object) -> timedelta:
    """A duration from seconds, a ``timedelta`` or a text such as ``30s``, ``10 minutes`` or ``1h 30m``.

    Raises ``ValueError``.

    >>> parse_duration("10 minutes"), parse_duration("1h 30m")
    (datetime.timedelta(seconds=600), datetime.timedelta(seconds=5400))
    """
    if isinstance(raw, timedelta):
        return raw
    parts = _PART_OF_DURATION.findall(raw) if isinstance(raw, str) and _DURATION.fullmatch(raw) else []
    try:
        if parts:
            seconds = sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)
        else:
            seconds = _parse_float(raw)
        if seconds >= 0:
            return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError("the duration is too long") from None
    except (KeyError, ValueError):
        pass
    raise ValueError("a duration such as 30s or 10 minutes is expected")


def _parse_text(raw: object) -> str:
    if isinstance(raw, str | Path):
        return str(raw)
    raise ValueError("a text is expected")


def _parse_secret(raw: object) -> Secret:
    return raw if isinstance(raw, Secret) else Secret(_parse_text(raw))


def _parse_int(raw: object) -> int:
    if isinstance(raw, str) and re.fullmatch(r"\s*[+-]?\d[\d_]*\s*", raw, re.ASCII):
        return int(raw.replace("_", ""))
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    raise ValueError("a whole number is expected")


def _parse_float(raw: object) -> float:
    if isinstance(raw, str | int | float) and not isinstance(raw, bool):
        try:
            number = float(raw)
        except (ValueError, OverflowError):
            number = float("nan")
        if math.isfinite(number):
            return number
    raise ValueError("a number is expected")


def _parse_bool(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    word = str(raw).strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise ValueError("true or false is expected")


def _parse_list(raw: object) -> tuple[str, ...]:
    parts = raw.split(",") if isinstance(raw, str) else [raw] if isinstance(raw, Path) else raw
    if not isinstance(parts, list | tuple):
        raise ValueError("a list of texts is expected")
    return tuple(text for text in (_parse_text(part).strip() for part in parts) if text)


PARSERS: Mapping[Kind, Callable[[object], object]] = MappingProxyType(
    {
        "text": _parse_text,
        "secret": _parse_secret,
        "int": _parse_int,
        "float": _parse_float,
        "bool": _parse_bool,
        "size": parse_size,
        "duration": parse_duration,
        "list": _parse_list,
    }
)
