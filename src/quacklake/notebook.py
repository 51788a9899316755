"""Notebooks: the magic ``%sql``, and tables of what IPython would show as text. ``%load_ext quacklake`` loads it."""

from __future__ import annotations

import dataclasses
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Any

import pyarrow as pa

from quacklake.errors import InputError, nearest
from quacklake.extend.display import html_table
from quacklake.extend.names import uuid7
from quacklake.extend.reporting import Report, listen
from quacklake.extend.sql import split, words_of

_LINE = re.compile(r"\s*(?:--lake\s+(?P<lake>\w+)\s*)?(?:(?P<name>[^\W\d]\w*)\s*<<\s*)?(?P<text>.*)", re.DOTALL)
_SHOWN_ROWS = 100
_SHOWN_ITEMS = 10
_DELAY, _PERIOD = 1.0, 1.0
"""Seconds before a running statement says so, and between two signs of it."""
_REFRESH = 0.2
"""Seconds between two states of a bar."""


def load_ipython_extension(shell: Any) -> None:
    """Register the magic and the tables with an IPython shell, which calls this for ``%load_ext quacklake``."""
    magic = Magic(shell)
    shell.register_magic_function(magic.sql, magic_kind="line_cell", magic_name="sql")
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(pa.Table, lambda rows: html_table(rows.slice(0, _SHOWN_ROWS), total=rows.num_rows))
    html.for_type(Report, report_html)
    if getattr(shell, "kernel", None) is not None:  # a terminal cannot change what it has shown
        bar = ProgressBar(shell.display_pub.publish)
        shell.events.register("pre_run_cell", bar.begin)
        shell.events.register("post_run_cell", bar.end)
        listen(bar)


def report_html(report: Any) -> str:
    """Return the fields of a report as an HTML table, with a line for each of the first things in a list."""
    facts: list[tuple[str, str]] = []
    for field in dataclasses.fields(report):
        value = getattr(report, field.name)
        if not isinstance(value, list | tuple):
            facts.append((field.name, str(value)))
            continue
        facts.append((field.name, f"{len(value):,}"))
        facts += [("", _line(each)) for each in value[:_SHOWN_ITEMS]]
    rows = pa.table([pa.array(column, pa.string()) for column in zip(*facts, strict=True)], ["", "value"])
    return html_table(rows, unit=None)


def _line(thing: Any) -> str:
    """Return a thing of a report as one line: the values that it has."""
    if not dataclasses.is_dataclass(thing):
        return str(thing)
    values = [getattr(thing, field.name) for field in dataclasses.fields(thing)]
    return ", ".join(str(value) for value in values if value is not None)


class ProgressBar:
    """Shows the progress of long work below the cell that runs, from its second second on, and removes it at the end.

    It is HTML that is updated in its place, which every notebook can show. It may be told from any thread.
    """

    def __init__(self, publish: Callable[..., None], clock: Callable[[], float] = time.monotonic) -> None:
        self._publish = publish
        self._clock = clock
        self._lock = threading.Lock()
        self._begun = self._shown = clock()
        self._id: str | None = None

    def begin(self, *_: object) -> None:
        """Start to count the seconds of a cell."""
        with self._lock:
            self._begun, self._id = self._clock(), None

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Show what is being worked on, at most a few times in a second."""
        with self._lock:
            now = self._clock()
            if now - self._begun < _DELAY or (self._id is not None and now - self._shown < _REFRESH):
                return
            self._show(bar_html(what, done, total), f"{what}: {_amount(done, total)}")
            self._shown = now

    def end(self, *_: object) -> None:
        """Remove the bar."""
        with self._lock:
            if self._id is not None:
                self._show("", "")
            self._id = None

    def _show(self, html: str, text: str) -> None:
        known, self._id = self._id is not None, self._id or uuid7().hex
        transient = {"display_id": self._id}
        self._publish({"text/html": html, "text/plain": text}, transient=transient, update=known)


def bar_html(what: str, done: int, total: int | None) -> str:
    """Return a bar as HTML.

    >>> bar_html("files", 3, 4)
    '<progress value="3" max="4" aria-label="files"></progress> files: 3 of 4'
    """
    label = escape(what)
    filled = "" if not total else f' value="{min(done, total)}" max="{total}"'
    return f'<progress{filled} aria-label="{label}"></progress> {label}: {_amount(done, total)}'


def _amount(done: int, total: int | None) -> str:
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


def bound(text: str, variables: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a statement with a parameter in place of each ``{name}``, and their values. Raise ``InputError``.

    Braces in strings, quoted names and comments are left alone.

    >>> bound("SELECT {x}, '{x}'", {"x": 7})
    ("SELECT $x, '{x}'", {'x': 7})
    """
    words = words_of(text)
    parts, values, done = [], {}, 0
    for before, word, after in zip(words, words[1:], words[2:], strict=False):
        if (
            (before.text, after.text) != ("{", "}")
            or word.kind != "word"
            or after.end - before.start != len(word.text) + 2
        ):
            continue
        values[word.text] = _value(word.text, variables)
        parts += [text[done : before.start], f"${word.text}"]
        done = after.end
    return "".join([*parts, text[done:]]), values


