"""``pond run``."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Annotated

from quacklake.cli.failures import report_failure
from quacklake.cli.options import argument, option
from quacklake.cli.output import plural
from quacklake.cli.pond.context import PondContext, complete_path

if TYPE_CHECKING:
    from quacklake.pond.collectors.base import Report
    from quacklake.pond.running import Event

Name = Annotated[
    str | None,
    argument("NAME", "A collector, by its path or name; with --watch a directory.", autocompletion=complete_path),
]


def run(
    context: PondContext,
    name: Name = None,
    words: Annotated[list[str] | None, argument("WORD", "What the collector should do, such as archive.")] = None,
    watch: Annotated[bool, option("--watch", "Keep all collectors of a directory going, on their schedules.")] = False,
    for_: Annotated[str | None, option("--for", "Stop after this time, such as 10min.", "TIME")] = None,
) -> int:
    """A collector runs once, and its rows are one transaction. One that listens runs until Ctrl-C or SIGTERM.

    With --watch, everything runs once, and then on its schedule, until Ctrl-C or SIGTERM; work in progress is finished
    first. A collector that fails is tried again later, and does not disturb the others.
    """
    from quacklake.cli.commands.maintain import stopping
    from quacklake.errors import InputError
    from quacklake.pond.running import Watcher, run_once

    seconds = None if for_ is None else _seconds(for_)
    if watch and words:
        raise InputError("--watch takes one directory", hint="pond run --watch /collectors")
    if not watch and name is None:
        raise InputError("a collector is needed", hint="pond run NAME, or pond run --watch")
    stop = threading.Event()
    with context.pond(write=True) as pond:
        if watch:
            watcher = Watcher(pond, name or "/", context.args, lambda event: _tell(context, event), stop)
            with stopping(watcher.stop):
                watcher.run(seconds)
            return 0
        from quacklake.cli.progress import stages

        assert name is not None
        timer = None if seconds is None else threading.Timer(seconds, stop.set)
        if timer is not None:
            timer.daemon = True
            timer.start()
        with stopping(stop.set), stages() as progress:
            report = run_once(
                pond,
                name,
                context.args,
                words or (),
                stop=stop,
                progress=progress,
                say=lambda text: _say(context, text),
            )
        if timer is not None:
            timer.cancel()
    _show(context, report, name)
    return 1 if report.failures else 0


def _seconds(text: str) -> float:
    from quacklake.config.values import parse_duration
    from quacklake.errors import InputError

    try:
        return parse_duration(text, bare=False).total_seconds()
    except ValueError as error:
        raise InputError(f"--for: {error}", hint="--for 10min") from None


def _show(context: PondContext, report: Report, path: str) -> None:
    from quacklake.pond.running import as_facts

    _log_failures(context, report, path)
    if not context.output.for_people:
        context.output.facts(as_facts(report))
        return
    for each in report.imported:
        if not each.entry_type.has_rows:
            context.output.say(f"kept {each.path} (v{each.version})")
            continue
        more = f", left out {plural(each.repeated, 'row')} that it has already" if each.repeated else ""
        context.output.say(f"collected {plural(each.rows, 'row')} to {each.path} (v{each.version}){more}")
    for note in report.notes:
        context.output.say(note)
    for failure in report.failures:
        context.output.say(f"failed {failure.item}: {failure.error.message}")
        if failure.error.hint:
            context.output.say(f"  hint: {failure.error.hint}")
    if report.more:
        context.output.say("there is more: run it again")
    if not (report.imported or report.notes or report.failures):
        context.output.say("nothing is new")


def _tell(context: PondContext, event: Event) -> None:
    """Print a line for an event; programs get one line of JSON."""
    import datetime as dt

    from quacklake.cli.commands.maintain import json_line
    from quacklake.pond.running import as_facts

    now = dt.datetime.now(dt.UTC)
    if event.error is not None and context.is_log_json:
        report_failure(event.error, path=event.path, retry_in=event.retry_in)
    if event.report is not None:
        _log_failures(context, event.report, event.path)
    if context.output.format == "json":
        facts = {} if event.report is None else dict(as_facts(event.report))
        if event.error is not None:
            facts |= {"code": event.error.code, "error": event.error.message, "retry_in": event.retry_in}
        json_line({"time": now, "path": event.path, **facts, **({"message": event.message} if event.message else {})})
        return
    _say(context, f"{now:%Y-%m-%d %H:%M:%S} {event.path}: {_sentence(event)}")


def _log_failures(context: PondContext, report: Report, path: str) -> None:
    """Write each failure of a run into a JSON log."""
    if context.is_log_json:
        for failure in report.failures:
            report_failure(failure.error, path=path, item=failure.item)


def _say(context: PondContext, text: str) -> None:
    """Print a line at once, for whoever reads along."""
    context.output.say(text)
    sys.stdout.flush()


def _sentence(event: Event) -> str:
    if event.message is not None:
        return event.message
    again = "" if event.retry_in is None else f"; next try in {event.retry_in:.0f} s"
    if event.error is not None:
        return f"failed: {event.error.message}{again}"
    assert event.report is not None
    report = event.report
    words = [plural(report.rows, "row") + f" to {plural(len(report.imported), 'node')}"] if report.imported else []
    words += [f"failed {each.item}: {each.error.message}" for each in report.failures]
    words += report.notes
    return ("; ".join(words) or "nothing is new") + again
