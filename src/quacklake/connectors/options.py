"""The options of sources and sinks, in both spellings that people know.

``target_file_size='128MB'`` and ``'target.file.size'=134217728``, ``poll_interval='10 seconds'`` and
``'poll.interval.ms'=10000`` say the same. A size or a duration without a unit is refused unless its name has the unit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from quacklake.config.values import parse_duration, parse_size
from quacklake.errors import ConfigError, nearest

_Value = TypeVar("_Value")
_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
ALIASES = {
    "type": ("connector",),
    "location": ("table.path", "path"),
    "partition_by": ("partition.columns", "partition_columns"),
    "target_file_size": ("target.file.size", "target_file_size_bytes"),
    "mode": ("write.mode", "read.mode"),
    "key": ("merge.key.columns", "merge_key_columns", "keys", "record_key"),
    "uniform_iceberg": ("enable_uniform",),
    "change_data_feed": ("cdf.enabled", "enable_cdf"),
    "poll_interval": ("poll.interval.ms",),
    "schema_evolution": ("schema.evolution",),
    "delivery_guarantee": ("delivery.guarantee",),
    "writer_id": ("writer.id",),
    "dedup_id_column": ("dedup.id.column",),
    "max_in_flight": ("max.in.flight",),
    "sample": ("infer",),
    "version": ("starting.version", "snapshot.id", "since_version"),
    "catalog_type": ("catalog.type",),
    "catalog_uri": ("catalog.uri",),
    "table_name": ("table.name",),
    "table_type": ("table.type",),
    "order_by": ("precombine", "precombine.field"),
    "max_buffer_records": ("max.buffer.records",),
    "max_buffer_duration": ("max.buffer.duration.ms",),
    "compaction": ("compaction.enabled",),
    "zorder_by": ("compaction.z-order.columns",),
    "compaction_min_files": ("compaction.min-files",),
    "compaction_interval": ("compaction.check-interval.ms",),
    "vacuum_retention": ("vacuum.retention.hours",),
    "max_commit_retries": ("max.commit.retries",),
    "compression": ("parquet.compression",),
}
_UNITS = {".ms": timedelta(milliseconds=1), ".hours": timedelta(hours=1)}
_STORAGE = ("storage.", "aws_", "azure_", "google_", "gcs_", "s3.")


class ConnectorOptions:
    """The options of one source or sink; each is asked for by its name, and what nobody asked for is refused."""

    def __init__(self, kind: str, given: Mapping[str, Any]) -> None:
        self.kind = kind
        self._given = {key.strip().lower(): value for key, value in given.items()}
        self._asked: dict[str, None] = {"type": None}
        self._taken = {"type", "connector"}

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text. Raise ``ConfigError`` when it is not given and has no default."""
        found = self.optional(name)
        if found is not None:
            return found
        if default is None:
            left = [key for key in self._given if key not in self._taken]
            near = next((f"{name} instead of {key}" for key in left if nearest(key, [name])), None)
            raise ConfigError(f"{self.kind} needs {name}", hint=near or f"{name}='…'")
        return default

    def optional(self, name: str) -> str | None:
        """Return a text, None when it is not given. ``${env:NAME}`` and ``${file:PATH}`` are replaced."""
        key = self._find(name)
        return None if key is None else resolved(str(self._given[key]), f"{self.kind}.{key}")

    def names(self, name: str) -> list[str]:
        """Return a list of names, which a text separates by commas outside of parentheses.

        ``${env:NAME}`` and ``${file:PATH}`` are replaced in each.
        """
        key = self._find(name)
        value = None if key is None else self._given[key]
        parts = value if isinstance(value, list | tuple) else re.split(r",(?![^(]*\))", str(value or ""))
        return [resolved(str(part).strip(), f"{self.kind}.{key}") for part in parts if str(part).strip()]

    def choice(self, name: str, known: tuple[str, ...], default: str) -> str:
        """Return one of several words."""
        found = self.text(name, default).lower().replace("-", "_")
        if found not in known:
            raise ConfigError(
                f"{self.kind}: {name} cannot be {found!r}", hint=nearest(found, known) or f"one of: {', '.join(known)}"
            )
        return found

    def boolean(self, name: str, default: bool) -> bool:
        """Return true or false."""
        found = self.text(name, str(default)).lower()
        if found not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
            raise ConfigError(f"{self.kind}: {name} is true or false, not {found!r}")
        return found in ("true", "1", "yes", "on")

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int | None:
        """Return a whole number."""

        def parse(text: str) -> int:
            if (number := int(text)) < least:
                raise ValueError(f"at least {least} is expected")
            return number

        return self._parse_option(name, default, lambda key, text: parse(text))

    def size(self, name: str, default: int) -> int:
        """Return a number of bytes from a text with a unit, or from a number under a name that counts bytes."""

        def parse(key: str, text: str) -> int:
            if text.isdigit() and key == name:
                raise ValueError(f"{text} of what? Say {name}='128MB'")
            return parse_size(int(text) if text.isdigit() else text)

        found = self._parse_option(name, default, parse)
        assert found is not None
        return found

    def duration(self, name: str, default: timedelta) -> timedelta:
        """Return a duration from a text with a unit, or from a number under a name that has the unit."""

        def parse(key: str, text: str) -> timedelta:
            unit = next((unit for ending, unit in _UNITS.items() if key.endswith(ending)), None)
            return parse_duration(text, bare=False) if unit is None else int(text) * unit

        found = self._parse_option(name, default, parse)
        assert found is not None
        return found

    def storage(self) -> dict[str, str]:
        """Return the options that the store of the table gets, such as ``aws_region``."""
        return {key.removeprefix("storage."): value for key, value in self.prefixed(*_STORAGE).items()}

    def prefixed(self, *prefixes: str) -> dict[str, str]:
        """Return the options that begin in one of several ways, as they are."""
        found = {key: value for key, value in self._given.items() if key.startswith(prefixes)}
        self._taken |= set(found)
        return {key: resolved(str(value), key) for key, value in found.items()}

    def finish(self) -> None:
        """Refuse the options that nobody asked for."""
        left = [key for key in self._given if key not in self._taken]
        if left:
            hint = nearest(left[0], self._asked) or f"It has: {', '.join(self._asked)}."
            raise ConfigError(f"{self.kind} has no option {left[0]!r}", hint=hint)

    def _find(self, name: str) -> str | None:
        """Return the spelling under which an option is given."""
        self._asked[name] = None
        spellings = (name, *ALIASES.get(name, ()))
        found = [key for key in spellings if key in self._given]
        self._taken |= set(spellings)
        if len(found) > 1:
            raise ConfigError(f"{self.kind}: {found[0]} and {found[1]} are the same option")
        return found[0] if found else None

    def _parse_option(self, name: str, default: _Value | None, parse: Callable[[str, str], _Value]) -> _Value | None:
        key = self._find(name)
        if key is None:
            return default
        try:
            return parse(key, resolved(str(self._given[key]), key).strip())
        except ValueError as error:
            raise ConfigError(f"{self.kind}: {key}={self._given[key]!r}: {error}") from None


def resolved(text: str, name: str) -> str:
    """Replace ``${env:NAME}`` and ``${file:PATH}`` by what they name. Raise ``ConfigError`` that shows no value."""

    def look_up(match: re.Match[str]) -> str:
        kind, target = match.groups()
        if kind == "env":
            if target not in os.environ:
                raise ConfigError(f"{name}: the environment has no {target}", hint=f"export {target}=…")
            return os.environ[target]
        try:
            return Path(target).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}: the file {target} cannot be read") from error

    return _REFERENCE.sub(look_up, text)