def _value(name: str, variables: Mapping[str, Any]) -> Any:
    if name not in variables:
        raise InputError(f'there is no variable "{name}"', hint=nearest(name, variables))
    value = variables[name]
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__dataframe__"):
        raise InputError(f'"{name}" is a frame, not a value', hint=f"name it as a table: FROM {name}")
    return value


class Magic:
    """The magic ``%sql`` of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def sql(self, line: str, cell: str | None = None) -> Any:
        """Run SQL on a lake of the notebook: ``%sql SELECT …``, or ``%%sql`` above a cell of statements.

        ``{name}`` is the value of a variable, handed over as a parameter and never as text. ``rows << SELECT …`` stores
        the result in a variable, ``--lake other`` runs it on the lake in the variable ``other``.
        """
        options = _LINE.fullmatch(line)
        assert options is not None
        text = options["text"] if cell is None else f"{options['text']}\n{cell}"
        run = self._lake(options["lake"]).sql
        result = None
        with _sign_of_life(self._shell):
            for statement in split(text):
                result = self._run(run, *bound(statement, self._shell.user_ns))
            if result is not None and hasattr(result, "keep"):
                result.keep()
        if result is None:
            raise InputError("there is no statement", hint="%sql SELECT 1")
        if options["name"] is None:
            return result
        self._shell.user_ns[options["name"]] = result
        return None

    def _run(self, run: Callable[..., Any], text: str, values: Mapping[str, Any]) -> Any:
        # from a frame with the variables of the notebook, which statements may name as tables
        names = {"_ql_run": run, "_ql_text": text, "_ql_values": values or None}
        return eval("_ql_run(_ql_text, _ql_values)", self._shell.user_ns, names)

    def _lake(self, name: str | None) -> Any:
        variables = self._shell.user_ns
        if name is not None:
            found = variables.get(name)
            if not _is_lake(found):
                raise InputError(f'"{name}" is not an open lake', hint=nearest(name, _lakes(variables)))
            return found
        if _is_lake(variables.get("lake")):
            return variables["lake"]
        known = _lakes(variables)
        if len({id(variables[each]) for each in known}) != 1:
            hint = f"choose one: %sql --lake {known[0]} …" if known else 'lake = quacklake.connect("sqlite:///lake.db")'
            raise InputError("several variables are lakes" if known else "no variable is an open lake", hint=hint)
        return variables[known[0]]


# IPython would put the text of variables in the place of {name} before it calls the magic
Magic.sql._ipython_magic_no_var_expand = True  # type: ignore[attr-defined]


def _is_lake(value: Any) -> bool:
    return type(value).__module__.startswith("quacklake.") and callable(getattr(type(value), "sql", None))


def _lakes(variables: Mapping[str, Any]) -> list[str]:
    return [name for name, value in list(variables.items()) if not name.startswith("_") and _is_lake(value)]


@contextmanager
def _sign_of_life(shell: Any) -> Iterator[None]:
    """Say how long a statement has been running, and remove that at its end."""
    ended = threading.Event()
    begun = time.monotonic()

    def tell() -> None:
        if ended.wait(_DELAY):
            return
        shown = shell.display_pub
        while True:
            seconds = time.monotonic() - begun
            shown.publish({"text/plain": f"running for {seconds:.0f} s"})
            if ended.wait(_PERIOD):
                shown.clear_output(wait=False)
                return
            shown.clear_output(wait=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
