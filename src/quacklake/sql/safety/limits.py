"""The permissions and limits of a safe session."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from quacklake.config import parse_duration, parse_size
from quacklake.errors import ConfigError

Size = int | str
Duration = float | str | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """Limits for statements from untrusted users: ``quacklake.session(safety=Safety())``.

    Such a session reaches the rows of the lakes that Python has attached to it and nothing else: no files, no network,
    no settings, no Python variables, no metadata. ``None`` switches a limit off. Raises ``ConfigError`` for a limit
    that makes no sense.
    """

    read_only: bool = True
    """Allow only reading; otherwise also INSERT, UPDATE, DELETE, MERGE and TRUNCATE on existing tables."""
    timeout: Duration | None = 60.0
    """Seconds, or a text such as ``2m``, that DuckDB may work on a statement and its rows."""
    max_rows: int | None = 1_000_000
    """The most rows of a result."""
    max_bytes: Size | None = "1GB"
    """The most bytes of a result."""
    max_memory: Size | None = "1GB"
    """DuckDB's memory for all statements of the session and its cursors together."""
    max_spill: Size = "4GB"
    """Space in a private directory for rows that do not fit into memory; 0 for none."""
    max_text: int = 100_000
    """The most characters of a text of statements."""
    max_depth: int = 200
    """The most levels of nested queries and expressions."""
    max_nodes: int | None = 20_000
    """The most expression parts of a statement, with its common tables, views and macros expanded."""
    max_tables: int | None = 200
    """The most table references of a statement, counted in the same way."""
    max_columns: int | None = 10_000
    """The most columns of a query within a statement, counted in the same way."""
    max_repeats: int | None = 1_000_000
    """The largest size or count that ``repeat``, ``range`` and similar functions may make from one value."""
    threads: int | None = None
    """DuckDB's threads; ``None`` for one per core."""

    def __post_init__(self) -> None:
        for name, value in self._given():
            try:
                number = _PARSERS[name](value)
            except ValueError as error:
                raise ConfigError(f"Safety({name}={value!r}): {error}") from None
            if number < _LEAST.get(name, 1):
                raise ConfigError(f"Safety({name}={value!r}): at least {_LEAST.get(name, 1)} is expected")

    def _given(self) -> list[tuple[str, Any]]:
        found = [(field.name, getattr(self, field.name)) for field in fields(self) if field.name in _PARSERS]
        return [(name, value) for name, value in found if value is not None]

    @classmethod
    def server(cls, **changes: Any) -> Safety:
        """Return limits for a service with many users: read-only, half a minute, 100,000 rows, 512 MB of memory."""
        limits = cls(timeout=30.0, max_rows=100_000, max_bytes="100MB", max_memory="512MB", max_spill="1GB", threads=2)
        return replace(limits, **changes)

    @property
    def seconds(self) -> float | None:
        """The timeout in seconds."""
        return None if self.timeout is None else parse_duration(self.timeout).total_seconds()

    @property
    def result_bytes(self) -> int | None:
        """The most bytes of a result."""
        return None if self.max_bytes is None else parse_size(self.max_bytes)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number is expected")
    return value


_PARSERS: dict[str, Any] = {
    "timeout": lambda value: parse_duration(value).total_seconds(),
    "max_rows": _whole,
    "max_bytes": parse_size,
    "max_memory": parse_size,
    "max_spill": parse_size,
    "max_text": _whole,
    "max_depth": _whole,
    "max_nodes": _whole,
    "max_tables": _whole,
    "max_columns": _whole,
    "max_repeats": _whole,
    "threads": _whole,
}
_LEAST: dict[str, float] = {"timeout": 0.001, "max_rows": 0, "max_bytes": 0, "max_memory": 1 << 20, "max_spill": 0}
