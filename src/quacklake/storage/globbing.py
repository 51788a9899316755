"""Finding the files that a path or pattern names, on this machine or in an object store."""

from __future__ import annotations

import re
from pathlib import Path

from pyarrow import fs

from quacklake.errors import PathError
from quacklake.storage.roots import Root, absolute

_MAGIC = re.compile(r"[*?[]")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


def find(root: Root, pattern: str) -> list[str]:
    """See ``Store.find``."""
    match = _URL.match(pattern)
    scheme = match[1].lower() if match else root.scheme
    if scheme != root.scheme:
        raise PathError(
            f"{pattern!r} is in another kind of store than the data root {root.url}",
            hint="a lake reads files of its own kind of store only",
        )
    if root.scheme == "file":
        return _local(pattern[len("file://") :] if match else pattern)
    return _remote(root, pattern if match else root.url + pattern)


def _local(pattern: str) -> list[str]:
    full = absolute(pattern)
    if Path(full).is_file():
        return [full]
    return sorted(str(path) for path in Path("/").glob(full.lstrip("/")) if path.is_file()) if full != "/" else []


def _remote(root: Root, pattern: str) -> list[str]:
    start, _, rest = pattern.partition("://")
    magic = _MAGIC.search(rest)
    if magic is None:
        info = root.filesystem.get_file_info(rest)
        return [pattern] if info.type == fs.FileType.File else []
    folder = rest[: magic.start()].rpartition("/")[0]
    selector = fs.FileSelector(folder, allow_not_found=True, recursive=True)
    fits = re.compile(_expression(rest)).fullmatch
    entries = root.filesystem.get_file_info(selector)
    return sorted(f"{start}://{info.path}" for info in entries if info.type == fs.FileType.File and fits(info.path))


def _expression(pattern: str) -> str:
    """Return a pattern as a regular expression; ``**`` spans folders, nothing else does."""
    parts: list[str] = []
    for token in re.findall(r"\*\*/|\*\*|\*|\?|\[!?[^]]+\]|.", pattern, re.DOTALL):
        match token:
            case "**/":
                parts.append("(?:.*/)?")
            case "**":
                parts.append(".*")
            case "*":
                parts.append("[^/]*")
            case "?":
                parts.append("[^/]")
            case _ if len(token) > 1:
                body = token[1:-1]
                negated = body.startswith("!")
                parts.append(f"[{'^' if negated else ''}{re.escape(body.lstrip('!')).replace(chr(92) + '-', '-')}]")
            case _:
                parts.append(re.escape(token))
    return "".join(parts)
