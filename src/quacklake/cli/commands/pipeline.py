"""``quacklake pipeline``: keep, run and watch the pipelines of a lake."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.commands.maintain import json_line, stopping
from quacklake.cli.context import Context
from quacklake.cli.options import argument, option
from quacklake.cli.output import plural
from quacklake.cli.progress import hush
from quacklake.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from quacklake.lake.lake import Lake
    from quacklake.pipelines import BatchReport, Pipeline, RunReport
    from quacklake.pipelines.definitions import Definitions

_LOG_LINES = 100
_START = 60.0
"""Seconds in which a pipeline should have begun to run."""
_STOP = 10.0
"""Seconds in which a pipeline should have seen that it is to stop."""
Files = Annotated[list[str], argument("FILE…", "YAML files, one pipeline each.")]
Name = Annotated[str, argument("NAME", "The name of a pipeline of the lake.")]
NameOrFile = Annotated[str, argument("NAME", "The name of a pipeline of the lake, or a YAML file.")]
OneOrAll = Annotated[str | None, argument("NAME", "The name of a pipeline; without it, all.")]
CaughtUp = Annotated[bool, option("--until-caught-up", "End when nothing is new.")]
Restart = Annotated[bool, option("--restart", "Forget the position, and begin anew.")]
Accept = Annotated[bool, option("--accept", "Go on from the position although the pipeline has changed.")]
Follow = Annotated[bool, option("--follow -f", "Print new lines as they come.")]
Lines = Annotated[int, option("--lines -n", "The number of lines.", "LINES")]


def apply(context: Context, files: Files) -> None:
    """Check the pipelines of YAML files and keep them in the lake, in place of those of the same names."""
    from quacklake.pipelines.definition import read_yaml

    with context.open(write=True) as lake:
        definitions = _definitions(lake)
        for path in files:
            given = dict(read_yaml(path))
            given.setdefault("pipeline", Path(path).stem)
            made = definitions.apply(given)
            facts = {"pipeline": made.name, "source": made.source.type, "sinks": [sink.name for sink in made.sinks]}
            context.output.result(f"The lake has the pipeline {made.name}.", facts)


def list_(context: Context) -> None:
    """List the pipelines that the lake keeps."""
    import json

    import pyarrow as pa

    with context.open() as lake:
        found = _definitions(lake).list("pipeline")
        bodies = [json.loads(each.body) for each in found]
        columns = {
            "pipeline": pa.array([each.name for each in found], pa.string()),
            "source": pa.array([body["source"]["type"] for body in bodies], pa.string()),
            "sinks": pa.array([", ".join(sink["name"] for sink in body["sinks"]) for body in bodies], pa.string()),
            "state": pa.array([each.state for each in found], pa.string()),
        }
        context.output.rows(pa.table(columns))


def run(
    context: Context,
    name: NameOrFile,
    until_caught_up: CaughtUp = False,
    restart: Restart = False,
    accept: Accept = False,
) -> None:
    """Run a pipeline until its source ends, Ctrl-C or SIGTERM. The batch in progress is finished first.

    Only one process at a time runs a pipeline. After an error that may pass it starts again, as often as its restart
    policy says.
    """
    with context.open(write=True) as lake:
        pipeline = _find(lake, name)
        with stopping(pipeline.request_stop), closing(_Live(context, ends=until_caught_up)) as show:
            report = pipeline.run(until_caught_up=until_caught_up, restart=restart, accept=accept, on_batch=show.batch)
        context.output.result(_sentence(pipeline, report), _facts(pipeline, report))


def start(context: Context, name: Name, restart: Restart = False, accept: Accept = False) -> None:
    """Start a pipeline in a separate process, which continues after this command. `stop` ends it."""
    from quacklake.pipelines.definitions import CREATED, RUNNING

    with context.open(write=True) as lake:
        definitions = _definitions(lake)
        pipeline = definitions.pipeline(name)
        if pipeline.is_running_somewhere():
            raise InputError(f"the pipeline {name} runs already", hint="`quacklake pipeline status`")
        definitions.set_state(name, CREATED)
        log = _log_file(lake, pipeline.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "quacklake.cli", "--verbose", "pipeline", "run", pipeline.name]
        words += [] if context.options.config_file is None else ["--config", context.options.config_file]
        words += [flag for flag, given in (("--restart", restart), ("--accept", accept)) if given]
        with log.open("ab") as output:
            started = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=os.environ | _environment(context),
            )
        until = time.monotonic() + _START
        while started.poll() is None and definitions.state(name) != RUNNING and time.monotonic() < until:
            time.sleep(0.1)
    if started.poll():
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        raise InputError(
            f"the pipeline {name} did not start: {''.join(said)}", hint=f"`quacklake pipeline logs {name}`"
        )
    started.returncode = 0  # nobody waits for it: it continues by itself
    facts = {"pipeline": pipeline.name, "process": started.pid, "log": str(log)}
    context.output.result(f"Process {started.pid} runs the pipeline {pipeline.name}.", facts)


def stop(context: Context, name: Name) -> None:
    """Ask the process that runs a pipeline to stop, wherever it is. It finishes its batch first."""
    from quacklake.pipelines.definitions import STOPPED

    with context.open(write=True) as lake:
        definitions = _definitions(lake)
        pipeline = definitions.pipeline(name)
        definitions.set_state(name, STOPPED)
        until = time.monotonic() + pipeline.definition.lease.total_seconds() + _STOP
        while pipeline.is_running_somewhere() and time.monotonic() < until:
            time.sleep(0.2)
        ended = not pipeline.is_running_somewhere()
    said = "has stopped" if ended else "will stop after its batch"
    context.output.result(f"The pipeline {pipeline.name} {said}.", {"pipeline": pipeline.name, "stopped": ended})


def status(context: Context, name: OneOrAll = None) -> None:
    """Show whether pipelines run, their last checkpoint, and how far they are behind their source."""
    import pyarrow as pa

    with context.open() as lake:
        definitions = _definitions(lake)
        names = [each.name for each in definitions.list("pipeline")] if name is None else [name]
        rows = [_status(definitions.pipeline(each)) for each in names]
    columns = ("pipeline", "running", "heartbeat", "lease_until", "checkpoint", "finished", "time", "behind")
    table = pa.table({column: [row[column] for row in rows] for column in columns})
    context.output.rows(table)


def explain(context: Context, name: NameOrFile) -> None:
    """Show what a pipeline does: its engine, source, query, sinks, and the guarantee of each sink."""
    with context.open() as lake:
        pipeline = _find(lake, name)
        made = pipeline.definition
        facts: dict[str, Any] = {
            "pipeline": made.name,
            "engine": pipeline.engine,
            "source": made.source.type,
            "query": made.query or "every row",
            "every": str(made.every),
            "dead_letters": made.dead_letters or "none: a message that is not a row is an error",
        }
        for sink in made.sinks:
            rows = f"rows where {sink.where}" if sink.where else "all rows"
            how = "commits with the checkpoint" if sink.type == "lake" else "prepares, then shows once"
            facts[f"sink {sink.name}"] = f"{sink.type}, {sink.options.get('mode', 'append')}, {rows}; {how}"
        context.output.facts(facts)


def logs(context: Context, name: Name, lines: Lines = _LOG_LINES, follow: Follow = False) -> None:
    """Print what a pipeline that `start` has started said."""
    with context.open() as lake:
        log = _log_file(lake, _definitions(lake).get("pipeline", name).name)
    if not log.exists():
        raise NotFoundError(f"the pipeline {name} has no log on this machine", hint="`quacklake pipeline start`")
    hush(for_good=True)
    if not context.output.for_people and not follow:
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        context.output.facts({"pipeline": name, "lines": said})
        return
    with log.open(encoding="utf-8", errors="replace") as opened:
        for line in opened.readlines()[-lines:]:
            print(line, end="")
        while follow:
            line = opened.readline()
            print(line, end="", flush=True) if line else time.sleep(0.2)


def drop(context: Context, name: Name) -> None:
    """Remove a pipeline and its position from the lake. What it has written stays."""
    with context.open(write=True) as lake:
        definitions = _definitions(lake)
        if definitions.pipeline(name).is_running_somewhere():
            raise InputError(f"the pipeline {name} runs", hint=f"`quacklake pipeline stop {name}`")
        definitions.drop("pipeline", name)
        context.output.result(f"The pipeline {name} is gone.", {"pipeline": name})


class _Live:
    """Tells about batches: on a terminal in one line that changes, else a line for each."""

    def __init__(self, context: Context, *, ends: bool) -> None:
        self._context = context
        self._ends = ends
        self._began = time.monotonic()
        self._rows = 0
        self._open = False

    def batch(self, report: BatchReport) -> None:
        self._rows += report.rows
        hush(for_good=True)
        if not self._context.output.for_people:
            if self._ends:
                return  # one answer, at the end
            json_line(
                {
                    "checkpoint": report.checkpoint_id,
                    "rows": report.rows,
                    "rejected": report.rejected,
                    "sinks": dict(report.sinks),
                    "milliseconds": round(report.milliseconds, 1),
                }
            )
            return
        sinks = ", ".join(f"{name} {rows:,}" for name, rows in report.sinks.items())
        rate = self._rows / max(time.monotonic() - self._began, 1e-9)
        text = f"batch {report.checkpoint_id}: {report.rows:,} rows ({sinks}) in {report.milliseconds:,.0f} ms"
        if report.rejected:
            text += f", {plural(report.rejected, 'dead letter')}"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[2K{text}; {rate:,.0f} rows/s")
            self._open = True
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        if self._open:
            sys.stderr.write("\n")


def _definitions(lake: Lake) -> Definitions:
    from quacklake.pipelines.definitions import Definitions

    return Definitions(lake)


def _find(lake: Lake, name: str) -> Pipeline:
    """Return a pipeline of a YAML file, or of the lake."""
    from quacklake.pipelines import Pipeline
    from quacklake.pipelines.definition import PipelineDefinition, read_yaml

    definitions = _definitions(lake)
    if not name.lower().endswith((".yaml", ".yml")):
        return definitions.pipeline(name)
    given = dict(read_yaml(name))
    given.setdefault("pipeline", Path(name).stem)
    return Pipeline(lake, PipelineDefinition.parse(definitions.resolved(given)))


def _status(pipeline: Pipeline) -> dict[str, Any]:
    last, hold = pipeline.status()[-1:], pipeline.hold()
    return {
        "pipeline": pipeline.name,
        "running": hold is not None and not hold.ended,
        "heartbeat": None if hold is None else hold.heartbeat,
        "lease_until": None if hold is None else hold.until,
        "checkpoint": last[0]["checkpoint_id"] if last else None,
        "finished": last[0]["state"] == "finished" if last else None,
        "time": last[0]["created"] if last else None,
        "behind": pipeline.behind(),
    }


def _log_file(lake: Lake, name: str) -> Path:
    """Return the file for what a pipeline of this lake says on this machine."""
    import hashlib
    from urllib.parse import quote

    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    place = hashlib.sha256(f"{lake.url}\n{lake.catalog}".encode()).hexdigest()[:12]
    return Path(base) / "quacklake" / "pipelines" / place / f"{quote(name, safe='')}.log"


def _environment(context: Context) -> dict[str, str]:
    """Return the settings for another process. A URL may have a password: arguments could be read by others."""
    options = context.options
    given = {
        "QUACKLAKE_URL": options.lake,
        "QUACKLAKE_DATA_PATH": options.data_path,
        "QUACKLAKE_CATALOG": options.catalog,
    }
    return {name: str(value) for name, value in given.items() if value}


def _sentence(pipeline: Pipeline, report: RunReport) -> str:
    batches = f"{report.batches:,} {'batch' if report.batches == 1 else 'batches'}"
    sinks = (f"{name} {rows:,}" for name, rows in sorted(report.sinks.items()))
    parts = (f"{plural(report.rows, 'row')} in {batches}", *sinks)
    return f"The pipeline {pipeline.name} read {'; '.join(parts)}."


def _facts(pipeline: Pipeline, report: RunReport) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "batches": report.batches,
        "rows": report.rows,
        "rejected": report.rejected,
        "sinks": dict(report.sinks),
        "recovered": report.recovered,
        "restarts": report.restarts,
        "seconds": round(report.seconds, 3),
    }
