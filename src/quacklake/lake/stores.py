"""Stores as the settings say: how an object store is reached, and how patiently."""

from __future__ import annotations

from collections.abc import Sequence

from quacklake.config import Config
from quacklake.storage import S3Options, Store

__all__ = ["open_store"]


def open_store(root: str, config: Config, borrowed: Sequence[str] = (), *, closed: Sequence[str] = ()) -> Store:
    """The store at ``root``; see ``Store.open``. Raises ``ConfigError`` when it cannot be one."""
    return Store.open(
        root,
        s3=_s3(config),
        external=config.foreign_paths,
        borrowed=borrowed,
        closed=closed,
        max_retries=config.storage_max_retries,
    )


def _s3(config: Config) -> S3Options | None:
    if config.s3_endpoint is None and config.s3_access_key is None and config.s3_region is None:
        return None
    return S3Options(
        endpoint=config.s3_endpoint,
        access_key=None if config.s3_access_key is None else config.s3_access_key.reveal(),
        secret_key=None if config.s3_secret_key is None else config.s3_secret_key.reveal(),
        session_token=None if config.s3_session_token is None else config.s3_session_token.reveal(),
        region=config.s3_region,
        secure=config.s3_secure,
    )
