"""Copy files of this machine into a pond, and nodes of a pond out to this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from quacklake.errors import AlreadyExistsError, InputError
from quacklake.extend.stores import replace_file
from quacklake.pond.fs import FS, NodePath
from quacklake.pond.host_files import head_of, is_parquet, sha256_of
from quacklake.pond.inputs import HostPath, ImportOptions, rows_of
from quacklake.pond.large_files import BLOCK, blocks
from quacklake.pond.nodes import EntryType
from quacklake.pond.paths import is_folder, join
from quacklake.pond.series import Imported, Origin, append_series, write_table

SERIES_SUFFIX = ".series"


@dataclass(frozen=True, slots=True)
class Target:
    """A file to copy, where it goes and what it becomes there."""

    source: HostPath
    path: str
    kind: EntryType


def targets(
    fs: FS, sources: Sequence[HostPath], destination: str, format: str = "auto", *, replace: bool = False
) -> list[Target]:
    """Return what goes where. A destination with a slash at its end, or an existing directory, takes every file.

    Raise ``InputError`` and its kin for what cannot be copied; nothing is changed then.
    """
    if not sources:
        raise InputError("At least one source file must be specified")
    found = fs.find(destination)
    if found is not None and found.is_directory:
        return [_target(source, join(found.path, source.path.name), format) for source in sources]
    if is_folder(destination) and found is None:
        if len(sources) > 1:
            raise InputError(_not_a_directory(destination))
        raise InputError(f"there is no directory {destination}", hint=f"pond mkdir -p {destination}")
    if len(sources) > 1:
        raise InputError(_not_a_directory(destination))
    target = _target(sources[0], destination, format)
    extends = target.kind is EntryType.SERIES or (replace and target.kind is EntryType.DATA)
    if found is not None and not (extends and found.node.file_type is target.kind):
        raise AlreadyExistsError(
            f"Destination '{destination}' exists but is not a directory (cannot copy to existing file)",
            hint="--format series adds to a series, --replace replaces a file of bytes",
        )
    return [target]


def _not_a_directory(destination: str) -> str:
    return f"When copying multiple files, destination '{destination}' must be an existing directory"


def _target(source: HostPath, path: str, format: str) -> Target:
    head_of(source.path)
    if format in ("table", "parquet"):
        kind = EntryType.TABLE
    elif format in ("series", "data"):
        kind = EntryType(f"file:{format}")
    elif source.kind is not None:
        kind = source.kind
    elif path.endswith(SERIES_SUFFIX):
        kind = EntryType.SERIES
    else:
        kind = EntryType.TABLE if is_parquet(source.path) else EntryType.DATA
    return Target(source, path, kind)


def copy_in(fs: FS, target: Target, options: ImportOptions, *, replace: bool = False) -> Imported:
    """Copy one file into the pond."""
    source = target.source
    if target.kind is EntryType.DATA:
        with source.path.open("rb") as file:
            made = fs.write_file(target.path, file, replace=replace)
        return Imported(made.path, EntryType.DATA, made.node.version, 0)
    with ThreadPoolExecutor(1, "pond-hash") as beside, rows_of(source, options.csv) as rows:
        origin = Origin(source.path.name, beside.submit(sha256_of, source.path).result)
        if target.kind is EntryType.TABLE:
            return write_table(fs, target.path, rows, origin)
        return append_series(fs, target.path, rows, options, origin)


# -- out ---------------------------------------------------------------------------------------------------------------

_SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".arrow": "arrow",
    ".parquet": "parquet",
    ".xlsx": "excel",
}
_ENDINGS = {format: suffix for suffix, format in _SUFFIXES.items()}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A node to copy out, and the file it becomes; ``format`` is None for a file of bytes."""

    found: NodePath
    path: Path
    format: str | None


def outgoing(fs: FS, patterns: Sequence[str], destination: HostPath, *, force: bool = False) -> list[Outgoing]:
    """Return what becomes which file. Several nodes need a folder, below which they keep their paths.

    Raise ``InputError`` and its kin when nothing matches, and for a file that exists unless ``force`` is true.
    """
    found = [each for pattern in patterns for each in _files(fs, pattern)]
    if not found:
        raise InputError(f"nothing is called {' or '.join(patterns)}", hint="`pond list` shows what there is")
    target = destination.path
    if len(found) == 1 and not target.is_dir() and not str(target).endswith("/"):
        result = [_outgoing(found[0], target, destination.format)]
    elif not target.is_dir():
        raise InputError(f"{target} is not a folder", hint="create it first: several nodes are copied")
    elif len(found) == 1:
        result = [_outgoing(found[0], target / _file_name(found[0], destination.format), destination.format)]
    else:
        result = [
            _outgoing(
                each,
                target.joinpath(*each.path.split("/")[1:-1], _file_name(each, destination.format)),
                destination.format,
            )
            for each in found
        ]
    for each in result:
        if each.path.exists() and not force:
            raise AlreadyExistsError(f"the file {each.path} exists already", hint="pass --force to replace it")
    return result


def _files(fs: FS, pattern: str) -> Iterator[NodePath]:
    for each in fs.glob(pattern):
        found = fs.get(each.path) if each.node.file_type is EntryType.SYMLINK else each
        if not found.is_directory:
            yield found


def _outgoing(found: NodePath, path: Path, format: str | None) -> Outgoing:
    if not found.entry_type.has_rows:
        return Outgoing(found, path, None)
    return Outgoing(found, path, format or _SUFFIXES.get(path.suffix.lower(), "parquet"))


def _file_name(found: NodePath, format: str | None) -> str:
    if not found.entry_type.has_rows or Path(found.node.name).suffix.lower() in _SUFFIXES:
        return found.node.name
    return found.node.name.removesuffix(SERIES_SUFFIX) + _ENDINGS[format or "parquet"]


def copy_out(fs: FS, out: Outgoing) -> int:
    """Copy a file of bytes to this machine, and return its size. The file appears only when it is complete."""
    with (
        replace_file(out.path.absolute(), parents=True) as part,
        fs.open(out.found) as source,
        part.open("wb", buffering=BLOCK) as sink,
    ):
        for block in blocks(source):
            sink.write(block)
    return out.path.stat().st_size
