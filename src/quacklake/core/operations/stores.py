"""Open stores with their settings, such as credentials and timeouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from quacklake import telemetry
from quacklake.config import Config
from quacklake.core.storage import S3Options, Store
from quacklake.core.storage.sealed import SealedStore, parse_key


def open_store(
    root: str,
    config: Config,
    borrowed: Sequence[str] = (),
    *,
    closed: Sequence[str] = (),
    tenant: str | None = None,
) -> Store:
    """Open the store at ``root`` for a catalog (tenant) or a plain lake. Raise ``ConfigError``.

    >>> from quacklake.config import resolve
    >>> open_store("/data/lake", resolve(env={})).scheme
    'file'
    """
    own = narrowed(config, root, tenant)
    return Store.open(
        root,
        s3=_s3(own, scoped=own is not config),
        external=config.foreign_paths,
        borrowed=borrowed,
        closed=closed,
        max_retries=config.storage_max_retries,
        label=None if tenant is None else telemetry.tenant_label(tenant, config.telemetry_tenants),
    )


def open_backups(root: str, config: Config) -> Store:
    """Open a place of backups, encrypted if the settings have a key. Raise ``ConfigError``."""
    if config.backup_key is None:
        return open_store(root, config)
    key = parse_key(config.backup_key.reveal())
    own = narrowed(config, root, None)
    store = SealedStore.open(root, s3=_s3(own, scoped=own is not config), max_retries=config.storage_max_retries)
    assert isinstance(store, SealedStore)
    return store.with_key(key)


def narrowed(config: Config, root: str, tenant: str | None) -> Config:
    """Return settings with only the options that ``stores`` has for a catalog or data path. Raise ``ConfigError``."""
    if config.stores is None:
        return config
    options = config.stores.find(tenant, root)
    if options is None:
        return config
    found: dict[str, Any] = {}
    if options.access_key is not None:
        # A token belongs to its keys.
        keys = ("access_key", "secret_key", "session_token")
        found |= {f"s3_{name}": getattr(options, name) for name in keys}
    for name in ("endpoint", "region", "secure"):
        if getattr(options, name) is not None:
            found[f"s3_{name}"] = getattr(options, name)
    return replace(config, **found)


def without_others(config: Config, root: str, tenant: str | None) -> Config:
    """Return settings for an open catalog (tenant), without the keys of others."""
    if tenant is None or config.stores is None:
        return config
    return replace(narrowed(config, root, tenant), stores=None)


def _s3(config: Config, *, scoped: bool) -> S3Options | None:
    if config.s3_endpoint is None and config.s3_access_key is None and config.s3_region is None:
        return None
    return S3Options(
        endpoint=config.s3_endpoint,
        access_key=None if config.s3_access_key is None else config.s3_access_key.reveal(),
        secret_key=None if config.s3_secret_key is None else config.s3_secret_key.reveal(),
        session_token=None if config.s3_session_token is None else config.s3_session_token.reveal(),
        region=config.s3_region,
        secure=config.s3_secure,
        scoped=scoped,
    )
