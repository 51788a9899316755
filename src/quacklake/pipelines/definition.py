"""Define pipelines: a source, a query, and sinks. The same as YAML, as a mapping and as text in the lake."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from quacklake.config.mappings import Options
from quacklake.errors import ConfigError
from quacklake.extend.checkpoints import check_stream

LAKE = "lake"
"""The type of sources and sinks that are tables of the lake itself."""
SPARK = "spark"
"""The type of sources that Spark reads by itself, such as Kafka."""
ENGINES = ("auto", "local", "spark")
SOURCE_NAME = "source"
"""The name by which a query calls the rows of the source."""
_SECRETS = ("password", "token", "secret", "nkey_seed", "access_key", "account_key", "credential")


@dataclass(frozen=True)
class SourceDefinition:
    """A source: the type of its connector and the options. ``watermark`` is a column and how late its rows may be."""

    type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    watermark: tuple[str, str] | None = None


@dataclass(frozen=True)
class SinkDefinition:
    """A sink: its name in the pipeline, the type of its connector, the options, and the rows that it gets."""

    name: str
    type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    where: str | None = None


@dataclass(frozen=True)
class RestartPolicy:
    """The number of new starts after an error that may pass, and the time between them."""

    attempts: int = 5
    backoff: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(minutes=1)

    def wait(self, attempt: int) -> float:
        """Return the seconds to wait before an attempt, counted from 1."""
        return min(self.backoff.total_seconds() * 2.0 ** (attempt - 1), self.longest.total_seconds())


@dataclass(frozen=True)
class PipelineDefinition:
    """A pipeline, checked.

    ``query`` is SQL over ``source``; None passes every row on. A batch ends after ``every``, or when it has
    ``batch_rows`` rows or ``batch_bytes`` bytes. ``dead_letters`` is a table of the lake that keeps what is not a row.
    ``partitions`` divide the state of a query on Spark.
    """

    name: str
    source: SourceDefinition
    sinks: tuple[SinkDefinition, ...]
    query: str | None = None
    engine: str = "auto"
    output_mode: str = "append"
    every: timedelta = timedelta(seconds=1)
    batch_rows: int = 1_000_000
    batch_bytes: int = 256 << 20
    dead_letters: str | None = None
    keep_checkpoints: int = 3
    partitions: int | None = None
    lease: timedelta = timedelta(seconds=30)
    restart: RestartPolicy = RestartPolicy()

    @classmethod
    def parse(cls, given: Mapping[str, Any], name: str | None = None) -> PipelineDefinition:
        """Return the pipeline that a mapping describes. Raise ``ConfigError`` for one that does not hold together."""
        read = Options("the pipeline", given)
        found = cls(
            name=check_stream(read.text("pipeline", name).strip()),
            source=_source(read.required("source")),
            sinks=_sinks(read.required("sinks")),
            query=read.text("query", "").strip() or None,
            engine=read.choice("engine", ENGINES, "auto"),
            output_mode=read.choice("output_mode", ("append", "update", "complete"), "append"),
            every=read.duration("every", cls.every),
            batch_rows=read.number("batch_rows", cls.batch_rows),
            batch_bytes=read.size("batch_bytes", cls.batch_bytes),
            dead_letters=read.text("dead_letters", "").strip() or None,
            keep_checkpoints=read.number("keep_checkpoints", cls.keep_checkpoints),
            partitions=read.number("partitions", 0, least=0) or None,
            lease=read.duration("lease", cls.lease),
            restart=_restart(read.take("restart", {})),
        )
        read.finish()
        return found

    @classmethod
    def load(cls, path: str | Path) -> PipelineDefinition:
        """Return the pipeline of a YAML file. Raise ``ConfigError``."""
        return cls.parse(read_yaml(path), Path(path).stem)

    def to_json(self) -> str:
        """Return the definition as JSON, which :meth:`parse` takes."""
        return json.dumps(self.to_mapping(), sort_keys=True)

    def to_mapping(self) -> dict[str, Any]:
        """Return the definition as plain data, which :meth:`parse` takes. References to secrets stay references."""
        source = _plain(self.source.type, self.source.options)
        if self.source.watermark:
            source["watermark"] = dict(zip(("column", "delay"), self.source.watermark, strict=True))
        mapping = {
            "pipeline": self.name,
            "source": source,
            "query": self.query,
            "sinks": [
                {"name": sink.name, **_plain(sink.type, sink.options), **({"where": sink.where} if sink.where else {})}
                for sink in self.sinks
            ],
            "engine": self.engine,
            "output_mode": self.output_mode,
            "every": _seconds(self.every),
            "batch_rows": self.batch_rows,
            "batch_bytes": f"{self.batch_bytes}B",
            "dead_letters": self.dead_letters,
            "keep_checkpoints": self.keep_checkpoints,
            "partitions": self.partitions,
            "lease": _seconds(self.lease),
            "restart": {
                "attempts": self.restart.attempts,
                "backoff": _seconds(self.restart.backoff),
                "longest": _seconds(self.restart.longest),
            },
        }
        return {key: value for key, value in mapping.items() if value is not None}

    @property
    def hash(self) -> str:
        """The hash of what decides the rows: source, query and sinks, without limits, times and secrets."""
        kept = self.to_mapping()
        decides = {key: kept.get(key) for key in ("source", "query", "sinks", "output_mode")}
        return hashlib.sha256(json.dumps(_without_secrets(decides), sort_keys=True).encode()).hexdigest()[:16]

    def with_engine(self, engine: str) -> PipelineDefinition:
        """Return the same pipeline on another engine."""
        return replace(self, engine=engine)


def read_yaml(path: str | Path) -> Mapping[str, Any]:
    """Return the mapping in a YAML file. Raise ``ConfigError``."""
    import yaml

    try:
        found = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"the file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the file {path} is not valid YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(found, Mapping):
        raise ConfigError(f"the file {path} has no mapping at its top", hint="begin with: pipeline: NAME")
    return found


def check_secrets(options: Mapping[str, Any], what: str) -> None:
    """Refuse secrets that are written out: the lake keeps only references to them."""
    for key, value in options.items():
        secret = any(word in key.lower() for word in _SECRETS)
        if secret and value is not None and not str(value).startswith(("${env:", "${file:")):
            name = key.upper().replace(".", "_")
            raise ConfigError(f"{what}: {key} is a secret, which a lake does not keep", hint=f"{key}='${{env:{name}}}'")


def _source(given: Any) -> SourceDefinition:
    options = dict(_mapping("source", given))
    kind = str(options.pop("type", options.pop("connector", "")))
    if not kind:
        raise ConfigError("the source has no type", hint="type: nats, delta, iceberg, hudi, lake or spark")
    mark = options.pop("watermark", None)
    if mark is None:
        return SourceDefinition(kind.lower(), options)
    read = Options("the watermark", mark)
    column, delay = read.text("column").strip(), read.duration("delay", timedelta())
    read.finish()
    return SourceDefinition(kind.lower(), options, (column, _seconds(delay)))


def _sinks(given: Any) -> tuple[SinkDefinition, ...]:
    if isinstance(given, Mapping):
        given = [{"name": name, **_mapping(f"sink {name}", options)} for name, options in given.items()]
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise ConfigError("sinks is a list of sinks", hint="sinks: [{type: lake, table: orders}]")
    found: list[SinkDefinition] = []
    for each in given:
        options = dict(_mapping("a sink", each))
        kind = str(options.pop("type", options.pop("connector", ""))).lower()
        if not kind:
            raise ConfigError("a sink has no type", hint="type: lake, delta, iceberg, hudi or nats")
        name = str(options.pop("name", kind))
        if any(sink.name == name for sink in found):
            raise ConfigError(f"two sinks are called {name!r}", hint="give each a name")
        where = options.pop("where", None)
        found.append(SinkDefinition(check_stream(name), kind, options, None if where is None else str(where)))
    return tuple(found)


def _restart(given: Any) -> RestartPolicy:
    read = Options("the restart", given)
    policy = RestartPolicy(
        read.number("attempts", RestartPolicy.attempts, least=0),
        read.duration("backoff", RestartPolicy.backoff),
        read.duration("longest", RestartPolicy.longest),
    )
    read.finish()
    return policy


def _plain(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": kind, **options}


def _seconds(span: timedelta) -> str:
    number = f"{span.total_seconds():g}"
    return f"{number} second" if number == "1" else f"{number} seconds"


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = ((key, each) for key, each in value.items() if not any(word in str(key).lower() for word in _SECRETS))
        return {key: _without_secrets(each) for key, each in kept}
    return [_without_secrets(each) for each in value] if isinstance(value, list | tuple) else value


def _mapping(what: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what} is a mapping of options, not {given!r:.60}")
    return {str(key): value for key, value in given.items()}
