"""Open a lake, or a catalog of a shared lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quacklake.lake.lake import Lake
from quacklake.tenancy.opening import open_lake


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
    """Open a lake, or create one.

    ``url`` names the metadata database: ``sqlite:///lake.db``, ``duckdb:///lake.db``, ``postgresql://…``, ``mysql://…``
    or DuckLake's own ``ducklake:sqlite:lake.db``. Without it, the URL comes from the environment or ``quacklake.toml``.
    ``data_path`` is required to create a lake (``create=False`` forbids creating one). For an existing lake it must
    match the lake's own data path, unless ``override_data_path`` is true. ``encrypted=True`` creates a lake that
    encrypts each file with its own key; the catalog holds the keys, so opening the lake needs no key. ``catalog`` names
    one catalog (tenant) of a shared lake, which holds many separate lakes in one database; ``create=True`` creates a
    missing catalog, with its files in ``data_path/<catalog>``. ``format_version="1.1"`` creates a lake in the upcoming
    format version; the default is ``"1.0"``, and an existing lake keeps its version. A lake in an older version opens
    read-only, or is upgraded to 1.0 with ``migrate=True``; a shared lake in an older layout is upgraded unless
    ``migrate`` is false. Any other setting can be passed by name.

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
