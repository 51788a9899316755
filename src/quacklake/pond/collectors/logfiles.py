"""``logfile-ingest``: a log that is rotated, kept byte by byte.

The file that grows is followed by its beginning: while the pond's copy is how the file begins, the file has grown. When
it is not, the log was rotated, and the rest of the old one is in an archived file that begins so. Archived files are
known by their bytes, so that ``app.log.1`` may become ``app.log.2``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quacklake.config.mappings import Options
from quacklake.connectors.options import resolved
from quacklake.errors import ConfigError, InputError
from quacklake.extend import reporting
from quacklake.pond.collectors.base import Report, Run, Runnable
from quacklake.pond.collectors.files import begins_with, hash_of
from quacklake.pond.factories.registry import register
from quacklake.pond.fs import FS
from quacklake.pond.nodes import EntryType
from quacklake.pond.paths import join, parts
from quacklake.pond.series import Imported


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a log: where its files are, and where the pond keeps them."""

    archived: str
    active: str
    path: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> LogOptions:
        """Return the options of a mapping. Raise ``ConfigError``."""
        options = Options("logfile-ingest", config)
        made = cls(
            archived=options.text("archived_pattern", ""),
            active=options.text("active_pattern"),
            path="/" + "/".join(parts(options.text("pond_path"))),
        )
        options.finish()
        if made.path == "/":
            raise ConfigError("logfile-ingest: pond_path is the root", hint="pond_path: /logs/app")
        return made


@register
class LogfileIngest(Runnable):
    """Keeps the files of a rotated log."""

    name = "logfile-ingest"
    description = "Keeps a log that is rotated, byte by byte"
    every = "every 1min"

    def check(self, config: Mapping[str, Any]) -> None:
        LogOptions.of(config)

    def run(self, run: Run, config: Mapping[str, Any]) -> Report:
        options = LogOptions.of(config)
        active = _files(resolved(options.active, "logfile-ingest.active_pattern"))
        if len(active) > 1:
            raise InputError(
                f"logfile-ingest: {len(active)} files are called {options.active}",
                hint="active_pattern names the one file that grows",
            )
        archived = [
            path for path in _files(resolved(options.archived, "logfile-ingest.archived_pattern")) if path not in active
        ]
        if not active and not archived:
            raise InputError(f"logfile-ingest: there is no file {options.active}", hint="check active_pattern")
        return Report(tuple(run.transact(lambda fs: _mirror(fs, options.path, active, archived))))


def _files(pattern: str) -> list[Path]:
    path = Path(pattern)
    if not any(sign in path.name for sign in "*?["):
        return [path] if pattern and path.is_file() else []
    return sorted(each for each in path.parent.glob(path.name) if each.is_file())


def _mirror(fs: FS, folder: str, active: Sequence[Path], archived: Sequence[Path]) -> list[Imported]:
    fs.make_directory(folder, parents=True)
    done = []
    for path in active:
        copy = fs.find(join(folder, path.name))
        if copy is not None and not _continues(copy.node.size, copy.node.sha256, path):
            done += _finish_rotated(fs, folder, copy.path, archived)
    kept = {each.node.sha256 for each in fs.glob(f"{folder}/*") if each.node.file_type is EntryType.DATA}
    for path in archived:
        if hash_of(path) not in kept:
            done.append(_write(fs, _free_name(fs, folder, path), path))
            kept.add(hash_of(path))
    for path in active:
        before = fs.find(join(folder, path.name))
        if before is None or before.node.size != path.stat().st_size:
            done.append(_write(fs, join(folder, path.name), path))
    reporting.reach("pond.logfiles.written")
    return done


def _continues(size: int | None, sha256: str | None, path: Path) -> bool:
    return size is not None and sha256 is not None and begins_with(path, size, sha256)


def _finish_rotated(fs: FS, folder: str, copy: str, archived: Sequence[Path]) -> list[Imported]:
    """Give the pond's copy the name of the archived file that goes on where it ended, and bring it to its end.

    Without such a file the copy keeps its bytes, under a name of its own.
    """
    node = fs.get(copy).node
    found = next((path for path in archived if _continues(node.size, node.sha256, path)), None)
    if found is None:
        fs.move(copy, f"{copy}-{str(node.sha256)[:8]}")
        return []
    target = _free_name(fs, folder, found)
    fs.move(copy, target)
    return [] if found.stat().st_size == node.size else [_write(fs, target, found)]


def _free_name(fs: FS, folder: str, path: Path) -> str:
    """Return the path for an archived file; names come again with other bytes."""
    name = join(folder, path.name)
    return name if fs.find(name) is None else f"{name}-{hash_of(path)[:8]}"


def _write(fs: FS, target: str, path: Path) -> Imported:
    try:
        with path.open("rb") as file:
            written = fs.write_file(target, file, replace=True)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    return Imported(written.path, EntryType.DATA, written.node.version, 0)
