"""The paths that a store may touch: those that stay under its root, by their text and by where links lead."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable
from urllib.parse import unquote

from quacklake.errors import ConfigError, PathError
from quacklake.format.paths import checked_relative
from quacklake.storage.roots import Root, absolute

# The form of nearly every path of a lake, which is safe: no segment is empty or starts with a dot,
# and percent signs are in the values of partitions only. No segment fits both alternatives, so matching is linear.
_SEGMENT = r"(?:[A-Za-z0-9_=-][A-Za-z0-9_=.-]*|[A-Za-z0-9_-]+=[A-Za-z0-9_=.-]*%[A-Za-z0-9_=.%-]*)"
_PLAIN = re.compile(f"(?:{_SEGMENT}/)*{_SEGMENT}").fullmatch
_PARTITION = re.compile(r"[^/]*=[^/]*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


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


class Confinement:
    """The paths under ``root``, and absolute ones in the folders ``external``, for reading only.

    What is in the folders ``closed`` belongs to others: it may be read only when ``external`` names a folder in them.
    The folders ``borrowed`` are external, too, but what is in them is never found.
    """

    def __init__(
        self, root: Root, *, external: Iterable[str], borrowed: Iterable[str] = (), closed: Iterable[str] = ()
    ) -> None:
        self._root = root
        self._local = root.scheme == "file"
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

    def _all_spellings(self, folders: Iterable[str]) -> tuple[str, ...]:
        """Return folders before and after following links."""
        known = tuple(folders)
        return tuple(dict.fromkeys((*known, *map(Links().folder, known)))) if self._local else known

    def _folder(self, text: str) -> str:
        """Return a folder of ``external`` in its one spelling, with a slash at its end."""
        if _URL.match(text) is None and self._local:
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
        return path.startswith("/") or _URL.match(path) is not None

    def own(self, path: str) -> str:
        """Return ``path`` when it stays under the root by its text, else raise ``PathError``."""
        if not _PLAIN(path):
            # In a partition's folder, day=2024%2F01, percent signs encode the value, and nobody decodes them on
            # the way to the file; whatever they stand for, the segment stays one segment.
            checked_relative(_PARTITION.sub(lambda match: match[0].replace("%", "_"), path))
        return path

    def resolve(self, path: str, is_relative: bool, base: str, links: Links) -> str:
        """See ``Store.resolve``."""
        if is_relative:
            if not base:
                return self.own(path)
            full = f"{base.rstrip('/')}/{self.own(path)}"
            return self._from_absolute(full, links) if self.is_absolute(base) else self.own(full)
        return self._from_absolute(path, links)

    def locate(self, path: str) -> str | None:
        """See ``Store.locate``."""
        match = _URL.match(path)
        if not self._local:
            # the scheme may be another name of the same store, as s3a:// is
            name, prefix = posixpath.normpath(path[match.end() :] if match else path), self._root.prefix
        else:
            if match and match[0].lower() != "file://":
                return None
            name, prefix = (
                os.path.realpath(unquote(path[match.end() :]) if match else path),
                Links().folder(self._root.prefix),
            )
        return name[len(prefix) :] if name.startswith(prefix) else None

    def hides(self, path: str) -> bool:
        """See ``Store.hides``."""
        if not (self._closed or self._borrowed):
            return False
        if path.startswith(self._root.url) or self.locate(path) is not None:
            return False
        real = os.path.realpath(path) + ("/" if path.endswith("/") else "") if self._local else path
        return any(self._is_closed(place) or place.startswith(self._borrowed) for place in (path, real))

    def is_of_others(self, path: str) -> bool:
        """See ``Store.is_of_others``."""
        real = os.path.realpath(path) if self._local else path
        return self.is_absolute(path) and (path.startswith(self._closed) or real.startswith(self._closed))

    def _is_closed(self, path: str) -> bool:
        return path.startswith(self._closed) and not path.startswith(self._opened)

    def url(self, path: str) -> str:
        """See ``Store.url``."""
        if self.external and self.is_absolute(path):
            return self._allowed(path)
        return self._root.url + self.own(path)

    def urls(self, paths: Iterable[str]) -> list[str]:
        """See ``Store.urls``."""
        root, plain, slow = self._root.url, _PLAIN, self.url
        return [root + path if plain(path) else slow(path) for path in paths]

    def readable_urls(self, paths: Iterable[str]) -> list[str]:
        """See ``Store.readable_urls``."""
        if not self._local:
            return self.urls(paths)
        links, root = Links(), self._root.prefix
        safe: dict[str, bool] = {}
        urls = []
        for path in paths:
            if _PLAIN(path):
                # what `readable` finds, with one look at each folder
                folder = path.rpartition("/")[0]
                inside = safe.get(folder)
                if inside is None:
                    inside = safe[folder] = links.folder(root + folder).startswith(links.folder(root))
                if inside and not os.path.islink(root + path):  # noqa: PTH114 - for every file of a lake
                    urls.append(self._root.url + path)
                    continue
            self.readable(path, links)
            urls.append(self.url(path))
        return urls

    def readable(self, path: str, links: Links) -> str:
        """Return the name by which the file system opens ``path``.

        ``PathError`` when it, or the link it is, leads outside.
        """
        if self.external and self.is_absolute(path):
            name = self._outside_name(self._allowed(path))
            if self._local:
                self._check_outside_links(path, name, links)
            return name
        full = self._root.prefix + self.own(path)
        if self._local:
            self._check_links(path, links.file(full), links)
        return full

    def writable(self, path: str) -> str:
        """Return the name under which ``path`` is made or removed; ``PathError`` when its folder leads outside.

        A link in the place of the file itself is no danger: it is replaced or removed, not followed.
        """
        full = self._root.prefix + self.own(path)
        if path.endswith("/"):
            raise PathError(f"the path {path!r} names a folder, not a file")
        if self._local:
            links = Links()
            self._check_links(path, links.folder(full.rpartition("/")[0]), links)
        return full

    def _from_absolute(self, path: str, links: Links) -> str:
        for spelling in self._spellings(links):
            if path.startswith(spelling):
                rest = path[len(spelling) :]
                return self.own(unquote(rest) if spelling.startswith("file:") else rest)
        if not self.is_absolute(path):
            if not self._local:
                raise PathError(f"the catalog calls the path {path!r} absolute, but it is not")
            path = absolute(path)  # stock clients store the path as typed, and read it from their working directory
        return self._allowed(path)

    def _spellings(self, links: Links) -> tuple[str, ...]:
        """Return the root as a catalog may hold it: before or after following links."""
        if not self._local:
            return (self._root.url,)
        real = links.folder(self._root.prefix)
        return (self._root.url, real, f"file://{self._root.url}", f"file://{real}")

    def _check_links(self, path: str, real: str, links: Links) -> None:
        # The root is looked up each time: it may have been made, or moved behind a link, since the store was opened.
        if not real.startswith(links.folder(self._root.prefix)):
            raise PathError(
                f"the path {path!r} leads outside the data root {self._root.url} through a symbolic link",
                hint="replace the link by a real folder, or make the folder it leads to the data path",
            )

    def _allowed(self, path: str) -> str:
        """Return an absolute path in its one spelling, when it is in a folder of ``external``, else ``PathError``."""
        outside = self._outside(path)
        if outside.startswith(self.external) and not self._is_closed(outside):
            return outside
        raise PathError(
            f"the path {path!r} lies outside the data root {self._root.url}",
            hint="name its folder in the setting foreign_paths when files from there may be read",
        )

    def _check_outside_links(self, path: str, name: str, links: Links) -> None:
        real = links.file(name)
        if self._is_closed(real) or not any(real.startswith(links.folder(folder)) for folder in self.external):
            raise PathError(
                f"the path {path!r} leads outside the foreign_paths through a symbolic link",
                hint="name the folder it leads to in the setting foreign_paths",
            )

    def _outside(self, path: str) -> str:
        """Return an absolute path in its one spelling, without ``..`` and the like; ``PathError`` when it has them."""
        match = _URL.match(path)
        if match and match[0].lower() == "file://":
            path, match = unquote(path[match.end() :]), None
        start = match[0] if match else "/"
        return start + self.own(path[len(start) :])

    def _outside_name(self, path: str) -> str:
        match = _URL.match(path)
        scheme = match[0][:-3].lower() if match else "file"
        if scheme != self._root.scheme:
            raise PathError(
                f"{path!r} is in another kind of store than the data root {self._root.url}",
                hint="only a query engine can read it",
            )
        return path[match.end() :] if match else path
