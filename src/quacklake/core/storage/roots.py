"""The root of a store: from what the user wrote, with endpoint and keys, to a file system and the prefix inside it."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from operator import length_hint
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from quacklake.config import redact
from quacklake.core.format.names import checked_relative
from quacklake.errors import ConfigError, PathError

SCHEMES = ("abfs", "abfss", "az", "file", "gcs", "gs", "s3")
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


@dataclass(frozen=True, slots=True)
class Root:
    """The place of the files: ``url`` starts the names an engine opens, ``prefix`` those of ``filesystem``."""

    scheme: str
    url: str
    prefix: str
    filesystem: fs.FileSystem


def open_root(text: str, s3: S3Options | None) -> Root:
    """Return the root ``text`` names, without creating or asking anything; ``ConfigError`` when it cannot be one."""
    if not text.strip() or "\0" in text:
        raise ConfigError(
            "the data path is empty or holds a NUL", hint="give a folder or a URL such as s3://bucket/lake/"
        )
    match = URL.match(text)
    scheme = match[1].lower() if match else "file"
    if scheme not in SCHEMES:
        raise ConfigError(
            f"unknown kind of store {scheme}:// in the data path",
            hint="use a local path, or a URL with " + ", ".join(f"{known}://" for known in SCHEMES),
        )
    if scheme == "file":
        full = Path(absolute(unquote(urlsplit(text).path) if match else text))
        if full.exists() and not full.is_dir():
            raise ConfigError(
                f"the data path {full} is a file", hint="give the folder that holds, or will hold, the data"
            )
        prefix = str(full).rstrip("/") + "/"
        return Root("file", prefix, prefix, fs.LocalFileSystem())
    return _remote(scheme, text, s3)


def absolute(path: str) -> str:
    """Return a local path from the root of the file system, as text alone says it: links are not followed."""
    return os.path.normpath(Path(path).expanduser().absolute())


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
        options = s3 or S3Options()
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
            # One retry by the client, for reads on an open file, which only it can repeat; ``Attempts`` does the rest.
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=2),
            connect_timeout=10,
            request_timeout=60,
        )
    if scheme in ("gs", "gcs"):
        return fs.GcsFileSystem()
    name = account.partition(".")[0] or os.environ.get("AZURE_STORAGE_ACCOUNT", "")
    if not name:
        raise ConfigError(
            "the Azure storage account is not known",
            hint="name it in the URL, abfs://container@account.dfs.core.windows.net/…, or set AZURE_STORAGE_ACCOUNT",
        )
    return fs.AzureFileSystem(account_name=name, account_key=os.environ.get("AZURE_STORAGE_KEY"))


@dataclass(frozen=True, slots=True)
class S3Options:
    """The address of an S3 server and the keys to sign in, which never show in ``repr``.

    Without ``access_key`` the usual AWS chain is asked. ``endpoint`` is ``host:port`` or an ``http(s)://`` address,
    which decides ``secure`` itself. ``path_style`` puts the bucket into the path, as servers other than AWS expect.
    ``scoped`` keys are for this store alone: others in the same bucket, or in the same process, have their own.

    >>> S3Options(endpoint="s3.example.org", access_key="key", secret_key="secret")
    S3Options(endpoint='s3.example.org', region=None, secure=True, path_style=True, scoped=False)
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


# The form of nearly every path of a lake, which is safe: no segment is empty or starts with a dot,
# and percent signs are in the values of partitions only. No segment fits both alternatives, so matching is linear.
_SEGMENT = r"(?:[A-Za-z0-9_=-][A-Za-z0-9_=.-]*|[A-Za-z0-9_-]+=[A-Za-z0-9_=.-]*%[A-Za-z0-9_=.%-]*)"
_PLAIN = re.compile(f"(?:{_SEGMENT}/)*{_SEGMENT}").fullmatch
_ALL_PLAIN = f"^{_SEGMENT}(?:/{_SEGMENT})*$"
_PARTITION = re.compile(r"[^/]*=[^/]*")


