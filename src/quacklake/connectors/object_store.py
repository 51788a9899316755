"""Credentials of object stores, in the spellings of the libraries that write tables.

``aws_access_key_id`` (deltalake), ``s3.access-key-id`` (pyiceberg) and ``storage.aws_access_key_id`` say the same.
Whichever you use reaches the library and the store of the staged files alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from quacklake.errors import ConfigError, nearest
from quacklake.extend.stores import S3Options, Store

_SPELLINGS = {
    "access_key": ("aws_access_key_id", "access_key_id", "s3.access-key-id", "client.access-key-id"),
    "secret_key": ("aws_secret_access_key", "secret_access_key", "s3.secret-access-key", "client.secret-access-key"),
    "session_token": ("aws_session_token", "aws_token", "session_token", "s3.session-token", "client.session-token"),
    "region": ("aws_region", "aws_default_region", "region", "s3.region", "client.region"),
    "endpoint": ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint", "s3.endpoint"),
    "insecure": ("aws_allow_http", "allow_http"),
    "virtual": ("aws_virtual_hosted_style_request", "virtual_hosted_style_request", "s3.force-virtual-addressing"),
}


def open_store(location: str, options: Mapping[str, str]) -> Store:
    """Return the store of a table with the credentials of its options. Raise ``ConfigError``.

    Addresses may be in the spellings of Hadoop, ``s3a://bucket/t`` and ``file:/folder/t``.
    """
    plain = re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:/(?!/)", "file:///", location))
    return Store.open(plain, s3=s3_options(options))


def check_s3(options: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` for an option that is none of S3."""
    known = [spelling for spellings in _SPELLINGS.values() for spelling in spellings]
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"there is no storage option {unknown!r}", hint=nearest(unknown, known))


def s3_options(options: Mapping[str, str]) -> S3Options | None:
    """Return the S3 server and the keys that options name, None when they name nothing."""
    named = {name: value for name in _SPELLINGS if (value := _find(name, options)) is not None}
    if not named:
        return None
    endpoint = named.get("endpoint")
    insecure = _flag("insecure", named) if endpoint and "://" not in endpoint else False
    return S3Options(
        endpoint=endpoint,
        access_key=named.get("access_key"),
        secret_key=named.get("secret_key"),
        session_token=named.get("session_token"),
        region=named.get("region"),
        secure=not insecure,
        path_style=not _flag("virtual", named),
    )


def spelled(s3: S3Options | None) -> dict[str, str]:
    """Return the options of connectors that name an S3 server and its keys; none where the environment has them."""
    if s3 is None:
        return {}
    pairs = {
        "aws_access_key_id": s3.access_key,
        "aws_secret_access_key": s3.secret_key,
        "aws_session_token": s3.session_token,
        "aws_region": s3.region,
        "aws_endpoint_url": _address(s3),
        "aws_virtual_hosted_style_request": None if s3.path_style else "true",
    }
    return {key: value for key, value in pairs.items() if value is not None}


def delta_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as ``deltalake`` spells them."""
    s3 = s3_options(options)
    if s3 is None:
        return dict(options)
    known = {spelling for spellings in _SPELLINGS.values() for spelling in spellings}
    found = {key: value for key, value in options.items() if key not in known}
    address = _address(s3)
    found |= {} if address is None else {"aws_endpoint_url": address}
    found |= {"aws_allow_http": "true"} if not s3.secure else {}
    found |= {} if s3.path_style else {"aws_virtual_hosted_style_request": "true"}
    pairs = {
        "aws_access_key_id": s3.access_key,
        "aws_secret_access_key": s3.secret_key,
        "aws_session_token": s3.session_token,
        "aws_region": s3.region or ("us-east-1" if s3.endpoint else None),
    }
    return found | {key: value for key, value in pairs.items() if value is not None}


def iceberg_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as ``pyiceberg`` spells them, for its stores and for Glue."""
    s3 = s3_options(options)
    if s3 is None:
        return dict(options)
    pairs = {
        "client.access-key-id": s3.access_key,
        "client.secret-access-key": s3.secret_key,
        "client.session-token": s3.session_token,
        "client.region": s3.region or ("us-east-1" if s3.endpoint else None),
        "s3.endpoint": _address(s3),
        "s3.force-virtual-addressing": None if s3.path_style else "true",
    }
    return {**options, **{key: value for key, value in pairs.items() if value is not None}}


def _address(s3: S3Options) -> str | None:
    return None if s3.endpoint is None else f"{'https' if s3.secure else 'http'}://{s3.endpoint}"


def _find(name: str, options: Mapping[str, str]) -> str | None:
    given = {spelling: options[spelling] for spelling in _SPELLINGS[name] if options.get(spelling)}
    if len(set(given.values())) > 1:
        first, second = list(given)[:2]
        raise ConfigError(f"{first} and {second} are the same option, with different values")
    return next(iter(given.values()), None)


def _flag(name: str, named: Mapping[str, str]) -> bool:
    return named.get(name, "").lower() in ("true", "1", "yes", "on")
