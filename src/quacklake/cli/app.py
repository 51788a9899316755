"""Run the command line, from its arguments to an exit code."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from importlib.abc import MetaPathFinder
from itertools import pairwise
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

import quacklake
from quacklake import telemetry
from quacklake.cli.commands import COMMANDS
from quacklake.cli.context import Context, Options
from quacklake.cli.entry import Entry
from quacklake.cli.failures import report, report_usage, warn_of_variables
from quacklake.cli.group import common_parameters, group_of, taking
from quacklake.cli.progress import waiting
from quacklake.errors import CancelledError

FAILED = 1
"""The exit code after an error. Wrong usage is 2."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""
BROKEN_PIPE = 141
"""The exit code when the reader of the output stops early, as ``head`` does: what a shell reports for SIGPIPE."""

_OWN_SCREEN = ("demo",)
"""Commands that show their own progress."""
_GARBAGE = 100_000
"""Objects created before the garbage collector runs: imported modules are no garbage."""
_HELP = "A lakehouse in the open DuckLake format: look into a lake, change it, keep it in shape."
_EPILOG = "Settings also come from the environment and from quacklake.toml: `quacklake config show`."


def run() -> NoReturn:
    """Run the program. It exits without tearing down every module, which takes as long as a small command."""
    gc.set_threshold(_GARBAGE)
    if not any(word in argument for argument in sys.argv for word in ("demo", "spark")):  # these may need pandas
        sys.meta_path.insert(0, _WithoutPandas())
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _print_anything()
    try:
        code = command_line().main(words, prog_name="quacklake", standalone_mode=False)
    except typer.TyperException as error:
        report_usage(error, json_wanted=_wants_json(words))
        return error.exit_code
    except typer.Abort:
        return _interrupted()
    return int(code or 0)


@cache
def command_line() -> Any:
    """Return the whole command line. Its commands are loaded when they are used."""

    def root(**_: Any) -> None:
        """What stands before the command is read from the context."""

    option = Annotated[bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)]
    version = inspect.Parameter("version", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option)
    taking([version, *common_parameters()], root)
    return group_of(Entry("quacklake", _HELP, commands=COMMANDS), _run, root=root, epilog=_EPILOG)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"quacklake {quacklake.__version__}\n")
        raise typer.Exit


def _run(function: Callable[..., int | None], ctx: typer.Context, values: Mapping[str, Any]) -> int:
    """Run a command, and report its errors. The caller reports wrong usage."""
    options = Options.of(ctx)
    with _CtrlC() as ctrl_c:
        try:
            context = Context(options)
            if function.__name__ != "doctor":  # doctor reports them itself
                warn_of_variables(json_wanted=options.output == "json")
                telemetry.configure_logging(context.config.log_level, context.config.log_format)
            with nullcontext() if function.__name__ in _OWN_SCREEN else waiting(f"{ctx.info_name}: working"):
                code = function(context, **values)
            sys.stdout.flush()
        except (KeyboardInterrupt, typer.Abort):
            return _interrupted()
        except BrokenPipeError:
            # buffered output has nowhere to go, and the interpreter would complain about it at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except (typer.TyperException, typer.Exit):
            raise
        except Exception as error:
            if ctrl_c.pressed or isinstance(error, CancelledError):
                return _interrupted()
            report(error, json_wanted=options.output == "json", debug=options.debug)
            return FAILED
    return code or 0


def _wants_json(words: Sequence[str]) -> bool:
    """Return True when JSON output was requested by arguments that could not be parsed."""
    asked = any(pair in (("--output", "json"), ("-o", "json")) for pair in pairwise(words))
    return asked or "--output=json" in words


def _interrupted() -> int:
    sys.stderr.write("interrupted\n")
    return INTERRUPTED


class _WithoutPandas(MetaPathFinder):
    """Hides pandas, which Arrow and DuckDB load only to rule out a pandas frame: a quarter of a command's time."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("no command needs pandas", name="pandas")


class _CtrlC:
    """Notes Ctrl-C, because DuckDB turns the ``KeyboardInterrupt`` into an error that does not mention it."""

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


def _print_anything() -> None:
    """Escape characters that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
