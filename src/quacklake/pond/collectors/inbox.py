"""``inbox``: a folder that is watched. Its files become versions of series, each file whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quacklake import CsvOptions
from quacklake.config.mappings import Options
from quacklake.connectors.options import resolved
from quacklake.errors import ConfigError
from quacklake.pond.collectors.base import Item, Report, Run, Runnable, commit
from quacklake.pond.collectors.files import Repeated, find_files, hash_of
from quacklake.pond.factories.registry import register
from quacklake.pond.fs import FS
from quacklake.pond.inputs import HostPath, ImportOptions, csv_options_of, rows_of
from quacklake.pond.local_times import LocalRule, local_rule_of
from quacklake.pond.nodes import SOURCE_SHA256
from quacklake.pond.paths import check_name, parts
from quacklake.pond.series import Imported, Origin, append_series
from quacklake.pond.times import check_zone

_repeated = Repeated()


@dataclass(frozen=True, slots=True)
class InboxOptions:
    """The options of a watched folder."""

    folder: str
    patterns: tuple[str, ...]
    path: str
    timestamp_column: str | None
    timezone: str | None
    settle: float
    max_files: int
    allow_future: bool
    keep_conflicts: bool
    local: LocalRule
    csv: CsvOptions

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> InboxOptions:
        """Return the options of a mapping. Raise ``ConfigError``."""
        options = Options("inbox", config)
        made = cls(
            folder=options.text("folder"),
            patterns=tuple(options.texts("pattern")) or ("*.csv",),
            path=options.text("path", "/inbox/{name}.series"),
            timestamp_column=options.text("timestamp_column", "") or None,
            timezone=options.text("timezone", "") or None,
            settle=options.seconds("settle", "2s"),
            max_files=options.number("max_files", 10_000),
            allow_future=options.boolean("allow_future"),
            keep_conflicts=options.boolean("keep_conflicts"),
            local=local_rule_of(options),
            csv=csv_options_of(options),
        )
        options.finish()
        if made.timezone is not None:
            check_zone(made.timezone)
        if not parts(made.path) or set(_fields(made.path)) - {"name"}:
            raise ConfigError(f"inbox: path cannot be {made.path!r}", hint="path: /inbox/{name}.series")
        return made


def _fields(template: str) -> list[str]:
    from string import Formatter

    try:
        return [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError:
        return ["?"]


@register
class Inbox(Runnable):
    """Takes the files of a folder that it has not taken yet, by their bytes."""

    name = "inbox"
    description = "Watches a folder: its files become versions of series"
    every = "every 5s"

    def check(self, config: Mapping[str, Any]) -> None:
        InboxOptions.of(config)

    def run(self, run: Run, config: Mapping[str, Any]) -> Report:
        options = InboxOptions.of(config)
        folder = Path(resolved(options.folder, "inbox.folder"))
        zone = options.timezone or run.pond.control.settings().get("timezone")
        given = ImportOptions(
            options.timestamp_column, zone, options.allow_future, options.keep_conflicts, options.csv, options.local
        )
        fs, pond = run.pond.fs(), run.pond.lake.data_path
        items, known = list[Item](), dict[tuple[str, str], bool]()
        files = find_files(folder, options.patterns, settle=options.settle, most=options.max_files, what="inbox")
        for place, file in enumerate(files):
            run.progress(f"looking at {file.name}", place, len(files))
            target = options.path.format(name=check_name(file.stem))
            sha256 = hash_of(file)
            if (pond, target, sha256) in _repeated or sha256 in taken(fs, target):
                continue
            items.append(_item(known, file, sha256, target, given))
        done = commit(run, items)
        for (series, sha256), all_known in known.items():
            if all_known:
                _repeated.add(pond, series, sha256)
        return done


def taken(fs: FS, path: str) -> set[str]:
    """Return the hashes of the files that a series is made of."""
    found = fs.find(path)
    return set() if found is None else {str(row.attribute(SOURCE_SHA256)) for row in found.versions}


def _item(known: dict[tuple[str, str], bool], file: Path, sha256: str, target: str, given: ImportOptions) -> Item:
    """Return what writes the rows of a file. It notes in ``known`` whether the series had all of them."""

    def write(fs: FS) -> list[Imported]:
        above = parts(target)[:-1]
        if above:
            fs.make_directory("/" + "/".join(above), parents=True)
        with rows_of(HostPath(file), given.csv) as rows:
            done = append_series(fs, target, rows, given, Origin(file.name, sha256))
        known[target, sha256] = not done.rows
        return [done]

    return Item(file.name, write)
