"""``temporal-reduce``: series by minute, hour or day, each kept as a materialized view of the series."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quacklake.config.mappings import Options
from quacklake.errors import ConfigError
from quacklake.pond.factories.column_rename import check_transforms
from quacklake.pond.factories.registry import DirectoryFactory, RowsFactory, register
from quacklake.pond.nodes import EntryType
from quacklake.pond.paths import check_name
from quacklake.pond.patterns import compile_pattern
from quacklake.pond.reductions import Reduction, Resolution, aggregations_of, as_options

if TYPE_CHECKING:
    from quacklake.pond.fs import FS, NodePath
    from quacklake.pond.queries import Relations

ON_READ, ON_COMMIT = "on read", "on commit"
"""The moments at which a resolution is brought up to date: when somebody reads it, or also after each write."""
ENGINES = ("auto", "duckdb", "spark")
"""The engines that compute a resolution; ``auto`` is Spark for a large refresh if a session is active, else DuckDB."""
_CAPTURE = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class ReducedOptions:
    """The options of one resolution of one series."""

    source: str
    reduction: Reduction
    time_column: str | None
    refresh: str = ON_READ
    engine: str = "auto"
    transforms: tuple[Any, ...] = ()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ReducedOptions:
        """Return the options. Raise ``ConfigError``."""
        options = Options("reduced-series", config)
        source, resolution = options.text("source"), Resolution.parse(options.text("resolution"))
        aggregations = aggregations_of(options.take("aggregations", []))
        time_column = options.text("time_column", "") or None
        refresh, engine, transforms = _refresh(options), _engine(options), _transforms(options)
        options.finish()
        return cls(source, Reduction(resolution, aggregations), time_column, refresh, engine, tuple(transforms))


def _refresh(options: Options) -> str:
    found = options.text("refresh", ON_READ)
    if found not in (ON_READ, ON_COMMIT):
        raise ConfigError(f"refresh cannot be {found!r}", hint=f"{ON_READ} or {ON_COMMIT}")
    return found


def _engine(options: Options) -> str:
    found = options.text("engine", ENGINES[0])
    if found not in ENGINES:
        raise ConfigError(f"engine cannot be {found!r}", hint=f"one of {', '.join(ENGINES)}")
    return found


def _transforms(options: Options) -> list[Any]:
    return check_transforms(options.what, options.take("transforms", []))


@register
class ReducedSeries(RowsFactory):
    """One series at one resolution: ``source``, ``resolution``, ``aggregations``.

    The rows of a stored series are kept in a materialized view. While that is behind, the rows are computed from the
    series itself: a reader never sees old ones.
    """

    name = "reduced-series"
    description = "A series with one row for each bucket of time of another series"
    kind = EntryType.SERIES

    def check(self, config: Mapping[str, Any]) -> None:
        ReducedOptions.of(config)

    def define(self, relations: Relations, schema: str, config: Mapping[str, Any]) -> str:
        from quacklake.pond import reduces

        return reduces.rows_of(relations, ReducedOptions.of(config))


@register
class TemporalReduce(DirectoryFactory):
    """A directory for each series that ``in_pattern`` names, with a series for each resolution: ``dock/res=1h.series``.

    ``out_pattern`` names the directories; ``$0`` is what the first wildcard stands for. ``transforms`` rename
    columns before they are reduced. ``engine`` is ``auto``, ``duckdb`` or ``spark``. ``allowed_lateness`` is
    accepted and has no effect: late readings are never too late.
    """

    name = "temporal-reduce"
    description = "Series at several resolutions: avg, min, max, sum and count by bucket of time"

    def check(self, config: Mapping[str, Any]) -> None:
        self._options(config)

    def entries(self, config: Mapping[str, Any]) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        return {}

    def entries_in(self, fs: FS, config: Mapping[str, Any]) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        pattern, out, names, shared = self._options(config)
        sources = [each for each in fs.glob(pattern) if each.entry_type is EntryType.SERIES]
        titles = [_title(out, each) for each in sources]
        twice = {title for title, count in Counter(titles).items() if count > 1}
        found: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for each, title in zip(sources, titles, strict=True):
            entries = [
                {
                    "name": f"res={text}.series",
                    "factory": ReducedSeries.name,
                    "config": {**shared, "source": each.path, "resolution": text},
                }
                for text in names
            ]
            whole = each.path.strip("/").replace("/", "_")
            found[whole if title in twice else title] = ("dynamic-dir", {"entries": entries})
        return found

    def _options(self, config: Mapping[str, Any]) -> tuple[str, str, list[str], dict[str, Any]]:
        options = Options(self.name, config)
        pattern, out = options.text("in_pattern"), options.text("out_pattern", "")
        names = options.texts("resolutions")
        time_column = options.text("time_column", "")
        aggregations = [as_options(each) for each in aggregations_of(options.take("aggregations", []))]
        refresh, engine, transforms = _refresh(options), _engine(options), _transforms(options)
        options.take("allowed_lateness")
        options.finish()
        if not names:
            raise ConfigError(f"{self.name} has no resolutions", hint="resolutions: [1m, 1h, 1d]")
        for text in names:
            Resolution.parse(text)
            check_name(f"res={text}.series")
        wild = [part for part in compile_pattern(pattern) if part.any_depth or part.regex is not None]
        captures = sum(1 if part.regex is None else part.regex.groups for part in wild)
        for found in _CAPTURE.finditer(out):
            if int(found[1]) >= captures:
                raise ConfigError(
                    f"{self.name}: {found[0]} in out_pattern, and in_pattern has {captures} wildcards",
                    hint="$0 is what the first wildcard stands for",
                )
        if "/" in out:
            raise ConfigError(f"{self.name}: out_pattern is a name, not a path", hint="out_pattern: $0")
        shared = {"aggregations": aggregations, "refresh": refresh}
        shared |= {"engine": engine} if engine != ENGINES[0] else {}
        shared |= {"transforms": transforms} if transforms else {}
        return pattern, out, names, shared | ({"time_column": time_column} if time_column else {})


def _title(out: str, source: NodePath) -> str:
    """Return the name of the directory of a series."""
    if not out:
        return source.path.rpartition("/")[2].removesuffix(".series")

    def capture(found: re.Match[str]) -> str:
        return source.captures[int(found[1])]

    return check_name(_CAPTURE.sub(capture, out).strip("/").replace("/", "_") or source.path.rpartition("/")[2])
