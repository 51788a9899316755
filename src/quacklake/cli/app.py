"""From the words on the command line to an exit code."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from quacklake import telemetry
from quacklake.cli.context import Context
from quacklake.cli.failures import report
from quacklake.cli.output import Output
from quacklake.cli.parser import build_parser
from quacklake.config import resolve
from quacklake.errors import CancelledError

__all__ = ["BROKEN_PIPE", "FAILED", "INTERRUPTED", "main"]

FAILED = 1
"""The exit code after an error. Wrong usage is 2, as ``argparse`` has it."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""
BROKEN_PIPE = 141
"""The exit code when whoever reads the output stops early, as ``head`` does: what a shell reports for SIGPIPE."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    _print_anything()
    with _CtrlC() as ctrl_c:
        try:
            arguments = build_parser().parse_args(argv)
            return _run(arguments, ctrl_c)
        except KeyboardInterrupt:
            return _interrupted()


def _run(arguments: argparse.Namespace, ctrl_c: _CtrlC) -> int:
    try:
        code = _execute(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # what is still buffered has nowhere to go, and the interpreter would complain about it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        if ctrl_c.pressed or isinstance(error, CancelledError):
            return _interrupted()
        report(error, json_wanted=arguments.output == "json", verbose=arguments.verbose > 0)
        return FAILED
    return code


def _interrupted() -> int:
    sys.stderr.write("interrupted\n")
    return INTERRUPTED


class _CtrlC:
    """Notes Ctrl-C, because the ``KeyboardInterrupt`` comes back from DuckDB as an error that does not say so."""

    pressed = False

    def __enter__(self) -> _CtrlC:
        self._ours = threading.current_thread() is threading.main_thread()
        if self._ours:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, self._before)


def _execute(arguments: argparse.Namespace) -> int:
    levels = (None, "info", "debug")
    flags = {
        "url": arguments.url,
        "data_path": arguments.data_path,
        "log_format": arguments.log_format,
        "log_level": levels[min(arguments.verbose, 2)],
    }
    config = resolve(flags, config_file=arguments.config)
    telemetry.configure_logging(config.log_level, config.log_format)
    return arguments.command.run(Context(arguments, config, Output(arguments.output))) or 0


def _print_anything() -> None:
    """Data may hold characters that the terminal's encoding lacks: show them escaped rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
