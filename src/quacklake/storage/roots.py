"""The root of a store: from what the user wrote, with endpoint and keys, to a file system and the prefix inside it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from quacklake.config import redact
from quacklake.errors import ConfigError

SCHEMES = ("abfs", "abfss", "az", "file", "gcs", "gs", "s3")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


@dataclass(frozen=True, slots=True)
class Root:
    """Where the files are: ``url`` starts the names an engine opens, ``prefix`` those of ``filesystem``.

    Both end in ``/``.
    """

    scheme: str
    url: str
    prefix: str
    filesystem: fs.FileSystem


def open_root(text: str, s3: S3Options | None) -> Root:
    """Return the root ``text`` names. Nothing is created and nothing is asked over the network.

    ``ConfigError`` when the scheme is unknown, the bucket is missing, the address carries credentials or a query,
    or a local root is a file.
    """
    if not text.strip() or "\0" in text:
        raise ConfigError(
            "the data path is empty or holds a NUL", hint="give a folder or a URL such as s3://bucket/lake/"
        )
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else "file"
    if scheme not in SCHEMES:
        raise ConfigError(
            f"unknown kind of store {scheme}:// in the data path",
            hint="use a local path, or a URL with " + ", ".join(f"{known}://" for known in SCHEMES),
        )
    if scheme == "file":
        return _local(unquote(urlsplit(text).path) if match else text)
    return _remote(scheme, text, s3)


def absolute(path: str) -> str:
    """Return a local path from the root of the file system, as text alone says it: links are not followed."""
    return os.path.normpath(Path(path).expanduser().absolute())


def _local(path: str) -> Root:
    full = Path(absolute(path))
    if full.exists() and not full.is_dir():
        raise ConfigError(f"the data path {full} is a file", hint="give the folder that holds, or will hold, the data")
    prefix = str(full).rstrip("/") + "/"
    return Root("file", prefix, prefix, fs.LocalFileSystem())


def _remote(scheme: str, text: str, s3: S3Options | None) -> Root:
    rest = text.partition("://")[2]
    bucket, _, key = rest.partition("/")
    segments = [segment for segment in key.split("/") if segment]
    account = ""
    if scheme in ("abfs", "abfss") and "@" in bucket:
        bucket, _, account = bucket.partition("@")
    if not bucket or "@" in bucket or ":" in bucket or "?" in rest or "#" in rest:
        raise ConfigError(
            f"the data path {redact(text.partition('?')[0])} is not of the form {scheme}://bucket/folder/",
            hint="credentials and options do not belong in it",
        )
    if any(segment in (".", "..") for segment in segments):
        raise ConfigError("the data path must not contain '.' or '..'", hint="write the folder out in full")
    prefix = "/".join([bucket, *segments]) + "/"
    host = f"{bucket}@{account}" if account else bucket
    url = f"{scheme}://" + "/".join([host, *segments]) + "/"
    try:
        return Root(scheme, url, prefix, _filesystem(scheme, account, s3))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ConfigError(f"cannot set up {scheme}://: {redact(str(error))}") from None


def _filesystem(scheme: str, account: str, s3: S3Options | None) -> fs.FileSystem:
    if scheme == "s3":
        return _s3(s3 or S3Options())
    if scheme in ("gs", "gcs"):
        return fs.GcsFileSystem()
    name = account.partition(".")[0] or os.environ.get("AZURE_STORAGE_ACCOUNT", "")
    if not name:
        raise ConfigError(
            "the Azure storage account is not known",
            hint="name it in the URL, abfs://container@account.dfs.core.windows.net/…, or set AZURE_STORAGE_ACCOUNT",
        )
    return fs.AzureFileSystem(account_name=name, account_key=os.environ.get("AZURE_STORAGE_KEY"))


def _s3(options: S3Options) -> fs.FileSystem:
    return fs.S3FileSystem(
        access_key=options.access_key,
        secret_key=options.secret_key,
        session_token=options.session_token,
        region=options.region or ("us-east-1" if options.endpoint else None),
        endpoint_override=options.endpoint,
        scheme="https" if options.secure else "http",
        force_virtual_addressing=bool(options.endpoint) and not options.path_style,
        # A small object is one request, and a large one is never in memory as a whole.
        allow_delayed_open=True,
        background_writes=False,
        # One retry by the client, for reads on an open file, which only it can repeat; attempts.py does the rest.
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=2),
        connect_timeout=10,
        request_timeout=60,
    )


@dataclass(frozen=True, slots=True)
class S3Options:
    """Where an S3 server is and how to sign in; keys never show in ``repr``.

    Without ``access_key`` the usual AWS chain is asked (environment, profile, instance role). ``endpoint`` is
    ``host:port`` or an ``http(s)://`` address; an address decides ``secure`` itself. ``path_style`` puts the
    bucket into the path, which is what servers other than AWS expect; it has no effect without an endpoint.
    ``scoped`` keys are for this store alone: others in the same bucket, or in the same process, have their own.
    Raises ``ConfigError`` when only one half of a key pair is given or the endpoint is no address.
    """

    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str | None = None
    secure: bool = True
    path_style: bool = True
    scoped: bool = False

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise ConfigError(
                "an S3 key pair needs both halves",
                hint="give access_key and secret_key together, or neither to use the environment's credentials",
            )
        if self.endpoint is None:
            return
        scheme, separator, host = self.endpoint.rpartition("://")
        host = host.rstrip("/")
        if scheme not in ("", "http", "https") or not host or "@" in host or "/" in host:
            raise ConfigError(
                "the S3 endpoint is not of the form host:port or http(s)://host:port",
                hint="credentials do not belong in it: use access_key and secret_key",
            )
        object.__setattr__(self, "endpoint", host)
        if separator:
            object.__setattr__(self, "secure", scheme == "https")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must never appear in a message."""
        return tuple(value for value in (self.secret_key, self.session_token) if value)