_MANY = 256
"""From this many paths on they are looked at together."""


class Links:
    """The targets of links. An instance that is kept for many files looks up each of their folders once."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def file(self, path: str) -> str:
        """Return the real path of a file, given by an absolute one without dots."""
        folder, _, name = path.rpartition("/")
        full = self.folder(folder) + name
        return os.path.realpath(full) if os.path.islink(full) else full  # noqa: PTH114 - for every file of a lake

    def folder(self, path: str) -> str:
        """Return the real path of a folder, with a slash at its end."""
        real = self._folders.get(path)
        if real is None:
            real = self._folders[path] = os.path.realpath(path or "/").rstrip("/") + "/"
        return real


class _AnyName:
    """The names of a folder that is no safe one: each is a suspect."""

    def __contains__(self, name: object) -> bool:
        return True


class _LinksIn:
    """The links in a folder, each looked for when asked for."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __contains__(self, name: object) -> bool:
        return os.path.islink(f"{self._folder}{name}")  # noqa: PTH114 - for every file of a lake


class _Looks:
    """A look for links among ``count`` files; if these are many, at their whole folders, unless those have far more."""

    _MORE = 4

    def __init__(self, count: int) -> None:
        self._room = iter(range(self._MORE * count if count >= _MANY else 0))

    def links(self, folder: str) -> Container[str]:
        """Return the names of the links in an absolute ``folder``, which has a slash at its end."""
        if not length_hint(self._room):
            return _LinksIn(folder)
        try:
            with os.scandir(folder) as entries:
                found = {entry.name for entry, _ in zip(entries, self._room, strict=False) if entry.is_symlink()}
        except OSError:
            return _LinksIn(folder)
        return found if length_hint(self._room) else _LinksIn(folder)


