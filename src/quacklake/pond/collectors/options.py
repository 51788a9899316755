"""Options that collectors share: numbers, words, durations and truths of a mapping."""

from __future__ import annotations

from collections.abc import Sequence

from quacklake.config.values import parse_duration, parse_size
from quacklake.errors import ConfigError, nearest
from quacklake.pond.factories.options import Options


def number(options: Options, key: str, default: int, *, least: int = 1) -> int:
    """Return a whole number. Raises ``ConfigError`` for anything else."""
    text = options.text(key, str(default))
    if not text.isdigit() or int(text) < least:
        raise ConfigError(f"{options.what}: {key} is a whole number from {least} on, not {text[:40]!r}")
    return int(text)


def truth(options: Options, key: str, default: bool) -> bool:
    """Return true or false. Raises ``ConfigError`` for anything else."""
    found = options.take(key, default)
    if not isinstance(found, bool):
        raise ConfigError(f"{options.what}: {key} is true or false, not {found!r:.40}")
    return found


def choice(options: Options, key: str, known: Sequence[str], default: str) -> str:
    """Return one of several words. Raises ``ConfigError`` for another."""
    found = options.text(key, default)
    if found not in known:
        hint = nearest(found, known) or f"one of {', '.join(known)}"
        raise ConfigError(f"{options.what}: {key} cannot be {found[:40]!r}", hint=hint)
    return found


def seconds(options: Options, key: str, default: str) -> float:
    """Return the seconds of a duration such as ``5s``. Raises ``ConfigError``."""
    try:
        return parse_duration(options.text(key, default), bare=False).total_seconds()
    except ValueError as error:
        raise ConfigError(f"{options.what}: {key}: {error}", hint=f"{key}: {default}") from None


def size(options: Options, key: str, default: str) -> int:
    """Return the bytes of a size such as ``10MB``. Raises ``ConfigError``."""
    try:
        return parse_size(options.text(key, default))
    except ValueError as error:
        raise ConfigError(f"{options.what}: {key}: {error}", hint=f"{key}: {default}") from None
