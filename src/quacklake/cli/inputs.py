"""From the words of a command to the files they name: files, folders and patterns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from quacklake.errors import InputError

__all__ = ["STANDARD_INPUT", "files_of", "is_hidden"]

STANDARD_INPUT = "-"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MAGIC = re.compile(r"[*?[]")


def files_of(names: Sequence[str], *, suffixes: tuple[str, ...] = ("",)) -> list[str]:
    """Return the files that files, folders and patterns name, each once and in order; ``-`` stays as it is.

    A folder stands for all files below it that end in one of the suffixes, save those whose name, or whose folder's
    name, begins with ``.`` or ``_``: Spark passes them over too. Raises ``InputError`` where there is nothing.
    """
    found: dict[str, None] = {}
    for name in names:
        found.update(dict.fromkeys(_expanded(name, suffixes)))
    return list(found)


def _expanded(name: str, suffixes: tuple[str, ...]) -> list[str]:
    if name == STANDARD_INPUT:
        return [name]
    if _URL.match(name):
        raise InputError(
            f"{name} is not on this machine",
            hint=f"read it in SQL: quacklake sql \"INSERT INTO … SELECT * FROM '{name}'\"",
        )
    path = Path(name)
    if path.is_dir():
        return _below(path, suffixes)
    if path.exists() or not _MAGIC.search(name):
        return [name]
    plain = list(itertools.takewhile(lambda part: not _MAGIC.search(part), path.parts))
    base, pattern = Path(*plain), str(Path(*path.parts[len(plain) :]))
    asked = path.name.startswith((".", "_"))
    found = sorted(file for file in base.glob(pattern) if file.is_file())
    files = [str(file) for file in found if asked or not is_hidden(str(file.relative_to(base)))]
    if not files:
        raise InputError(f"no file has a name like {name}", hint="check the pattern, and the folder it starts in")
    return files


def _below(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name.lower().endswith(suffixes))
    files = sorted(path for path in found if not is_hidden(str(path.relative_to(folder))))
    if not files:
        kind = " or ".join(suffix for suffix in suffixes if suffix)
        raise InputError(
            f"the folder {folder} has no {f'{kind} ' if kind else ''}files",
            hint="names that begin with . or _ do not count",
        )
    return [str(path) for path in files]


def is_hidden(path: str) -> bool:
    """Return whether a part of a path begins with ``.`` or ``_``, as ``_SUCCESS``; ``_year=2024`` holds a value.

    >>> is_hidden("a/_SUCCESS"), is_hidden("_year=2024/a.parquet"), is_hidden("a/b.csv")
    (True, False, False)
    """
    return any(part.startswith((".", "_")) and "=" not in part for part in path.split("/"))
