"""Print errors for people and programs on standard error, without a traceback and without passwords."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from quacklake import telemetry
from quacklake.config import redact, unknown_variables
from quacklake.config.resolver import TOLD
from quacklake.errors import InternalError, QuacklakeError, nearest

if TYPE_CHECKING:
    import typer

_TYPED = (
    ("use lake.transaction(message=…, author=…) or lake.signed(…)", "pass --message and --author"),
    ("lake.history.untag() removes the tag", "`quacklake tag NAME --delete` removes the tag"),
    ("lake.history.tags()", "`quacklake tag`"),
    ("tenants.list()", "`quacklake tenant list`"),
    ("quacklake.backups(…)", "`quacklake backups`"),
    ("hive_partitioning=False", "--no-hive-partitioning"),
    ("as_=", "--as"),
    ("catalog=", "--catalog"),
    ("data_path=", "--data-path"),
    ('on="id"', "--on id"),
)
"""The wording of hints in Python, and on the command line."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of errors: text, JSON, or a line of a JSON log.

    JSON has the code, message and hint; a line of a log has more.
    """

    is_json: bool = False
    is_log: bool = False

    @classmethod
    def of_words(cls, words: Sequence[str]) -> Form:
        """Return the form that a command line asks for which could not be parsed."""
        options = {
            first.partition("=")[0]: first.partition("=")[2] or second for first, second in pairwise([*words, ""])
        }
        is_json = "json" in (options.get("--output"), options.get("-o"))
        return cls(is_json, options.get("--log-format", os.environ.get("QUACKLAKE_LOG_FORMAT")) == "json")


def report(error: Exception, form: Form, *, debug: bool) -> None:
    """Print what went wrong and what to do about it; with ``debug`` also the traceback."""
    if debug and not form.is_log:
        sys.stderr.write(redact("".join(traceback.format_exception(error))))
    known = error
    if not isinstance(known, QuacklakeError):
        first = str(error).strip().partition("\n")[0]
        what = type(error).__name__ + (f": {first}" if first else "")
        known = InternalError(
            f"unexpected error: {what}", hint="run the command again with --debug to see the traceback"
        )
    hint = None if known.hint is None else as_typed(known.hint)
    if hint is not None and hint.startswith("did you mean") and "Did you mean" in known.message:
        hint = None  # DuckDB's message says so already
    _tell(known.code, known.message, hint, form, error if debug else None)


def report_failure(error: QuacklakeError, **context: object) -> None:
    """Write a line of a JSON log for a failure that a command goes on after."""
    hint = None if error.hint is None else as_typed(error.hint)
    _log(logging.ERROR, error.code, error.message, hint, None, **context)


@contextmanager
def log_failures_of_threads() -> Iterator[None]:
    """Write a line of a JSON log, in place of a traceback, for an error that ends a thread during the block."""

    def log(failure: threading.ExceptHookArgs) -> None:
        if isinstance(failure.exc_value, Exception):
            code = failure.exc_value.code if isinstance(failure.exc_value, QuacklakeError) else InternalError.code
            name = None if failure.thread is None else failure.thread.name
            _log(logging.ERROR, code, f"a thread ended: {failure.exc_value}", None, failure.exc_value, thread_name=name)

    before, threading.excepthook = threading.excepthook, log
    try:
        yield
    finally:
        threading.excepthook = before


def report_interrupt(form: Form) -> None:
    """Print that a command was interrupted."""
    if form.is_log:
        _log(logging.ERROR, "interrupted", "interrupted", None)
    else:
        sys.stderr.write("interrupted\n")


def as_typed(hint: str) -> str:
    """Return a hint in the words of the command line.

    >>> as_typed("lake.snapshots() lists those that exist"), as_typed("pass replace=True to move it")
    ('`quacklake snapshots` lists those that exist', 'pass --replace to move it')
    """
    for written, typed in _TYPED:
        hint = hint.replace(written, typed)
    hint = re.sub(r"\blake\.(\w+)\(\)", r"`quacklake \1`", hint)
    return re.sub(r"\b([a-z_]+)=True\b", lambda match: f"--{match[1].replace('_', '-')}", hint)


def report_usage(error: typer.TyperException, form: Form) -> None:
    """Print what is wrong with the arguments of a command, and where its help is."""
    message = error.format_message().rstrip(".")
    if not message:
        return  # the help has been printed already
    command = getattr(getattr(error, "ctx", None), "command_path", "quacklake")
    name = getattr(error, "option_name", None)
    meant = nearest(name, getattr(error, "possibilities", None) or ()) if name is not None else None
    if name is not None and message.startswith("No such option"):
        message = f"there is no option {name}"
    message, _, other = message.partition(". Did you mean ")
    if other:
        meant = f"did you mean {other.replace(chr(39), chr(34)).rstrip('?')}?"
    help_ = f"see `{command} --help`"
    hint = f"{meant} Or {help_}" if meant else help_
    _tell("usage", message[:1].lower() + message[1:], hint, form)


def take_unknown_variables() -> dict[str, str | None]:
    """Return the variables that look like settings but are not, to warn of them here.

    Whoever reads the settings does not log them then.
    """
    found = unknown_variables(os.environ)
    TOLD.update(found)
    return found


def warn_of_variables(unknown: Mapping[str, str | None], form: Form) -> None:
    """Warn about variables that are probably misspelt settings."""
    for name, meant in unknown.items():
        message = f"the variable {name} is not a setting and has no effect"
        if form.is_log:
            _log(logging.WARNING, "warning", message, meant)
        elif form.is_json:
            sys.stderr.write(json.dumps({"code": "warning", "message": message, "hint": meant}) + "\n")
        else:
            sys.stderr.write(f"warning: {message}\n" + (f"  hint: {meant}\n" if meant else ""))


def _log(
    level: int, code: str, message: str, hint: str | None, error: Exception | None = None, **context: object
) -> None:
    """Write a line of a JSON log, whatever the level of the log is and before it is set up."""
    logger = logging.getLogger("quacklake.cli")
    facts = {name: value for name, value in {"code": code, "hint": hint, **context}.items() if value is not None}
    trace = None if error is None else (type(error), error, error.__traceback__)
    record = logger.makeRecord(logger.name, level, "", 0, message, (), trace, extra=facts)
    sys.stderr.write(telemetry.format_json(record) + "\n")


def _tell(code: str, message: str, hint: str | None, form: Form, error: Exception | None = None) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    if form.is_log:
        _log(logging.ERROR, code, message, hint, error)
        return
    message = redact(message)
    hint = None if hint is None else redact(hint)
    if form.is_json:
        sys.stderr.write(json.dumps({"code": code, "message": message, "hint": hint}, ensure_ascii=False) + "\n")
        return
    sys.stderr.write(f"error: {message}\n")
    if hint is not None:
        sys.stderr.write(f"  hint: {hint}\n")
