"""Opening lakes and the catalogs of shared lakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quacklake.lake.lake import Lake
from quacklake.tenancy.opening import open_lake

__all__ = ["connect"]


def connect(
    url: str | None = None,
    data_path: str | Path | None = None,
    *,
    catalog: str | None = None,
    create: bool | None = None,
    override_data_path: bool = False,
    read_only: bool = False,
    migrate: bool | None = None,
    config_file: str | Path | None = None,
    **settings: Any,
) -> Lake:
    """Open a lake, or make one.

    ``url`` says where the metadata is: ``sqlite:///lake.db``, ``duckdb:///lake.db``, ``postgresql://…``, ``mysql://…``
    or DuckLake's own ``ducklake:sqlite:lake.db``; without one the environment or ``quacklake.toml`` says it.
    ``data_path`` is needed to make a lake (``create=False`` forbids that) and must otherwise be the lake's own, unless
    ``override_data_path`` is given. ``encrypted=True`` makes a lake whose files are encrypted, each with a key that the
    catalog holds; opening one needs nothing. ``catalog`` names one of the catalogs (tenants) of a shared lake, each a
    lake of its own in one database; a missing one is made with ``create=True``, its files in ``data_path/<catalog>``.
    ``format_version="1.1"`` makes a lake of the coming version of the format, ``"1.0"`` is the default; a lake that
    exists keeps its own. One of an older version opens read-only, or with ``migrate`` is brought to 1.0; a shared lake
    of an older layout is unless it is false. Any setting may be passed by its name.

    Raises ``ConfigError``, ``NotFoundError`` or ``UnsupportedVersionError``; no message contains a password.
    """
    handle = open_lake(
        url,
        data_path,
        catalog=catalog,
        create=create,
        override_data_path=override_data_path,
        read_only=read_only,
        migrate=migrate,
        config_file=config_file,
        **settings,
    )
    return Lake(handle)
