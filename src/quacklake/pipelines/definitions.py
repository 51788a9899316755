"""The sources, sinks and pipelines that a lake keeps. They travel with its backups; secrets are only referred to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace as replaced
from datetime import UTC, datetime
from typing import Any

from quacklake.errors import InputError, NotFoundError, nearest
from quacklake.extend.checkpoints import Definition, DefinitionStore, check_stream
from quacklake.lake import Lake
from quacklake.pipelines.definition import PipelineDefinition, check_secrets
from quacklake.pipelines.pipeline import Pipeline

SOURCE, SINK, PIPELINE = "source", "sink", "pipeline"
CREATED, RUNNING, STOPPED = "created", "running", "stopped"


class Definitions:
    """The definitions of a lake, by kind and name. Names are found whatever their case."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._store = DefinitionStore(lake)

    def list(self, kind: str | None = None) -> list[Definition]:
        """Return the definitions of a kind, or all, by name."""
        return self._store.list(kind)

    def find(self, kind: str, name: str) -> Definition | None:
        """Return a definition, or None."""
        return next((each for each in self.list(kind) if each.name.lower() == name.lower()), None)

    def get(self, kind: str, name: str) -> Definition:
        """Return a definition. Raise ``NotFoundError``."""
        found = self.find(kind, name)
        if found is None:
            known = [each.name for each in self.list(kind)]
            raise NotFoundError(
                f'there is no {kind} "{name}"', hint=nearest(name, known) or f"SHOW {kind.upper()}S lists them"
            )
        return found

    def options(self, kind: str, name: str) -> dict[str, Any]:
        """Return the options of a source or sink. Raise ``NotFoundError``."""
        found: dict[str, Any] = json.loads(self.get(kind, name).body)
        return found

    def put(self, kind: str, name: str, body: Mapping[str, Any], *, replace: bool = False) -> Definition:
        """Keep a definition. Raise ``AlreadyExistsError`` unless it may replace one, ``ConfigError`` for a secret."""
        check_stream(name)
        check_secrets(body, name)
        made = Definition(kind, name, json.dumps(body, sort_keys=True), CREATED, datetime.now(UTC))
        self._store.put(made, replace=replace)
        return made

    def drop(self, kind: str, name: str) -> None:
        """Remove a definition, and the position of a pipeline. Raise ``NotFoundError``."""
        self._store.remove(self.get(kind, name), stream=kind == PIPELINE)

    def set_state(self, name: str, state: str) -> None:
        """Note whether a pipeline is wanted to run."""
        self._store.put(replaced(self.get(PIPELINE, name), state=state), replace=True)

    def state(self, name: str) -> str | None:
        """Return what is wanted of a pipeline; None when the lake does not keep it."""
        found = self.find(PIPELINE, name)
        return None if found is None else found.state

    # -- pipelines -----------------------------------------------------------------------------------------------------

    def apply(self, definition: PipelineDefinition | Mapping[str, Any], *, replace: bool = True) -> PipelineDefinition:
        """Check a pipeline and keep it, in place of one of its name. Raise before anything is kept."""
        if not isinstance(definition, PipelineDefinition):
            definition = PipelineDefinition.parse(self.resolved(definition))
        Pipeline(self.lake, definition).check()
        self.put(PIPELINE, definition.name, definition.to_mapping(), replace=replace)
        return definition

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline that the lake keeps. Raise ``NotFoundError``."""
        found = self.get(PIPELINE, name)
        pipeline = Pipeline(self.lake, PipelineDefinition.parse(json.loads(found.body)))
        pipeline.wanted = lambda: self.state(found.name) == RUNNING
        pipeline.note = lambda runs: self.set_state(found.name, RUNNING if runs else STOPPED)
        return pipeline

    def resolved(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a pipeline with the options of the sources and sinks that it refers to by ``use``."""
        found = dict(given)
        found["source"] = self._resolve_use(SOURCE, found.get("source"))
        sinks = found.get("sinks")
        if isinstance(sinks, list):
            found["sinks"] = [self._resolve_use(SINK, each) for each in sinks]
        return found

    def _resolve_use(self, kind: str, given: Any) -> Any:
        if isinstance(given, str):
            given = {"use": given}
        if not isinstance(given, Mapping) or "use" not in given:
            return given
        rest = {key: value for key, value in given.items() if key != "use"}
        name = given["use"]
        if not isinstance(name, str):
            raise InputError(f"use names a {kind}, not {name!r}")
        defaults = {"name": name} if kind == SINK else {}
        return {**defaults, **self.options(kind, name), **rest}
