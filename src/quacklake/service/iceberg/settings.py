"""The settings of the Iceberg catalog."""

from __future__ import annotations

from dataclasses import dataclass

from quacklake.errors import ConfigError

__all__ = ["CACHE_FOLDER", "IcebergSettings"]

CACHE_FOLDER = "iceberg.cache/"
"""The folder of generated files below the data path; no schema has such a folder, since a dot is not plain."""


@dataclass(frozen=True)
class IcebergSettings:
    """Settings of the Iceberg catalog.

    ``format_version`` is 3 or 2. ``cache_path`` is the folder or URL of generated files, by default one below the data
    path, where readers of the lake can reach it; it holds at most ``cache_bytes``, and a file stays there for at least
    a quarter of ``cache_seconds`` after its last use. Files that Iceberg cannot describe are copied, up to
    ``copy_bytes`` of a table. A reader can go back ``states`` changes of a table, within the last ``snapshots`` of the
    lake.
    """

    format_version: int = 3
    cache_path: str | None = None
    cache_bytes: int = 8 << 30
    cache_seconds: float = 6 * 3600.0
    copy_bytes: int = 1 << 30
    states: int = 100
    snapshots: int = 1000
    max_files: int = 200_000
    max_inlined_rows: int = 1_000_000
    max_page: int = 1000
    max_body: int = 16 * 1024

    def __post_init__(self) -> None:
        if self.format_version not in (2, 3):
            raise ConfigError(f"the format version {self.format_version} is not served", hint="use 2 or 3")
        for name in ("cache_bytes", "cache_seconds", "states", "snapshots", "max_files", "max_page", "max_body"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"the setting {name} of the Iceberg catalog must be above 0")
