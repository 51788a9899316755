"""The store of a table, opened with the same options that the library of its format gets."""

from __future__ import annotations

from collections.abc import Mapping

from quacklake.storage import S3Options, Store


def open_store(location: str, storage: Mapping[str, str]) -> Store:
    """Return the store at a location. Raises ``ConfigError`` for options that make none."""
    options = S3Options(
        endpoint=storage.get("aws_endpoint_url") or storage.get("aws_endpoint"),
        access_key=storage.get("aws_access_key_id"),
        secret_key=storage.get("aws_secret_access_key"),
        session_token=storage.get("aws_session_token"),
        region=storage.get("aws_region"),
    )
    # without options the environment decides
    return Store.open(location, s3=options if options != S3Options() else None)
