"""Resolve paths, folders and patterns to files with rows, on this machine or in the lake's store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeGuard

from quacklake.core.storage import Store
from quacklake.errors import InputError, nearest

FORMATS = ("parquet", "csv", "json", "arrow", "excel")
_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".xls": "excel",
    ".xlsb": "excel",
    ".ods": "excel",
}
_COMPRESSIONS = (".gz", ".zst")
_MAGIC = re.compile(r"[*?[]")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SQL = re.compile(r"\s*(select|from|with|values|insert|create|table)\s", re.IGNORECASE)

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Files of one format, the columns in their folder names, and those that only folders ``above`` would add."""

    name: str
    paths: tuple[str, ...]
    format: str
    folders: tuple[str, ...] = ()
    above: frozenset[str] = frozenset()


def is_path(value: object) -> TypeGuard[PathLike]:
    """Return whether a value names a file: text or a ``pathlib`` object.

    >>> is_path("a.csv"), is_path([{"id": 7}])
    (True, False)
    """
    return isinstance(value, str | os.PathLike)


def find(paths: PathLike | Iterable[PathLike], format: str | None = None, store: Store | None = None) -> FoundFiles:
    """Return the files that paths, folders and patterns name; without ``format``, file names decide the format.

    A path with ``://`` is looked up in ``store``. Raise ``InputError`` when there is no file, when a name does not
    reveal its format, and for files of several formats.
    """
    given = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if format is not None and format not in FORMATS:
        raise InputError(f'the format "{format}" is not known', hint=f"one of: {', '.join(FORMATS)}")
    files: list[str] = []
    keys: set[tuple[str, ...]] = set()
    above: set[str] = set()
    for text in given:
        found, base = _expand(text, format, store)
        files.extend(path for path in found if path not in files)
        keys.update(() if base is None else _folder_keys(path[len(base) :]) for path in found)
        above.update(_folder_keys(f"{base or ''}/"))
    name = given[0] if len(given) == 1 else f"{given[0]} and {len(given) - 1} more"
    folders = next(iter(keys)) if len(keys) == 1 else ()
    return FoundFiles(
        name, tuple(files), format or _one_format(files, name), folders, frozenset(above.difference(folders))
    )


def _expand(text: str, format: str | None, store: Store | None) -> tuple[list[str], str | None]:
    """Return the files of a path, and the folder below which folder names are columns; None for a single file."""
    url = _URL.match(text)
    if url is not None and url[1].lower() == "file":
        text, url = text[url.end() :], None
    if url is not None:
        return _remote(text, format, store)
    path = Path(text).expanduser()
    text = str(path) if text.startswith("~") else text
    if path.is_file():
        return [text], None
    if path.is_dir():
        return _inside(text, sorted(str(found) for found in path.rglob("*") if found.is_file()), format), text
    if not text or not _MAGIC.search(text):
        raise _missing(text)
    base = _find_fixed_folder(text)
    start = base or ("/" if text.startswith("/") else ".")
    every = Path(start).glob(os.path.relpath(text, start))
    asked = Path(text).name.startswith((".", "_", "~$"))
    found = sorted(
        str(each) for each in every if each.is_file() and (asked or not is_hidden(str(each.relative_to(start))))
    )
    if not found:
        raise InputError(f"no file has a name like {text}", hint="check the path and the pattern")
    return found, base


def _remote(text: str, format: str | None, store: Store | None) -> tuple[list[str], str | None]:
    if store is None or store.is_local:
        raise InputError(
            f"{text} is not a file of this machine, and the lake is not in a store of its kind",
            hint=f"""use lake.sql("INSERT INTO … FROM '{text}'") or pass pyarrow.dataset.dataset(…)""",
        )
    if _MAGIC.search(text):
        found, base = list(store.find(text)), _find_fixed_folder(text)
    else:
        found, base = list(store.find(text)), None
        if not found:
            base = text.rstrip("/")
            below = list(store.find(f"{base}/**"))
            found = _inside(text, below, format) if below else []
    if not found:
        raise _missing(text)
    return found, base


def _inside(folder: str, found: list[str], format: str | None) -> list[str]:
    """Return the files of a folder with rows of a format. Names that begin with ``_`` or ``.`` are skipped.

    Without a format, every other file counts, so that an unreadable file is an error and is not skipped.
    """
    below = len(folder.rstrip("/")) + 1
    files = [path for path in found if not is_hidden(path[below:]) and (format is None or _format(path) == format)]
    if not files:
        kind = "" if format is None else f"{format} "
        raise InputError(f"the folder {folder} has no {kind}files", hint="names that begin with . or _ do not count")
    return files


def is_hidden(path: str) -> bool:
    """Return whether part of a path begins with ``.`` or ``_``, such as ``_SUCCESS``, but not ``_year=2024``.

    So does ``~$``, with which Excel marks a workbook that is open.

    >>> is_hidden("a/_SUCCESS"), is_hidden("_year=2024/a.parquet"), is_hidden("a/b.csv"), is_hidden("a/~$b.xlsx")
    (True, False, False, True)
    """
    return any(part.startswith((".", "_", "~$")) and "=" not in part for part in path.split("/"))


def _missing(text: str) -> InputError:
    if _SQL.match(text):
        return InputError(f"there is no file {text!r}", hint="to use SQL, pass lake.sql(…): its rows can be appended")
    if "://" in text:
        return InputError(f"there is no file or folder {text}", hint="check the path and the bucket")
    path = Path(text)
    if not path.parent.is_dir():
        return InputError(f"there is no file {text}", hint=f"there is no folder {path.parent} either")
    near = nearest(path.name, [each.name for each in path.parent.iterdir()])
    return InputError(f"there is no file {text}", hint=near or "check the path")


def _find_fixed_folder(pattern: str) -> str:
    """Return the folder before the first variable part of a pattern."""
    magic = _MAGIC.search(pattern)
    return pattern[: magic.start()].rpartition("/")[0] if magic else pattern


def _folder_keys(path: str) -> tuple[str, ...]:
    """Return the columns in the folder names of a path, such as ``year=2024/``."""
    return tuple(part.partition("=")[0] for part in path.split("/")[:-1] if "=" in part)


def _format(path: str) -> str | None:
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes if suffix.lower() not in _COMPRESSIONS]
    return _SUFFIXES.get(suffixes[-1] if suffixes else "")


def _one_format(files: Sequence[str], name: str) -> str:
    formats = {_format(path): path for path in files}
    if None in formats:
        hint = f"pass the format: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise InputError(f"the name of {formats[None]} does not say what is in it", hint=hint)
    if len(formats) > 1:
        kinds = " and ".join(sorted(str(found) for found in formats))
        raise InputError(f"{name} has files of several formats: {kinds}", hint='name those of one, such as "in/*.csv"')
    return str(next(iter(formats)))