class Confinement:
    """The paths under ``root``, and absolute ones in the folders ``external``, for reading only.

    What is in the folders ``closed`` belongs to others, and may be read only in ``external`` ones. The folders
    ``borrowed`` are external, too, but what is in them is never found.
    """

    def __init__(
        self, root: Root, *, external: Iterable[str], borrowed: Iterable[str] = (), closed: Iterable[str] = ()
    ) -> None:
        self._root = root
        self.root, self.scheme, self.filesystem = root.url, root.scheme, root.filesystem
        self.is_local = root.scheme == "file"
        named = tuple(self._folder(text) for text in external)
        self.external = (*named, *(self._folder(text) for text in borrowed))
        self._borrowed = tuple(
            folder for folder in self._all_spellings(self.external[len(named) :]) if not folder.startswith(named)
        )
        self._closed = self._all_spellings(f"{text.rstrip('/')}/" for text in closed)
        self._opened = tuple(
            folder
            for folder in self._all_spellings(self.external)
            if folder.startswith(self._closed) and folder not in self._closed
        )

    @property
    def confines(self) -> tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The root, and the folders that decide which paths of a catalog lead to files."""
        return self.root, self.external, self._borrowed, self._closed

    def _all_spellings(self, folders: Iterable[str]) -> tuple[str, ...]:
        """Return folders before and after following links."""
        known = tuple(folders)
        return tuple(dict.fromkeys((*known, *map(Links().folder, known)))) if self.is_local else known

    def _folder(self, text: str) -> str:
        """Return a folder of ``external`` in its one spelling, with a slash at its end."""
        if URL.match(text) is None and self.is_local:
            text = absolute(text)
        try:
            if not self.is_absolute(text):
                raise PathError(f"the path {text!r} is not absolute")
            plain = text.rstrip("/")
            return self._outside(plain) + "/" if plain.strip("/") else "/"
        except PathError as error:
            raise ConfigError(f"{text!r} cannot be one of the foreign_paths: {error.message}") from None

    def is_absolute(self, path: str) -> bool:
        """Return true for a path that starts at a file system's root or names a store."""
        return path.startswith("/") or URL.match(path) is not None

    def own(self, path: str) -> str:
        """Return ``path`` when it stays under the root by its text, else raise ``PathError``."""
        if not _PLAIN(path):
            # In a partition's folder, day=2024%2F01, percent signs encode the value, and nobody decodes them on
            # the way to the file; whatever they stand for, the segment stays one segment.
            checked_relative(_PARTITION.sub(lambda match: match[0].replace("%", "_"), path))
        return path

    def resolve(self, path: str, is_relative: bool, base: str = "", links: Links | None = None) -> str:
        """Return the path under the root of what the catalog calls ``path``: absolute, or relative to ``base``.

        An absolute one must lie under the root or in an ``external`` folder, else ``PathError``; one in such a folder
        is returned as it is. ``links`` is one of many calls in a row.
        """
        links = links or Links()
        if is_relative:
            if not base:
                return self.own(path)
            full = f"{base.rstrip('/')}/{self.own(path)}"
            return self._from_absolute(full, links) if self.is_absolute(base) else self.own(full)
        return self._from_absolute(path, links)

    def locate(self, path: str) -> str | None:
        """Return the path under the root that an absolute ``path`` leads to, links followed; None for elsewhere."""
        match = URL.match(path)
        if not self.is_local:
            # the scheme may be another name of the same store, as s3a:// is
            name, prefix = posixpath.normpath(path[match.end() :] if match else path), self._root.prefix
        elif match and match[0].lower() != "file://":
            return None
        else:
            name = os.path.realpath(unquote(path[match.end() :]) if match else path)
            prefix = Links().folder(self._root.prefix)
        return name[len(prefix) :] if name.startswith(prefix) else None

    def hides(self, path: str) -> bool:
        """Return whether an absolute path is in a folder closed to this store, by its text or by where links lead."""
        if not (self._closed or self._borrowed):
            return False
        if path.startswith(self._root.url) or self.locate(path) is not None:
            return False
        real = os.path.realpath(path) + ("/" if path.endswith("/") else "") if self.is_local else path
        return any(self._is_closed(place) or place.startswith(self._borrowed) for place in (path, real))

    def is_of_others(self, path: str) -> bool:
        """Return whether an absolute path is in a folder of others, even if ``external`` lets it be read."""
        if not self._closed:
            return False
        real = os.path.realpath(path) if self.is_local else path
        return self.is_absolute(path) and (path.startswith(self._closed) or real.startswith(self._closed))

    def _is_closed(self, path: str) -> bool:
        return path.startswith(self._closed) and not path.startswith(self._opened)

    def url(self, path: str) -> str:
        """Return what an engine opens, an absolute local path or a full URL; only the text is looked at."""
        if self.external and self.is_absolute(path):
            return self._resolve_allowed(path)
        return self._root.url + self.own(path)

    def urls(self, paths: Iterable[str]) -> list[str]:
        """Return ``url`` of each, quickly for very many."""
        root, plain, slow = self._root.url, _PLAIN, self.url
        return [root + path if plain(path) else slow(path) for path in paths]

    def readable_urls(self, paths: Iterable[str]) -> list[str]:
        """Return ``urls`` for an engine, right before it reads them; ``PathError`` for a link out of the root."""
        if not self.is_local:
            return self.urls(paths)
        paths = list(paths)
        links, looks = Links(), _Looks(len(paths))
        base, plain = self._root.url, _PLAIN
        suspects: dict[str, Container[str]] = {}  # by folder: the names for which the whole path is looked at
        if len(paths) >= _MANY and pc.all(pc.match_substring_regex(pa.array(paths, pa.string()), _ALL_PLAIN)).as_py():
            for each in dict.fromkeys([path.rpartition("/")[0] for path in paths]):
                folder = f"{each}/" if each else ""
                suspects[folder] = self._suspects(folder, links, looks)
            if all(named == set() for named in suspects.values()):
                return [base + path for path in paths]
        urls = []
        for path in paths:
            start = path.rfind("/") + 1
            folder, name = path[:start], path[start:]
            named = suspects.get(folder)
            if named is None:
                named = suspects[folder] = self._suspects(folder, links, looks)
            if plain(name) and name not in named:
                urls.append(base + path)
            else:
                self.readable(path, links)
                urls.append(self.url(path))
        return urls

    def _suspects(self, folder: str, links: Links, looks: _Looks) -> Container[str]:
        """Return the names in a folder that may lead out of the root: its links, or all if it is no safe one."""
        root = self._root.prefix
        safe = not folder or _PLAIN(folder[:-1]) is not None
        inside = safe and links.folder(root + folder[:-1]).startswith(links.folder(root))
        return looks.links(root + folder) if inside else _AnyName()

    def readable(self, path: str, links: Links) -> str:
        """Return the name by which the file system opens ``path``; ``PathError`` when it or its link leads outside."""
        if self.external and self.is_absolute(path):
            name = self._resolve_allowed(path)
            match = URL.match(name)
            if (match[0][:-3].lower() if match else "file") != self._root.scheme:
                raise PathError(
                    f"{name!r} is in another kind of store than the data root {self._root.url}",
                    hint="only a query engine can read it",
                )
            name = name[match.end() :] if match else name
            if self.is_local:
                real = links.file(name)
                if self._is_closed(real) or not any(real.startswith(links.folder(each)) for each in self.external):
                    raise PathError(
                        f"the path {path!r} leads outside the foreign_paths through a symbolic link",
                        hint="name the folder it leads to in the setting foreign_paths",
                    )
            return name
        full = self._root.prefix + self.own(path)
        if self.is_local:
            self._check_links(path, links.file(full), links)
        return full

    def writable(self, path: str) -> str:
        """Return the name under which ``path`` is made or removed; ``PathError`` when its folder leads outside.

        A link in the place of the file itself is no danger: it is replaced or removed, not followed.
        """
        full = self._root.prefix + self.own(path)
        if path.endswith("/"):
            raise PathError(f"the path {path!r} names a folder, not a file")
        if self.is_local:
            links = Links()
            self._check_links(path, links.folder(full.rpartition("/")[0]), links)
        return full

    def _from_absolute(self, path: str, links: Links) -> str:
        spellings = [self._root.url]  # as a catalog may hold the root: before or after following links
        if self.is_local:
            real = links.folder(self._root.prefix)
            spellings += [real, f"file://{self._root.url}", f"file://{real}"]
        for spelling in spellings:
            if path.startswith(spelling):
                rest = path[len(spelling) :]
                return self.own(unquote(rest) if spelling.startswith("file:") else rest)
        if not self.is_absolute(path):
            if not self.is_local:
                raise PathError(f"the catalog calls the path {path!r} absolute, but it is not")
            path = absolute(path)  # stock clients store the path as typed, and read it from their working directory
        return self._resolve_allowed(path)

    def _check_links(self, path: str, real: str, links: Links) -> None:
        # The root is looked up each time: it may have been made, or moved behind a link, since the store was opened.
        if not real.startswith(links.folder(self._root.prefix)):
            raise PathError(
                f"the path {path!r} leads outside the data root {self._root.url} through a symbolic link",
                hint="replace the link by a real folder, or make the folder it leads to the data path",
            )

    def _resolve_allowed(self, path: str) -> str:
        """Return an absolute path in its one spelling, when it is in a folder of ``external``, else ``PathError``."""
        outside = self._outside(path)
        if outside.startswith(self.external) and not self._is_closed(outside):
            return outside
        raise PathError(
            f"the path {path!r} lies outside the data root {self._root.url}",
            hint="name its folder in the setting foreign_paths when files from there may be read",
        )

    def _outside(self, path: str) -> str:
        """Return an absolute path in its one spelling, without ``..`` and the like; ``PathError`` when it has them."""
        match = URL.match(path)
        if match and match[0].lower() == "file://":
            path, match = unquote(path[match.end() :]), None
        start = match[0] if match else "/"
        return start + self.own(path[len(start) :])
